"""Slots against one row: a batch that comes and goes draws what a plain loop of one row draws."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.algorithm import SamplingConfig
from engine.contracts.contract import Conditioning, TokenContract
from engine.decode import Decoded, DecodeJob, Decoder
from engine.engine import Engine
from engine.errors import LogitsNotFiniteError, WindowOverflowError
from engine.llama import KVCache, Llama, load_llama, prefill, step
from engine.passage import RawWindow
from engine.sampler import RowSampler, SampledRows, sample_rows
from tests.fakes import random_llama_state, tiny_llama_config

FRAME = 7
VOCABULARY = 121
BEFORE = TokenContract(
    name="toy",
    vocabulary_size=VOCABULARY,
    added_tokens={"<|start_of_speech|>": 2, "<|end_of_speech|>": 3},
    audio_base=64,
    codebook_size=8,
    start_of_speech=2,
    end_of_speech=3,
    prompt_layout=("{text}", "<|start_of_speech|>"),
)
AFTER = replace(BEFORE, end_of_speech=120)
"""The stop token's column stands after the first band here, and before it in `BEFORE`."""

CAPACITY = 160
PLAIN = SamplingConfig(temperature=0.8, repetition_penalty=1.0, min_p=0.05)
PENALISED = replace(PLAIN, repetition_penalty=1.3)


@pytest.fixture(scope="module")
def model() -> Llama:
    """A tiny Llama whose random head stops about every ninth frame."""
    config = tiny_llama_config(vocab_size=VOCABULARY)
    state = random_llama_state(config, seed=4)
    return load_llama(config, state, device="cpu", dtype=torch.float32)


def jobs(count: int, *, seed: int = 0) -> list[DecodeJob]:
    """Prompts, carries, floors and caps of all sorts."""
    rng = np.random.default_rng(seed)
    made = []
    for ticket in range(count):
        text = rng.integers(4, 64, size=rng.integers(1, 40)).tolist()
        carry = [64 + 8 * at + int(rng.integers(8)) for at in range(FRAME)] * (ticket % 2)
        made.append(
            DecodeJob(
                ticket=ticket,
                prompt=(*text, 2, *carry),
                seen=tuple(carry),
                seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
                max_frames=int(rng.integers(1, 16)),
                floor_frames=int(rng.integers(0, 5)),
            )
        )
    return made


def decoder_of(
    model: Llama, sampling: SamplingConfig, *, slots: int, contract: TokenContract = BEFORE
) -> Decoder:
    return Decoder(model, contract, sampling, slots=slots, capacity=CAPACITY, row_padding=4)


def run(decoder: Decoder, wanted: Sequence[DecodeJob]) -> dict[int, RawWindow]:
    """Every job through the slots: the next one enters wherever one has ended."""
    waiting, done = deque(wanted), list[Decoded]()
    while waiting or decoder.active_slots:
        while waiting and decoder.free_slots:
            decoder.admit(waiting.popleft())
        done += decoder.run_frame()
    assert len(done) == len(wanted)
    windows = {each.ticket: each.outcome for each in done}
    assert all(isinstance(window, RawWindow) for window in windows.values()), windows
    return {ticket: w for ticket, w in windows.items() if isinstance(w, RawWindow)}


def one_row(
    model: Llama, job: DecodeJob, sampling: SamplingConfig, contract: TokenContract
) -> RawWindow:
    """The law without slots and bands: one row, the whole vocabulary, the numpy sampler."""
    cache = KVCache(model, slots=1, capacity=CAPACITY)
    hidden = prefill(model, cache, 0, job.prompt)
    stop = contract.end_of_speech
    sampler = RowSampler(
        sampling, seed=job.seed, stop_token=stop, eos_floor=job.floor_frames * FRAME
    )
    seen = np.zeros(VOCABULARY, dtype=bool)
    seen[list(job.seen)] = True
    tokens: list[int] = []
    ended = False
    while len(tokens) < job.max_frames * FRAME:
        frame, position = divmod(len(tokens), FRAME)
        first, past = contract.band(position)
        legal = (np.arange(VOCABULARY) >= first) & (np.arange(VOCABULARY) < past)
        legal[stop] = position == 0 and frame >= job.floor_frames
        logits = (model.head @ hidden).numpy()
        token = sampler(np.where(legal, logits, np.float32(-np.inf)), step=len(tokens), seen=seen)
        if token == stop:
            ended = True
            break
        seen[token] = True
        tokens.append(token)
        hidden = step(model, cache, [0], [token], row_padding=4)[0]
    at, chance = sampler.eos_peak
    return RawWindow(tuple(tokens), ended, at // FRAME if at >= 0 else -1, chance)


C0_SILENCE = (65, 70)
ALL_SILENCE = (64, 73, 81, 90, 98, 107, 114)  # one of every band
LAWS = {
    "plain": PLAIN,
    "penalised": PENALISED,
    "no floor": replace(PENALISED, min_p=0.0),
    "high floor": replace(PLAIN, min_p=0.5),
    "nearly greedy": replace(PENALISED, temperature=0.05, min_p=0.9),
    "hot": replace(PLAIN, temperature=3.0),
    "c0 silence": replace(PLAIN, silence_token_ids=C0_SILENCE, min_p=0.7),
    "penalised c0 silence": replace(PENALISED, silence_token_ids=C0_SILENCE, min_p=0.7),
    "silence in every band": replace(PENALISED, silence_token_ids=ALL_SILENCE, min_p=0.7),
}


@pytest.mark.parametrize("contract", [BEFORE, AFTER], ids=["stop-first", "stop-last"])
@pytest.mark.parametrize("law", LAWS)
def test_slots_draw_what_one_row_draws(model: Llama, law: str, contract: TokenContract) -> None:
    sampling = LAWS[law]
    wanted = jobs(14, seed=len(law))
    windows = run(decoder_of(model, sampling, slots=4, contract=contract), wanted)
    for job in wanted:
        found, alone = windows[job.ticket], one_row(model, job, sampling, contract)
        assert found.tokens == alone.tokens, job.ticket
        assert found.ended == alone.ended, job.ticket
        assert found.eos_peak_at == alone.eos_peak_at, job.ticket
        assert found.eos_peak_prob == pytest.approx(alone.eos_peak_prob, rel=1e-4), job.ticket
    # The set has windows that ended, that were cut, that peaked and that never could.
    assert {window.ended for window in windows.values()} == {True, False}
    assert any(window.eos_peak_prob > 0 for window in windows.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_slots_draw_what_one_row_draws_at_length(model: Llama, seed: int) -> None:
    law = sorted(LAWS)[seed % len(LAWS)]
    wanted = jobs(40, seed=1000 + seed)
    windows = run(decoder_of(model, LAWS[law], slots=1 + seed % 9), wanted)
    for job in wanted:
        alone = one_row(model, job, LAWS[law], BEFORE)
        assert windows[job.ticket].tokens == alone.tokens, job.ticket
        assert windows[job.ticket].eos_peak_at == alone.eos_peak_at, job.ticket


@pytest.mark.parametrize("contract", [BEFORE, AFTER], ids=["stop-first", "stop-last"])
def test_columns_ascend_so_that_a_tie_goes_to_the_lowest_id(
    model: Llama, contract: TokenContract
) -> None:
    first, *rest = decoder_of(model, PLAIN, slots=1, contract=contract)._positions
    legal = sorted([contract.end_of_speech, *range(*contract.band(0))])
    assert first.ids.tolist() == legal
    assert first.stop_column == legal.index(contract.end_of_speech)
    assert torch.equal(first.weight, model.head[legal])
    for position, spec in enumerate(rest, start=1):
        assert spec.ids.tolist() == list(range(*contract.band(position)))
        assert spec.stop_column is None


@pytest.fixture(scope="module")
def many(model: Llama) -> tuple[list[DecodeJob], dict[int, RawWindow]]:
    wanted = jobs(60, seed=99)
    return wanted, run(decoder_of(model, PENALISED, slots=8), wanted)


def test_every_token_lies_in_the_band_of_its_position(
    many: tuple[list[DecodeJob], dict[int, RawWindow]],
) -> None:
    drawn = set()
    for window in many[1].values():
        assert len(window.tokens) % FRAME == 0
        for at, token in enumerate(window.tokens):
            first, past = BEFORE.band(at % FRAME)
            assert first <= token < past
            drawn.add(token)
    assert len(drawn) == FRAME * BEFORE.codebook_size  # and no id of a band is out of reach


def test_floors_and_caps_hold(many: tuple[list[DecodeJob], dict[int, RawWindow]]) -> None:
    for job in many[0]:
        window = many[1][job.ticket]
        frames = len(window.tokens) // FRAME
        if window.ended:
            assert min(job.floor_frames, job.max_frames) <= frames < job.max_frames
        else:
            assert frames == job.max_frames
        if window.eos_peak_at >= 0:
            assert job.floor_frames < window.eos_peak_at <= frames
            assert 0.0 < window.eos_peak_prob <= 1.0
        else:
            assert window.eos_peak_prob == 0.0
    ended = [window.ended for window in many[1].values()]
    assert 10 < sum(ended) < 50


def test_a_floor_beyond_the_cap_fills_the_window(model: Llama) -> None:
    [job] = jobs(1)
    never = replace(job, floor_frames=9, max_frames=6)
    [window] = run(decoder_of(model, PLAIN, slots=1), [never]).values()
    assert (window.ended, len(window.tokens)) == (False, 6 * FRAME)
    assert (window.eos_peak_at, window.eos_peak_prob) == (-1, 0.0)


def test_a_window_can_end_before_its_first_frame(model: Llama) -> None:
    [job] = jobs(1)
    wanted = [
        replace(job, ticket=seed, seed=seed, floor_frames=0, max_frames=2) for seed in range(100)
    ]
    anything_goes = replace(PLAIN, temperature=4.0, min_p=0.0)
    windows = run(decoder_of(model, anything_goes, slots=16), wanted)
    empty = [window for window in windows.values() if not window.tokens]
    assert empty
    assert all(window.ended and window.eos_peak_at == -1 for window in empty)


def test_company_order_and_arrival_change_nothing(model: Llama) -> None:
    wanted = jobs(12, seed=3)
    alone: dict[int, RawWindow] = {}
    for job in wanted:
        alone |= run(decoder_of(model, PENALISED, slots=1), [job])
    for slots in (2, 5, 12):
        assert run(decoder_of(model, PENALISED, slots=slots), wanted) == alone
        assert run(decoder_of(model, PENALISED, slots=slots), wanted[::-1]) == alone
    late = decoder_of(model, PENALISED, slots=12)
    done: list[Decoded] = []
    for job in wanted:
        late.admit(job)
        done += late.run_frame()
    while late.active_slots:
        done += late.run_frame()
    assert {each.ticket: each.outcome for each in done} == alone


def test_a_slot_is_used_again_as_if_it_were_new(model: Llama) -> None:
    first, second = jobs(2, seed=8)
    decoder = decoder_of(model, PENALISED, slots=1)
    assert (decoder.free_slots, decoder.active_slots) == (1, 0)
    decoder.admit(first)
    assert (decoder.free_slots, decoder.active_slots) == (0, 1)
    while decoder.active_slots:
        decoder.run_frame()
    assert (decoder.free_slots, decoder.active_slots) == (1, 0)
    fresh = run(decoder_of(model, PENALISED, slots=1), [second])
    for _ in range(2):
        assert run(decoder, [second]) == fresh


def test_what_a_carry_holds_counts_as_seen(model: Llama) -> None:
    """With a strong penalty a window that starts on a carry draws other tokens than without."""
    sampling = replace(PLAIN, repetition_penalty=2.0)
    [job] = [replace(each, max_frames=6, floor_frames=6) for each in jobs(2, seed=21) if each.seen]
    told = run(decoder_of(model, sampling, slots=1), [job])
    untold = run(decoder_of(model, sampling, slots=1), [replace(job, seen=())])
    assert told != untold


@pytest.mark.parametrize("excess", [1, 100])
def test_a_prompt_too_long_is_refused_and_the_batch_goes_on(model: Llama, excess: int) -> None:
    wanted = jobs(3, seed=4)
    decoder = decoder_of(model, PLAIN, slots=4)
    for job in wanted:
        decoder.admit(job)
    frames = 10
    room = CAPACITY - frames * FRAME
    long = replace(wanted[0], ticket=9, prompt=(5,) * (room + excess), max_frames=frames)
    with pytest.raises(
        WindowOverflowError,
        match=f"a prompt of {room + excess} tokens and a window of {frames} frames need "
        f"{CAPACITY + excess} positions, a slot has {CAPACITY}",
    ):
        decoder.admit(long)
    assert (decoder.free_slots, decoder.active_slots) == (1, 3)
    done: list[Decoded] = []
    while decoder.active_slots:
        done += decoder.run_frame()
    undisturbed = run(decoder_of(model, PLAIN, slots=4), wanted)
    assert {each.ticket: each.outcome for each in done} == undisturbed


def test_a_prompt_that_just_fits_fills_its_slot(model: Llama) -> None:
    [job] = jobs(1, seed=6)
    fits = replace(job, prompt=(5,) * (CAPACITY - 70), max_frames=10, floor_frames=10)
    [window] = run(decoder_of(model, PLAIN, slots=1), [fits]).values()
    assert len(window.tokens) == 70


def test_a_row_that_is_not_a_number_ends_alone(model: Llama) -> None:
    wanted = [replace(job, max_frames=5, floor_frames=5) for job in jobs(3, seed=4)]
    decoder = decoder_of(model, PLAIN, slots=3)
    for job in wanted:
        decoder.admit(job)
    assert decoder.run_frame() == []
    decoder._hidden[1] = torch.nan
    [broken] = decoder.run_frame()
    assert broken.ticket == 1
    assert isinstance(broken.outcome, LogitsNotFiniteError)
    assert "step 7 in slot 1, position 0" in str(broken.outcome)
    done: list[Decoded] = []
    while decoder.active_slots:
        done += decoder.run_frame()
    undisturbed = run(decoder_of(model, PLAIN, slots=3), wanted)
    assert {each.ticket: each.outcome for each in done} == {
        ticket: undisturbed[ticket] for ticket in (0, 2)
    }


def test_times_count_what_was_done(model: Llama) -> None:
    wanted = [replace(job, max_frames=4, floor_frames=4) for job in jobs(3, seed=4)]
    decoder = decoder_of(model, PLAIN, slots=3)
    run(decoder, wanted)
    assert decoder.times.prompt_tokens == sum(len(job.prompt) for job in wanted)
    assert decoder.times.steps == 4 * FRAME - 1  # nothing follows the last token of a full window
    assert decoder.times.tokens == 3 * (4 * FRAME - 1)


def _logits_of_the_first_row(
    loaded: Engine, wanted: Sequence[DecodeJob], monkeypatch: pytest.MonkeyPatch
) -> list[Tensor]:
    """What the first slot's row samples from, at every position."""
    seen: list[Tensor] = []

    def noting(logits: Tensor, **rest: object) -> SampledRows:
        seen.append(logits[0].clone())
        return sample_rows(logits, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("engine.decode.sample_rows", noting)
    decoder = Decoder(
        loaded.model,
        loaded.text_side.contract,
        loaded.pack.algorithm.sampling,
        slots=len(wanted),
        capacity=400,
        row_padding=loaded.execution.row_padding,
    )
    run(decoder, wanted)
    monkeypatch.undo()
    return seen


@pytest.mark.parametrize("company", [1, 2, 3, 4, 9])
def test_a_row_samples_from_the_same_bits_in_any_company(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, company: int
) -> None:
    """Logits, not tokens: a matrix product of fewer rows than the padding differs in its last bits,
    and flips a draw about once in an hour of speech."""
    texts = ["Good morning.", "Nobody answered.", "Yes.", "What a day!", "Are you ready?"] * 2
    wanted = [
        DecodeJob(ticket, engine.prompt_ids(text, Conditioning("slt"), ()), (), ticket, 3, 3)
        for ticket, text in enumerate(texts)
    ]
    alone = _logits_of_the_first_row(engine, wanted[:1], monkeypatch)
    beside = _logits_of_the_first_row(engine, wanted[: 1 + company], monkeypatch)
    assert len(alone) == len(beside) == 3 * FRAME
    for at, (one, other) in enumerate(zip(alone, beside, strict=True)):
        assert torch.equal(one, other), f"step {at}"
    assert not any(torch.equal(*pair) for pair in itertools.pairwise(alone[1:FRAME]))
