"""A corpus of passages in Parquet: two columns, any number of rows, a few batches in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.errors import CorpusError, show
from catalog.names import folded, name_fault

if TYPE_CHECKING:
    import numpy as np

BATCH_ROWS = 1024
_DIGEST_BYTES = 16


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
            for offset, (name, text) in enumerate(zip(ids, texts, strict=True)):
                self._check(name, row + offset)
                yield name, text
            row += len(ids)

    def ids(self) -> Iterator[str]:
        """The id of every row, without reading a text."""
        row = 0
        for batch in self._batches([self.id_column]):
            names = self._strings(batch, self.id_column, row)
            for offset, name in enumerate(names):
                self._check(name, row + offset)
                yield name
            row += len(names)

    def refuse(self, message: object) -> CorpusError:
        """The error of this corpus."""
        return CorpusError(f"{self.where}: {message}")

    def _check(self, name: str, row: int) -> None:
        if fault := name_fault(name):
            raise self.refuse(f"row {row}: {self.id_column}: {fault}, got {show(name)}")

    def _strings(self, batch: Any, column: str, row: int) -> list[str]:
        values = batch.column(column)
        if values.null_count:
            index = values.is_null().index(True).as_py()
            raise self.refuse(f"row {row + index}: {column} is null; expected a string")
        try:
            strings: list[str] = values.to_pylist()
        except UnicodeDecodeError as error:
            raise self.refuse(
                f"rows {row} to {row + len(values) - 1}: {column} is not UTF-8: {error}"
            ) from None
        return strings

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        # Imported here: a catalog without a corpus must answer without pyarrow.
        import pyarrow as pa
        import pyarrow.parquet as pq

        if "://" in str(self.path) or not self.path.is_file():
            raise self.refuse("no such file; expected a Parquet file on a local disk")
        try:
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=2**20) as file:
                for column in columns:
                    self._check_column(file.schema_arrow, column)
                yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
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

    def add(self, name: str) -> None:
        self._digests += blake2b(folded(name).encode(), digest_size=_DIGEST_BYTES).digest()

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
