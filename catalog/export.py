"""Committed windows as token Parquet: ids are never written without the contract that minted them.

All parts are written beside their places and synced before the first is renamed: a source of rows
that fails, and a kill while they are written, leave the set that stood there. Only a kill between
two renames leaves parts of both, each whole; the next export puts that right. The bytes of a part
follow from its rows, the fingerprints and the version of pyarrow.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from catalog.errors import WriteFailedError, show
from catalog.export_errors import (
    TokenContractMismatchError,
    TokenPartLayoutError,
    TokenPartUnreadableError,
    TokenRowError,
)
from catalog.files import sync_folder
from catalog.parquet_pages import read_layout

FORMAT = "loudkit-batch-tokens-1"

# Row groups bound the memory of both sides, and end at the first limit reached. A million ids are
# a few MiB in the file and some 40 MiB as Python numbers.
GROUP_ROWS = 8192
GROUP_TOKENS = 2**20
_READ_ROWS = 256
_GROUP_VALUES = 4 * GROUP_TOKENS  # a group ends with the row that fills it, however long

_PART = re.compile(r"part-\d{5,}\.parquet")
_UNFINISHED = re.compile(r"\.part-\d{5,}\.parquet\.[0-9a-f]{12}\.tmp")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One window as it shipped: the ids are those of the token stream, after the cut."""

    voice: str
    passage: str
    chunk_index: int
    half: int
    """0 whole chunk, 1 and 2 the halves of a re-split chunk."""
    seed: int
    """The window's own, that of attempt 0."""
    text: str
    tokens: list[int] | tuple[int, ...]


def write_token_parts(
    folder: Path,
    rows: Iterator[TokenRow],
    *,
    algorithm_fingerprint: str,
    token_contract_fingerprint: str,
    pack_sha256: str,
    token_contract: str = "",
    rows_per_part: int = 100_000,
) -> int:
    """Make `folder` hold these rows and no others, as `part-00000.parquet`, ...; how many rows.

    `token_contract` is what the fingerprint was taken over: with it in the file, a reader under
    another contract can be told what differs, not only that something does.
    No rows give one part without rows: its contract still stands. Not for two writers at once.
    Raises TokenRowError naming a row that does not fit, WriteFailedError; then, and when `rows`
    itself raises, the parts that stood there before still stand.
    """
    if rows_per_part < 1:
        raise ValueError(f"rows_per_part: expected at least 1, got {rows_per_part}")
    schema = _schema().with_metadata(
        {
            "format": FORMAT,
            "algorithm_fingerprint": algorithm_fingerprint,
            "token_contract_fingerprint": token_contract_fingerprint,
            "pack_sha256": pack_sha256,
            **({"token_contract": token_contract} if token_contract else {}),
        }
    )
    with contextlib.ExitStack() as cleanup:
        parts: list[_Part] = []
        for group in chain([[]], _groups(rows, rows_per_part)):
            if not parts or parts[-1].rows == rows_per_part:
                if parts:
                    parts[-1].close()
                parts.append(_Part(folder, len(parts), schema))
                cleanup.callback(parts[-1].discard)
                parts[-1].open()
            parts[-1].add(group)
        parts[-1].close()
        _publish(folder, parts)
    return sum(part.rows for part in parts)


def read_token_part(path: Path, *, token_contract_fingerprint: str) -> Iterator[TokenRow]:
    """The rows of one part in order, a few hundred in memory; refused before the first is read.

    Raises TokenContractMismatchError naming both fingerprints, TokenPartLayoutError,
    TokenPartUnreadableError (also midway, at the first page that is not what was written).
    """
    with contextlib.closing(_batches(path, token_contract_fingerprint)) as batches:
        next(batches)
    return _rows(path, token_contract_fingerprint)


def read_token_metadata(path: Path) -> dict[str, str]:
    """What a part says of its own ids, before anybody believes it.

    Raises TokenPartUnreadableError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _require_file(path)
    try:
        read_layout(path)
        return _metadata(pq.read_schema(path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _schema() -> Any:
    """Explicit, for what pyarrow would infer depends on the rows of a batch."""
    import pyarrow as pa

    def column(name: str, kind: Any) -> Any:
        return pa.field(name, kind, nullable=False)

    return pa.schema(
        [
            column("voice", pa.string()),
            column("passage", pa.string()),
            column("chunk_index", pa.int32()),
            column("half", pa.int8()),
            column("seed", pa.uint64()),
            column("text", pa.string()),
            column("tokens", pa.list_(column("element", pa.int32()))),
        ]
    )


def _groups(rows: Iterator[TokenRow], rows_per_part: int) -> Iterator[list[TokenRow]]:
    """Rows by row group; a group never spans two parts."""
    group: list[TokenRow] = []
    in_part = in_group = 0
    for row in rows:
        group.append(row)
        in_part += 1
        in_group += len(row.tokens)
        if in_part == rows_per_part or len(group) == GROUP_ROWS or in_group >= GROUP_TOKENS:
            yield group
            in_part = 0 if in_part == rows_per_part else in_part
            group, in_group = [], 0
    if group:
        yield group


class _Part:
    """One part on its way: written under another name, in its place only after `publish`."""

    def __init__(self, folder: Path, number: int, schema: Any) -> None:
        self.path = folder / f"part-{number:05d}.parquet"
        self.rows = 0
        self._schema = schema
        self._unfinished = folder / f".{self.path.name}.{os.urandom(6).hex()}.tmp"

    def open(self) -> None:
        """Start the file, and make the folder when it is missing."""
        import pyarrow.parquet as pq

        with _told(self.path):
            self._unfinished.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._unfinished.open("xb")
            self._writer = pq.ParquetWriter(
                self._stream,
                self._schema,
                version="2.6",
                compression="zstd",
                # An id of the 28,672 of a SNAC stream takes 15 bits this way, 22 by zstd alone.
                use_dictionary=["voice", "passage", "tokens.list.element"],
                write_statistics=["voice", "passage", "chunk_index"],
                write_page_checksum=True,
            )

    def add(self, rows: list[TokenRow]) -> None:
        """Write one row group."""
        if rows:
            table = _table(rows, self._schema)
            with _told(self.path):
                self._writer.write_table(table, row_group_size=len(rows))
            self.rows += len(rows)

    def close(self) -> None:
        """Finish the file and make its bytes durable."""
        with _told(self.path):
            self._writer.close()
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()

    def publish(self) -> None:
        """Take the place of the part that stood there."""
        with _told(self.path):
            self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Leave nothing unfinished behind; nothing to do once published."""
        with contextlib.suppress(Exception):  # it may not even be open
            self._writer.close()
        with contextlib.suppress(Exception):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._unfinished.unlink()


def _publish(folder: Path, parts: list[_Part]) -> None:
    """Every part into its place, then away with what is not of this set."""
    for part in parts:
        part.publish()
    ours = {part.path for part in parts}
    with _told(folder):
        sync_folder(folder)
        for path in sorted(folder.iterdir()):
            if path not in ours and (
                _PART.fullmatch(path.name) or _UNFINISHED.fullmatch(path.name)
            ):
                path.unlink()
        sync_folder(folder)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise WriteFailedError(f"{path}: cannot be written: {reason or error}") from error


def _table(rows: list[TokenRow], schema: Any) -> Any:
    import pyarrow as pa

    try:
        columns = [
            pa.array([getattr(row, field.name) for row in rows], type=field.type)
            for field in schema
        ]
        if any(column.null_count for column in (*columns, columns[-1].flatten())):
            raise ValueError("a value is missing")
        return pa.Table.from_arrays(columns, schema=schema)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(rows) > 1:
            for row in rows:
                _table([row], schema)
        where = show(f"{rows[0].voice}/{rows[0].passage}")
        raise TokenRowError(
            f"tokens of {where}, chunk {rows[0].chunk_index}: "
            f"do not fit the columns: {_first_line(error)}"
        ) from None


def _rows(path: Path, fingerprint: str) -> Iterator[TokenRow]:
    for batch in _batches(path, fingerprint):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield TokenRow(*values)


def _batches(path: Path, fingerprint: str) -> Generator[Any, None, None]:
    """Record batches of a part that has been checked; an empty one first, after the checks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _require_file(path)
    try:
        rows = read_layout(path).rows_at_once(None, most=_READ_ROWS, most_values=_GROUP_VALUES)
        with pq.ParquetFile(
            path, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True
        ) as file:
            _check(file.schema_arrow, fingerprint, path)
            yield from chain([pa.RecordBatch.from_pylist([], _schema())], _read(file, rows))
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names not UTF-8
        raise _unreadable(path, error) from None


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise TokenPartUnreadableError(f"{path}: no such file; expected a part of token Parquet")


def _unreadable(path: Path, error: Exception) -> TokenPartUnreadableError:
    return TokenPartUnreadableError(
        f"{path}: torn, or not a Parquet file: {_first_line(error)}; export the tokens again"
    )


def _read(file: Any, rows: int) -> Iterator[Any]:
    # The footer's columns are left alone: pyarrow 26 aborts the process on some damaged ones.
    missing = announced = file.metadata.num_rows
    for batch in file.iter_batches(batch_size=rows, use_threads=False):
        batch.validate(full=True)
        missing -= len(batch)
        yield batch
    if missing:  # page headers have no checksum, and a damaged one ends a column in silence
        raise ValueError(f"{announced} rows announced, {missing} of them missing")


def _check(schema: Any, fingerprint: str, path: Path) -> None:
    """That the file says what its ids mean, that it is what we expect, and has our columns."""
    found = _metadata(schema)
    minted_under = found.get("token_contract_fingerprint")
    if minted_under != fingerprint:
        told = f"token contract {minted_under}" if minted_under else "no token contract it names"
        raise TokenContractMismatchError(
            f"{path}: its ids were minted under {told}, expected token contract {fingerprint}; "
            "export the tokens again with the pack that reads them"
        )
    if found.get("format") != FORMAT:
        raise TokenPartLayoutError(
            f"{path}: expected format {FORMAT}, got {found.get('format', 'none')}"
        )
    if not schema.equals(_schema()):
        raise TokenPartLayoutError(
            f"{path}: expected the columns of {FORMAT}, got {', '.join(schema.names[:20])}"
        )


def _metadata(schema: Any) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
