"""Files that are what was written or as good as missing, and marks by which a file is known again.

The ledger's index is kept in the one, and its segments are held against the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_PIECE_BYTES = 1 << 20
_SEAL_BYTES = hashlib.sha256().digest_size


class Mark(NamedTuple):
    """What a file is known by."""

    bytes: int
    mtime_ns: int
    crc32: int

    @property
    def content(self) -> tuple[int, int]:
        """The part of it that a copy of the file has, too."""
        return self.bytes, self.crc32


def mark_of(path: Path, known: Mark | None = None) -> Mark:
    """The mark of a file; it is not read when its size or its time already tell. Raises OSError."""
    found = path.stat()
    if known is not None:
        if (found.st_size, found.st_mtime_ns) == (known.bytes, known.mtime_ns):
            return known
        if found.st_size != known.bytes:
            return Mark(found.st_size, found.st_mtime_ns, -1)
    crc32 = 0
    with path.open("rb") as file:
        for piece in _pieces(file, found.st_size):
            crc32 = zlib.crc32(piece, crc32)
    return Mark(found.st_size, found.st_mtime_ns, crc32)


def put_sealed(path: Path, sealed: Path) -> bool:
    """Put a copy of a file with its checksum behind it at `sealed`; whether that worked.

    Nothing is synced: what a power cut leaves of it does not have its checksum.
    """
    unfinished = sealed.with_name(f".{sealed.name}.tmp")
    digest = hashlib.sha256()
    try:
        with path.open("rb") as source, unfinished.open("wb") as target:
            for piece in _pieces(source, os.fstat(source.fileno()).st_size):
                digest.update(piece)
                target.write(piece)
            target.write(digest.digest())
        unfinished.replace(sealed)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        return False
    return True


def copy_unsealed(sealed: Path, copy: Path) -> bool:
    """Copy what was sealed to `copy`; if it is not all there, unaltered, there is no copy.

    Raises OSError where the copy cannot be written.
    """
    if not sealed.is_file():
        return False
    digest = hashlib.sha256()
    with sealed.open("rb") as source, copy.open("wb") as target:
        size = os.fstat(source.fileno()).st_size - _SEAL_BYTES
        for piece in _pieces(source, size):
            digest.update(piece)
            target.write(piece)
        is_whole = size >= 0 and source.read(_SEAL_BYTES + 1) == digest.digest()
    if not is_whole:
        copy.unlink()
    return is_whole


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The next `size` bytes of a file, or as many as there are."""
    while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
        yield piece
        size -= len(piece)
