"""A store in a folder: an object is a file, its key the path to it, its etag the content's sha256.

Everything that changes what stands under a key does so by one rename, link or removal, under one
lock of the system, which machines share as far as their file system shares it. Only the change
itself and a comparison before it hold the lock, never the writing of large contents.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import NoReturn

from catalog.errors import WriteFailedError
from catalog.files import (
    sync_folder,
    write_atomic,
    write_atomic_stream,
    write_new,
    write_new_stream,
)
from catalog.store import (
    CHUNK_BYTES,
    Content,
    ObjectFacts,
    Stored,
    content_chunks,
    is_key,
    require_key,
    require_list_prefix,
)
from catalog.store_errors import (
    ObjectMissingError,
    StoreAddressError,
    StoreDeniedError,
    StoreRefusedError,
)

_LOCK = ".store-lock"
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)


class FolderStore:
    """`Store` in the folder `root`, which is made with the first object.

    What is not a regular file under a key's name, such as a pipe, is no object. Listings do not
    follow links, so that a circle of them ends.
    """

    def __init__(self, root: Path) -> None:
        if os.path.exists(root) and not os.path.isdir(root):
            raise StoreAddressError(f"{root}: is a file, expected a folder")
        self._root = root

    def __repr__(self) -> str:
        return f"FolderStore({self.address!r})"

    @property
    def address(self) -> str:
        """The folder."""
        return str(self._root)

    def exists(self, key: str) -> bool:
        """As `Store.exists`; nothing is read."""
        with self._opened(key) as stream:
            return stream is not None

    def stat(self, key: str) -> ObjectFacts | None:
        """As `Store.stat`; the file is read for its etag."""
        with self._opened(key) as stream:
            if stream is None:
                return None
            etag = _sha256(stream)
            modified_at_s = os.fstat(stream.fileno()).st_mtime
            return ObjectFacts(key, stream.tell(), etag, modified_at_s)

    def get(self, key: str) -> Stored:
        """As `Store.get`."""
        with self._opened(key) as stream:
            if stream is None:
                raise self._missing(key)
            data = stream.read()
        return Stored(data, hashlib.sha256(data).hexdigest())

    def get_to(self, key: str, path: Path) -> None:
        """As `Store.get_to`."""
        with self._opened(key) as stream:
            if stream is None:
                raise self._missing(key)
            write_atomic_stream(path, iter(partial(stream.read, CHUNK_BYTES), b""))

    def put(self, key: str, content: Content) -> None:
        """As `Store.put`, durable when it returns."""
        write_atomic_stream(self._path(key), content_chunks(content), publishing=self._locked())

    def put_new(self, key: str, content: Content) -> bool:
        """As `Store.put_new`, durable when it returns."""
        path = self._path(key)
        if os.path.isdir(path):
            raise WriteFailedError(f"{path}: cannot be written: is a folder of other keys")
        return write_new_stream(path, content_chunks(content), publishing=self._locked())

    def compare_and_swap(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        """As `Store.compare_and_swap`, durable when it returns; the object is read for it."""
        path = self._path(key)
        etag = hashlib.sha256(data).hexdigest()
        try:
            with self._locked():
                if expected_etag is None:
                    return etag if write_new(path, data) else None
                with self._opened(key) as stream:
                    if stream is None or _sha256(stream) != expected_etag:
                        return None
                write_atomic(path, data)
        except OSError as error:
            raise WriteFailedError(f"{path}: cannot be written: {error.strerror}") from error
        return etag

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        """As `Store.list`; a file is read when its etag is asked for."""
        require_list_prefix(prefix)
        folder, slash, _ = prefix.rpartition("/")
        return self._walk(folder + slash, prefix)

    def delete(self, key: str) -> None:
        """As `Store.delete`, durable when it returns; emptied folders stay."""
        path = self._path(key)
        try:
            if not path.is_file():
                return
            with self._locked():
                path.unlink(missing_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            raise WriteFailedError(f"{path}: cannot be deleted: {error.strerror}") from error

    def _path(self, key: str) -> Path:
        require_key(key)
        return self._root / key

    def _missing(self, key: str) -> ObjectMissingError:
        return ObjectMissingError(f"{self.address}: there is no object {key}")

    @contextmanager
    def _opened(self, key: str) -> Iterator[BufferedReader | None]:
        """The file of a key, one version of it whatever is put meanwhile; None for no object."""
        descriptor = _open_regular(self._path(key))
        if descriptor is None:
            yield None
        else:
            with os.fdopen(descriptor, "rb") as stream:
                yield stream

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all who change something here."""
        self._root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectFacts]:
        """The objects below `folder`, which is empty or ends with a slash, sorted as they go.

        A folder is sorted with its slash: `a-b` comes before `a/b`, as it does among whole keys.
        """
        try:
            with os.scandir(self._root / folder) as entries:
                names = sorted(_listed_name(entry) for entry in entries)
        except OSError as error:
            if error.errno not in _NOTHING_THERE:
                _refuse(self._root / folder, error)
            return
        for name in names:
            key = folder + name
            if not key.startswith(prefix):
                continue
            if name.endswith("/"):
                yield from self._walk(key, prefix)
            elif is_key(key) and (found := _regular(self._root / key)) is not None:
                yield ObjectFacts(key, found.st_size, self._etag_source(key), found.st_mtime)

    def _etag_source(self, key: str) -> Callable[[], str]:
        def read() -> str:
            with self._opened(key) as stream:
                if stream is None:
                    raise self._missing(key)
                return _sha256(stream)

        return read


def _open_regular(path: Path) -> int | None:
    """A descriptor to read a regular file with; None where there is none."""
    try:
        # A pipe without a writer would block.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno not in _NOTHING_THERE:
            _refuse(path, error)
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _listed_name(entry: os.DirEntry[str]) -> str:
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _regular(path: Path) -> os.stat_result | None:
    """None for what is not a regular file, or has gone since its folder was read."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _sha256(stream: BufferedReader) -> str:
    return hashlib.file_digest(stream, "sha256").hexdigest()


def _refuse(path: Path, error: OSError) -> NoReturn:
    if error.errno in (errno.EACCES, errno.EPERM):
        raise StoreDeniedError(f"{path}: permission denied; give the folder to this user") from None
    raise StoreRefusedError(
        f"{path}: cannot be read: {error.strerror}", status=0, server_code="", after_failures=0
    ) from None
