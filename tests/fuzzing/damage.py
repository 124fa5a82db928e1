"""What can befall a file: bits, ends, ranges, lengths. One seed gives one damage, everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

_LENGTHS = (-1, 0, 1, 2**15, 2**28, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**62, 2**63 - 1)
"""What a size field never holds in a small file."""

_LARGEST = 2 * 2**20
"""Damage makes no file larger than this."""

_TEXTS = [
    *("\t", "\n", "- ", "? ", ": ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "!x ", "<<: *a"),
    *("|", ">-", "---\n", "...\n", "%YAML 1.2\n", "'", '"', "\\", "\0", "\x85", "\u2028", "\ufeff"),
    *("null", "~", "true", "0x", "1e999", "1e-999", ".nan", "NaN", "Infinity", "-1", "-0", "0.5"),
    *(str(2**64), "9" * 500, "9" * 5000, "../", "/", "..", "\\ud800", "\\u0000", "\x1b[2J"),
    *(
        "é",
        "e\u0301",
        "ß",
        "\U0001f600",
        "{}",
        "[]",
        "{told}",
        "%s",
        "[[[[",
        '{"a":' * 4,
        ",",
        ",,",
    ),
]

Damage = Callable[[bytes, Random, Sequence[bytes]], bytes]


def damaged(data: bytes, rng: Random, others: Sequence[bytes], *, text: bool = False) -> bytes:
    """The data after one to four misfortunes; `others` are files that pieces are taken from."""
    kinds = _OF_ANY + (_OF_TEXT if text else _OF_BINARY)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        data = rng.choice(kinds)(data, rng, others)[:_LARGEST]
    return data


def _place(data: bytes, rng: Random) -> int:
    """Anywhere, but half the time near an end: headers and footers say how the rest is read."""
    size = len(data)
    edge = min(size, 1 << rng.randrange(2, 12))
    return rng.choice(
        (
            rng.randint(0, size),
            rng.randint(0, size),
            rng.randint(0, edge),
            size - rng.randint(0, edge),
        )
    )


def _range(data: bytes, rng: Random) -> tuple[int, int]:
    start = _place(data, rng)
    longest = max(len(data) - start, 0)
    return start, start + min(longest, rng.randint(0, 1 << rng.randrange(1, 14)))


def _flip_bits(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    flipped = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        if flipped:
            flipped[min(_place(data, rng), len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _set_bytes(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    start, end = _range(data, rng)
    fill = rng.choice((b"\0", b"\xff", b"\x80", b"\x7f", rng.randbytes(1)))
    return data[:start] + fill * (end - start) + data[end:]


def _truncate(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[: _place(data, rng)] if rng.random() < 0.8 else data[_place(data, rng) :]


def _splice(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A piece of another file, over what stood here, in between, or to the end."""
    other = rng.choice(others) if others else data
    start, end = _range(other, rng)
    # Often the same place there and here: the two may agree on how the rest is laid out.
    at = min(start, len(data)) if rng.random() < 0.5 else _place(data, rng)
    kept = rng.choice((at, at + end - start, len(data)))
    piece = other[start:] if rng.random() < 0.2 else other[start:end]
    return data[:at] + piece + data[kept:]


def _duplicate(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    start, end = _range(data, rng)
    times = rng.choice((1, 1, 2, 64, 1024))
    return data[:end] + data[start:end] * times + data[end:]


def _delete(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    start, end = _range(data, rng)
    return data[:start] + data[end:]


def _exchange(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """Two ranges of one length change places."""
    (a, end), b = _range(data, rng), _place(data, rng)
    a, b = min(a, b), max(a, b)
    size = min(end - a, b - a, len(data) - b) if end > a else 0
    return (
        data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]
    )


def _write_length(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A huge number where a size may stand: fixed in both orders, or a varint, zigzag or not."""
    value, start = rng.choice(_LENGTHS), _place(data, rng)
    if rng.random() < 0.7:
        width = rng.choice((1, 2, 4, 8))
        start -= start % rng.choice((1, width))
        raw = (value & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))
    else:
        raw = _varint(value & (2**64 - 1) if rng.random() < 0.5 else (abs(value) << 1))
    end = start + len(raw) * rng.choice((0, 1, 1, 1))
    return data[:start] + raw + data[end:]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _insert_text(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    start, end = _range(data, rng)
    piece = rng.choice(_TEXTS).encode("utf-8", "surrogatepass")
    times = rng.choice((1, 1, 1, 1, 2, 40, 20_000))
    return data[:start] + piece * times + data[rng.choice((start, start, end)) :]


def _move_line(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A line from here or from another file to another place, with another indent."""
    lines = rng.choice((data, *others)).splitlines(keepends=True) or [b"\n"]
    at = rng.randrange(len(lines))
    taken = lines[at : at + rng.choice((1, 1, 2, 8))]
    indent = rng.choice((b"", b"", b" ", b"  ", b"- ", b"    "))
    own = data.splitlines(keepends=True)
    to = rng.randint(0, len(own))
    return b"".join((*own[:to], *(indent + line for line in taken), *own[to:]))


_OF_ANY: tuple[Damage, ...] = (_flip_bits, _truncate, _splice, _duplicate, _delete, _exchange)
_OF_BINARY: tuple[Damage, ...] = (_flip_bits, _set_bytes, _write_length, _write_length)
_OF_TEXT: tuple[Damage, ...] = (_insert_text, _insert_text, _insert_text, _move_line, _move_line)
