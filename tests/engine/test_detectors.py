"""The detectors against loudkit 0.1.1: rows built for each verdict, and many random ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit import postprocess as reference
from loudkit.config import AlgorithmConfig as ReferenceAlgorithm
from loudkit.config import SamplingConfig as ReferenceSampling
from loudkit.models import windowing

from engine.algorithm import PostprocessConfig, SamplingConfig
from engine.detectors import (
    Inspection,
    ceiling_for,
    eos_floor,
    inspect,
    pacing_outliers,
)

SILENCE = (1, 2, 3)  # what the sampler calls silence
RENDERED_SILENT = (3, 4)  # what the census calls silence
QUIET = (5, 6)
_FRESH = count(1000)


def speech(length: int) -> list[int]:
    """Tokens that occur nowhere else."""
    return [next(_FRESH) for _ in range(length)]


def pause(length: int) -> list[int]:
    return [1] * length


@dataclass(frozen=True)
class Case:
    """A row and all that is known of it."""

    tokens: list[int]
    text_token_count: int = 20
    min_tokens: int = 10
    eos_peak_at: int = -1
    eos_peak_prob: float = 0.0
    ended: bool = False
    is_terminal: bool = True
    hit_ceiling: bool = False

    def inspected(self, config: PostprocessConfig) -> Inspection:
        return inspect(**vars(self), silence=SILENCE, config=config)

    def inspected_by_reference(self, config: reference.PostprocessConfig) -> Inspection:
        theirs = reference.inspect(**vars(self), silence=SILENCE, config=config)
        return Inspection(theirs.keep, theirs.reason, theirs.suspect)


def reference_config(config: PostprocessConfig) -> reference.PostprocessConfig:
    values = asdict(config)
    del values["earliest_cut_tokens"]
    return reference.PostprocessConfig(**values)


DEFAULT = PostprocessConfig()
CENSUS = PostprocessConfig(silence_render_ids=RENDERED_SILENT, quiet_render_ids=QUIET)
CUT_LOOPS = PostprocessConfig(repetition_resume="cut")

BUILT = {
    "clean": (Case(speech(60), ended=True), DEFAULT, Inspection(60)),
    "empty": (Case([]), DEFAULT, Inspection(0)),
    "dropout": (Case(speech(19), ended=True), DEFAULT, Inspection(19, "dropout", suspect=True)),
    "short text is no dropout": (
        Case(speech(19), text_token_count=19, ended=True),
        DEFAULT,
        Inspection(19),
    ),
    "loop to the end": (
        Case(speech(30) + [7, 8, 9] * 8 + [7, 8]),
        DEFAULT,
        Inspection(33, "repetition"),
    ),
    "loop left again": (
        Case(speech(30) + [7, 8, 9] * 8 + speech(3)),
        DEFAULT,
        Inspection(57, "repetition", suspect=True),
    ),
    "loop left again, cut": (
        Case(speech(30) + [7, 8, 9] * 8 + speech(3)),
        CUT_LOOPS,
        Inspection(33, "repetition"),
    ),
    "one cycle short of a loop": (Case(speech(30) + [7, 8, 9] * 7 + [7, 8]), DEFAULT, None),
    "silence is no loop": (Case(speech(30) + pause(24), ended=True), DEFAULT, None),
    "census silence is no loop": (
        Case(speech(30) + [4, 5] * 15, text_token_count=30),
        CENSUS,
        Inspection(60),
    ),
    "... unless the sampler's list decides": (
        Case(speech(30) + [4, 5] * 15),
        PostprocessConfig(
            silence_render_ids=RENDERED_SILENT,
            quiet_render_ids=QUIET,
            repetition_silence="sampling",
        ),
        Inspection(32, "repetition"),
    ),
    "the earlier of two loops": (
        Case(speech(10) + [7] * 24 + speech(1) + [8] * 30),
        CUT_LOOPS,
        Inspection(11, "repetition"),
    ),
    "stall": (
        Case(speech(20) + pause(25) + speech(20), text_token_count=30),
        DEFAULT,
        Inspection(65, "stall", suspect=True),
    ),
    "stall held together by breath": (
        Case(speech(20) + ([3] * 12 + [5]) * 2 + [4] + speech(20), text_token_count=30),
        CENSUS,
        Inspection(67, "stall", suspect=True),
    ),
    "one short of a stall": (
        Case(speech(20) + pause(24) + speech(20), text_token_count=30),
        DEFAULT,
        Inspection(64),
    ),
    "nothing but silence and breath": (
        Case([3, 4, 5] * 9, text_token_count=20),
        CENSUS,
        Inspection(27, "stall", suspect=True),
    ),
    "mostly silence at the ceiling": (
        Case(speech(20) + [3, 4] * 11, text_token_count=30, hit_ceiling=True),
        CENSUS,
        Inspection(42, "stall", suspect=True),
    ),
    "silence tail": (
        Case(speech(40) + pause(20), eos_peak_at=40, eos_peak_prob=0.06),
        DEFAULT,
        Inspection(40, "silence_tail"),
    ),
    "silence tail by its seam": (
        Case(speech(45) + pause(12) + speech(10), eos_peak_at=40, eos_peak_prob=0.06),
        DEFAULT,
        Inspection(40, "silence_tail"),
    ),
    "a sentence between two seams": (
        Case(
            speech(40) + pause(12) + speech(11) + pause(12) + speech(5),
            text_token_count=30,
            eos_peak_at=40,
            eos_peak_prob=0.06,
        ),
        DEFAULT,
        Inspection(80),
    ),
    "a continuation has no silence tail": (
        Case(speech(40) + pause(20), eos_peak_at=40, eos_peak_prob=0.06, is_terminal=False),
        DEFAULT,
        Inspection(60),
    ),
    "terminal echo": (
        Case(speech(70), eos_peak_at=50, eos_peak_prob=0.1),
        DEFAULT,
        Inspection(50, "terminal_echo"),
    ),
    "faint terminal echo at the ceiling": (
        Case(speech(80), eos_peak_at=70, eos_peak_prob=0.004, hit_ceiling=True),
        DEFAULT,
        Inspection(70, "terminal_echo"),
    ),
    "a faint peak alone is no echo": (
        Case(speech(80), eos_peak_at=70, eos_peak_prob=0.004),
        DEFAULT,
        Inspection(80),
    ),
    "desperation at a seam": (
        Case(speech(40) + pause(12) + speech(40), is_terminal=False),
        DEFAULT,
        Inspection(40, "desperation"),
    ),
    "desperation at the peak": (
        Case(speech(95), eos_peak_at=64, eos_peak_prob=0.001),
        DEFAULT,
        Inspection(64, "desperation"),
    ),
    "overran with no place to cut": (
        Case(speech(95), eos_peak_at=65, eos_peak_prob=0.001),
        DEFAULT,
        Inspection(95, "clean", suspect=True),
    ),
    "starved": (
        Case(speech(33) + pause(12) + speech(50), hit_ceiling=True),
        DEFAULT,
        Inspection(33, "desperation", suspect=True),
    ),
    "just not starved": (
        Case(speech(34) + pause(12) + speech(50), hit_ceiling=True),
        DEFAULT,
        Inspection(34, "desperation"),
    ),
    "dead air after the end": (
        Case(speech(40) + pause(12), ended=True),
        DEFAULT,
        Inspection(45, "ended_tail"),
    ),
    "a click after a pause": (
        Case(speech(40) + pause(6) + speech(2) + pause(3), ended=True, is_terminal=False),
        DEFAULT,
        Inspection(45, "ended_tail"),
    ),
    "a word after a seam": (
        Case(speech(40) + pause(12) + speech(10), ended=True),
        DEFAULT,
        Inspection(45, "ended_tail"),
    ),
    "a word after a seam, to be continued": (
        Case(speech(40) + pause(12) + speech(10), ended=True, is_terminal=False),
        DEFAULT,
        Inspection(62),
    ),
    "the last sound is the sentence": (Case(pause(12) + speech(2), 5, ended=True), DEFAULT, None),
    "off": (Case(speech(5)), PostprocessConfig(mode="off"), Inspection(5)),
    "report": (Case(speech(5)), PostprocessConfig(mode="report"), None),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_row_built_for_a_verdict_gets_it(name: str) -> None:
    case, config, expected = BUILT[name]
    verdict = case.inspected(config)
    assert verdict == case.inspected_by_reference(reference_config(config))
    if expected is not None:
        assert verdict == expected


def random_config(rng: random.Random) -> PostprocessConfig:
    """The shipped numbers, a census added, or numbers small enough to be reached often."""
    kind = rng.random()
    if kind < 0.2:
        return rng.choice((DEFAULT, CENSUS, CUT_LOOPS))
    census: dict[str, Any] = {
        "silence_render_ids": rng.choice(((), RENDERED_SILENT)),
        "quiet_render_ids": rng.choice(((), QUIET)),
        "repetition_resume": rng.choice(("condemn", "cut")),
        "repetition_silence": rng.choice(("acoustic", "sampling")),
        "mode": rng.choice(("trim", "trim", "report")),
    }
    if kind < 0.4:
        return PostprocessConfig(**census)
    cycles = rng.randint(2, 4)
    band = rng.uniform(0.5, 3.0)
    ceiling = rng.uniform(0.5, 4.0)
    return PostprocessConfig(
        **census,
        ceiling_speech_per_text_token=ceiling,
        ceiling_slack_tokens=rng.randint(0, 40),
        trailing_filler_threshold=rng.choice((0.3, 0.5, 0.7, 1.0)),
        trailing_silence_run_tokens=rng.choice((0, 1, 2, 4, 8, 12)),
        filler_min_eos_probability=rng.choice((0.0, 0.05, 0.3)),
        filler_max_speech_after_run=rng.choice((0, 2, 5, 10)),
        desperation_band_ratio=band,
        desperation_band_floor=rng.randint(0, 20),
        desperation_speech_per_text_token=ceiling + rng.uniform(0.01, 1.0),
        desperation_min_text_tokens=rng.choice((0, 3, 10)),
        desperation_min_keep_per_text_token=rng.uniform(0.0, band),
        ended_tail_silence_run=rng.randint(0, 6),
        ended_tail_blip_max=rng.randint(0, 4),
        ended_tail_word_max=rng.randint(0, 10),
        ended_tail_keep=rng.randint(0, 8),
        echo_strong_eos_probability=rng.choice((0.0, 0.1, 0.4)),
        echo_strong_max_tail=rng.randint(0, 30),
        echo_strong_min_position_pct=rng.choice((0, 50, 68, 100)),
        echo_weak_eos_probability=rng.choice((0.0, 0.003, 0.2)),
        echo_weak_max_tail=rng.randint(0, 16),
        echo_weak_min_position_pct=rng.choice((0, 50, 85, 100)),
        repetition_max_period=rng.randint(1, 14),
        repetition_min_cycles=cycles,
        repetition_min_span=rng.randint(cycles, 30),
        dropout_min_tokens=rng.choice((0, 10, 25)),
        stall_run_tokens=rng.choice((1, 3, 8, 25)),
    )


def _segments(rng: random.Random) -> Iterator[list[int]]:
    for _ in range(rng.randint(0, 5)):
        kind = rng.random()
        if kind < 0.4:
            yield [rng.randrange(10, 6000) for _ in range(rng.choice((1, 2, 5, 10, 11, 25, 40)))]
        elif kind < 0.6:
            yield rng.choices(SILENCE, k=rng.choice((1, 2, 5, 6, 7, 11, 12, 13, 24, 26)))
        elif kind < 0.7:
            yield rng.choices(SILENCE + RENDERED_SILENT + QUIET, k=rng.choice((3, 12, 26, 40)))
        elif kind < 0.8:
            # Few ids: accidental short cycles, and cycles that overlap each other.
            yield rng.choices(range(rng.choice((2, 3, 8))), k=rng.choice((6, 20, 40)))
        else:
            period = rng.randint(1, 13)
            cycle = rng.choices(range(rng.choice((4, 9, 6000))), k=period)
            repeated = cycle * rng.randint(2, max(3, 40 // period))
            yield repeated + cycle[: rng.randrange(period)]


def random_case(rng: random.Random) -> Case:
    tokens = [token for segment in _segments(rng) for token in segment]
    length = len(tokens)
    text = max(0, round(length / rng.choice((0.7, 1.5, 2.5, 4.0, 4.5, 5.0, 8.0))))
    return Case(
        tokens,
        text_token_count=text + rng.choice((0, 0, 0, 1, 12)),
        min_tokens=rng.choice((0, 0, 5, 10, 12, 20)),
        eos_peak_at=rng.choice(
            (-1, 0, length - 1, length, rng.randint(-1, length + 2), length - 8)
        ),
        eos_peak_prob=rng.choice((0.0, 0.003, 0.004, 0.05, 0.051, 0.1, 0.3, 1.0)),
        ended=rng.random() < 0.5,
        is_terminal=rng.random() < 0.6,
        hit_ceiling=rng.random() < 0.5,
    )


VERDICTS = {
    "clean",
    "overran",
    "dropout",
    "stall",
    "repetition cut",
    "repetition condemned",
    "silence_tail",
    "terminal_echo",
    "desperation",
    "starved",
    "ended_tail",
}


def name_of(verdict: Inspection) -> str:
    """The reason, told apart further where one reason has two outcomes."""
    match verdict.reason, verdict.suspect:
        case "clean", True:
            return "overran"
        case "desperation", True:
            return "starved"
        case "repetition", suspect:
            return "repetition condemned" if suspect else "repetition cut"
        case reason, _:
            return reason


def compare_many(count: int, seed: int) -> None:
    rng = random.Random(seed)
    configs = [random_config(rng) for _ in range(300)]
    pairs = [(config, reference_config(config)) for config in configs]
    coverage: Counter[str] = Counter()
    for _ in range(count):
        case = random_case(rng)
        ours, theirs = rng.choice(pairs)
        verdict = case.inspected(ours)
        assert verdict == case.inspected_by_reference(theirs), (case, ours)
        coverage[name_of(verdict)] += 1
    for verdict_name, times in coverage.most_common():
        print(f"{verdict_name:22}{times:8}")
    assert set(coverage) == VERDICTS
    assert min(coverage.values()) >= count // 1000


def test_thirty_thousand_random_rows_get_the_verdicts_of_the_reference() -> None:
    compare_many(30_000, seed=1)


@pytest.mark.slow
def test_half_a_million_random_rows_get_the_verdicts_of_the_reference() -> None:
    compare_many(500_000, seed=2)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    tokens=st.lists(st.integers(0, 3), min_size=4, max_size=60),
    period=st.integers(1, 9),
    cycles=st.integers(2, 4),
    span=st.integers(4, 20),
    resume=st.sampled_from(["condemn", "cut"]),
)
def test_dense_rows_loop_where_the_reference_says(
    tokens: list[int], period: int, cycles: int, span: int, resume: Any
) -> None:
    """Rows of four ids are full of overlapping cycles."""
    config = PostprocessConfig(
        repetition_max_period=period,
        repetition_min_cycles=cycles,
        repetition_min_span=max(span, cycles),
        repetition_resume=resume,
        dropout_min_tokens=0,
    )
    case = Case(tokens)
    assert case.inspected(config) == case.inspected_by_reference(reference_config(config))


def test_a_pack_may_measure_its_own_earliest_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference keeps this number in its code; a SNAC pack carries it in its manifest."""
    config = PostprocessConfig(earliest_cut_tokens=3)
    echo = Case(speech(8), 5, min_tokens=0, eos_peak_at=6, eos_peak_prob=0.5)
    assert echo.inspected(DEFAULT) == Inspection(8)
    assert echo.inspected(config) == Inspection(6, "terminal_echo")

    monkeypatch.setattr(reference, "_EARLIEST_CUT_TOKENS", 3)
    rng = random.Random(3)
    for _ in range(2000):
        case = random_case(rng)
        assert case.inspected(config) == case.inspected_by_reference(reference_config(config))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    ratios=st.lists(st.floats(-1.0, 8.0) | st.sampled_from([2.0, 3.2, 1.25]), max_size=9),
    tolerance=st.sampled_from([1.0, 1.6, 3.0]),
)
def test_pacing_outliers_are_those_of_the_reference(ratios: list[float], tolerance: float) -> None:
    config = PostprocessConfig(pacing_tolerance=tolerance)
    theirs = reference.pacing_outliers(ratios, config=reference_config(config))
    assert pacing_outliers(ratios, config=config) == theirs


def test_a_chunk_read_at_half_or_twice_the_pace_is_an_outlier() -> None:
    assert pacing_outliers([2.0, 2.1, 4.5, 1.9, 1.0], config=DEFAULT) == [2, 4]
    assert pacing_outliers([2.0, 9.0], config=DEFAULT) == []


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    text=st.integers(0, 400),
    ratio=st.floats(0.1, 4.4),
    slack=st.integers(0, 80),
    window=st.integers(1, 1024),
    floor=st.integers(0, 40),
    floor_ratio=st.floats(0.0, 3.0),
)
def test_ceiling_and_floor_are_those_of_the_reference(
    text: int, ratio: float, slack: int, window: int, floor: int, floor_ratio: float
) -> None:
    config = PostprocessConfig(ceiling_speech_per_text_token=ratio, ceiling_slack_tokens=slack)
    ceiling = ceiling_for(text, config=config, window=window)
    assert ceiling == reference.ceiling_for(text, config=reference_config(config), window=window)
    assert ceiling <= window
    numbers = {"min_tokens_floor": floor, "min_tokens_text_ratio": floor_ratio}
    theirs = ReferenceAlgorithm(sampling=ReferenceSampling(**numbers))  # type: ignore[arg-type]
    ours = SamplingConfig(**numbers)  # type: ignore[arg-type]
    assert eos_floor(text, ours) == windowing.eos_floor(text, theirs)


def test_the_shipped_numbers_are_the_references() -> None:
    theirs = reference.PostprocessConfig()
    for field in fields(theirs):
        assert getattr(DEFAULT, field.name) == getattr(theirs, field.name)
