"""The fleet: a worker that dies is replaced, and its passages are neither lost nor doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.contracts.contract import Conditioning
from engine.events import PassageEvent, PassageJob
from engine.execution import ExecutionConfig
from engine.pack import Pack
from workers.errors import IdentityMismatchError
from workers.fleet import Fleet, WorkerDied
from workers.renderer import Renderer, WorkerSpec

pytestmark = pytest.mark.ray


def _spec(pack: Pack, slots: int = 4) -> WorkerSpec:
    return WorkerSpec(str(pack.root), pack.sha256, ExecutionConfig(), slots)


def _job(key: str) -> PassageJob:
    return PassageJob(key, "Good morning.", Conditioning("slt"), 7, "en", "wav")


def _wait_for_ever(fleet: Fleet) -> None:
    while True:
        list(fleet.wait(1.0))


def test_a_dead_worker_is_told_of_and_replaced(starter: Pack, ray_session: None) -> None:
    with Fleet(_spec(starter), workers=1, address=None) as fleet:
        [first] = fleet.workers
        fleet.submit(first, [_job("a")])
        fleet.kill_worker(first)
        arrivals: list[Any] = []
        while not any(isinstance(arrival, WorkerDied) for arrival in arrivals):
            arrivals += list(fleet.wait(1.0))
        while not fleet.workers:
            assert fleet.is_growing
            arrivals += list(fleet.wait(1.0))
        [second] = fleet.workers
        assert second != first
        fleet.submit(second, [_job("a")])
        events: list[PassageEvent] = []
        while not events:
            for arrival in fleet.wait(1.0):
                assert not isinstance(arrival, WorkerDied)
                events += [event for event in arrival[1] if isinstance(event, PassageEvent)]
        assert [event.key for event in events] == ["a"]


def test_events_that_went_with_a_machine_are_a_death(
    starter: Pack, ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clip's events lie in the memory of the machine that made them. Ray knows of a machine's
    end in many ways; all of them cost the work in flight, and none of them the job."""
    import ray

    def lost(reference: Any) -> None:
        raise ray.exceptions.ObjectLostError(reference.hex(), None, "")

    with Fleet(_spec(starter), workers=1, address=None) as fleet:
        [first] = fleet.workers
        arrivals: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr("ray.get", lost)
            while not arrivals:
                arrivals += list(fleet.wait(1.0))
        [death] = arrivals
        assert isinstance(death, WorkerDied)
        assert death.worker == first
        while not fleet.workers:
            list(fleet.wait(1.0))
        assert fleet.workers != (first,)


def test_a_worker_of_another_identity_is_refused(starter: Pack, ray_session: None) -> None:
    with Fleet(_spec(starter), workers=1, address=None) as fleet:
        [first] = fleet.workers
        fleet._spec = WorkerSpec(
            str(starter.root), starter.sha256, ExecutionConfig(row_padding=8), 4
        )
        fleet._spawn()
        while fleet.is_growing:
            list(fleet.wait(1.0))
        assert fleet.workers == (first,)
        [turned_away] = fleet.turned_away
        assert "rows>=8" in turned_away.reason
        # With nobody else left there is nothing to go on with.
        fleet.kill_worker(first)
        with pytest.raises(IdentityMismatchError, match=r"rows>=8.*--allow-mixed"):
            _wait_for_ever(fleet)


def test_what_keeps_a_worker_from_loading_is_raised_as_it_is(
    starter: Pack, ray_session: None, tmp_path: Path
) -> None:
    from engine.errors import PackMismatchError

    wrong = WorkerSpec(str(starter.root), "0" * 64, ExecutionConfig(), 4)
    with (
        pytest.raises(PackMismatchError, match="0000"),
        Fleet(wrong, workers=1, address=None),
    ):
        pass


def test_a_renderer_is_a_plain_class(starter: Pack) -> None:
    renderer = Renderer(_spec(starter))
    assert renderer.identity().device == "cpu"
    assert renderer.poll(0.01) == []
    renderer.submit([_job("a"), _job("b")])
    events: list[PassageEvent] = []
    while len(events) < 2:
        events += [e for e in renderer.poll(5.0) if isinstance(e, PassageEvent)]
    assert {event.key for event in events} == {"a", "b"}
    assert events[0].pcm_sha256 == events[1].pcm_sha256
    renderer.stop()
