"""Where the lease of an output lies: in its folder beside a lock of the system, or in its store."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from catalog.errors import WriteFailedError, cut, one_line
from catalog.files import UnreadableFile, read_bounded, write_atomic
from catalog.store import Store
from catalog.store_errors import ObjectMissingError

_LOCK, _LEASE = ".lock", "lease.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST_LEASE_BYTES = 1 << 16
_KINDS = {"owner": str, "machine": str, "host": str, "pid": int, "beat": int}


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds an output, and the last sign of life."""

    owner: str
    machine: str
    """Machines that agree on it share the system's locks and processes."""
    host: str
    pid: int
    beat: int

    def as_json(self) -> bytes:
        """What is written."""
        return json.dumps(asdict(self)).encode() + b"\n"


class LeasePlace(Protocol):
    """Keeps one lease."""

    def lock(self) -> bool:
        """Take the system's lock where there is one; False while another process has it."""

    def unlock(self) -> None:
        """Let go of it."""

    def is_dead(self, lease: Lease, machine: str) -> bool:
        """Whether it is certain, without watching, that whoever wrote a lease is gone."""

    def read(self) -> Lease | None:
        """The lease there is; None for none, and for one that says nothing."""

    def write(self, lease: Lease) -> bool:
        """Put a lease in place of the one last read or written; False where that has changed."""

    def remove(self) -> None:
        """Take away the one last read or written. What stays behind only costs time."""


class FolderLease:
    """In the `ledger` folder of an output."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "ledger"
        self._descriptor: int | None = None

    def lock(self) -> bool:
        """See `LeasePlace`. Raises `WriteFailedError`."""
        path = self._folder / _LOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise WriteFailedError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise WriteFailedError(f"{path}: cannot be locked: {error.strerror}") from error
        self._descriptor = descriptor
        return True

    def unlock(self) -> None:
        """See `LeasePlace`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_dead(self, lease: Lease, machine: str) -> bool:
        """One of this machine would have the lock that we have."""
        return lease.machine == machine

    def read(self) -> Lease | None:
        """See `LeasePlace`."""
        try:
            return _parsed(read_bounded(self._folder / _LEASE, limit_bytes=_LARGEST_LEASE_BYTES))
        except UnreadableFile:
            return None

    def write(self, lease: Lease) -> bool:
        """See `LeasePlace`. A folder has no condition to write under; who writes, looks again."""
        write_atomic(self._folder / _LEASE, lease.as_json())
        return True

    def remove(self) -> None:
        """See `LeasePlace`."""
        with suppress(OSError):
            (self._folder / _LEASE).unlink()


class StoreLease:
    """In a store, written under the condition that nobody else wrote meanwhile."""

    _KEY = f"ledger/{_LEASE}"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._etag: str | None = None

    def lock(self) -> bool:
        """There is none."""
        return True

    def unlock(self) -> None:
        """There is none."""

    def is_dead(self, lease: Lease, machine: str) -> bool:
        """Its process can be looked for on this machine; a number given anew is watched."""
        if lease.machine != machine:
            return False
        try:
            os.kill(lease.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # OverflowError: no process has such a number
            return False
        return False

    def read(self) -> Lease | None:
        """See `LeasePlace`."""
        try:
            stored = self._store.get(self._KEY)
        except ObjectMissingError:
            self._etag = None
            return None
        self._etag = stored.etag
        return _parsed(stored.data)

    def write(self, lease: Lease) -> bool:
        """See `LeasePlace`."""
        etag = self._store.compare_and_swap(self._KEY, lease.as_json(), self._etag)
        if etag is None:
            return False
        self._etag = etag
        return True

    def remove(self) -> None:
        """See `LeasePlace`."""
        self._store.delete(self._KEY)


def _parsed(data: bytes) -> Lease | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    kinds = isinstance(found, dict) and {name: type(value) for name, value in found.items()}
    if kinds != _KINDS:
        return None
    return Lease(**{**found, "host": one_line(cut(found["host"]))})


def this_machine() -> str:
    """The same for all that share this kernel, and with it the system's locks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()}-{uuid.getnode():x}"
