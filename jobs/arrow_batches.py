"""Whether an Arrow file unpacks into more than it holds, told from its own headers.

Arrow makes room for what a packed buffer announces, and a kilobyte may announce a gigabyte. What
we write is never packed. Only the few fields on the way to that answer are read here, from the
flatbuffers that Arrow's headers are; that they are in order is Arrow's to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as OutOfBounds
from struct import unpack_from
from typing import Any

_END = b"ARROW1"
_BLOCK_BYTES = 24
_FOOTER_BATCHES, _MESSAGE_HEADER, _BATCH_COMPRESSION = 3, 2, 3


def has_packed_batches(data: Any) -> bool:
    """Whether one of the file's record batches is packed. Raises ValueError for no such file."""
    try:
        return any(
            _field(data, _reference(data, message, _MESSAGE_HEADER), _BATCH_COMPRESSION)
            for message in _messages(data)
        )
    except OutOfBounds as error:
        raise ValueError(f"its headers are torn: {error}") from None


def _messages(data: Any) -> Iterator[int]:
    """Where the headers of the record batches are, by the footer."""
    end = len(data) - len(_END) - 4
    if end < 0 or bytes(data[end + 4 :]) != _END:
        raise ValueError("it does not end as Arrow does")
    [length] = unpack_from("<i", data, end)
    if not 0 < length <= end:
        raise ValueError(f"a footer of {length} bytes in a file of {len(data)}")
    footer = end - length
    batches = _reference(data, _root(data, footer), _FOOTER_BATCHES)
    [count] = unpack_from("<I", data, batches)
    if count * _BLOCK_BYTES > end - batches:
        raise ValueError(f"{count} batches announced, more than the file holds")
    for number in range(count):
        [offset] = unpack_from("<q", data, batches + 4 + number * _BLOCK_BYTES)
        yield _root(data, offset + 8)  # behind the mark of a message and its length


def _root(data: Any, at: int) -> int:
    [offset] = unpack_from("<I", data, at)
    return at + int(offset)


def _reference(data: Any, table: int, number: int) -> int:
    """What a field of a table points to."""
    at = _field(data, table, number)
    if not at:
        raise ValueError(f"a header lacks its field {number}")
    return _root(data, at)


def _field(data: Any, table: int, number: int) -> int:
    """Where a field of a table is, or 0 when it is not given."""
    [back] = unpack_from("<i", data, table)
    [size] = unpack_from("<H", data, table - back)
    if 4 + 2 * number >= size:
        return 0
    [offset] = unpack_from("<H", data, table - back + 4 + 2 * number)
    return table + int(offset) if offset else 0
