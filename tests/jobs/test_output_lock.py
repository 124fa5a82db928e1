"""One job at a time: the system's lock on one machine, a watched lease between machines."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import OutputBusyError, OutputLostError
from jobs.lease import FolderLease
from jobs.output_lock import OutputLock


def _lease(out: Path, *, machine: str, beat: int = 3, owner: str = "other") -> Path:
    path = out / "ledger" / "lease.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    held = {"owner": owner, "machine": machine, "host": "far", "pid": 7, "beat": beat}
    path.write_text(json.dumps(held))
    return path


def held(out: Path, **given: Any) -> OutputLock:
    """The lock of a folder."""
    return OutputLock(FolderLease(out), address=str(out), **given)


class FakeTime:
    """A clock that moves by what is slept, and what happens while it does."""

    def __init__(self) -> None:
        self.now = 0.0
        self.while_asleep: list[object] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_second_job_of_a_machine_is_refused_by_name(tmp_path: Path) -> None:
    with (
        held(tmp_path),
        pytest.raises(OutputBusyError, match=r"job \d+ on .* is rendering into it"),
        held(tmp_path),
    ):
        pass
    assert not (tmp_path / "ledger" / "lease.json").exists()


def test_a_lease_of_a_dead_job_of_this_machine_is_taken_at_once(tmp_path: Path) -> None:
    _lease(tmp_path, machine="here")
    times = FakeTime()
    with held(tmp_path, machine="here", sleep=times.sleep, clock=times.clock) as lock:
        lock.require_held()
    assert times.now == 0.0


def test_a_silent_lease_of_another_machine_is_taken_after_its_time(tmp_path: Path) -> None:
    _lease(tmp_path, machine="there")
    times = FakeTime()
    with held(tmp_path, machine="here", stale_after_s=30.0, sleep=times.sleep, clock=times.clock):
        assert times.now >= 30.0


@pytest.mark.parametrize("change", ["beat", "owner"])
def test_a_lease_that_moves_is_a_job_that_lives(tmp_path: Path, change: str) -> None:
    """Whatever the clocks of the two machines say: only the change is looked at."""
    _lease(tmp_path, machine="there")
    times = FakeTime()

    def sleep(seconds: float) -> None:
        times.sleep(seconds)
        if times.now > 20.0:
            moved = {"beat": 4} if change == "beat" else {"owner": "a third"}
            _lease(tmp_path, machine="there", **moved)

    with (
        pytest.raises(OutputBusyError, match="job 7 on far"),
        held(tmp_path, machine="here", sleep=sleep, clock=times.clock),
    ):
        pass


def test_a_lease_that_is_given_back_meanwhile_is_free(tmp_path: Path) -> None:
    path = _lease(tmp_path, machine="there")
    times = FakeTime()

    def sleep(seconds: float) -> None:
        times.sleep(seconds)
        path.unlink(missing_ok=True)

    with held(tmp_path, machine="here", sleep=sleep, clock=times.clock):
        assert times.now < 1.0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"owner": 1}', b"\xff\xfe", b"null"])
def test_a_lease_that_says_nothing_holds_nothing(tmp_path: Path, content: bytes) -> None:
    path = _lease(tmp_path, machine="there")
    path.write_bytes(content)
    with held(tmp_path, machine="here"):
        assert json.loads(path.read_bytes())["machine"] == "here"


def test_a_job_whose_output_was_taken_over_learns_it_and_stops(tmp_path: Path) -> None:
    with held(tmp_path, heartbeat_s=0.01) as lock:
        lock.require_held()
        _lease(tmp_path, machine="there")
        lock._thread.join(timeout=10)  # it ends with what it finds
        with pytest.raises(OutputLostError, match="job 7 on far has taken it over"):
            lock.require_held()
    # What is another's is left to it.
    assert json.loads((tmp_path / "ledger" / "lease.json").read_bytes())["owner"] == "other"


def test_the_heart_beats_while_the_job_lives(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "lease.json"
    with held(tmp_path, heartbeat_s=0.01):
        until = time.monotonic() + 10
        while json.loads(path.read_bytes())["beat"] < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert json.loads(path.read_bytes())["beat"] >= 3
    assert "lease" not in {thread.name for thread in threading.enumerate()}
