"""Signals, two jobs at once, and clusters that are not there: a clear end and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.errors import OutputBusyError
from jobs.lease import FolderLease
from jobs.output_lock import OutputLock
from tests.jobs.conftest import Outcome, write_catalog

ROOT = Path(__file__).parent.parent.parent


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.cli", "render", str(folder / "catalog.yaml"),
         "--out", str(folder / "out"), "--workers", "1", "--json", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def _wait_for(process: subprocess.Popen[str], event: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(f"{event} never came: {process.stderr and process.stderr.read()}")


def _long_catalog(folder: Path) -> None:
    write_catalog(
        folder,
        voices="voices: [{name: slt}]\n",
        passages="passages:\n" + "".join(
            f"  - {{id: p{n:02}, text: The boats came home one by one. Nobody counted them.}}\n"
            for n in range(40)
        ),
    )  # fmt: skip


@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("event", ["starting", "rendered"])
def test_a_signal_ends_a_render_with_130_and_all_it_announced_is_kept(
    tmp_path: Path, number: signal.Signals, event: str
) -> None:
    _long_catalog(tmp_path)
    process = _start(tmp_path)
    _wait_for(process, event)
    if event == "starting":
        time.sleep(1.0)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["interrupted"]
    assert report["planned"] == report["rendered"] + report["remaining"]
    kept = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert len(kept) == report["rendered"]
    if event == "rendered":
        assert report["rendered"] > 0


@pytest.mark.ray
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Even while the main thread is in compiled code, where Python takes two signals for one."""
    _long_catalog(tmp_path)
    process = _start(tmp_path)
    _wait_for(process, "rendered")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert '"finished"' not in stdout  # it did not come to that
    process = _start(tmp_path)
    assert process.communicate(timeout=120)[1] == ""
    assert process.returncode == 0


def test_a_second_job_into_one_output_is_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    write_catalog(tmp_path)
    with OutputLock(FolderLease(tmp_path / "out"), address="out"):
        outcome = loudkit("render", "catalog.yaml", "--out", "out")
    assert outcome.exit_code == 2
    assert "output_busy" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
    with OutputLock(FolderLease(tmp_path / "out"), address="out"):  # it was let go
        pass


def test_a_lock_is_let_go_by_death(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom jobs.lease import FolderLease\n"
        "from jobs.output_lock import OutputLock\n"
        "with OutputLock(FolderLease(Path(sys.argv[1])), address='out'):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -9
    with (
        OutputLock(FolderLease(tmp_path), address="out"),
        pytest.raises(OutputBusyError),
        OutputLock(FolderLease(tmp_path), address="out"),
    ):
        pass


def test_a_cluster_that_does_not_answer_is_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    write_catalog(tmp_path)
    outcome = loudkit("render", "catalog.yaml", "--address", "127.0.0.1:9", "--json")
    assert outcome.exit_code == 2
    assert "127.0.0.1:9" in outcome.stderr


@pytest.mark.ray
def test_cuda_without_a_gpu_is_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path, ray_session: None
) -> None:
    import ray

    if ray.cluster_resources().get("GPU"):
        pytest.skip("this machine has a GPU")
    write_catalog(tmp_path)
    outcome = loudkit("render", "catalog.yaml", "--device", "cuda", "--json")
    assert outcome.exit_code == 2
    assert "--device cpu" in outcome.stderr


@pytest.mark.ray
def test_what_can_never_be_made_starts_no_worker_the_second_time(
    loudkit: Callable[..., Outcome], tmp_path: Path, ray_session: None
) -> None:
    write_catalog(
        tmp_path, voices="voices: [{name: slt}]\n",
        passages='passages: [{id: a, text: "..."}, {id: b, text: Good morning.}]\n',
    )  # fmt: skip
    first = loudkit("render", "catalog.yaml", "--out", "out", "--workers", "1", "--json")
    second = loudkit("render", "catalog.yaml", "--out", "out", "--json")
    for outcome in (first, second):
        assert outcome.exit_code == 3
        assert outcome.last_json["failed"] == 1
        assert outcome.last_json["failures"][0]["code"] == "nothing_to_speak"
    assert second.last_json["workers"] == 0
    assert second.last_json["reused"] == 1
    (tmp_path / "catalog.yaml").write_text(
        (tmp_path / "catalog.yaml").read_text().replace('"..."', "Hello.")
    )
    mended = loudkit("render", "catalog.yaml", "--out", "out", "--workers", "1", "--json")
    assert mended.exit_code == 0
    assert mended.last_json["rendered"] == 1
