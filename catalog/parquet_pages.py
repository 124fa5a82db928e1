"""What a Parquet file says of its own sizes, held against the file before anybody allocates by it.

pyarrow believes its headers: for a page that announces two gigabytes it makes room for them, and a
few bytes may stand for as many repeats of a long word as a header likes. So the footer, and the
headers of all pages that are going to be read, are looked at first; the pages themselves are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from catalog.parquet_delta import DELTA_LENGTHS, DELTA_STRINGS, require_lengths, unpacked
from catalog.thrift_compact import Reader, Struct, Torn

MAX_FOOTER_BYTES = 64 * 2**20
MAX_PAGE_BYTES = 96 * 2**20
"""Of a page, unpacked. Writers aim at one MiB; pyarrow makes pages of 1,024 texts, however long."""

MAX_BATCH_BYTES = 128 * 2**20
_MAX_NESTING = 32
_MAGIC = b"PAR1"
_HEADER_BYTES = 1 << 12
_MAX_HEADER_BYTES = 1 << 24
_SLACK_BYTES = 100  # old writers left the header of a dictionary out of a column's size
_REQUIRED, _REPEATED = 0, 2
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3


class Leaf(NamedTuple):
    """A column of values; its name is dotted where it is part of another."""

    name: str
    is_optional: bool
    is_repeated: bool

    def belongs_to(self, columns: list[str]) -> bool:
        """Whether it is read with one of these columns, by pyarrow's rule for their names."""
        return any(f"{self.name}.".startswith(f"{column}.") for column in columns)


class Chunk(NamedTuple):
    """The pages of one column in one row group."""

    leaf: Leaf
    rows: int
    values: int
    start: int
    end: int
    codec: int


class Page(NamedTuple):
    """A page as its header describes it."""

    values: int
    longest: int
    """Bytes that a value has at most: all of a dictionary's, the mean of a plain page's."""

    encoding: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the pages of a file are said to lie; the sizes of the columns fit the file."""

    path: Path
    chunks: tuple[Chunk, ...]

    def rows_at_once(
        self, columns: list[str] | None, *, most: int, most_values: int = 2**62
    ) -> int:
        """How many rows of those columns may be read at once, up to `most`; None for all columns.

        `most_values` is for the values of lists in one row group. Raises ValueError for pages
        that are not in the file as their headers say, or that are too large to be unpacked.
        """
        longest = 1
        with self.path.open("rb", buffering=0) as file:
            for chunk in self.chunks:
                if columns is not None and not chunk.leaf.belongs_to(columns):
                    continue
                if chunk.values > most_values:
                    raise ValueError(f"a row group of {chunk.values} values in lists")
                for page in _pages(file, chunk):
                    longest = max(longest, page.longest)
        return max(1, min(most, MAX_BATCH_BYTES // longest))


def read_layout(path: Path) -> Layout:
    """The footer of a file. Raises ValueError for one that does not fit the file, and OSError."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        footer, data_end = _footer(file, size)
    leaves = _leaves(_items(footer, 2))
    groups = _items(footer, 4)
    chunks = [chunk for group in groups for chunk in _chunks(group, leaves, data_end)]
    rows = sum(_size(group, 3) for group in groups)
    if rows != _size(footer, 3):
        raise ValueError(f"{_size(footer, 3)} rows announced, {rows} in the row groups")
    return Layout(path, tuple(chunks))


def _footer(file: BinaryIO, size: int) -> tuple[Struct, int]:
    """The footer, and where the pages end."""
    tail = os.pread(file.fileno(), 8, max(size - 8, 0))
    if size < 12 or tail[4:] != _MAGIC:
        raise ValueError("it does not end as Parquet does")
    length = int.from_bytes(tail[:4], "little")
    if length > min(size - 12, MAX_FOOTER_BYTES):
        raise ValueError(f"a footer of {length} bytes in a file of {size}")
    data_end = size - 8 - length
    return Reader(os.pread(file.fileno(), length, data_end)).struct(), data_end


def _leaves(schema: list[Any]) -> list[Leaf]:
    """The columns of values in order, of a schema that is a tree in preorder."""
    if not schema:
        raise ValueError("no schema")
    leaves: list[Leaf] = []
    left = [_size(schema[0], 5)]  # children to come, of every open group
    names: list[Leaf] = [Leaf("", False, False)]
    for element in schema[1:]:
        while left and not left[-1]:
            left.pop()
            names.pop()
        if not left or len(left) > _MAX_NESTING:
            raise ValueError("its schema is no tree, or one that is nested too deep")
        left[-1] -= 1
        name = element.get(4) if isinstance(element, dict) else None
        if not isinstance(name, bytes):
            raise ValueError("a column without a name")
        above, repetition = names[-1], _size(element, 3, _REQUIRED)
        leaf = Leaf(
            ".".join(filter(None, (above.name, name.decode("utf-8", "replace")))),
            above.is_optional or repetition != _REQUIRED,
            above.is_repeated or repetition == _REPEATED,
        )
        if children := _size(element, 5, 0):
            left.append(children)
            names.append(leaf)
        else:
            leaves.append(leaf)
    if any(left):
        raise ValueError("its schema ends too early")
    return leaves


def _chunks(group: Any, leaves: list[Leaf], data_end: int) -> Iterator[Chunk]:
    """The columns of a row group, in the order of the schema's."""
    columns, rows = _items(group, 1), _size(group, 3)
    if len(columns) != len(leaves):
        raise ValueError(f"a row group of {len(columns)} columns, the schema has {len(leaves)}")
    for leaf, column in zip(leaves, columns, strict=True):
        meta = column.get(3) if isinstance(column, dict) else None
        start, values = _size(meta, 9), _size(meta, 5)
        if 0 < (dictionary := _size(meta, 11, 0)) < start:
            start = dictionary
        end = start + _size(meta, 7)
        if end > data_end or (values and start < len(_MAGIC)):  # no values, no pages
            raise ValueError(f"column {leaf.name!r} has no such place in the file")
        if not leaf.is_repeated and values != rows:
            raise ValueError(f"column {leaf.name!r} has {values} values in {rows} rows")
        end = min(end + _SLACK_BYTES, data_end)
        yield Chunk(leaf, rows, values, start, end, _size(meta, 4))


def _pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column in a row group, by their headers."""
    at, values = chunk.start, 0
    while values < chunk.values:
        header, at = _header(file, at, chunk.end)
        packed, size = _size(header, 3), _size(header, 2)
        if at + packed > chunk.end:
            raise ValueError(f"a page of {packed} bytes reaches beyond its column")
        if size > MAX_PAGE_BYTES:
            raise ValueError(
                f"a page of {size} bytes; expected at most {MAX_PAGE_BYTES}, "
                "write the file with smaller pages (pyarrow: write_batch_size=64)"
            )
        page = _page(header, packed, size)
        if page.encoding in (DELTA_LENGTHS, DELTA_STRINGS):
            _require_lengths(os.pread(file.fileno(), packed, at), page, header, chunk)
        values += page.values
        at += packed
        yield page
    if values != chunk.values:
        raise ValueError(f"{chunk.values} values announced, {values} in the pages")


def _require_lengths(data: bytes, page: Page, header: Struct, chunk: Chunk) -> None:
    """That a page of delta-encoded strings has no more lengths than strings."""
    size, levels = _size(header, 2), 0
    if _size(header, 1) == _DATA:
        levels = chunk.leaf.is_optional + chunk.leaf.is_repeated
        data = unpacked(data, chunk.codec, size)
    else:
        skipped = _size(header[8], 5) + _size(header[8], 6)
        codec = chunk.codec if header[8].get(7, True) else 0
        data = unpacked(data[skipped:], codec, size - skipped)
    require_lengths(data, page.encoding, page.values, levels)


def _page(header: Struct, packed: int, size: int) -> Page:
    kind = _size(header, 1)
    if kind == _DICTIONARY:
        # Every entry has a length, or is a number of four bytes or more.
        if _size(header.get(7), 1) * 4 > size:
            raise ValueError("a dictionary of more entries than bytes")
        return Page(0, size, 0)
    if kind not in (_DATA, _DATA_2):
        return Page(0, 1, 0)
    told = header.get(5 if kind == _DATA else 8)
    values, encoding = _size(told, 1), _size(told, 2 if kind == _DATA else 4)
    if kind == _DATA_2 and _size(told, 5) + _size(told, 6) > min(packed, size):
        raise ValueError("levels of more bytes than their page")
    # An entry of this encoding may repeat all that the one before it was.
    longest = size if encoding == DELTA_STRINGS else size // max(values, 1)
    return Page(values, longest, encoding)


def _header(file: BinaryIO, at: int, end: int) -> tuple[Struct, int]:
    """A page header and where it ends."""
    size = _HEADER_BYTES
    while True:
        data = os.pread(file.fileno(), max(min(size, end - at), 0), at)
        reader = Reader(data)
        try:
            return reader.struct(), at + reader.at
        except Torn:
            if len(data) < size or size >= _MAX_HEADER_BYTES:
                raise
            size *= 8


def _items(fields: Any, number: int) -> list[Any]:
    """A list of a struct."""
    found = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"a header lacks its list {number}")
    return found


def _size(fields: Any, number: int, default: int | None = None) -> int:
    """A count or a place of a struct: no header has one below zero."""
    found = fields.get(number, default) if isinstance(fields, dict) else None
    if not isinstance(found, int) or found < 0:
        raise ValueError(f"a header lacks its number {number}")
    return found
