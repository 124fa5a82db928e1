"""Whatever has become of a file, its reader answers with a refusal of its own or with the truth.

Every case is read in a process of its own kind, under `tests.fuzzing.child`'s bounds: 2 seconds of
processor time and 500 MB, a crash is a failure with its case. `make test` reads a few thousand
files; the long form a few hundred thousand, and says how many.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.fuzzing.damage import damaged

ROOT = Path(__file__).parent.parent
LONG_S = 120
_TO_START_S = 120

CASES = {
    "catalog": 250,
    "manifest": 250,
    "segments": 700,
    "ledger": 15,
    "corpus": 450,
    "tokens": 450,
    "roster": 400,
}
"""Damaged files a reader in `make test`; the ledger's are folders."""


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small files that stand for much, for every reader that they are known of."""
    folder = tmp_path_factory.mktemp("bombs")
    _python("tests.fuzzing.bombs", str(folder)).communicate()
    return folder


def _python(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_all(target: str, folder: Path, *arguments: str, seconds: float = 60) -> Counter[str]:
    """How many cases were refused and read. Fails for any other end of one."""
    folder.mkdir(exist_ok=True)
    child = _python("tests.fuzzing.child", target, str(folder), *arguments)
    # One that waits takes no processor time. An abort tells what it waits for.
    stopped = threading.Timer(seconds + _TO_START_S, child.send_signal, (signal.SIGABRT,))
    stopped.start()
    out, err = child.communicate()
    stopped.cancel()
    lines = [line.split("\t") for line in out.splitlines()]
    ends = [line for line in lines if line[0] == "end"]
    failures = [f"{target} {name}: {how}" for _, name, how in ends if how.startswith("fail")]
    if (child.returncode or lines[-1:] != [["done"]]) and not failures:
        begun = lines[-1][min(1, len(lines[-1]) - 1)] if lines else "its start"
        code = child.returncode
        by = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        by = "SIGPROF: too much processor time" if by == "SIGPROF" else by
        failures = [f"{target} {begun}: ended by {by}\n{err[-4000:]}"]
    again = f"python -m tests.fuzzing.child {target} FOLDER {' '.join(arguments)}"
    assert not failures, "\n".join([*failures[:5], f"again: {again}"])
    return Counter(how for _, _, how in ends)


@pytest.mark.parametrize("target", CASES)
def test_damaged_files_are_refused_or_read(target: str, tmp_path: Path, bombs: Path) -> None:
    files = ("--files", str(bombs / target)) if (bombs / target).is_dir() else ()
    ends = read_all(target, tmp_path, *files, "--shapes", "40", "--count", str(CASES[target]))
    assert ends["refused"] > 5
    assert ends["read"] > 5  # damage that nobody notices, or that does not matter


@pytest.mark.slow
@pytest.mark.parametrize("target", CASES)
def test_damaged_files_at_length(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = LONG_S / len(CASES) / 2
    many = ("--first", "1000000", "--seconds", str(seconds))
    ends = Counter[str]()
    for number, kind in enumerate(("--shapes", "--count")):
        ends += read_all(target, tmp_path / str(number), *many, kind, "10000000", seconds=seconds)
    with capsys.disabled():
        print(f"\n{target}: {ends.total()} cases, {ends['refused']} refused, {ends['read']} read")


def test_a_case_is_the_same_everywhere() -> None:
    data, others = bytes(range(256)) * 8, [b"another file" * 40]
    once, again = (
        [damaged(data, Random(f"x {n}"), others, text=bool(n % 2)) for n in range(300)]
        for _ in range(2)
    )
    assert once == again
    assert len(set(once)) > 250
