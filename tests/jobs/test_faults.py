"""A fault at every file operation of a small job, one at a time: the job finishes, or its resume
does, and what is left is the undisturbed run's."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errors import CatalogError
from engine.errors import EngineError
from jobs.errors import JobError
from tests.file_faults import Fault, FileOperations, disk_full, read_only, watched
from tests.jobs.test_job import render, tree, write

PASSAGES = 2
ROOT = Path(__file__).parents[2]
SOME = 25
MANY = 300

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="names of open files are read from Linux's /proc"
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run leaves that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    render(write(folder, passages=PASSAGES), folder / "out", workers=1)
    return tree(folder / "out")


def operations_of_a_run(folder: Path, patch: pytest.MonkeyPatch) -> int:
    """How many file operations a run has."""
    catalog = write(folder, passages=PASSAGES)
    with watched(FileOperations(folder / "out"), patch) as operations:
        render(catalog, folder / "out", workers=1)
    kinds = {each.partition(" ")[0] for each in operations.seen}
    assert {"open", "write", "fsync", "os.rename", "os.link", "os.remove", "os.mkdir"} <= kinds
    return len(operations.seen)


@needs_proc
@pytest.mark.parametrize("fault", [disk_full, pytest.param(read_only, marks=pytest.mark.slow)])
def test_a_fault_at_every_file_operation(
    tmp_path: Path,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    count = operations_of_a_run(tmp_path, monkeypatch)
    refused = 0
    for at in range(1, count + 1):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        catalog = write(folder, passages=PASSAGES)
        operations = FileOperations(folder / "out", at=at, fault=fault)
        refused += _is_refused(catalog, folder / "out", operations, monkeypatch)
        result = render(catalog, folder / "out", workers=1)
        assert result.counts.settled == result.counts.planned
        assert result.counts.failed == 0
        assert tree(folder / "out") == undisturbed, operations.seen[-1]
        _nothing_half_made(folder / "out")
    assert refused > count / 2


def _is_refused(
    catalog: Path, out: Path, operations: FileOperations, patch: pytest.MonkeyPatch
) -> bool:
    """Run with a fault; whether it was refused, which it may only be by a typed error."""
    told = None
    try:
        with watched(operations, patch):
            render(catalog, out, workers=1)
    except (CatalogError, EngineError, JobError) as error:
        told = str(error)
    assert told is None or (told and "\n" not in told), operations.seen[-1]
    return told is not None


def _nothing_half_made(out: Path) -> None:
    left = [path.name for path in out.rglob(".tmp-*")]
    assert left == []


KILLED_AT = """
import sys
from pathlib import Path
import pytest
from tests.file_faults import FileOperations, killed, watched
from tests.jobs.test_job import render, write
folder, at = Path(sys.argv[1]), int(sys.argv[2])
with watched(FileOperations(folder / "out", at=at, fault=killed), pytest.MonkeyPatch()):
    render(folder / "catalog.yaml", folder / "out", workers=1)
"""


def kill_and_resume(
    folder: Path, at: int, undisturbed: dict[str, bytes], tell: Callable[[str], None]
) -> bool:
    """A driver that dies at an operation, then a resume; whether it died."""
    folder.mkdir()
    catalog = write(folder, passages=PASSAGES)
    died = subprocess.run(
        [sys.executable, "-c", KILLED_AT, str(folder), str(at)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode in (0, 137), died.stderr
    result = render(catalog, folder / "out", workers=1)
    assert result.counts.settled == result.counts.planned
    assert tree(folder / "out") == undisturbed, at
    tell(f"operation {at}: {'killed' if died.returncode else 'not reached'}")
    return died.returncode == 137


@needs_proc
def test_a_driver_killed_at_any_file_operation_is_resumed(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL between any two of them, or in the middle of a write: nothing is cleaned up."""
    count = operations_of_a_run(tmp_path, monkeypatch)
    draw = random.Random(6)
    places = draw.sample(range(1, count + 1), min(SOME, count))
    kills = sum(
        kill_and_resume(tmp_path / f"at-{at}", at, undisturbed, lambda told: None) for at in places
    )
    assert kills == len(places)


@needs_proc
@pytest.mark.slow
def test_a_driver_killed_at_every_file_operation_is_resumed(
    tmp_path: Path,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    count = operations_of_a_run(tmp_path, monkeypatch)
    told: list[str] = []
    kills = sum(
        kill_and_resume(tmp_path / f"at-{at}", at, undisturbed, told.append)
        for at in range(1, min(count, MANY) + 1)
    )
    with capsys.disabled():
        print(f"\n{kills} kills at {count} file operations, every resume equal")
    assert kills == min(count, MANY)
