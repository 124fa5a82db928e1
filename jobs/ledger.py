"""The durable log of a job: what has been committed can be used again after any death.

A ledger is a folder of immutable segments. A segment appears whole or not at all (written beside
its place, synced, renamed) and is never touched again. Rows are committed windows, and renders
that finished or failed; later rows win over earlier ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from catalog.errors import CatalogError
from jobs.errors import OutputLostError
from jobs.output import Output
from jobs.segments import LedgerIdentity, Row, segment_bytes, segment_files, segment_name

Committed = Callable[[int, list[Row]], None]


class Ledger:
    """Appends rows to an output's segments. Not for two writers at once."""

    def __init__(
        self,
        output: Output,
        identity: LedgerIdentity,
        *,
        committed: Committed = lambda number, rows: None,
        flush_rows: int = 1024,
        flush_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`committed` is told the number and the rows of each segment once it is durable."""
        self._output, self._identity, self._committed = output, identity, committed
        self._flush_rows, self._flush_s, self._clock = flush_rows, flush_s, clock
        self._rows: list[Row] = []
        self._oldest = 0.0
        self._broken: CatalogError | None = None
        segments = segment_files(output.folder / "ledger")
        self._next = 1 + max((number for number, _ in segments), default=0)

    def append(self, row: Row) -> None:
        """Take a row; it is durable after the next flush."""
        if not self._rows:
            self._oldest = self._clock()
        self._rows.append(row)

    @property
    def is_due(self) -> bool:
        """Whether there are rows enough, or the oldest has waited long enough."""
        return bool(self._rows) and (
            len(self._rows) >= self._flush_rows or self._clock() - self._oldest >= self._flush_s
        )

    def flush(self) -> None:
        """Commit what has been taken as one segment.

        Raises `WriteFailedError`, now and whenever it is called again: whether such a segment is
        there after all only the next job can tell. Raises `OutputLostError` where a segment of
        that number is there, so that another job writes here too.
        """
        if self._broken is not None:
            raise self._broken
        if not self._rows:
            return
        data = segment_bytes(self._rows, self._identity)
        name = segment_name(self._next)
        try:
            is_ours = self._output.commit_segment(name, data)
        except CatalogError as error:
            self._broken = error
            raise
        if not is_ours:
            raise OutputLostError(
                f"{self._output.address}: another job has committed {name}; this one stops. "
                "Render again"
            )
        number, rows = self._next, self._rows
        self._next, self._rows = self._next + 1, []
        self._committed(number, rows)
