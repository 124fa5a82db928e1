"""Reads damaged files in a process of its own, within bounds: python -m tests.fuzzing.child.

A case that takes too much processor time kills the process, as does one that crashes a library;
the parent knows which case had begun. One that takes too much memory is told, and ends the
process, since the mark of the most that was held never falls.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import given as each_of
from hypothesis import seed as seeded

from tests.fuzzing.shapes import SHAPES
from tests.fuzzing.target import Target
from tests.fuzzing.targets import TARGETS

CPU_S = 2.0
MEMORY_BYTES = 500 * 2**20
_MAPPED_BYTES = 6 * 2**30
_LONGEST_LINE = 1000
_SHAPES_A_SEED = 100
_OF_MAXRSS = 1 if sys.platform == "darwin" else 1024


class Reading:
    """Reads one case after the other and tells the parent of each."""

    def __init__(self, target: Target, until: float) -> None:
        self._target, self._until = target, until
        target.spoil(Random(0))
        _outcome_of(target)  # what a first reading imports counts for no case
        _limit_mapped_memory()
        self._most = _held_bytes() + MEMORY_BYTES

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._until

    def read(self, name: object, put: Callable[[], None]) -> None:
        """One case. Ends the process when it took too much memory."""
        put()
        _tell("begin", name)
        _tell("end", name, _outcome_of(self._target))
        if _held_bytes() > self._most:
            _tell("end", name, f"fail it held more than {MEMORY_BYTES >> 20} MiB")
            sys.exit()


def _outcome_of(target: Target) -> str:
    """How a case ended: `read`, `refused`, or what is wrong."""
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        target.read()
    except target.refusals as error:
        said = str(error)
        is_clear = len(said.splitlines()) == 1 and len(said) <= _LONGEST_LINE
        return "refused" if is_clear else f"fail no clear line: {said[:2000]!r}"
    except Exception:
        return f"fail {traceback.format_exc(limit=-8)!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read"


def _held_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _OF_MAXRSS


def _limit_mapped_memory() -> None:
    """A stop for what would hurt the machine; libraries reserve more than they ever hold."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        told = dict(line.split(":", 1) for line in lines)
        most = int(told["VmData"].split()[0]) * 1024 + _MAPPED_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _tell(*words: object) -> None:
    print(*words, sep="\t", flush=True)


def _read_shapes(reading: Reading, target: Target, name: str, seed: int, count: int) -> None:
    """Cases that hypothesis thinks up from a seed. It cannot be stopped, so that they are few."""
    numbers = itertools.count()

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @each_of(SHAPES[name]())
    def read_one(data: bytes) -> None:
        reading.read(f"{seed}.{next(numbers)}", partial(target.place, data))

    read_one()


def main() -> None:
    """Reads the files of a folder, then what hypothesis thinks up, then damage by its seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--shapes", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    asked = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    target = TARGETS[asked.target](asked.folder)
    reading = Reading(target, time.monotonic() + asked.seconds)
    for path in sorted(asked.files.iterdir()) if asked.files else ():
        reading.read(path.name, partial(target.place, path.read_bytes()))
    for batch, done in enumerate(range(0, asked.shapes, _SHAPES_A_SEED)):
        if reading.is_over:
            break
        count = min(_SHAPES_A_SEED, asked.shapes - done)
        _read_shapes(reading, target, asked.target, asked.first + batch, count)
    for seed in range(asked.first, asked.first + asked.count):
        if reading.is_over:
            break
        reading.read(seed, partial(target.spoil, Random(f"{asked.target} {seed}")))
    _tell("done")


if __name__ == "__main__":
    main()
