"""A corpus of passages in Parquet: two columns, any number of rows, a few batches in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.errors import CorpusError, show
from catalog.names import folded, name_fault
from catalog.parquet_pages import read_layout
from catalog.text_files import MAX_TEXT_BYTES

if TYPE_CHECKING:
    import numpy as np

BATCH_ROWS = 1024
_DIGEST_BYTES = 16
_FIRST_LOOK = 1 << 16


@dataclass(frozen=True, slots=True)
class Corpus:
    """One Parquet source; `where` is its place in the catalog and opens every refusal."""

    path: Path
    id_column: str
    text_column: str
    where: str

    def rows(self) -> Iterator[tuple[str, str]]:
        """(id, text) of every row in file order. Raises CorpusError naming the row, from 0."""
        columns = list(dict.fromkeys((self.id_column, self.text_column)))
        row = 0
        for batch in self._batches(columns):
            ids = self._strings(batch, self.id_column, row)
            texts = self._strings(batch, self.text_column, row)
            for at, (name, text) in enumerate(zip(ids, texts, strict=True), start=row):
                self._check(name, at)
                yield name, text
            row += batch.num_rows

    def ids(self) -> Iterator[str]:
        """The id of every row, without reading a text."""
        row = 0
        for batch in self._batches([self.id_column]):
            for at, name in enumerate(self._strings(batch, self.id_column, row), start=row):
                self._check(name, at)
                yield name
            row += batch.num_rows

    def refuse(self, message: object) -> CorpusError:
        """The error of this corpus."""
        return CorpusError(f"{self.where}: {message}")

    def _check(self, name: str, row: int) -> None:
        if fault := name_fault(name):
            raise self.refuse(f"row {row}: {self.id_column}: {fault}, got {show(name)}")

    def _strings(self, batch: Any, column: str, row: int) -> Iterable[str]:
        import pyarrow as pa

        values = batch.column(column)
        if values.null_count:
            index = values.is_null().index(True).as_py()
            raise self.refuse(f"row {row + index}: {column} is null; expected a string")
        try:
            if values.nbytes > MAX_TEXT_BYTES:
                return self._long_strings(values, column, row)
            strings: list[str] = values.to_pylist()
        except UnicodeDecodeError as error:
            where = f"rows {row} to {row + len(values) - 1}"
            raise self.refuse(f"{where}: {column} is not UTF-8: {error}") from None
        except pa.ArrowException as error:  # an entry that its dictionary does not have
            raise self.refuse(f"{column} cannot be read: {error}") from None
        return strings

    def _long_strings(self, values: Any, column: str, row: int) -> Iterator[str]:
        """One at a time, for all of them at once would be held twice, and none without end."""
        for at, value in enumerate(values, start=row):
            size = getattr(value, "value", value).as_buffer().size
            if size > MAX_TEXT_BYTES:
                told = f"{column} has {size:,} bytes; expected at most {MAX_TEXT_BYTES:,}"
                raise self.refuse(f"row {at}: {told}")
            try:
                yield value.as_py()
            except UnicodeDecodeError as error:
                raise self.refuse(f"row {at}: {column} is not UTF-8: {error}") from None

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        # Imported here: a catalog without a corpus must answer without pyarrow.
        import pyarrow as pa
        import pyarrow.parquet as pq

        if "://" in str(self.path) or not self.path.is_file():
            raise self.refuse("no such file; expected a Parquet file on a local disk")
        try:
            layout = read_layout(self.path)
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=2**20) as file:
                for column in columns:
                    self._check_column(file.schema_arrow, column)
                rows = layout.rows_at_once(columns, most=BATCH_ROWS)
                yield from file.iter_batches(batch_size=rows, columns=columns)
        except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names not UTF-8
            raise self.refuse(f"not a readable Parquet file: {error}") from None

    def _check_column(self, schema: Any, column: str) -> None:
        import pyarrow.types as kinds

        found = schema.get_all_field_indices(column)
        if len(found) != 1:
            how = "no column" if not found else f"{len(found)} columns"
            names = ", ".join(schema.names[:20])
            raise self.refuse(f'{how} "{column}"; expected one of that name among: {names}')
        kind = schema.field(found[0]).type
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        if not any(is_text(kind) for is_text in (kinds.is_string, kinds.is_large_string, _is_view)):
            raise self.refuse(f'column "{column}" holds {kind}, expected string')


def _is_view(kind: Any) -> bool:
    return str(kind) == "string_view"


class IdDigests:
    """Finds ids that collide among millions, in 16 bytes each (more while it sorts them)."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._look_at = _FIRST_LOOK * _DIGEST_BYTES

    def add(self, name: str) -> bool:
        """Take the next id; whether it is time to look for a collision before there are twice as
        many, so that one word a thousand million times is not read to its end."""
        self._digests += blake2b(folded(name).encode(), digest_size=_DIGEST_BYTES).digest()
        if len(self._digests) < self._look_at:
            return False
        self._look_at *= 2
        return True

    def __len__(self) -> int:
        return len(self._digests) // _DIGEST_BYTES

    def first_collision(self) -> tuple[int, int] | None:
        """Positions of the earliest id that repeats one before it, and of that one, in order."""
        import numpy as np

        halves: np.ndarray[Any, np.dtype[np.uint64]] = np.frombuffer(
            self._digests, dtype=np.uint64
        ).reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: equal ids stay in file order
        ranked = halves[order]
        again = np.flatnonzero((ranked[1:] == ranked[:-1]).all(axis=1))
        if not len(again):
            return None
        earliest = again[np.argmin(order[again + 1])]
        return int(order[earliest]), int(order[earliest + 1])
