"""The fleet: Ray actors of one execution identity, spawned, polled, replaced and drained.

Workers that share an identity are a cohort. A fleet has one, the largest at the start; a worker of
another identity is turned away and named, unless mixing was allowed: then whoever hands out the
work keeps a voice within a cohort.

The driver holds one outstanding poll a worker, so a thousand windows a second cost a handful of
messages, and a death is noticed by the poll that fails. A replacement joins when it is ready and
the others go on meanwhile: on a cluster that lost a machine, that may take a while. The fleet
knows nothing of passages: it hands out events and says which worker died; who had what is the
job's knowledge.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workers.cluster import first_line, join_cluster
from workers.errors import FleetStoppedError, FleetUnavailableError, IdentityMismatchError
from workers.renderer import Renderer, WorkerSpec

if TYPE_CHECKING:
    from engine.events import Event, PassageJob
    from engine.execution import ExecutionIdentity

_START_POLL_S = 0.5
_STRAGGLERS_S = 60.0
"""How long the first workers wait for the rest before the job begins without them."""
_DEATHS_IN_A_ROW = 20
"""Deaths of workers without a single event between them, after which the machine is to blame."""


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker is gone; what it had in flight must go elsewhere."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A worker that was not used, and why."""

    worker: str
    reason: str


@dataclass(slots=True)
class _Worker:
    name: str
    actor: Any
    waits_for: Any
    """Its identity while it starts, then the events of its outstanding poll."""
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
        stragglers_s: float = _STRAGGLERS_S,
    ) -> None:
        """`should_stop` is asked while workers start, `joined` is called once Ray is up.

        `renderer` is the class that becomes the actors; it answers as `Renderer` does.
        """
        self._spec, self._wanted, self._address = spec, workers, address
        self._should_stop, self._joined, self._renderer = should_stop, joined, renderer
        self._allow_mixed, self._stragglers_s = allow_mixed, stragglers_s
        self._workers: dict[str, _Worker] = {}
        self._starting: dict[str, _Worker] = {}
        self._started = 0
        self._deaths_in_a_row = 0
        self._owns_ray = False
        self.cohorts: dict[str, ExecutionIdentity] = {}
        """The identities in use, by digest; the fleet's first one first."""
        self.turned_away: list[TurnedAway] = []

    def __enter__(self) -> Fleet:
        threads = self._spec.execution.threads
        self._owns_ray = join_cluster(self._address, cpus_needed=self._wanted * threads)
        try:
            self._joined()
            self._require_devices()
            for _ in range(self._wanted):
                self._spawn()
            self._assemble()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers that take work."""
        return tuple(self._workers)

    @property
    def is_growing(self) -> bool:
        """Whether workers are starting that may still join."""
        return bool(self._starting)

    def execution_of(self, worker: str) -> str:
        """The digest of a worker's identity."""
        return self._workers[worker].execution

    def submit(self, worker: str, jobs: Sequence[PassageJob]) -> None:
        """Queue passages at a worker; a death shows at its next poll."""
        if jobs:
            self._workers[worker].actor.submit.remote(list(jobs))

    def wait(self, timeout_s: float) -> Iterator[tuple[str, list[Event]] | WorkerDied]:
        """The events of the workers that have some; deaths, with a replacement started.

        Raises what leaves nobody to go on with.
        """
        everybody = {**self._starting, **self._workers}
        waiting = {worker.waits_for: worker for worker in everybody.values()}
        for reference in _ready(list(waiting), timeout_s):
            worker = waiting[reference]
            if worker.name in self._starting:
                self._join(worker)
            else:
                yield self._polled(worker)
        self._require_somebody()

    def kill_worker(self, name: str) -> None:
        """End a worker at once, as a lost machine would."""
        import ray

        ray.kill(self._workers[name].actor)

    def close(self) -> None:
        """Kill the actors, and the cluster if it was started here."""
        import ray

        for worker in [*self._workers.values(), *self._starting.values()]:
            ray.kill(worker.actor)
        self._workers.clear()
        self._starting.clear()
        if self._owns_ray:
            ray.shutdown()
            self._owns_ray = False

    # -- polling -------------------------------------------------------------------------------

    def _polled(self, worker: _Worker) -> tuple[str, list[Event]] | WorkerDied:
        import ray

        try:
            events: list[Event] = ray.get(worker.waits_for)
        except ray.exceptions.RayActorError as error:
            return self._bury(worker, first_line(error))
        except ray.exceptions.RayTaskError as error:
            ray.kill(worker.actor)
            return self._bury(worker, first_line(error.cause or error))
        except ray.exceptions.RayError as error:
            # Its events went with a machine, or its memory: what they told of is made elsewhere.
            ray.kill(worker.actor)
            return self._bury(worker, first_line(error))
        worker.waits_for = worker.actor.poll.remote()
        if events:
            self._deaths_in_a_row = 0
        return worker.name, events

    def _bury(self, worker: _Worker, reason: str) -> WorkerDied:
        del self._workers[worker.name]
        self._count_death(reason)
        self._spawn()
        return WorkerDied(worker.name, reason)

    def _count_death(self, reason: str) -> None:
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > _DEATHS_IN_A_ROW:
            raise FleetUnavailableError(
                f"{self._deaths_in_a_row} workers died one after the other and nothing was made "
                f"between, the last with: {reason}"
            )

    # -- starting ------------------------------------------------------------------------------

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

    def _spawn(self) -> None:
        """Start a worker; it joins once it has loaded."""
        import ray

        actor_class = ray.remote(
            num_cpus=self._spec.execution.threads,
            num_gpus=1 if self._spec.execution.device == "cuda" else 0,
            max_concurrency=4,
            max_restarts=0,
        )(self._renderer)
        self._started += 1
        name = f"worker-{self._started}"
        actor = actor_class.remote(self._spec)
        self._starting[name] = _Worker(name, actor, actor.identity.remote())

    def _assemble(self) -> None:
        """Wait for the first workers; what keeps one of them from loading is raised as it is."""
        arrived: list[tuple[_Worker, ExecutionIdentity]] = []
        first_at = None
        while self._starting:
            if self._should_stop():
                raise FleetStoppedError("asked to stop while workers were starting")
            waiting = {worker.waits_for: worker for worker in self._starting.values()}
            for reference in _ready(list(waiting), _START_POLL_S):
                arrived.append((waiting[reference], self._identity_of(waiting[reference])))
                del self._starting[waiting[reference].name]
                first_at = first_at or time.monotonic()
            if first_at is not None and time.monotonic() - first_at > self._stragglers_s:
                break
        # In the order they were started: which cohort is the fleet's must not hang on a race.
        arrived.sort(key=lambda each: int(each[0].name.rpartition("-")[2]))
        digests = Counter(identity.digest() for _, identity in arrived)
        [(largest, _)] = digests.most_common(1)
        self.cohorts[largest] = next(each for _, each in arrived if each.digest() == largest)
        for worker, identity in arrived:
            self._admit(worker, identity)
        self._require_somebody()

    def _identity_of(self, worker: _Worker) -> ExecutionIdentity:
        import ray

        try:
            identity: ExecutionIdentity = ray.get(worker.waits_for)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except ray.exceptions.RayError as error:
            raise FleetUnavailableError(
                f"{worker.name} died while it started: {first_line(error)}"
            ) from error
        return identity

    def _join(self, worker: _Worker) -> None:
        """A late worker: one that cannot load is turned away, one that died is replaced."""
        del self._starting[worker.name]
        try:
            identity = self._identity_of(worker)
        except FleetUnavailableError as error:
            self._count_death(str(error))
            self._spawn()
        except Exception as error:
            self._turn_away(worker, first_line(error))
        else:
            self._admit(worker, identity)

    def _admit(self, worker: _Worker, identity: ExecutionIdentity) -> None:
        worker.execution = identity.digest()
        if worker.execution not in self.cohorts and not self._allow_mixed:
            self._turn_away(worker, f"it is {identity.describe()}")
            return
        self.cohorts.setdefault(worker.execution, identity)
        worker.waits_for = worker.actor.poll.remote()
        self._workers[worker.name] = worker

    def _turn_away(self, worker: _Worker, reason: str) -> None:
        import ray

        self.turned_away.append(TurnedAway(worker.name, reason))
        ray.kill(worker.actor)

    def _require_somebody(self) -> None:
        if self._workers or self._starting:
            return
        fleet = next(iter(self.cohorts.values()))
        last = self.turned_away[-1]
        raise IdentityMismatchError(
            f"{last.worker} was turned away: {last.reason}; the fleet is {fleet.describe()}, and "
            "no other worker is left. Give the job machines of one kind, or --allow-mixed to keep "
            "each voice on one of them"
        )


def _ready(references: list[Any], timeout_s: float) -> list[Any]:
    """Those that are ready, once one is or the time is over: one wait serves all of them."""
    import ray

    ready, _ = ray.wait(references, num_returns=1, timeout=timeout_s)
    if ready and len(references) > 1:
        more, _ = ray.wait(references, num_returns=len(references), timeout=0)
        ready = list(dict.fromkeys([*ready, *more]))
    return list(ready)
