"""What the driver itself can do: a null engine behind real actors, ledger and all.

    python -m tests.benchmarks.driver [PASSAGES ...]

Windows a second through plan, dispatch, commit and finish, and the driver's resident memory at
each number of passages, each in a process of its own. Writing the records is timed apart.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.table import print_table, write_result

_PASSAGES = (10_000, 100_000)
_CATALOG = """catalog: corpus
pack: starter
voices: [{name: slt}]
passages: [{from: corpus.parquet, id: id, text: text}]
"""


def resident_mib(name: str) -> float:
    """`VmRSS` or `VmHWM` of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.M)
    if found is None:
        raise RuntimeError(f"/proc/self/status names no {name}")
    return int(found[1]) / 1024


def write_corpus(folder: Path, passages: int) -> Path:
    """A catalog over a Parquet file of so many passages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(folder / "corpus.parquet", schema) as writer:
        for start in range(0, passages, 10_000):
            ids = [f"p{number:07d}" for number in range(start, min(start + 10_000, passages))]
            texts = [f"The number of this passage is {each}." for each in ids]
            writer.write_table(pa.table({"id": ids, "text": texts}, schema=schema))
    catalog = folder / "catalog.yaml"
    catalog.write_text(_CATALOG, encoding="utf-8")
    return catalog


def measure(passages: int, folder: Path) -> dict[str, float]:
    """One whole job in this process."""
    from engine.execution import ExecutionConfig
    from jobs.progress import Silent
    from jobs.render import RenderOptions, run_render
    from tests.fakes import NullRenderer
    from workers.fleet import Fleet

    marks: dict[str, float] = {}

    class Marks(Silent):
        def started(self, counts: Any, workers: int) -> None:
            marks["began"] = time.perf_counter()
            marks["rss_mib"] = resident_mib("VmRSS")

        def committed(self, counts: Any) -> None:
            marks["ended"] = time.perf_counter()
            marks["peak_mib"] = resident_mib("VmHWM")

    options = RenderOptions(
        catalog=write_corpus(folder, passages),
        out=str(folder / "out"),
        workers=1,
        slots=64,
        execution=ExecutionConfig(),
        fleet=partial(Fleet, renderer=NullRenderer),
    )
    began = time.perf_counter()
    result = run_render(options, Marks())
    ended = time.perf_counter()
    if result.counts.rendered != passages:
        raise RuntimeError(f"rendered {result.counts.rendered} of {passages}")
    elapsed_s = marks["ended"] - marks["began"]
    return {
        "passages": passages,
        "windows_per_s": result.counts.windows / elapsed_s,
        "plan_s": marks["began"] - began,
        "render_s": elapsed_s,
        "records_s": ended - marks["ended"],
        "rss_at_start_mib": marks["rss_mib"],
        "peak_while_rendering_mib": marks["peak_mib"],
        "peak_mib": resident_mib("VmHWM"),
    }


def main(passages: tuple[int, ...]) -> None:
    """The table, a fresh process a row."""
    rows = []
    for count in passages:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.driver", "--child", str(count), folder],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    keys = list(rows[0])
    print_table("driver, null engine", keys, [[f"{row[key]:.0f}" for key in keys] for row in rows])
    write_result("driver", {"rows": rows})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(int(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main(tuple(map(int, sys.argv[1:])) or _PASSAGES)
