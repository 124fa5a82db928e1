"""The durable log of a job: what has been committed can be used again after any death.

A ledger is a folder of immutable Arrow segments. A segment appears whole or not at all (written
beside its place, synced, renamed) and is never touched again. Rows are committed windows, and
renders that finished or failed; later rows win over earlier ones. A segment that cannot be read,
or that another pack wrote, is refused by its name: skipping it would lose work in silence.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.files import write_atomic
from jobs.errors import LedgerError

FORMAT = "loudkit-batch-ledger-1"
_SEGMENT = re.compile(r"segment-(\d{8})\.arrow")

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),  # window | finished | failed
        ("content_key", pa.string()),
        ("render_key", pa.string()),
        ("worker", pa.string()),
        ("execution", pa.string()),  # digest of the execution identity
        ("at", pa.string()),  # UTC
        # a window
        ("chunk_index", pa.int32()),
        ("half", pa.int8()),
        ("attempt", pa.int8()),
        ("attempts", pa.int8()),
        ("seed", pa.uint64()),
        ("text", pa.string()),
        ("prefix", pa.list_(pa.int32())),
        ("tokens", pa.list_(pa.int32())),
        ("keep", pa.int32()),
        ("reason", pa.string()),
        ("suspect", pa.bool_()),
        ("n_generated", pa.int32()),
        ("hit_cap", pa.bool_()),
        ("hit_window", pa.bool_()),
        ("ended", pa.bool_()),
        # a finished render
        ("audio", pa.string()),  # path below the output folder
        ("audio_sha256", pa.string()),
        ("audio_bytes", pa.int64()),
        ("pcm_sha256", pa.string()),
        ("samples", pa.int64()),
        ("peak_dbfs", pa.float64()),
        ("clipped_share", pa.float64()),
        ("execution_facts", pa.string()),  # JSON
        # a failed render
        ("code", pa.string()),
        ("message", pa.string()),
        ("retryable", pa.bool_()),
    ]
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerIdentity:
    """What a ledger's rows were made under; another pack's rows are not ours to read."""

    pack_sha256: str
    algorithm_fingerprint: str
    token_contract_fingerprint: str

    def metadata(self) -> dict[str, str]:
        """What a segment's schema carries."""
        return {
            "format": FORMAT,
            "pack_sha256": self.pack_sha256,
            "algorithm_fingerprint": self.algorithm_fingerprint,
            "token_contract_fingerprint": self.token_contract_fingerprint,
        }


class Ledger:
    """Appends rows to a folder of segments. Not for two writers at once."""

    def __init__(
        self,
        folder: Path,
        identity: LedgerIdentity,
        *,
        flush_rows: int = 512,
        flush_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._identity = folder, identity
        self._flush_rows, self._flush_s, self._clock = flush_rows, flush_s, clock
        self._rows: list[Row] = []
        self._oldest = 0.0
        self._next = 1 + max((number for number, _ in segment_files(folder)), default=0)

    def append(self, row: Row) -> None:
        """Take a row; it is durable after the next flush."""
        if not self._rows:
            self._oldest = self._clock()
        self._rows.append(row)

    def flush_if_due(self) -> bool:
        """Flush when there are rows enough or the oldest waited long enough; whether it did."""
        due = bool(self._rows) and (
            len(self._rows) >= self._flush_rows or self._clock() - self._oldest >= self._flush_s
        )
        if due:
            self.flush()
        return due

    def flush(self) -> None:
        """Commit what has been taken as one segment."""
        if not self._rows:
            return
        schema = SCHEMA.with_metadata(self._identity.metadata())
        table = pa.Table.from_pylist(self._rows, schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(table)
        name = f"segment-{self._next:08d}.arrow"
        write_atomic(self._folder / name, sink.getvalue().to_pybytes())
        self._next += 1
        self._rows.clear()


def segment_files(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a ledger with their numbers, in the order they were committed."""
    if not folder.is_dir():
        return []
    matches = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def read_rows(folder: Path, *, columns: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Every row of a ledger, oldest first, whichever pack it was made under.

    Raises `LedgerError` naming a segment that is
    torn, is no ledger segment or has another layout.
    """
    for _, path in segment_files(folder):
        yield from _segment_rows(path, columns)


def _segment_rows(path: Path, columns: tuple[str, ...] | None) -> Iterator[Row]:
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            metadata = {
                key.decode(): value.decode()
                for key, value in (reader.schema.metadata or {}).items()
            }
            if metadata.get("format") != FORMAT or not reader.schema.equals(SCHEMA):
                raise LedgerError(
                    f"{path}: is not a segment of {FORMAT}; move it away to go on without it"
                )
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                batch.validate(full=True)
                chosen = batch.select(list(columns)) if columns else batch
                yield from chosen.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LedgerError(
            f"{path}: is torn or not an Arrow file ({said}); move it away to go on without it"
        ) from error
