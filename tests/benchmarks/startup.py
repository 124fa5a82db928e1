"""From the command to the first clip: what a small job waits for.

python -m tests.benchmarks.startup
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.table import print_table, write_result

_ROUNDS = 5
_CATALOG = """catalog: start
pack: starter
voices: [{name: slt}]
passages: [{id: one, text: Good morning.}]
"""


def measure(folder: Path) -> dict[str, float]:
    """Seconds until the workers are up, until the first clip is durable, until the command ends."""
    catalog = folder / "catalog.yaml"
    catalog.write_text(_CATALOG, encoding="utf-8")
    command = [sys.executable, "-m", "jobs.cli", "render", str(catalog), "--json"]
    command += ["--out", str(folder / "out"), "--workers", "1"]
    began = time.perf_counter()
    marks: dict[str, float] = {}
    with subprocess.Popen(
        [*command, "--out", str(folder / "out"), "--workers", "1"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout or ():
            marks.setdefault(json.loads(line)["event"], time.perf_counter() - began)
    if process.returncode:
        raise RuntimeError(f"render ended with {process.returncode}")
    return {
        "planned_s": marks["starting"],
        "workers_up_s": marks["started"],
        "first_clip_s": marks["rendered"],
        "ended_s": time.perf_counter() - began,
    }


def main() -> None:
    """Medians of `_ROUNDS` fresh processes."""
    runs = []
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure(Path(folder)))
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    print_table("start-up, one worker", list(medians), [[f"{v:.1f}" for v in medians.values()]])
    write_result("startup", {"medians": medians, "runs": runs})


if __name__ == "__main__":
    main()
