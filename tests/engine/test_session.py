"""The promise, at the engine: a passage's tokens and samples do not depend on its company."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.codec import SnacCodec
from engine.contracts.contract import Conditioning
from engine.engine import Engine
from engine.errors import AudioNotFiniteError
from engine.events import Event, FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.passage import FinishedWindow
from engine.philox import RESPLIT, derive
from engine.session import Session

LONG = (
    "The lamp in the harbour went out before dawn, and the captain climbed the stairs with a box "
    "of matches. Nobody had asked her to come. She lit the wick and sat down by the window; all "
    "nine of the boats were home."
)
# Rms is the slowest of the voices: eight text tokens a frame apart, this fills his window.
CROWDED = (
    "Six slim swallows swiftly swept south since spring, circling seven silent steeples while "
    "wise, weary whales"
)
TEXTS = [
    "Yes.",
    LONG,
    "Good morning.",
    "On 3 May 2026 the ticket cost $12.50.",
    "Are you ready?",
    CROWDED,
    "The baker left a lamp in the window near the old mill, without a word.",
    "Nobody answered.",
    "What a day! Come in and sit down.",
    "The snow came down all through the winter.",
    "A young doctor drew a map of the coast.",
    "No.",
]


def job(index: int, text: str | None = None, **changes: object) -> PassageJob:
    """The index-th passage of the topology set."""
    made = PassageJob(
        key=f"p{index}",
        text=TEXTS[index] if text is None else text,
        conditioning=Conditioning(("slt", "rms", "awb", "kal")[index % 4]),
        seed=7 + index,
        language="en",
        format="wav",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def run(engine: Engine, jobs: Sequence[PassageJob], *, slots: int) -> list[Event]:
    """All events of a session that gets all jobs at once."""
    session = Session(engine, slots=slots)
    for each in jobs:
        session.submit(each)
    events: list[Event] = []
    while session.in_flight:
        events += session.advance()
    return events


def results(events: Sequence[Event]) -> dict[str, tuple[str, tuple[FinishedWindow, ...]]]:
    """PCM hash and windows of every passage; a failure is an error here."""
    failures = [event for event in events if isinstance(event, FailureEvent)]
    assert not failures, failures
    windows: dict[str, list[FinishedWindow]] = {}
    for event in events:
        if isinstance(event, WindowEvent):
            windows.setdefault(event.key, []).append(event.window)
    return {
        event.key: (event.pcm_sha256, tuple(windows.get(event.key, ())))
        for event in events
        if isinstance(event, PassageEvent)
    }


@pytest.fixture(scope="module")
def alone(engine: Engine) -> dict[str, tuple[str, tuple[FinishedWindow, ...]]]:
    """Every passage rendered by itself."""
    found: dict[str, tuple[str, tuple[FinishedWindow, ...]]] = {}
    for index in range(len(TEXTS)):
        found |= results(run(engine, [job(index)], slots=4))
    return found


@pytest.mark.parametrize("slots", [4, 8, 32, 64])
def test_a_passage_is_the_same_alone_and_in_any_batch(
    engine: Engine, alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]], slots: int
) -> None:
    order = list(range(len(TEXTS)))
    random.Random(slots).shuffle(order)
    assert results(run(engine, [job(index) for index in order], slots=slots)) == alone


def test_a_passage_that_arrives_late_joins_a_running_batch(
    engine: Engine, alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]]
) -> None:
    session, events = Session(engine, slots=5), []
    for index in range(len(TEXTS)):
        session.submit(job(index))
        for _ in range(index % 4):
            events += session.advance()
    while session.in_flight:
        events += session.advance()
    assert results(events) == alone


def test_the_topology_set_has_a_resplit_and_it_moves_no_later_seed(
    alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]],
) -> None:
    split = [w for _, windows in alone.values() for w in windows if w.half]
    assert {w.half for w in split} == {1, 2}
    for _, windows in alone.values():
        for first, second in itertools.pairwise(windows):
            if first.half == 1:
                assert second.half == 2
                assert second.chunk_index == first.chunk_index
                assert second.seed == derive(first.seed, RESPLIT)


def test_a_carry_is_one_frame_and_is_not_rendered_twice(
    engine: Engine, alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]]
) -> None:
    _, windows = alone["p1"]
    assert len(windows) > 1
    assert windows[0].prefix == ()
    for before, after in itertools.pairwise(windows):
        assert after.prefix == before.tokens[-7:]
    frames = sum(len(window.tokens) // 7 for window in windows)
    [event] = [e for e in run(engine, [job(1)], slots=4) if isinstance(e, PassageEvent)]
    assert event.samples == frames * engine.samples_per_frame


def test_global_generators_decide_nothing(
    engine: Engine, alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]]
) -> None:
    session, events = Session(engine, slots=4), []
    session.submit(job(1))
    session.submit(job(2))
    while session.in_flight:
        torch.rand(3)
        np.random.rand(3)
        random.random()
        events += session.advance()
    got = results(events)
    assert got == {key: alone[key] for key in got}


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_passage_goes_on_from_the_windows_a_ledger_kept(
    engine: Engine, alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]], kept: int
) -> None:
    sha256, windows = alone["p1"]
    events = run(engine, [job(1, done=windows[:kept])], slots=4)
    assert results(events)["p1"] == (sha256, windows[kept:])


def test_all_windows_kept_need_no_model_at_all(
    engine: Engine, alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]]
) -> None:
    sha256, windows = alone["p1"]
    session = Session(engine, slots=4)
    session.submit(job(1, done=windows))
    events = []
    while session.in_flight:
        events += session.advance()
    assert results(events)["p1"] == (sha256, ())
    assert session.decode_times.steps == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"text": ""}, "nothing_to_speak"),
        ({"text": " \n\t "}, "nothing_to_speak"),
        ({"text": "... !? --"}, "nothing_to_speak"),
        ({"text": "\U0001f600\U0001f680"}, "nothing_to_speak"),
        ({"text": "[12] \u200b"}, "nothing_to_speak"),
        ({"text": "日本語"}, "unsupported_text"),
        ({"text": "half \ud800 pair"}, "unsupported_text"),
        ({"language": "de"}, "unsupported_language"),
        ({"conditioning": Conditioning("nobody")}, "unknown_speaker"),
        ({"conditioning": Conditioning("slt", style="narration")}, "unsupported_prompt"),
        ({"format": "aiff"}, "audio_format"),
    ],
)
def test_a_bad_passage_fails_by_name_and_the_others_are_rendered(
    engine: Engine,
    alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]],
    changes: dict[str, object],
    code: str,
) -> None:
    bad = replace(job(0), key="bad", **changes)  # type: ignore[arg-type]
    events = run(engine, [job(2), bad, job(4)], slots=4)
    [failure] = [event for event in events if isinstance(event, FailureEvent)]
    assert (failure.key, failure.code) == ("bad", code)
    assert "\n" not in failure.message
    rest = results([event for event in events if event is not failure])
    assert {key: rest[key] for key in ("p2", "p4")} == {key: alone[key] for key in ("p2", "p4")}


def test_a_logit_that_is_no_number_ends_its_own_passage_only(
    engine: Engine,
    alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, events = Session(engine, slots=4), []
    for index in (2, 1, 4):
        session.submit(job(index))
    events += session.advance()
    session._decoder._hidden[1] = torch.nan  # the second slot's row, between two frames
    while session.in_flight:
        events += session.advance()
    [failure] = [event for event in events if isinstance(event, FailureEvent)]
    assert (failure.key, failure.code) == ("p1", "logits_not_finite")
    assert "slot 1" in failure.message
    rest = results([event for event in events if event is not failure])
    assert rest == {key: alone[key] for key in ("p2", "p4")}


def test_sound_that_cannot_be_made_ends_its_passage_in_its_window(
    engine: Engine,
    alone: dict[str, tuple[str, tuple[FinishedWindow, ...]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sound is made while the slots go on; what goes wrong there is told as anywhere else."""
    _, windows = alone["p1"]
    real = SnacCodec.decode_window

    def broken(codec: SnacCodec, tokens: Any, **given: Any) -> Any:
        if tuple(tokens) == windows[1].tokens:
            raise AudioNotFiniteError("sample 0 is nan")
        return real(codec, tokens, **given)

    monkeypatch.setattr(SnacCodec, "decode_window", broken)
    events = run(engine, [job(2), job(1)], slots=4)
    [failure] = [event for event in events if isinstance(event, FailureEvent)]
    assert (failure.key, failure.code) == ("p1", "audio_not_finite")
    assert (failure.chunk_index, failure.half, failure.attempt) == (
        windows[1].chunk_index,
        windows[1].half,
        windows[1].attempt,
    )
    assert results([e for e in events if e is not failure])["p2"] == alone["p2"]
