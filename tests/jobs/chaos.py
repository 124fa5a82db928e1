"""Fleets and drivers that are killed at random moments, and the programs that run them.

python -m tests.jobs.chaos driver FOLDER     a driver over slow null engines, to be killed
python -m tests.jobs.chaos nodes FOLDER NODES SEED    a cluster that loses a node, and a resume
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engine.events import Event, PassageJob
from engine.execution import ExecutionConfig
from jobs.progress import Silent
from jobs.render import RenderOptions, RenderResult, run_render
from tests.fakes import NullRenderer
from workers.fleet import Fleet, WorkerDied


class SlowRenderer(NullRenderer):
    """Takes its time for every passage, and gives its windows away before their passage."""

    PASSAGE_S = 0.02

    def __init__(self, spec: object) -> None:
        super().__init__(spec)
        self._later: list[Event] = []

    def pid(self) -> int:
        """The actor's process."""
        return os.getpid()

    def poll(self, wait_s: float = 10.0) -> list[Event]:
        """What is left of the last passage, else the windows of the next one."""
        if self._later:
            time.sleep(self.PASSAGE_S)
            events, self._later = self._later, []
            return events
        events = []
        if jobs := self._next(wait_s):
            time.sleep(self.PASSAGE_S)
            *events, last = self.rendered(jobs[0])
            self._later = [last]
        return events

    def _next(self, wait_s: float) -> Sequence[PassageJob]:
        import queue

        try:
            return [self._jobs.get(timeout=wait_s)]
        except queue.Empty:
            return []


class SlowerRenderer(SlowRenderer):
    """Slow enough for a machine to be lost in the middle."""

    PASSAGE_S = 0.08


class KilledFleet(Fleet):
    """A fleet whose workers get SIGKILL at random moments, `kills` times."""

    def __init__(self, spec: Any, *, seed: int, kills: int, **given: Any) -> None:
        super().__init__(spec, **given)
        self._draw, self.kills_left, self.killed = random.Random(seed), kills, 0
        self._next_kill = 0.0

    def wait(self, timeout_s: float) -> Iterator[tuple[str, list[Event]] | WorkerDied]:
        """As the fleet's, but now and then a worker is gone."""
        now = time.monotonic()
        if self.kills_left and self._workers and now >= self._next_kill:
            if self._next_kill:
                self._kill(self._draw.choice(list(self._workers)))
            self._next_kill = now + self._draw.uniform(0.05, 1.0)
        yield from super().wait(timeout_s)

    def _kill(self, name: str) -> None:
        import ray

        try:
            pid = ray.get(self._workers[name].actor.pid.remote(), timeout=10)
        except ray.exceptions.RayActorError:
            return  # the last shot was at this one, and its death has not been told yet
        os.kill(pid, signal.SIGKILL)
        self.kills_left -= 1
        self.killed += 1


def render(catalog: Path, out: Path, *, workers: int, fleet: Any, **given: Any) -> RenderResult:
    """A run over this fleet."""
    options = RenderOptions(
        catalog=catalog,
        out=str(out),
        workers=workers,
        slots=4,
        execution=ExecutionConfig(),
        fleet=fleet,
        **given,
    )
    return run_render(options, Silent())


def run_driver(folder: Path) -> None:
    """A whole run, for somebody else to kill."""
    fleet = partial(Fleet, renderer=SlowRenderer)
    render(folder / "catalog.yaml", folder / "out", workers=2, fleet=fleet)


def lose_a_node(folder: Path, nodes: int, seed: int) -> None:
    """A run on a cluster that loses a machine at a random moment, and is given another one."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        machines = [cluster.add_node(num_cpus=1) for _ in range(nodes)]
        draw = random.Random(seed)
        lost = threading.Event()

        def lose() -> None:
            time.sleep(draw.uniform(0.1, 0.6))
            cluster.remove_node(draw.choice(machines), allow_graceful=False)
            lost.set()
            cluster.add_node(num_cpus=1)

        losing = threading.Thread(target=lose)

        class LosingFleet(Fleet):
            def __enter__(self) -> Fleet:
                entered = super().__enter__()
                losing.start()
                return entered

        fleet = partial(LosingFleet, renderer=SlowerRenderer)
        result = render(
            folder / "catalog.yaml",
            folder / "out",
            workers=nodes,
            fleet=fleet,
            address=cluster.address,
        )
        counts = result.counts
        losing.join()
        print(f"lost={lost.is_set()} deaths={counts.worker_deaths} rendered={counts.rendered}")
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "driver":
        run_driver(Path(sys.argv[2]))
    else:
        lose_a_node(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
