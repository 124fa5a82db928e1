"""Continuous batching: slots that are admitted alone, step together by frame, and retire alone.

All active slots stand at the same position of their frame. So one contiguous slice of the head
serves every row (at position 0 one more row, end-of-speech, which is legal only there), and a
window can enter or leave at any frame boundary. What a row draws is decided by its own prompt,
seed and tokens; its slot, its neighbours and the moment of its admission decide nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.algorithm import SamplingConfig
from engine.contracts.contract import TokenContract
from engine.errors import EngineError, LogitsNotFiniteError, WindowOverflowError
from engine.llama import KVCache, Llama, prefill, step
from engine.passage import RawWindow
from engine.sampler import SampledRows, sample_rows


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """One window to generate. `prompt` ends with the carry; `seen` are the carry's tokens."""

    ticket: int
    prompt: tuple[int, ...]
    seen: tuple[int, ...]
    seed: int
    max_frames: int
    floor_frames: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a job: its row, or the error that ended it."""

    ticket: int
    outcome: RawWindow | EngineError


@dataclass(slots=True)
class DecodeTimes:
    """Where the seconds of a decoder went, and what they bought."""

    prefill_s: float = 0.0
    step_s: float = 0.0
    head_s: float = 0.0
    sampler_s: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Slot:
    job: DecodeJob
    tokens: list[int] = field(default_factory=list)
    eos_peak_at: int = -1
    eos_peak_prob: float = 0.0


@dataclass(frozen=True, slots=True)
class _Position:
    """What every row samples from at one position of the frame."""

    weight: Tensor  # (W, D)
    ids: np.ndarray[tuple[int], np.dtype[np.int64]]  # (W,) ascending
    silence: Tensor | None  # (W,) bool
    stop_column: int | None


class Decoder:
    """`slots` windows in lockstep over one model."""

    def __init__(
        self,
        model: Llama,
        contract: TokenContract,
        sampling: SamplingConfig,
        *,
        slots: int,
        capacity: int,
        row_padding: int,
    ) -> None:
        self.times = DecodeTimes()
        self._model, self._contract, self._sampling = model, contract, sampling
        self._row_padding = row_padding
        self._cache = KVCache(model, slots=slots, capacity=capacity)
        self._slots: list[_Slot | None] = [None] * slots
        self._hidden = torch.zeros(
            slots, model.config.hidden_size, dtype=model.dtype, device=model.device
        )
        self._seen: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            shape = (slots, contract.vocabulary_size)
            self._seen = torch.zeros(shape, dtype=torch.bool, device=model.device)
        self._positions = [self._position(at) for at in range(contract.tokens_per_frame)]

    def _position(self, at: int) -> _Position:
        first, past = self._contract.band(at)
        ids = np.arange(first, past, dtype=np.int64)
        weight = self._model.head[first:past]
        stop_column = None
        if at == 0:
            stop = self._contract.end_of_speech
            # Columns must ascend by id, so that a tie goes to the lowest id.
            stop_column = 0 if stop < first else len(ids)
            row = self._model.head[stop : stop + 1]
            ids = np.insert(ids, stop_column, stop)
            weight = torch.cat((row, weight) if stop_column == 0 else (weight, row))
        silence = torch.from_numpy(np.isin(ids, self._sampling.silence_token_ids))
        exempt = silence.to(self._model.device) if silence.any() else None
        return _Position(weight, ids, exempt, stop_column)

    @property
    def free_slots(self) -> int:
        """How many windows can be admitted now."""
        return sum(slot is None for slot in self._slots)

    @property
    def active_slots(self) -> int:
        """How many windows are being generated."""
        return len(self._slots) - self.free_slots

    def admit(self, job: DecodeJob) -> None:
        """Prefill a job into a free slot.

        Raises `WindowOverflowError` when the prompt and the longest window do not fit a slot.
        """
        needed = len(job.prompt) + job.max_frames * self._contract.tokens_per_frame
        if needed > self._cache.capacity:
            raise WindowOverflowError(
                f"a prompt of {len(job.prompt)} tokens and a window of {job.max_frames} frames "
                f"need {needed} positions, a slot has {self._cache.capacity}"
            )
        started = perf_counter()
        slot = self._slots.index(None)
        self._hidden[slot] = prefill(self._model, self._cache, slot, job.prompt)
        self._slots[slot] = _Slot(job)
        if self._seen is not None:
            self._seen[slot] = False
            self._seen[slot, list(job.seen)] = True
        self.times.prefill_s += perf_counter() - started
        self.times.prompt_tokens += len(job.prompt)

    def run_frame(self) -> list[Decoded]:
        """One frame for every active slot; the windows that ended with it."""
        finished: list[Decoded] = []
        active = [at for at, slot in enumerate(self._slots) if slot is not None]
        hidden = self._hidden[active]  # (S, D)
        last = self._contract.tokens_per_frame - 1
        for position in range(last + 1):
            active, tokens = self._sample(active, hidden, position, finished)
            for slot, token in zip(active, tokens, strict=True):
                self._occupant(slot).tokens.append(token)
            if position == last:
                active, tokens = self._retire_full(active, tokens, finished)
            if not active:
                return finished
            started = perf_counter()
            hidden = step(self._model, self._cache, active, tokens, row_padding=self._row_padding)
            self.times.step_s += perf_counter() - started
            self.times.steps += 1
            self.times.tokens += len(active)
        self._hidden[active] = hidden
        return finished

    def _sample(
        self, active: list[int], hidden: Tensor, position: int, finished: list[Decoded]
    ) -> tuple[list[int], list[int]]:
        """The slots that go on and the token each of them drew; the others are retired."""
        spec = self._positions[position]
        started = perf_counter()
        logits = F.linear(self._padded(hidden), spec.weight)[: len(active)].float()  # (S, W)
        drawn = perf_counter()
        self.times.head_s += drawn - started
        active, logits = self._retire_broken(active, logits, position, finished)
        if not active:
            return [], []
        if spec.stop_column is not None:
            below = [row for row, slot in enumerate(active) if self._below_floor(slot)]
            logits[below, spec.stop_column] = -torch.inf
        sampled = self._draw(active, logits, spec)
        if self._seen is not None:
            self._seen[active, torch.from_numpy(sampled.tokens)] = True
        tokens = sampled.tokens.tolist()
        if spec.stop_column is not None:
            self._note_peaks(active, sampled)
            stopped = [token == self._contract.end_of_speech for token in tokens]
            for slot in itertools.compress(active, stopped):
                finished.append(self._retire(slot, ended=True))
            going = [not stop for stop in stopped]
            active = list(itertools.compress(active, going))
            tokens = list(itertools.compress(tokens, going))
        self.times.sampler_s += perf_counter() - drawn
        return active, tokens

    def _retire_broken(
        self, active: list[int], logits: Tensor, position: int, finished: list[Decoded]
    ) -> tuple[list[int], Tensor]:
        """Rows with a logit that is not a number end alone: the law has no answer to them."""
        broken = torch.isnan(logits).any(dim=1)
        if not broken.any():
            return active, logits
        for slot in itertools.compress(active, broken.tolist()):
            told = (
                f"a logit is not a number at step {len(self._occupant(slot).tokens)} in slot "
                f"{slot}, position {position} of the frame"
            )
            finished.append(self._vacate(slot, LogitsNotFiniteError(told)))
        return list(itertools.compress(active, (~broken).tolist())), logits[~broken]

    def _retire_full(
        self, active: list[int], tokens: list[int], finished: list[Decoded]
    ) -> tuple[list[int], list[int]]:
        """Windows that reached their cap end without a stop."""
        going = [not self._is_full(slot) for slot in active]
        for slot, goes_on in zip(active, going, strict=True):
            if not goes_on:
                finished.append(self._retire(slot, ended=False))
        return list(itertools.compress(active, going)), list(itertools.compress(tokens, going))

    def _draw(self, active: Sequence[int], logits: Tensor, spec: _Position) -> SampledRows:
        seen = None
        if self._seen is not None:
            seen = self._seen[list(active)][:, torch.from_numpy(spec.ids)]
        occupants = [self._occupant(slot) for slot in active]
        return sample_rows(
            logits,
            ids=spec.ids,
            seeds=np.array([o.job.seed for o in occupants], dtype=np.uint64),
            steps=np.array([len(o.tokens) for o in occupants], dtype=np.int64),
            seen=seen,
            silence=spec.silence,
            config=self._sampling,
            stop_column=spec.stop_column,
        )

    def _note_peaks(self, active: Sequence[int], sampled: SampledRows) -> None:
        """Remember where each row came closest to stopping."""
        for slot, chance in zip(active, sampled.stop_probability.tolist(), strict=True):
            occupant = self._occupant(slot)
            frame = len(occupant.tokens) // self._contract.tokens_per_frame
            if frame > occupant.job.floor_frames and chance > occupant.eos_peak_prob:
                occupant.eos_peak_at, occupant.eos_peak_prob = frame, chance

    def _padded(self, hidden: Tensor) -> Tensor:
        """`(rows, D)` with zeros below the padding: fewer rows take another kernel, other bits."""
        missing = max(0, self._row_padding - hidden.shape[0])
        return F.pad(hidden, (0, 0, 0, missing))

    def _occupant(self, slot: int) -> _Slot:
        occupant = self._slots[slot]
        if occupant is None:
            raise RuntimeError(f"slot {slot} is empty")
        return occupant

    def _below_floor(self, slot: int) -> bool:
        occupant = self._occupant(slot)
        frames = len(occupant.tokens) // self._contract.tokens_per_frame
        return frames < occupant.job.floor_frames

    def _is_full(self, slot: int) -> bool:
        occupant = self._occupant(slot)
        frames = len(occupant.tokens) // self._contract.tokens_per_frame
        return frames >= occupant.job.max_frames

    def _retire(self, slot: int, *, ended: bool) -> Decoded:
        occupant = self._occupant(slot)
        raw = RawWindow(
            tokens=tuple(occupant.tokens),
            ended=ended,
            eos_peak_at=occupant.eos_peak_at,
            eos_peak_prob=occupant.eos_peak_prob,
        )
        return self._vacate(slot, raw)

    def _vacate(self, slot: int, outcome: RawWindow | EngineError) -> Decoded:
        ticket = self._occupant(slot).job.ticket
        self._slots[slot] = None
        self._cache.lengths[slot] = 0
        return Decoded(ticket, outcome)
