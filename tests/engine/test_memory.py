"""Whether an actor's memory stands still: it renders for days, and a machine has several.

Everything that grows with what was rendered shows here: events that are kept, caches without a
bound, a heap that small long-lived objects cut into holes. Each measurement has a process of its
own, so that nothing of pytest's or of another test's is counted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STATUS = Path("/proc/self/status")
SLOTS = 16
ROUNDS = 2
MOST_GROWTH = 0.05

needs_proc = pytest.mark.skipif(
    not STATUS.is_file(), reason="/proc/self/status is Linux's: no resident set to read here"
)


def resident_mib() -> float:
    """This process's resident set, in MiB."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{STATUS} names no VmRSS")
    return int(found[1]) / 1024


def render_repeatedly(count: int) -> list[float]:
    """MiB resident after each of `ROUNDS` renders of the same passages in one actor."""
    from engine.contracts.contract import Conditioning
    from engine.events import FailureEvent, PassageEvent, PassageJob
    from engine.execution import ExecutionConfig
    from engine.pack import open_pack
    from tests.benchmarks.prose import passages
    from workers.renderer import Renderer, WorkerSpec

    # The actor's own class: its engine runs on a second thread, whose heap is another one.
    pack = open_pack("starter")
    actor = Renderer(WorkerSpec("starter", pack.sha256, ExecutionConfig(), SLOTS))
    actor.identity()
    voices = pack.text_side.speakers
    jobs = [
        PassageJob(f"p{at}", text, Conditioning(voices[at % len(voices)]), at, "en", "wav")
        for at, text in enumerate(passages(count, seed=5, longest=2))
    ]
    measured: list[float] = []
    for _ in range(ROUNDS):
        actor.submit(jobs)
        rendered = 0
        while rendered < count:
            # What is polled is dropped at once: only what the actor keeps is measured.
            for event in actor.poll():
                if isinstance(event, FailureEvent):
                    raise RuntimeError(f"{event.key}: {event.message}")
                rendered += isinstance(event, PassageEvent)
        measured.append(resident_mib())
    actor.stop()
    return measured


def measure(count: int) -> list[float]:
    """`render_repeatedly` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.test_memory", str(count)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured: list[float] = json.loads(done.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    print(json.dumps(render_repeatedly(int(sys.argv[1]))))
