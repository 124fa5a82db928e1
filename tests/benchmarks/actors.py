"""One worker against two on the same passages: how rendering scales over the cores.

    python -m tests.benchmarks.actors

The time is from the first passage handed out to the last one back; starting is not in it.
"""

from __future__ import annotations

import statistics
import time

from engine.contracts.contract import Conditioning
from engine.events import FailureEvent, PassageEvent, PassageJob
from engine.execution import ExecutionConfig
from engine.pack import open_pack
from tests.benchmarks.prose import passages
from tests.benchmarks.table import print_table, write_result
from workers.fleet import Fleet, WorkerDied
from workers.renderer import WorkerSpec

_SLOTS = 16
_PASSAGES = 64
_ROUNDS = 5


def measure(fleet: Fleet, workers: int) -> float:
    """Seconds of audio a second of wall time, over the first `workers` of a fleet."""
    jobs = [
        PassageJob(str(index), text, Conditioning("slt"), index, "en", "flac")
        for index, text in enumerate(passages(_PASSAGES, seed=3, longest=2))
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


def main() -> None:
    """Medians of `_ROUNDS`, one and two workers in turns over one fleet of two."""
    pack = open_pack("starter")
    spec = WorkerSpec(str(pack.root), pack.sha256, ExecutionConfig(), _SLOTS)
    rates: dict[int, list[float]] = {1: [], 2: []}
    with Fleet(spec, workers=2, address=None) as fleet:
        measure(fleet, 2)  # warms both
        for _ in range(_ROUNDS):
            for workers, each in rates.items():
                each.append(measure(fleet, workers))
    medians = {workers: statistics.median(each) for workers, each in rates.items()}
    rows = [
        (str(workers), f"{rate:.1f}", f"{rate / medians[1]:.2f}")
        for workers, rate in medians.items()
    ]
    print_table("workers, starter, 16 slots each", ("workers", "audio s/s", "x"), rows)
    write_result("actors", {"audio_s_per_s": medians, "runs": rates})


if __name__ == "__main__":
    main()
