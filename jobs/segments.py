"""Ledger segments: immutable Arrow files, read as a whole or a row at a time.

A segment that cannot be read, that is foreign, or in which a row is not the row that was
committed, is refused by its name: skipping it would lose work in silence.
"""

from __future__ import annotations

import json
import re
import stat
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.arrow_batches import has_packed_batches
from jobs.errors import LedgerError

FORMAT = "loudkit-batch-ledger-3"
SEGMENT_NAME = re.compile(r"segment-(\d{8})\.arrow")
REPLACED = "replaced"
"""Code of a `failed` row that takes a finished one back: its clip is about to be written over."""
_OPEN_AT_MOST = 64

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),  # window | finished | failed
        ("content_key", pa.string()),
        ("render_key", pa.string()),
        ("worker", pa.string()),
        ("execution", pa.string()),  # digest of the execution identity
        ("at", pa.string()),  # UTC
        ("crc32", pa.uint32()),  # over every other column of the row
        # a window; a failed render has the place where it stopped
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
        ("waveform", pa.string()),  # as `catalog.records` has it; null where none was taken
        ("execution_facts", pa.string()),  # JSON
        # a failed render
        ("code", pa.string()),
        ("message", pa.string()),
        ("retryable", pa.bool_()),
    ]
)
_OF_ALL = ("content_key", "render_key", "worker", "execution", "at")
_NEEDED = {
    "window": (
        *_OF_ALL,
        *("chunk_index", "half", "attempt", "attempts", "seed", "text", "prefix", "tokens"),
        *("keep", "reason", "suspect", "n_generated", "hit_cap", "hit_window", "ended"),
    ),
    "finished": (
        *_OF_ALL,
        *("audio", "audio_sha256", "audio_bytes", "pcm_sha256", "samples", "execution_facts"),
    ),
    "failed": (*_OF_ALL, "code", "message", "retryable"),
}

READ_FORMATS = {
    FORMAT: SCHEMA,
    "loudkit-batch-ledger-2": pa.schema([each for each in SCHEMA if each.name != "waveform"]),
}
"""The formats that are read; the first is written. A ledger keeps the segments it has and goes on
in the newest format: of a column that a segment lacks its rows have nothing, and their checksums
are over the columns that it has."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerIdentity:
    """What a segment's rows were made under; its schema carries it."""

    pack_sha256: str
    algorithm_fingerprint: str
    token_contract_fingerprint: str
    plan_digest: str

    def metadata(self) -> dict[str, str]:
        """The schema's metadata."""
        return {
            "format": FORMAT,
            "pack_sha256": self.pack_sha256,
            "algorithm_fingerprint": self.algorithm_fingerprint,
            "token_contract_fingerprint": self.token_contract_fingerprint,
            "plan_digest": self.plan_digest,
        }


def row_crc32(row: Row, columns: Iterable[str] = SCHEMA.names) -> int:
    """A checksum over what a row says; Arrow has none, and a flipped token would be believed."""
    said = [row.get(name) for name in columns if name != "crc32"]
    return zlib.crc32(json.dumps(said, separators=(",", ":")).encode())


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return f"segment-{number:08d}.arrow"


def segment_bytes(rows: list[Row], identity: LedgerIdentity) -> bytes:
    """Rows as one segment file."""
    schema = SCHEMA.with_metadata(identity.metadata())
    table = pa.Table.from_pylist([{**row, "crc32": row_crc32(row)} for row in rows], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def segment_files(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a ledger with their numbers, in the order they were committed.

    Raises `LedgerError` where something of such a name is no file: a pipe would be waited for.
    """
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            return []
        matches = ((SEGMENT_NAME.fullmatch(path.name), path) for path in folder.iterdir())
        found = sorted((int(match[1]), path) for match, path in matches if match)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LedgerError(f"{folder}: cannot be read: {error.strerror}") from error
    for _, path in found:
        if not path.is_file():
            raise LedgerError(f"{path}: is no file; move it away to go on without it")
    return found


def read_rows(folder: Path) -> Iterator[Row]:
    """Every row of a ledger, oldest first, whichever pack it was made under.

    Raises `LedgerError` naming a segment that is torn, altered, or no segment of this format.
    """
    for _, path in segment_files(folder):
        yield from segment_rows(path)


def segment_rows(path: Path) -> Iterator[Row]:
    """The rows of one segment. Raises `LedgerError`."""
    batch = _batch(path)
    for at in range(batch.num_rows):
        yield _row(path, batch, at)


class SegmentReader:
    """Rows by segment and place, from files that are mapped and not read in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches: OrderedDict[int, pa.RecordBatch] = OrderedDict()

    def row(self, segment: int, at: int) -> Row:
        """One row. Raises `LedgerError`."""
        path = self._folder / segment_name(segment)
        batch = self._batches.get(segment)
        if batch is None:
            batch = self._batches[segment] = _batch(path)
            if len(self._batches) > _OPEN_AT_MOST:
                self._batches.popitem(last=False)
        else:
            self._batches.move_to_end(segment)
        if at >= batch.num_rows:
            raise LedgerError(f"{path}: has {batch.num_rows} rows, row {at} is missing")
        return _row(path, batch, at)


def _row(path: Path, batch: pa.RecordBatch, at: int) -> Row:
    columns = batch.schema.names
    row: Row = dict.fromkeys(SCHEMA.names)
    with _refused_by_name(path):
        for name, column in zip(columns, batch.columns, strict=True):
            row[name] = column[at].as_py()
    if row.pop("crc32") != row_crc32(row, columns):
        raise LedgerError(
            f"{path}: row {at} is not what was committed; move the file away to go on without it"
        )
    if missing := _missing_in(row):
        raise LedgerError(f"{path}: row {at} {missing}; move the file away to go on without it")
    return row


def _missing_in(row: Row) -> str:
    """What a row should have and does not, though it is what was committed: by whom, then?"""
    needed = _NEEDED.get(row["kind"])
    if needed is None:
        return f"is a {row['kind']!r:.40}, expected one of {', '.join(_NEEDED)}"
    lacking = [name for name in needed if row[name] is None]
    lacking += [name for name in ("prefix", "tokens") if None in (row[name] or ())]
    return f"has no {lacking[0]}" if lacking else ""


def _batch(path: Path) -> pa.RecordBatch:
    """A segment's rows as one validated batch over the mapped file."""
    with _refused_by_name(path):
        file = pa.memory_map(str(path))
        if has_packed_batches(memoryview(file.read_buffer())):
            raise LedgerError(
                f"{path}: holds a packed batch, a segment holds none; move it away to go on "
                "without it"
            )
        reader = pa.ipc.open_file(file)
        metadata = {
            key.decode(): value.decode() for key, value in (reader.schema.metadata or {}).items()
        }
        schema = READ_FORMATS.get(metadata.get("format", ""))
        if schema is None or not reader.schema.equals(schema):
            raise LedgerError(
                f"{path}: is not a segment of {FORMAT}; move it away to go on without it"
            )
        if reader.num_record_batches != 1:
            raise LedgerError(
                f"{path}: holds {reader.num_record_batches} batches, a segment holds one"
            )
        batch = reader.get_batch(0)
        batch.validate(full=True)
        return batch


@contextmanager
def _refused_by_name(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LedgerError(
            f"{path}: is torn or not an Arrow file ({said}); move it away to go on without it"
        ) from error
