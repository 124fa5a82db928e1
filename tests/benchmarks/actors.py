"""One worker against two on the same passages: how rendering scales over the cores.

    python -m tests.benchmarks.actors

The time is from the first passage handed out to the last one back; starting is not in it. Every
worker gets as many passages, so that the end, when slots run empty, weighs the same. A worker makes
sound on a thread of its own, so that one alone on two cores already uses more than one of them: the
first row holds it to a single core, as each of the two has.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from engine.contracts.contract import Conditioning
from engine.events import FailureEvent, PassageEvent, PassageJob
from engine.execution import ExecutionConfig
from engine.pack import open_pack
from tests.benchmarks.prose import passages
from tests.benchmarks.table import print_table, write_result
from workers.fleet import Fleet, WorkerDied
from workers.renderer import WorkerSpec

_SLOTS = 16
_PASSAGES = 48
"""Of each worker."""
_ROUNDS = 5
_ACTOR = b"ray::Renderer"
"""How the title of such a process begins."""


def measure(fleet: Fleet, workers: int) -> float:
    """Seconds of audio a second of wall time, over the first `workers` of a fleet."""
    jobs = [
        PassageJob(str(index), text, Conditioning("slt"), index, "en", "flac")
        for index, text in enumerate(passages(_PASSAGES * workers, seed=3, longest=2))
    ]
    names = fleet.workers[:workers]
    began = time.perf_counter()
    for number, name in enumerate(names):
        fleet.submit(name, jobs[number::workers])
    samples, done = 0, 0
    while done < len(jobs):
        for arrival in fleet.wait(10.0):
            if isinstance(arrival, WorkerDied):
                raise RuntimeError(arrival.reason)
            for event in arrival[1]:
                if isinstance(event, PassageEvent):
                    samples += event.samples
                done += isinstance(event, PassageEvent | FailureEvent)
    return samples / 24_000 / (time.perf_counter() - began)


def worker_pids() -> list[int]:
    """The processes of the actors of this machine."""
    titles = ((path, path.read_bytes()) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return sorted(int(path.parent.name) for path, title in titles if title.startswith(_ACTOR))


def hold(pid: int, cores: set[int]) -> None:
    """Let every thread of a process run on these cores alone."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


def main() -> None:
    """Medians of `_ROUNDS`, the arrangements in turns over one fleet of two."""
    pack = open_pack("starter")
    spec = WorkerSpec(str(pack.root), pack.sha256, ExecutionConfig(), _SLOTS)
    cores = sorted(os.sched_getaffinity(0))[:2]
    arrangements = {
        "1 worker, one core": (1, [{core} for core in cores]),
        "1 worker, both cores": (1, [set(cores)] * 2),
        "2 workers, a core each": (2, [{core} for core in cores]),
    }
    rates: dict[str, list[float]] = {name: [] for name in arrangements}
    with Fleet(spec, workers=2, address=None) as fleet:
        measure(fleet, 2)  # warms both
        pids = worker_pids()
        if len(pids) != 2:
            raise RuntimeError(f"expected two workers on this machine, found {len(pids)}")
        for _ in range(_ROUNDS):
            for name, (workers, held) in arrangements.items():
                for pid, own in zip(pids, held, strict=True):
                    hold(pid, own)
                rates[name].append(measure(fleet, workers))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    first = next(iter(medians.values()))
    rows = [(name, f"{rate:.1f}", f"{rate / first:.2f}") for name, rate in medians.items()]
    title = f"workers, starter, {_SLOTS} slots each"
    print_table(title, ("workers", "audio s/s", "x"), rows)
    write_result("actors", {"audio_s_per_s": medians, "runs": rates})


if __name__ == "__main__":
    main()
