"""LR-SAMPLER-v1 against loudkit's sampler, token by token, and rows of a band against one row."""

from __future__ import annotations

from dataclasses import dataclass

import loudkit.config
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit.sampler import LRSamplerV1
from numpy.typing import NDArray

from engine.algorithm import SamplingConfig
from engine.errors import ContractMismatchError, LogitsNotFiniteError
from engine.sampler import RowSampler, sample_rows

Logits = NDArray[np.float32]
NEVER = np.float32(-np.inf)

SHAPES = (
    "normal",
    "wide",
    "flat",
    "huge",
    "denormal",
    "masked",
    "one_hot",
    "ties",
    "zeros",
    "mixed",
)


def logits_of(shape: str, width: int, rng: np.random.Generator) -> Logits:
    """Logits that are ordinary, and ones that look for the edges of float arithmetic."""
    plain = rng.normal(size=width).astype(np.float32)
    match shape:
        case "normal":
            return plain * np.float32(3)
        case "wide":
            return plain * np.float32(40)
        case "flat":
            return np.full(width, rng.normal(), np.float32)
        case "huge":
            share = rng.random(width).astype(np.float32)
            return np.copysign(np.float32(3.3e38), plain).astype(np.float32) * share
        case "denormal":
            return plain * np.float32(1e-41)
        case "masked":
            out = plain * np.float32(2)
            out[rng.random(width) < 0.8] = NEVER
            out[rng.integers(width)] = 1.0
            return out
        case "one_hot":
            out = np.full(width, NEVER, np.float32)
            out[rng.integers(width)] = plain[0]
            return out
        case "ties":
            return (np.round(plain * 2) / 2).astype(np.float32)
        case "zeros":
            return np.where(rng.random(width) < 0.5, np.float32(0.0), np.float32(-0.0))
        case _:
            out = plain * np.float32(10)
            out[rng.random(width) < 0.3] = np.float32(1e-45)
            out[rng.random(width) < 0.1] = np.float32(-3.4e38)
            return out


@dataclass(frozen=True)
class Case:
    """One row to be drawn from, and the law to draw it by."""

    logits: Logits
    seen: NDArray[np.bool_]
    config: SamplingConfig
    seed: int
    step: int


PENALTIES = (1.0, 1.2, 1.1, 2.5)
FLOORS = (0.0, 0.05, 0.5, 0.001, 0.999)
TEMPERATURES = (0.8, 1.0, 0.7, 0.01, 4.0)


def case_of(number: int, width: int) -> Case:
    """The case of that number: every shape, penalty, floor and temperature comes round."""
    rng = np.random.default_rng([number, width])
    silence = tuple(int(i) for i in rng.choice(width, size=rng.integers(1, 8)))
    return Case(
        logits=logits_of(SHAPES[number % len(SHAPES)], width, rng),
        seen=rng.random(width) < rng.choice([0.0, 0.1, 0.9]),
        config=SamplingConfig(
            temperature=TEMPERATURES[number // 3 % 5],
            repetition_penalty=PENALTIES[number // 7 % 4],
            min_p=FLOORS[number // 11 % 5],
            silence_token_ids=silence if number % 3 else (),
        ),
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
        step=int(rng.choice([0, 1, 255, 256, 4000, 2**31 + number])),
    )


def reference_config(config: SamplingConfig) -> loudkit.config.SamplingConfig:
    return loudkit.config.SamplingConfig(
        temperature=config.temperature,
        repetition_penalty=config.repetition_penalty,
        min_p=config.min_p,
        silence_token_ids=config.silence_token_ids,
    )


def check_against_the_reference(case: Case) -> None:
    stop = int(case.seed % case.logits.size)
    floor = 3
    ours = RowSampler(case.config, seed=case.seed, stop_token=stop, eos_floor=floor)
    theirs = LRSamplerV1(
        reference_config(case.config), seed=case.seed, block=1, stop_token=stop, eos_floor=floor
    )
    token = ours(case.logits, step=case.step, seen=case.seen)
    assert token == theirs(case.logits, step=case.step, seen=case.seen)
    (at, peak), (reference_at, reference_peak) = ours.eos_peak, theirs.eos_peak
    assert at == reference_at
    assert peak == pytest.approx(reference_peak, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("width", [16, 17, 64, 513])
def test_a_row_draws_the_reference_s_token(width: int) -> None:
    for number in range(800):
        check_against_the_reference(case_of(number, width))


def test_a_row_of_a_large_vocabulary_draws_the_reference_s_token() -> None:
    for number, width in enumerate([3_682, 8_194, 30_000] * 40):
        check_against_the_reference(case_of(number, width))


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 100, 1_000, 4_097, 30_000])
def test_a_row_draws_the_reference_s_token_at_length(width: int) -> None:
    for number in range(1_000, 6_000):
        check_against_the_reference(case_of(number, width))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=24), st.integers(0, 99))
@settings(derandomize=True, deadline=None, max_examples=400)
def test_any_logits_draw_the_reference_s_token(values: list[float], number: int) -> None:
    logits = np.array(values, np.float32)
    logits[logits == np.inf] = 0.0
    logits[0] = max(logits[0], np.float32(-1.0))
    case = case_of(number, logits.size)
    check_against_the_reference(Case(logits, case.seen, case.config, case.seed, case.step))


def test_the_peak_is_the_likeliest_step_after_the_floor() -> None:
    config = SamplingConfig(temperature=1.0, repetition_penalty=1.0, min_p=0.0)
    seen = np.zeros(4, bool)
    ours = RowSampler(config, seed=1, stop_token=3, eos_floor=2)
    theirs = LRSamplerV1(reference_config(config), seed=1, stop_token=3, eos_floor=2)
    assert ours.eos_peak == (-1, 0.0)
    for step, stop in enumerate([9.0, 8.0, 7.0, 0.5, 2.0, 2.0, 1.0]):
        logits = np.array([0.0, 1.0, 0.0, stop], np.float32)
        ours(logits, step=step, seen=seen)
        theirs(logits, step=step, seen=seen)
    assert ours.eos_peak[0] == 4
    assert ours.eos_peak == theirs.eos_peak


def test_without_a_stop_token_no_peak_is_kept() -> None:
    sampler = RowSampler(SamplingConfig(), seed=1)
    sampler(np.zeros(8, np.float32), step=5, seen=np.zeros(8, bool))
    assert sampler.eos_peak == (-1, 0.0)


def test_a_seed_counts_modulo_two_to_the_64() -> None:
    case = case_of(4, 64)
    first, second = (RowSampler(case.config, seed=s) for s in (case.seed, case.seed + 2**64))
    drawn = [
        (first(case.logits, step=n, seen=case.seen), second(case.logits, step=n, seen=case.seen))
        for n in range(20)
    ]
    assert all(a == b for a, b in drawn)
    assert len({a for a, _ in drawn}) > 1


@pytest.mark.parametrize(
    ("bad", "reason"), [(np.nan, "a logit is NaN"), (np.inf, r"a logit is \+inf")]
)
def test_a_row_with_a_bad_logit_is_refused_with_its_step(bad: float, reason: str) -> None:
    logits = np.zeros(16, np.float32)
    logits[5] = bad
    sampler = RowSampler(SamplingConfig(silence_token_ids=(3,)), seed=0, stop_token=2)
    with pytest.raises(LogitsNotFiniteError, match=f"step 12: {reason}"):
        sampler(logits, step=12, seen=np.zeros(16, bool))


def test_a_row_with_nothing_to_choose_from_is_refused() -> None:
    with pytest.raises(LogitsNotFiniteError, match=r"step 0: every logit is -inf"):
        RowSampler(SamplingConfig(), seed=0)(np.full(8, NEVER), step=0, seen=np.zeros(8, bool))


def test_a_silence_id_outside_the_vocabulary_is_refused() -> None:
    sampler = RowSampler(SamplingConfig(silence_token_ids=(2, 16)), seed=0)
    with pytest.raises(ContractMismatchError, match=r"silence id 16 .* vocabulary of 16"):
        sampler(np.zeros(16, np.float32), step=0, seen=np.zeros(16, bool))


# -- S rows of a band ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """S rows of one law over a band of a vocabulary."""

    logits: Logits  # (S, W)
    seen: NDArray[np.bool_]  # (S, W)
    ids: NDArray[np.int64]  # (W,)
    vocabulary: int
    seeds: NDArray[np.uint64]
    steps: NDArray[np.int64]
    config: SamplingConfig
    stop_column: int


def batch_of(number: int, width: int, n_rows: int) -> Batch:
    rng = np.random.default_rng([number, width, n_rows])
    law = case_of(number, width).config
    vocabulary = width + int(rng.integers(0, 500))
    ids = np.sort(rng.choice(vocabulary, size=width, replace=False)).astype(np.int64)
    silence = tuple(int(ids[i]) for i in law.silence_token_ids)
    return Batch(
        logits=np.stack(
            [logits_of(SHAPES[(number + row) % len(SHAPES)], width, rng) for row in range(n_rows)]
        ),
        seen=rng.random((n_rows, width)) < 0.3,
        ids=ids,
        vocabulary=vocabulary,
        seeds=rng.integers(0, 2**64, size=n_rows, dtype=np.uint64),
        steps=rng.integers(0, 5_000, size=n_rows),
        config=SamplingConfig(
            temperature=law.temperature,
            repetition_penalty=law.repetition_penalty,
            min_p=law.min_p,
            silence_token_ids=silence,
        ),
        stop_column=int(rng.integers(width)),
    )


def draw(batch: Batch, device: str = "cpu") -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    silence = np.isin(batch.ids, batch.config.silence_token_ids)
    drawn = sample_rows(
        torch.from_numpy(batch.logits).to(device),
        ids=batch.ids,
        seeds=batch.seeds,
        steps=batch.steps,
        seen=torch.from_numpy(batch.seen).to(device),
        silence=torch.from_numpy(silence).to(device) if silence.any() else None,
        config=batch.config,
        stop_column=batch.stop_column,
    )
    return drawn.tokens, drawn.stop_probability


def draw_row_by_row(batch: Batch) -> tuple[list[int], list[float]]:
    tokens, peaks = [], []
    for row in range(len(batch.seeds)):
        logits = np.full(batch.vocabulary, NEVER, np.float32)
        logits[batch.ids] = batch.logits[row]
        seen = np.zeros(batch.vocabulary, bool)
        seen[batch.ids] = batch.seen[row]
        sampler = RowSampler(
            batch.config,
            seed=int(batch.seeds[row]),
            stop_token=int(batch.ids[batch.stop_column]),
            eos_floor=-1,
        )
        tokens.append(sampler(logits, step=int(batch.steps[row]), seen=seen))
        peaks.append(sampler.eos_peak[1])
    return tokens, peaks


@pytest.mark.parametrize(("width", "n_rows"), [(16, 5), (512, 16), (513, 4), (4_097, 3)])
def test_rows_of_a_band_draw_what_each_draws_alone(width: int, n_rows: int) -> None:
    for number in range(60):
        batch = batch_of(number, width, n_rows)
        tokens, stops = draw(batch)
        alone, peaks = draw_row_by_row(batch)
        assert tokens.tolist() == alone
        assert tokens.dtype == np.int64
        assert stops.tolist() == peaks  # bit for bit: the same survivors, added in one order


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 512, 8_194])
def test_rows_of_a_band_draw_what_each_draws_alone_at_length(width: int) -> None:
    for number in range(100, 600):
        batch = batch_of(number, width, 8)
        tokens, stops = draw(batch)
        assert (tokens.tolist(), stops.tolist()) == draw_row_by_row(batch)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_draws_what_the_cpu_draws() -> None:
    for number in range(200):
        batch = batch_of(number, 513, 16)
        here, there = draw(batch), draw(batch, "cuda")
        np.testing.assert_array_equal(here[0], there[0])
        np.testing.assert_array_equal(here[1], there[1])


def test_a_row_does_not_depend_on_its_slot_or_its_mates() -> None:
    batch = batch_of(8, 512, 12)
    tokens, stops = draw(batch)
    order = np.random.default_rng(0).permutation(12)
    shuffled = Batch(
        logits=batch.logits[order],
        seen=batch.seen[order],
        ids=batch.ids,
        vocabulary=batch.vocabulary,
        seeds=batch.seeds[order],
        steps=batch.steps[order],
        config=batch.config,
        stop_column=batch.stop_column,
    )
    again, stops_again = draw(shuffled)
    np.testing.assert_array_equal(again, tokens[order])
    np.testing.assert_array_equal(stops_again, stops[order])


def test_nothing_seen_nothing_silent_nowhere_to_stop() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0], [9.0, 0.0, 0.0]])
    drawn = sample_rows(
        logits,
        ids=np.array([10, 20, 30]),
        seeds=np.array([1, 2], np.uint64),
        steps=np.array([0, 0]),
        seen=None,
        silence=None,
        config=SamplingConfig(min_p=0.5, temperature=0.5),
    )
    assert drawn.tokens.tolist() == [20, 10]
    assert drawn.stop_probability.tolist() == [0.0, 0.0]


def test_a_stop_under_the_floor_still_has_a_probability() -> None:
    config = SamplingConfig(min_p=0.5, temperature=1.0, repetition_penalty=1.0)
    drawn = sample_rows(
        torch.tensor([[2.0, 0.0]]),
        ids=np.array([0, 1]),
        seeds=np.array([1], np.uint64),
        steps=np.array([0]),
        seen=None,
        silence=None,
        config=config,
        stop_column=1,
    )
    assert drawn.tokens.tolist() == [0]
    assert drawn.stop_probability[0] == pytest.approx(np.exp(-2.0))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (np.nan, "row 2, step 41: a logit is NaN"),
        (np.inf, r"row 2, step 41: a logit is \+inf"),
        (-np.inf, "row 2, step 41: every logit is -inf"),
    ],
)
def test_a_bad_row_is_named_with_its_step(bad: float, reason: str) -> None:
    logits = torch.zeros(4, 8)
    logits[2, 3] = bad
    if bad == -np.inf:
        logits[2] = bad
    with pytest.raises(LogitsNotFiniteError, match=reason):
        sample_rows(
            logits,
            ids=np.arange(8),
            seeds=np.arange(4).astype(np.uint64),
            steps=np.array([3, 30, 41, 5]),
            seen=torch.zeros(4, 8, dtype=torch.bool),
            silence=torch.zeros(8, dtype=torch.bool),
            config=SamplingConfig(),
            stop_column=0,
        )
