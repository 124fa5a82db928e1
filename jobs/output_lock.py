"""One job at a time in an output: two would number the same ledger segments.

Two locks, since neither is enough. The system's own lock is let go of with the process, however
that ends, but it is only seen by machines that share it. So a lease lies beside it, renewed by a
heartbeat. Whoever finds a lease of another machine watches it: a beat that moves is a job that
lives, one that stands still for long enough is a job that died. No two clocks are ever compared.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from catalog.errors import CatalogError
from jobs.errors import OutputBusyError, OutputLostError
from jobs.lease import Lease, LeasePlace, this_machine

_LOOK_S = 0.5


class OutputLock:
    """Holds an output between `with` and its end."""

    def __init__(
        self,
        place: LeasePlace,
        *,
        address: str,
        heartbeat_s: float = 5.0,
        stale_after_s: float = 30.0,
        machine: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address` is the output's, for people."""
        self._place, self._address = place, address
        self._heartbeat_s, self._stale_after_s = heartbeat_s, stale_after_s
        self._sleep, self._clock = sleep, clock
        self._lease = Lease(
            owner=uuid.uuid4().hex,
            machine=machine or this_machine(),
            host=socket.gethostname(),
            pid=os.getpid(),
            beat=0,
        )
        self._ended = threading.Event()
        self._lost_to: str | None = None
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Raises `OutputBusyError` while another job lives, and what the place raises."""
        if not self._place.lock():
            raise self._busy(self._place.read())
        try:
            self._wait_for_silence()
            if not self._place.write(self._lease):
                raise self._busy(self._place.read())
            # Another machine may have taken the same stale lease in the same moment.
            self._look()
            if self._lost_to is not None:
                raise self._busy(self._place.read())
        except BaseException:
            self._place.unlock()
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
        try:
            held = self._place.read()
            if held is not None and held.owner == self._lease.owner:
                self._place.remove()
        except CatalogError:
            pass  # what stays behind costs the next job its waiting time
        self._place.unlock()

    def require_held(self) -> None:
        """Raises `OutputLostError` once another job has taken the output over, as far as the last
        heartbeat could tell."""
        if self._lost_to is not None:
            raise OutputLostError(
                f"{self._address}: {self._lost_to} has taken it over; this job stops. What it had "
                "committed stands"
            )

    def _wait_for_silence(self) -> None:
        """A dead job's lease is free; any other is watched for as long as a living job would take
        to beat again."""
        found = self._place.read()
        if found is None or self._place.is_dead(found, self._lease.machine):
            return
        until = self._clock() + self._stale_after_s
        while self._clock() < until:
            self._sleep(_LOOK_S)
            now = self._place.read()
            if now is None:
                return
            if now != found:
                raise self._busy(now)

    def _busy(self, lease: Lease | None) -> OutputBusyError:
        who = f"job {lease.pid} on {lease.host}" if lease else "another job"
        return OutputBusyError(
            f"{self._address}: {who} is rendering into it; wait for that one, or use another --out"
        )

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat_s):
            try:
                self._look()
                if self._lost_to is not None:
                    return
                self._lease = replace(self._lease, beat=self._lease.beat + 1)
                if not self._place.write(self._lease):
                    self._look()
            except CatalogError:
                continue  # the job finds out by itself what is wrong; the next beat tries again

    def _look(self) -> None:
        held = self._place.read()
        if held is not None and held.owner != self._lease.owner:
            self._lost_to = f"job {held.pid} on {held.host}"
