"""Faults at file operations: the n-th one under a folder fails, or is the last thing that happens.

Operations are counted where the product meets the system: opening for writing, writing, syncing,
renaming, linking, removing, making folders. Python reports the first and the last four by audit
events, which a hook may refuse; writing and syncing are wrapped.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_WATCHED = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

Fault = Callable[[str], None]


class FileOperations:
    """Counts the operations under a folder and calls `fault` at the n-th; 0 for never."""

    def __init__(self, folder: Path, *, at: int = 0, fault: Fault | None = None) -> None:
        self._folder, self._at, self._fault = str(folder), at, fault
        self.seen: list[str] = []

    def note(self, what: str, path: object) -> None:
        """An operation is about to happen."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
        if not name.startswith(self._folder):
            return
        self.seen.append(f"{what} {Path(name).name}")
        if len(self.seen) == self._at and self._fault is not None:
            self._fault(self.seen[-1])


_watching: FileOperations | None = None
_is_hooked = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is None:
        return
    if event in _WATCHED:
        _watching.note(event, arguments[0])
    elif event == "open" and isinstance(flags := arguments[2], int) and flags & _WRITES:
        _watching.note("open", arguments[0])


class _Writer(io.FileIO):
    """A file whose writes are counted; a fault in the middle leaves half of the data."""

    def write(self, data: Any) -> int:
        path = os.readlink(f"/proc/self/fd/{self.fileno()}")
        half = len(data) // 2
        if _watching is not None and half:
            super().write(memoryview(data)[:half])
            _watching.note("write", path)
            super().write(memoryview(data)[half:])
        else:
            super().write(data)
        return len(data)


@contextmanager
def watched(operations: FileOperations, patch: pytest.MonkeyPatch) -> Iterator[FileOperations]:
    """Counts, and injects, between `with` and its end."""
    global _watching, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_audit)
        _is_hooked = True
    real_sync = os.fsync

    def fsync(descriptor: int) -> None:
        operations.note("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
        real_sync(descriptor)

    def fdopen(descriptor: int, mode: str = "r", *given: Any, **named: Any) -> Any:
        if mode != "wb":
            return os.fdopen(descriptor, mode, *given, **named)
        return io.BufferedWriter(_Writer(descriptor, "wb"))

    with patch.context() as patched:
        patched.setattr("os.fsync", fsync)
        patched.setattr("catalog.files.os.fdopen", fdopen)
        _watching = operations
        try:
            yield operations
        finally:
            _watching = None


def disk_full(what: str) -> None:
    """No room is left."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_only(what: str) -> None:
    """The folder may not be written to."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def killed(what: str) -> None:
    """As SIGKILL leaves it: nothing is cleaned up."""
    os._exit(137)
