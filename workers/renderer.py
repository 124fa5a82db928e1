"""The actor: one engine on a thread of its own, passages in and events out.

The engine never waits for the network: jobs are put in its queue, events are taken from it by a
long poll, and the decode batch runs as long as there is work. A plain class, so that it can be
typed and tested without Ray; `fleet.py` makes an actor of it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workers.errors import WorkerBrokenError

if TYPE_CHECKING:
    from engine.events import Event, PassageJob
    from engine.execution import ExecutionConfig, ExecutionIdentity
    from engine.session import Session

_PRIMITIVES_KEPT = 16
"""oneDNN keeps compiled kernels by shape, 1,024 by default, and every length of window is another
shape: a worker then grew by a tenth each 200 passages. Sixteen cost no measurable time, and
kernels made again are the same kernels, so no bit moves."""

POLL_S = 10.0
"""How long a poll waits for an event before it answers with none."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What an actor loads."""

    pack: str
    pack_sha256: str
    execution: ExecutionConfig
    slots: int


class Renderer:
    """An engine, its session, and the thread that runs them."""

    def __init__(self, spec: WorkerSpec) -> None:
        # Before torch is imported, which reads them once.
        for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
            os.environ.setdefault(name, str(_PRIMITIVES_KEPT))
        # Large pages where the system lends them on request: the cache of keys and values is read
        # from end to end each step, which became 8% faster.
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        self._jobs: queue.SimpleQueue[PassageJob | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._loaded = threading.Event()
        self._identity: ExecutionIdentity | None = None
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(spec,), name="engine", daemon=True)
        self._thread.start()

    def identity(self) -> ExecutionIdentity:
        """The execution identity measured here, once the engine has loaded.

        Raises what kept it from loading: a constructor that raised would only say that it died.
        """
        self._loaded.wait()
        self._raise_if_broken()
        if self._identity is None:
            raise WorkerBrokenError("the engine has not loaded")
        return self._identity

    def submit(self, jobs: Sequence[PassageJob]) -> None:
        """Queue passages."""
        for job in jobs:
            self._jobs.put(job)

    def poll(self, wait_s: float = POLL_S) -> list[Event]:
        """All events there are; waits for the first one. Raises what broke the engine's thread."""
        try:
            events = [self._events.get(timeout=wait_s)]
        except queue.Empty:
            self._raise_if_broken()
            return []
        while True:
            try:
                events.append(self._events.get_nowait())
            except queue.Empty:
                return events

    def stop(self) -> None:
        """End the engine's thread after its current frame; what is in flight is dropped."""
        self._jobs.put(None)
        self._thread.join()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _run(self, spec: WorkerSpec) -> None:
        try:
            session = self._load(spec)
            self._loaded.set()
            try:
                self._serve(session)
            finally:
                session.close()
        except BaseException as error:
            self._broken = error
        finally:
            self._loaded.set()

    def _load(self, spec: WorkerSpec) -> Session:
        from engine.engine import load_engine
        from engine.pack import open_pack
        from engine.session import Session

        pack = open_pack(
            Path(spec.pack) if "/" in spec.pack else spec.pack, sha256=spec.pack_sha256
        )
        engine = load_engine(pack, spec.execution, slots=spec.slots)
        self._identity = engine.identity
        return Session(engine, slots=spec.slots)

    def _serve(self, session: Session) -> None:
        """Run frames while there is work, and sleep on the queue while there is none."""
        while True:
            idle = session.in_flight == 0
            while idle or not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    return
                session.submit(job)
                idle = False
            for event in session.advance():
                self._events.put(event)
