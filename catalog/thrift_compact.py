"""Thrift's compact protocol, read into plain values: what Parquet writes its headers in.

Nothing is believed: a count is held against the bytes that are left before anything is made of
it, and nesting has an end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 16
"""Levels of structs and lists; Parquet's headers have seven."""

_INTEGER_BITS = {3: 8, 4: 16, 5: 32, 6: 64}
_TRUE, _FALSE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 7, 8, 9, 10, 11, 12

Struct = dict[int, Any]
"""Values by field number."""


class Torn(ValueError):
    """The bytes end before the value does."""


class Reader:
    """Reads values one behind the other; `at` is the place of the next."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at
        self._depth = 0
        self._read: dict[int, Callable[[], Any]] = {
            **{kind: self._integer(bits) for kind, bits in _INTEGER_BITS.items()},
            _DOUBLE: lambda: struct.unpack("<d", self.take(8))[0],
            _BINARY: lambda: self.take(self.varint()),
            _LIST: self._list,
            _SET: self._list,
            _MAP: self._map,
            _STRUCT: self.struct,
        }

    def struct(self) -> Struct:
        """The fields of a struct. Raises ValueError, `Torn` when there are too few bytes."""
        fields: Struct = {}
        number = 0
        self._enter()
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag(16)
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        if kind not in self._read:
            raise ValueError(f"type {kind} is none of Thrift's")
        return self._read[kind]()

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")

    def _list(self) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self.varint()
        return self._items(head & 15, count)

    def _items(self, kind: int, count: int) -> list[Any]:
        if count > len(self._data) - self.at:
            raise Torn(f"{count} items announced, {len(self._data) - self.at} bytes left")
        if kind in (_TRUE, _FALSE):
            return [byte == _TRUE for byte in self.take(count)]
        self._enter()
        items = [self._value(kind) for _ in range(count)]
        self._depth -= 1
        return items

    def _map(self) -> dict[int, Any]:
        """Its pairs by their positions: no header of Parquet has a map."""
        count = self.varint()
        kinds = self._byte() if count else 0
        pairs = {}
        for position in range(min(count, len(self._data))):
            pairs[position] = (*self._items(kinds >> 4, 1), *self._items(kinds & 15, 1))
        return pairs

    def _integer(self, bits: int) -> Callable[[], int]:
        if bits == 8:
            return lambda: int.from_bytes(self.take(1), signed=True)
        return lambda: self._zigzag(bits)

    def _zigzag(self, bits: int) -> int:
        value = self.varint()
        if value >> bits:
            raise ValueError(f"a number of more than {bits} bits")
        return value >> 1 ^ -(value & 1)

    def varint(self) -> int:
        """A number of up to 64 bits, seven in a byte."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise Torn("the bytes end too early")
        self.at += 1
        return self._data[self.at - 1]

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > len(self._data) - self.at:
            raise Torn(f"{count} bytes announced, {len(self._data) - self.at} left")
        self.at += count
        return self._data[self.at - count : self.at]
