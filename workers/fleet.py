"""The fleet: Ray actors of one execution identity, spawned, polled, replaced and drained.

Workers that share an identity are a cohort. A fleet has one, the largest at the start; a worker of
another identity is turned away and named, unless mixing was allowed: then whoever hands out the
work keeps a voice within a cohort.

The driver holds one outstanding poll a worker, so a thousand windows a second cost a handful of
messages, and a death is noticed by the poll that fails. The fleet knows nothing of passages: it
hands out events and says which worker died; who had what is the job's knowledge.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workers.errors import FleetStoppedError, FleetUnavailableError, IdentityMismatchError
from workers.renderer import Renderer, WorkerSpec

if TYPE_CHECKING:
    from engine.events import Event, PassageJob
    from engine.execution import ExecutionIdentity

_START_POLL_S = 0.5
_CONNECT_S = 5.0
_RESTARTS_AT_MOST = 20
"""Deaths of workers in one job after which the machine, not a passage, is to blame."""


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker is gone; what it had in flight must go elsewhere."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A worker that was not used, and what it is."""

    worker: str
    identity: str


@dataclass(slots=True)
class _Worker:
    name: str
    actor: Any
    poll: Any = None
    execution: str = ""


class Fleet:
    """Workers under one spec. Use as a context manager; leaving it kills the actors."""

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        workers: int,
        address: str | None,
        should_stop: Callable[[], bool] = lambda: False,
        joined: Callable[[], None] = lambda: None,
        allow_mixed: bool = False,
        renderer: type = Renderer,
    ) -> None:
        """`should_stop` is asked while workers start, `joined` is called once Ray is up.

        `renderer` is the class that becomes the actors; it answers as `Renderer` does.
        """
        self._spec, self._wanted, self._address = spec, workers, address
        self._should_stop, self._joined, self._renderer = should_stop, joined, renderer
        self._workers: dict[str, _Worker] = {}
        self._started = 0
        self._deaths = 0
        self._owns_ray = False
        self._allow_mixed = allow_mixed
        self.cohorts: dict[str, ExecutionIdentity] = {}
        """The identities in use, by digest; the fleet's first one first."""
        self.turned_away: list[TurnedAway] = []

    def __enter__(self) -> Fleet:
        self._join_cluster()
        try:
            self._joined()
            self._require_devices()
            self._spawn(self._wanted)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers alive."""
        return tuple(self._workers)

    def execution_of(self, worker: str) -> str:
        """The digest of a worker's identity."""
        return self._workers[worker].execution

    def submit(self, worker: str, jobs: Sequence[PassageJob]) -> None:
        """Queue passages at a worker; a death shows at its next poll."""
        if jobs:
            self._workers[worker].actor.submit.remote(list(jobs))

    def wait(self, timeout_s: float) -> Iterator[tuple[str, list[Event]] | WorkerDied]:
        """The events of the workers that have some; deaths, with a replacement started."""
        import ray

        for worker in self._workers.values():
            if worker.poll is None:
                worker.poll = worker.actor.poll.remote()
        polls = {worker.poll: worker for worker in self._workers.values()}
        ready, _ = ray.wait(list(polls), num_returns=1, timeout=timeout_s)
        # Whoever else is ready by now is taken along: one wait serves all of them.
        if len(polls) > 1:
            more, _ = ray.wait(list(polls), num_returns=len(polls), timeout=0)
            ready = list(dict.fromkeys([*ready, *more]))
        for reference in ready:
            worker = polls[reference]
            worker.poll = None
            try:
                yield worker.name, ray.get(reference)
            except ray.exceptions.RayActorError as error:
                yield self._bury(worker, _first_line(error))
            except ray.exceptions.RayTaskError as error:
                ray.kill(worker.actor)
                yield self._bury(worker, _first_line(error.cause or error))

    def kill_worker(self, name: str) -> None:
        """End a worker at once, as a lost machine would."""
        import ray

        ray.kill(self._workers[name].actor)

    def close(self) -> None:
        """Kill the actors, and the cluster if it was started here."""
        import ray

        for worker in self._workers.values():
            ray.kill(worker.actor)
        self._workers.clear()
        if self._owns_ray:
            ray.shutdown()
            self._owns_ray = False

    def _bury(self, worker: _Worker, reason: str) -> WorkerDied:
        del self._workers[worker.name]
        self._deaths += 1
        if self._deaths > _RESTARTS_AT_MOST:
            raise FleetUnavailableError(
                f"{self._deaths} workers died in this job, the last with: {reason}"
            )
        self._spawn(1)
        return WorkerDied(worker.name, reason)

    def _require_devices(self) -> None:
        """On this machine a device that is not there will never come; a cluster may still grow."""
        import ray

        if self._spec.execution.device == "cuda" and self._address is None:
            gpus = int(ray.cluster_resources().get("GPU", 0))
            if gpus < self._wanted:
                raise FleetUnavailableError(
                    f"{self._wanted} workers on cuda need as many GPUs, Ray sees {gpus} here; "
                    "use --device cpu or fewer --workers"
                )

    def _join_cluster(self) -> None:
        """Join the cluster at the address, or start one on this machine."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = self._address is None
        if local:
            # Ray's local ports listen on every interface: only holders of this token get in.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        import ray

        if ray.is_initialized():
            return
        if self._address is not None:
            _require_listener(self._address)
        try:
            ray.init(
                address="local" if local else self._address,
                include_dashboard=False if local else None,
                num_cpus=max(os.cpu_count() or 1, self._cpus_needed()) if local else None,
                logging_level=logging.ERROR,
                log_to_driver=False,
                configure_logging=False,
            )
        except (SystemExit, KeyboardInterrupt):
            # Ray's own signal handlers, which it puts in place before it has started.
            ray.shutdown()
            raise FleetStoppedError("asked to stop while Ray was starting") from None
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise FleetUnavailableError(
                f"no Ray cluster at {self._address or 'this machine'}: {_first_line(error)}"
            ) from error
        self._owns_ray = True

    def _cpus_needed(self) -> int:
        """Asking for more workers than there are cores is slow, not wrong."""
        return self._wanted * self._spec.execution.threads

    def _spawn(self, count: int) -> None:
        """Start workers and admit those of the fleet's identity."""
        import ray

        gpus = 1 if self._spec.execution.device == "cuda" else 0
        actor_class = ray.remote(
            num_cpus=self._spec.execution.threads,
            num_gpus=gpus,
            max_concurrency=4,
            max_restarts=0,
        )(self._renderer)
        fresh = []
        for _ in range(count):
            self._started += 1
            name = f"worker-{self._started}"
            fresh.append(_Worker(name, actor_class.remote(self._spec)))
        arrived = []
        for worker in fresh:
            try:
                identity = ray.get(self._waited_for(worker.actor.identity.remote()))
            except ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from None
            except ray.exceptions.RayActorError as error:
                raise FleetUnavailableError(
                    f"{worker.name} died while it started: {_first_line(error)}"
                ) from error
            arrived.append((worker, identity))
        self._admit(arrived)

    def _waited_for(self, reference: Any) -> Any:
        """The reference once it is ready; looks up now and then whether to go on waiting."""
        import ray

        while not ray.wait([reference], timeout=_START_POLL_S)[0]:
            if self._should_stop():
                raise FleetStoppedError("asked to stop while workers were starting")
        if self._should_stop():
            raise FleetStoppedError("asked to stop while workers were starting")
        return reference

    def _admit(self, arrived: Sequence[tuple[_Worker, ExecutionIdentity]]) -> None:
        """Take those of the fleet's cohort; the first to arrive decide which one that is."""
        import ray

        if not self.cohorts and arrived:
            # most_common is stable: of equally many, the cohort of the lowest worker.
            [(digest, _)] = Counter(each.digest() for _, each in arrived).most_common(1)
            self.cohorts[digest] = next(each for _, each in arrived if each.digest() == digest)
        for worker, identity in arrived:
            worker.execution = identity.digest()
            if worker.execution in self.cohorts or self._allow_mixed:
                self.cohorts.setdefault(worker.execution, identity)
                self._workers[worker.name] = worker
            else:
                self.turned_away.append(TurnedAway(worker.name, identity.describe()))
                ray.kill(worker.actor)
        if not self._workers:
            [fleet] = self.cohorts.values()
            last = self.turned_away[-1]
            raise IdentityMismatchError(
                f"{last.worker} is {last.identity}, the fleet is {fleet.describe()}: their last "
                "bits differ, so they may not share a job, and no other worker is left. Give the "
                "job machines of one kind, or --allow-mixed to keep each voice on one of them"
            )


def _require_listener(address: str) -> None:
    """A head that does not answer at once would keep Ray trying for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdigit():
        return  # "auto" and the like: Ray knows where to look
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise FleetUnavailableError(f"no Ray cluster answers at {address}: {error}") from error


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
