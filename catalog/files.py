"""Reading with a bound, and writing so that a file is either the old one or the whole new one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from catalog.errors import WriteFailedError

_TEMPORARY = ".tmp-"


class UnreadableFile(Exception):
    """Why a file cannot be read; `missing` when there is nothing at that path."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing = missing


def read_bounded(path: Path, *, limit_bytes: int) -> bytes:
    """The bytes of a regular file of at most `limit_bytes`; a pipe or a device never blocks us."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableFile("is a folder, expected a file")
        if not stat.S_ISREG(mode):
            raise UnreadableFile("is not a regular file")
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableFile("no such file", missing=True) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise UnreadableFile(f"cannot be read: {reason or error}") from None
    if len(data) > limit_bytes:
        raise UnreadableFile(f"is larger than the {limit_bytes:,} bytes allowed here")
    return data


def utf8_text(data: bytes) -> str:
    """The text, without a byte order mark; `UnreadableFile` names line and byte of what is not."""
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        skipped = len(data) - len(error.object)
        offset = error.start + skipped
        line = data.count(b"\n", 0, offset) + 1
        raise UnreadableFile(
            f"byte 0x{data[offset]:02x} at offset {offset} (line {line}) is not UTF-8; "
            "save the file as UTF-8"
        ) from None


def write_atomic(path: Path, data: bytes, *, sync_parent: bool = True) -> None:
    """Put `data` at `path`, whole and durable, or leave what was there."""
    write_atomic_stream(path, (data,), sync_parent=sync_parent)


def write_atomic_stream(
    path: Path,
    chunks: Iterable[bytes],
    *,
    sync_parent: bool = True,
    publishing: AbstractContextManager[None] | None = None,
) -> None:
    """Put all of `chunks` at `path`, whole and durable, or leave what was there.

    A temporary sibling is written and synced, renamed over the target, and the folder synced, so a
    kill or a power cut at any moment leaves one of the two versions. Missing folders are made.
    Without `sync_parent` a power cut may undo the renaming until `sync_folder` was called. The
    renaming alone happens inside `publishing`, such as a lock.
    Raises WriteFailedError; then, and when `chunks` itself raises, no temporary sibling remains.
    """
    with (
        _written_beside(path, chunks, sync_parent=sync_parent) as temporary,
        publishing or nullcontext(),
    ):
        temporary.replace(path)


def write_new(path: Path, data: bytes) -> bool:
    """As `write_atomic`, but only where nothing is there; whether it was put there."""
    return write_new_stream(path, (data,))


def write_new_stream(
    path: Path,
    chunks: Iterable[bytes],
    *,
    publishing: AbstractContextManager[None] | None = None,
) -> bool:
    """As `write_atomic_stream`, but only where nothing is there; whether it was put there."""
    with _written_beside(path, chunks) as temporary, publishing or nullcontext():
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            # Some network and FUSE file systems have no links; a look has to do there.
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            if path.exists():
                return False
            temporary.replace(path)
    return True


@contextmanager
def _written_beside(
    path: Path, chunks: Iterable[bytes], *, sync_parent: bool = True
) -> Iterator[Path]:
    """A synced sibling of `path` with all of `chunks`, to be renamed; gone when this ends."""
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_synced(temporary, chunks)
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if sync_parent:
            _sync_folder(path.parent)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise WriteFailedError(f"{path}: cannot be written: {reason or error}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove what a kill left of unfinished writes in a folder; for whoever alone writes there."""
    if not folder.is_dir():
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(_TEMPORARY):
                    Path(entry.path).unlink(missing_ok=True)
    except OSError as error:
        raise WriteFailedError(f"{folder}: cannot be cleared: {error.strerror}") from error


def _write_synced(path: Path, chunks: Iterable[bytes]) -> None:
    # 0o666 less the umask: what is published must be readable by more than its writer.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as stream:
        stream.writelines(chunks)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Make the renames and removals in a folder durable. Raises WriteFailedError."""
    try:
        _sync_folder(folder)
    except OSError as error:
        raise WriteFailedError(f"{folder}: cannot be synced: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # a folder cannot be opened there, and the rename is durable without it
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a folder at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
