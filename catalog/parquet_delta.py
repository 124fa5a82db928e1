"""The lengths in pages of delta-encoded strings, counted before pyarrow makes room for them.

Such a page holds the lengths of its strings in front, packed so well that twenty bytes may stand
for two thousand million of them; pyarrow unpacks them all. They are held against the number of
values that the header of the page announces.
"""

from __future__ import annotations

from catalog.thrift_compact import Reader

DELTA_LENGTHS, DELTA_STRINGS = 6, 7
"""The encodings' numbers: strings behind their lengths, and those that share prefixes as well."""

MAX_VALUES = 1 << 24
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


def unpacked(data: bytes, codec: int, size: int) -> bytes:
    """A page's bytes before they were packed. Raises ValueError, and what pyarrow does."""
    import pyarrow as pa

    if codec == 0:
        return data
    if codec not in _CODECS:
        raise ValueError(f"delta-encoded strings in compression {codec}; write them with zstd")
    found: bytes = pa.decompress(data, size, codec=_CODECS[codec], asbytes=True)
    return found


def require_lengths(data: bytes, encoding: int, values: int, levels: int) -> None:
    """Raises ValueError when there are more lengths than values.

    `levels` tells how many runs of levels, each behind its size, stand before the lengths.
    """
    at = 0
    for _ in range(levels):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    if values > MAX_VALUES:
        raise ValueError(f"a page of {values} strings; expected at most {MAX_VALUES}")
    for _ in range(2 if encoding == DELTA_STRINGS else 1):
        at = _end_of_lengths(data, at, values)


def _end_of_lengths(data: bytes, at: int, most: int) -> int:
    reader = Reader(data, at)
    block, parts, left = reader.varint(), reader.varint(), reader.varint()
    reader.varint()  # the first length
    if left > most:
        raise ValueError(f"{left} lengths of strings in a page of {most} values")
    if not parts or not block or block % (32 * parts):
        raise ValueError(f"lengths in blocks of {block}, {parts} parts each")
    left -= 1
    while left > 0:
        reader.varint()  # the smallest difference of the block
        for width in reader.take(parts):
            if left > 0:
                reader.take(block // parts * width // 8)
                left -= block // parts
    return reader.at
