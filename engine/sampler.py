"""LR-SAMPLER-v1: one row in numpy, which is the specification, and S rows in torch.

The law of one draw, in float64: a seen token's logit is divided by the repetition penalty where it
is positive and multiplied by it elsewhere; everything is divided by the temperature; what lies
under `max + ln(min_p)` is dropped, silence ids excepted; Gumbel noise is added and the largest
wins, the lowest id on a tie. Noise is a function of its address, so it is drawn for the survivors
alone.

Where the work is done decides whether a CPU and a GPU agree. Division, multiplication, comparison
and maximum are exact in IEEE arithmetic, so they run wherever the logits are. Logarithms and
exponentials are not, so they run in numpy on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from engine.algorithm_blocks import SamplingConfig
from engine.errors import ContractMismatchError, LogitsNotFiniteError
from engine.philox import SAMPLING, gumbel_at

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["SAMPLER_VERSION", "RowSampler", "SampledRows", "sample_rows"]

SAMPLER_VERSION: Final = "LR-SAMPLER-v1"


class RowSampler:
    """Draws the tokens of one row, and remembers where it came closest to stopping.

    `eos_floor` only bounds what is remembered, to the steps after it. Masking the stop token below
    the floor is the caller's, by a logit of -inf.
    """

    def __init__(
        self,
        config: SamplingConfig,
        *,
        seed: int,
        stop_token: int | None = None,
        eos_floor: int = 0,
    ) -> None:
        self._config = config
        self._seed = np.array([seed % 2**64], dtype=np.uint64)
        self._silence = np.array(config.silence_token_ids, dtype=np.int64)
        self._stop_token = stop_token
        self._eos_floor = eos_floor
        self._peak = (-1, 0.0)

    @property
    def eos_peak(self) -> tuple[int, float]:
        """The step at which stopping was likeliest, and how likely; `(-1, 0.0)` before any."""
        return self._peak

    def __call__(self, logits: NDArray[np.float32], *, step: int, seen: NDArray[np.bool_]) -> int:
        """The token drawn from raw logits `(V,)`; `seen` marks the tokens the row holds already.

        Raises `LogitsNotFiniteError` for a NaN, for +inf, and where every logit is -inf.
        """
        scores = self._scores(np.asarray(logits, dtype=np.float64), seen)
        top = float(scores.max())
        if not np.isfinite(top):
            raise LogitsNotFiniteError(f"step {step}: {_not_finite(top)}")
        kept = scores >= top + log_min_p(self._config.min_p)
        kept[self._silence_in(scores.shape[0])] = True
        if self._stop_token is not None and step > self._eos_floor:
            probability = stop_probability(scores[kept], float(scores[self._stop_token]), top)
            if probability > self._peak[1]:
                self._peak = (step, probability)
        ids = np.flatnonzero(kept)
        noise = gumbel_at(self._seed, SAMPLING, np.array([step]), ids)
        return int(ids[np.argmax(scores[ids] + noise)])

    def _scores(self, logits: NDArray[np.float64], seen: NDArray[np.bool_]) -> NDArray[np.float64]:
        penalty = self._config.repetition_penalty
        penalised = np.where(logits > 0, logits / penalty, logits * penalty)
        scores: NDArray[np.float64] = np.where(seen, penalised, logits) / self._config.temperature
        return scores

    def _silence_in(self, width: int) -> NDArray[np.int64]:
        outside = self._silence[self._silence >= width]
        if outside.size:
            raise ContractMismatchError(
                f"silence id {outside[0]} lies outside the vocabulary of {width}"
            )
        return self._silence


@dataclass(frozen=True, slots=True)
class SampledRows:
    """One draw of S rows: the tokens, as ids of the vocabulary, and how near each row was to
    stopping."""

    tokens: NDArray[np.int64]  # (S,)
    stop_probability: NDArray[np.float64]  # (S,); zeros where stopping was not asked about


def sample_rows(
    logits: Tensor,
    *,
    ids: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    steps: NDArray[np.int64],
    seen: Tensor | None,
    silence: Tensor | None,
    config: SamplingConfig,
    stop_column: int | None = None,
) -> SampledRows:
    """Draws one token a row from a band of the vocabulary: `logits` `(S, W)`, column j is `ids[j]`.

    `ids` `(W,)` ascend, so that the lowest column is the lowest id; `seeds` and `steps` are `(S,)`,
    `seen` `(S, W)` and `silence` `(W,)` boolean. Every row equals `RowSampler` on logits that are
    -inf outside the band. Raises `LogitsNotFiniteError` naming row and step.
    """
    scores = _scores_of_rows(logits, seen, config)
    tops_there = scores.amax(dim=1, keepdim=True)
    kept = scores >= tops_there + log_min_p(config.min_p)
    if silence is not None:
        kept |= silence
    kept &= scores > -np.inf  # cannot win, so it needs no noise
    rows, columns = (index.cpu().numpy() for index in kept.nonzero(as_tuple=True))
    survivors = scores[kept].cpu().numpy()
    tops: NDArray[np.float64] = tops_there[:, 0].cpu().numpy()
    for row in np.flatnonzero(~np.isfinite(tops)):
        raise LogitsNotFiniteError(f"row {row}, step {steps[row]}: {_not_finite(tops[row])}")
    noise = gumbel_at(seeds[rows], SAMPLING, steps[rows], ids[columns])
    winners = _first_largest(survivors + noise, rows, len(tops))
    probability = np.zeros(len(tops))
    if stop_column is not None:
        stops = scores[:, stop_column].cpu().numpy()
        # bincount adds in the order of the array: ascending ids, left to right.
        totals = np.bincount(rows, np.exp(survivors - tops[rows]), minlength=len(tops))
        probability = np.exp(stops - tops) / totals
    return SampledRows(tokens=ids[columns[winners]], stop_probability=probability)


def stop_probability(kept: NDArray[np.float64], stop: float, top: float) -> float:
    """The share of the stop token's weight in the kept ones, added in ascending order.

    One after the other, as `cumsum` does: a pairwise sum depends on the width of the machine's
    vectors, and detectors hold this number against fixed thresholds.
    """
    total = np.cumsum(np.exp(kept - top))[-1]
    return float(np.exp(np.array([stop - top]))[0] / total)


@lru_cache(maxsize=64)
def log_min_p(min_p: float) -> float:
    """How far under the largest score the floor lies; -inf keeps everything."""
    return float(np.log(min_p)) if min_p > 0.0 else -np.inf


def _scores_of_rows(logits: Tensor, seen: Tensor | None, config: SamplingConfig) -> Tensor:
    import torch

    scores = logits.to(torch.float64)
    if seen is not None and config.repetition_penalty != 1.0:
        penalty = _divisor(config.repetition_penalty, logits.device)
        penalised = torch.where(scores > 0, scores / penalty, scores * penalty)
        scores = torch.where(seen, penalised, scores)
    return scores / _divisor(config.temperature, logits.device)


@lru_cache(maxsize=64)
def _divisor(value: float, device: torch.device) -> Tensor:
    """A number on the device. CUDA divides by a Python number by multiplying with its reciprocal,
    which is off by one bit now and then; by a tensor it divides."""
    import torch

    return torch.tensor([value], dtype=torch.float64, device=device)


def _first_largest(
    values: NDArray[np.float64], rows: NDArray[np.int64], n_rows: int
) -> NDArray[np.int64]:
    """Per row, where its largest value stands first. `rows` ascend and each occurs."""
    every_row = np.arange(n_rows)
    largest = np.maximum.reduceat(values, np.searchsorted(rows, every_row))
    candidates = np.flatnonzero(values == largest[rows])
    return candidates[np.searchsorted(rows[candidates], every_row)]


def _not_finite(top: float) -> str:
    if np.isnan(top):
        return "a logit is NaN"
    return "a logit is +inf" if top > 0 else "every logit is -inf"
