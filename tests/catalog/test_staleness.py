"""How a published clip stands against today's plan, fact by fact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalog.records import ClipRecord, ConditioningRecord, PackRecord, TurnRecord
from catalog.staleness import TO_RENDER, AudioFault, State, Wanted, counts, judge

WANTED = Wanted(
    voice="ann",
    passage="short",
    text="Good morning.",
    turns=(),
    seed=7,
    format="flac",
    algorithm_fingerprint="a" * 16,
    token_contract_fingerprint="t" * 16,
    pack_sha256="b" * 64,
    profile_sha256="d" * 64,
    conditioning=ConditioningRecord("slt", "en"),
)
CLIP = ClipRecord(
    voice="ann",
    passage="short",
    language="English",
    language_id="en",
    audio="audio/ann/short.flac",
    sha256="e" * 64,
    text="Good morning.",
    seed=7,
    model="m",
    checkpoint_sha256="c" * 64,
    edge_fade_seconds=0.02,
    algorithm_fingerprint="a" * 16,
    backend="b",
    profile_sha256="d" * 64,
    token_contract_fingerprint="t" * 16,
    execution={"digest": "1" * 16},
    pack=PackRecord("m", "b" * 64),
    conditioning=ConditioningRecord("slt", "en"),
)


def facts(clip: ClipRecord, wanted: Wanted = WANTED, execution: str | None = None) -> list[str]:
    (verdict,) = judge([wanted], {"ann/short": clip}, {}, execution=execution)
    assert verdict.state == (State.STALE if verdict.reasons else State.CURRENT)
    return [reason.fact for reason in verdict.reasons]


def test_a_clip_of_the_same_is_current() -> None:
    assert facts(CLIP) == []
    assert facts(CLIP, execution="1" * 16) == []


CHANGES: dict[str, Callable[[Wanted], Wanted]] = {
    "algorithm": lambda w: replace(w, algorithm_fingerprint="f" * 16),
    "token contract": lambda w: replace(w, token_contract_fingerprint="f" * 16),
    "pack": lambda w: replace(w, pack_sha256="f" * 64, profile_sha256="0" * 64),
    "profile": lambda w: replace(w, profile_sha256="f" * 64),
    "text": lambda w: replace(w, text="Good morning"),
    "turns": lambda w: replace(w, turns=(TurnRecord("slt", "Good morning."),)),
    "seed": lambda w: replace(w, seed=8),
    "conditioning": lambda w: replace(
        w, conditioning=ConditioningRecord("slt", "en", "calm"), profile_sha256="0" * 64
    ),
    "format": lambda w: replace(w, format="opus"),
}


@pytest.mark.parametrize("fact", CHANGES)
def test_one_fact_that_differs_is_the_reason(fact: str) -> None:
    assert facts(CLIP, CHANGES[fact](WANTED)) == [fact]


def test_all_facts_that_differ_are_told() -> None:
    wanted = WANTED
    for change in CHANGES.values():
        wanted = change(wanted)
    assert set(facts(CLIP, wanted)) == set(CHANGES) - {"profile"}  # the others explain it


@pytest.mark.parametrize(
    ("field", "fact"),
    [
        ("token_contract_fingerprint", "token contract"),
        ("pack", "pack"),
        ("conditioning", "conditioning"),
        ("profile_sha256", "profile"),
    ],
)
def test_what_a_record_does_not_say_is_not_guessed(field: str, fact: str) -> None:
    without: dict[str, Any] = {field: None}
    clip = replace(CLIP, **without)
    assert facts(clip) == [fact]
    (verdict,) = judge([WANTED], {"ann/short": clip}, {})
    assert verdict.reasons[0].recorded == "not recorded"


@pytest.mark.parametrize("execution", [None, {}, {"digest": "2" * 16}])
def test_an_execution_identity_counts_where_it_is_asked_for(
    execution: dict[str, object] | None,
) -> None:
    clip = replace(CLIP, execution=execution)
    assert facts(clip) == []
    assert facts(clip, execution="1" * 16) == ["execution"]


@pytest.mark.parametrize("state", [State.ALTERED, State.UNREADABLE])
def test_bad_audio_comes_before_all_facts(state: State) -> None:
    wanted = replace(WANTED, seed=8)
    faults = {"ann/short": AudioFault(state, "objects/e is gone")}
    (verdict,) = judge([wanted], {"ann/short": CLIP}, faults)
    assert (verdict.state, str(verdict.reasons[0])) == (state, "objects/e is gone")


def test_missing_and_orphaned() -> None:
    others = {"ann/long": replace(CLIP, passage="long")}
    found = list(judge([WANTED], others, {}))
    assert [(each.key, each.state) for each in found] == [
        ("ann/short", State.MISSING),
        ("ann/long", State.ORPHANED),
    ]
    assert counts(found) == {
        "current": 0,
        "stale": 0,
        "missing": 1,
        "altered": 0,
        "unreadable": 0,
        "orphaned": 1,
    }
    assert [each.key for each in judge([WANTED], others, {}, orphans=False)] == ["ann/short"]
    assert {each.state for each in found} & TO_RENDER == {State.MISSING}


def test_what_looks_the_same_is_not_the_same() -> None:
    """A text may spell what stands between two turns, and a style what stands between two facts."""
    one = (TurnRecord("slt", "Yes. / rms: No."),)
    two = (TurnRecord("slt", "Yes."), TurnRecord("rms", "No."))
    assert facts(replace(CLIP, turns=one), replace(WANTED, turns=two)) == ["turns"]
    joined = ConditioningRecord("slt, style calm", "en")
    apart = replace(WANTED, conditioning=ConditioningRecord("slt", "en", "calm"))
    assert facts(replace(CLIP, conditioning=joined), apart) == ["conditioning"]
