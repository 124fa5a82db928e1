"""Does the suite bite? One constant or comparison of the law is changed at a time.

Each mutant is a copy of the sources with one line changed; the tests of that room must fail on it,
and the first one that does is printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    """In `file`, `before` becomes `after`; the tests named must notice."""

    file: str
    before: str
    after: str
    tests: str


MUTATIONS = [
    Mutation("philox.py", "np.uint64(0xD2511F53)", "np.uint64(0xD2511F55)", "philox"),
    Mutation("philox.py", "_ROUNDS: Final = 10", "_ROUNDS: Final = 9", "philox"),
    Mutation("philox.py", "+ 0.5) / 2.0**32", "+ 0.25) / 2.0**32", "philox"),
    Mutation("sampler.py", "np.where(logits > 0,", "np.where(logits < 0,", "sampler"),
    Mutation("sampler.py", "kept = scores >= top +", "kept = scores > top +", "sampler"),
    Mutation("sampler.py", "np.cumsum(np.exp(kept - top))[-1]", "1.0", "sampler"),
    Mutation("chunking.py", "reach = start + budget + 1", "reach = start + budget", "chunking"),
    Mutation("chunking.py", '"a" <= follower <= "z"', '"a" < follower <= "z"', "chunking"),
    Mutation("chunking.py", "abs(2 * i - len(text))", "abs(2 * i - len(text) - 1)", "chunking"),
    Mutation(
        "detectors.py",
        "if repeats + 1 < cycles or",
        "if repeats + 1 <= cycles or",
        "detectors",
    ),
    Mutation("detectors.py", "if end < len(tokens)", "if end <= len(tokens)", "detectors"),
    Mutation(
        "detectors.py",
        "tail <= config.echo_strong_max_tail",
        "tail < config.echo_strong_max_tail",
        "detectors",
    ),
    Mutation("passage.py", "derive(plan.seed, RESPLIT)", "derive(plan.seed, CHUNK)", "passage"),
    Mutation("passage.py", "derive(plan.seed, RETRY + number)", "derive(plan.seed, RETRY)",
             "passage"),
    Mutation("passage.py", "start = max(end - wanted, 0) // unit * unit",
             "start = max(end - wanted, 0)", "passage"),
    Mutation("audio.py", "np.linspace(0.0, np.pi, n, dtype=np.float32)",
             "np.linspace(0.0, np.pi, n)", "audio"),
    Mutation("audio.py", "np.floor(audio.astype(np.float64) * 32768.0)",
             "np.rint(audio.astype(np.float64) * 32768.0)", "audio"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}-{m.after[:24]}")
def test_a_changed_law_is_noticed(
    mutation: Mutation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("engine", "catalog", "tests"):
        shutil.copytree(
            ROOT / folder,
            tmp_path / folder,
            ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "engine" / mutation.file
    source = target.read_text(encoding="utf-8")
    assert source.count(mutation.before) == 1, "the mutation no longer fits the source"
    target.write_text(source.replace(mutation.before, mutation.after), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow and not ray and not gpu",
         "-p", "no:cacheprovider", f"tests/engine/test_{mutation.tests}.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, f"nobody noticed:\n{done.stdout[-2000:]}"
    caught = re.search(r"FAILED (\S+)", done.stdout)
    with capsys.disabled():
        by = caught[1] if caught else "an error"
        print(f"\n{mutation.file}: {mutation.before!r} -> {mutation.after!r}: caught by {by}")
