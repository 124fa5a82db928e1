"""One job at a time in an output folder: two would number the same ledger segments.

Two locks, since neither is enough. The system's own lock is let go of with the process, however
that ends, but it is only seen by machines that share it. So a lease lies beside it, renewed by a
heartbeat. Whoever finds a lease of another machine watches it: a beat that moves is a job that
lives, one that stands still for long enough is a job that died. No two clocks are ever compared.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from catalog.errors import CatalogError, WriteFailedError, cut, one_line
from catalog.files import UnreadableFile, read_bounded, write_atomic
from jobs.errors import OutputBusyError, OutputLostError

_LOCK, _LEASE = ".lock", "lease.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST_LEASE_BYTES = 1 << 16
_LOOK_S = 0.5
_LEASE_KINDS = {"owner": str, "machine": str, "host": str, "pid": int, "beat": int}


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds an output, and the last sign of life."""

    owner: str
    machine: str
    """Machines that agree on it share the system's locks."""
    host: str
    pid: int
    beat: int


class OutputLock:
    """Holds an output folder between `with` and its end."""

    def __init__(
        self,
        out: Path,
        *,
        heartbeat_s: float = 5.0,
        stale_after_s: float = 30.0,
        machine: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out, self._folder = out, out / "ledger"
        self._heartbeat_s, self._stale_after_s = heartbeat_s, stale_after_s
        self._sleep, self._clock = sleep, clock
        self._lease = Lease(
            owner=uuid.uuid4().hex,
            machine=machine or this_machine(),
            host=socket.gethostname(),
            pid=os.getpid(),
            beat=0,
        )
        self._descriptor: int | None = None
        self._ended = threading.Event()
        self._lost_to: str | None = None
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Raises `OutputBusyError` while another job lives, `WriteFailedError`."""
        self._lock()
        try:
            self._wait_for_silence()
            self._write()
            # Another machine may have taken the same stale lease in the same moment.
            self.require_held(look=True)
        except OutputLostError as error:
            self._unlock()
            raise OutputBusyError(str(error)) from None
        except BaseException:
            self._unlock()
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        held = self._read()
        if held is not None and held.owner == self._lease.owner:
            (self._folder / _LEASE).unlink(missing_ok=True)
        self._unlock()

    def require_held(self, *, look: bool = False) -> None:
        """Raises `OutputLostError` once another job has taken the output over.

        It is known from the last heartbeat; `look` looks now.
        """
        if look:
            self._look()
        if self._lost_to is not None:
            raise OutputLostError(
                f"{self._out}: {self._lost_to} has taken it over; this job stops. What it had "
                "committed stands"
            )

    def _lock(self) -> None:
        path = self._folder / _LOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise WriteFailedError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise WriteFailedError(f"{path}: cannot be locked: {error.strerror}") from error
            raise self._busy(self._read()) from None
        self._descriptor = descriptor

    def _unlock(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _wait_for_silence(self) -> None:
        """A lease of this machine is a dead job's: its lock is ours. Another machine's is watched
        for as long as a living job would take to beat again."""
        found = self._read()
        if found is None or found.machine == self._lease.machine:
            return
        until = self._clock() + self._stale_after_s
        while self._clock() < until:
            self._sleep(_LOOK_S)
            now = self._read()
            if now is None:
                return
            if now != found:
                raise self._busy(now)

    def _busy(self, lease: Lease | None) -> OutputBusyError:
        who = f"job {lease.pid} on {lease.host}" if lease else "another job"
        return OutputBusyError(
            f"{self._out}: {who} is rendering into it; wait for that one, or use another --out"
        )

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat_s):
            self._look()
            if self._lost_to is not None:
                return
            self._lease = Lease(**{**asdict(self._lease), "beat": self._lease.beat + 1})
            try:
                self._write()
            except CatalogError:
                continue  # a full disk: the job finds out by itself, and the next beat tries again

    def _look(self) -> None:
        held = self._read()
        if held is not None and held.owner != self._lease.owner:
            self._lost_to = f"job {held.pid} on {held.host}"

    def _write(self) -> None:
        write_atomic(self._folder / _LEASE, json.dumps(asdict(self._lease)).encode() + b"\n")

    def _read(self) -> Lease | None:
        """The lease there is; None for none, and for one that says nothing."""
        try:
            data = read_bounded(self._folder / _LEASE, limit_bytes=_LARGEST_LEASE_BYTES)
            found = json.loads(data)
        except (UnreadableFile, ValueError, RecursionError):
            return None
        kinds = isinstance(found, dict) and {name: type(value) for name, value in found.items()}
        if kinds != _LEASE_KINDS:
            return None
        return Lease(**{**found, "host": one_line(cut(found["host"]))})


def this_machine() -> str:
    """The same for all that share this kernel, and with it the system's locks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()}-{uuid.getnode():x}"
