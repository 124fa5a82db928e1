"""Looking at an output without touching it: its ledger where it lies, or a copy of a store's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.history import History
from jobs.output import FolderOutput, open_output


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """An output's ledger in a local folder, and how large its clips are."""

    folder: Path
    size_of: Callable[[str], int | None]

    def history(self) -> History:
        """What the ledger knows. Raises `LedgerError`."""
        return History(self.folder, size_of=self.size_of)


@contextmanager
def read_output(place: str, *, endpoint_url: str | None) -> Iterator[ReadOutput]:
    """A folder as it is, or a store through a copy of its ledger that is thrown away.

    The copy is not the job's own mirror, which a running job is writing to.
    """
    if "://" not in place:
        output = FolderOutput(Path(place))
        yield ReadOutput(output.folder, output.size_of)
        return
    with tempfile.TemporaryDirectory(prefix="loudkit-batch-") as scratch:
        # Nothing is written, so it does not matter whether the server minds conditions.
        store = open_output(
            place, mirrors=Path(scratch), endpoint_url=endpoint_url, unconditional=True
        )
        store.prepare([])
        yield ReadOutput(store.folder, store.size_of)
