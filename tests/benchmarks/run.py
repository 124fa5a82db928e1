"""Every benchmark, one after the other, each in a process of its own.

    python -m tests.benchmarks.run [NAME ...]

A benchmark prints a table and writes out/bench/NAME.json. It never passes or fails: speed is read,
and compared only with what ran beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys

NAMES = ("peers", "floor", "slots", "options", "actors", "driver", "startup", "loudkit_peer")


def main(names: list[str]) -> int:
    """Run the named ones, or all; how many ended badly."""
    if unknown := set(names) - set(NAMES):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
        return len(unknown)
    # As a worker has it; a benchmark without workers would otherwise measure smaller pages.
    environment = {**os.environ, "THP_MEM_ALLOC_ENABLE": "1"}
    ended = [
        subprocess.run(
            [sys.executable, "-m", f"tests.benchmarks.{name}"], env=environment, check=False
        )
        for name in names or NAMES
    ]
    return sum(bool(each.returncode) for each in ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
