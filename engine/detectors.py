"""Where a generated row really ended: one verdict on one row of tokens.

A row has one entry a speech token in a loudr pack and one a frame (c0) in a SNAC pack; every count
here is in row entries. The rules, their order and every comparison are those of loudkit 0.1.1. The
numbers were measured on a checkpoint, not chosen, and come from the pack's manifest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import eq
from statistics import median
from typing import Literal, NamedTuple

from engine.algorithm import PostprocessConfig, SamplingConfig

Reason = Literal[
    "clean",
    "dropout",
    "stall",
    "repetition",
    "silence_tail",
    "terminal_echo",
    "desperation",
    "ended_tail",
]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The verdict: keep the first `keep` entries, why, and whether the row is beyond a cut."""

    keep: int
    reason: Reason = "clean"
    suspect: bool = False
    """No cut can mend the row: it is generated again from another seed, as far as the ladder goes.
    A dropout, a stall and a loop that the decoder left are always suspect."""


def eos_floor(text_token_count: int, sampling: SamplingConfig) -> int:
    """Row entries before which the model may not stop."""
    proportional = int(text_token_count * sampling.min_tokens_text_ratio)
    return max(sampling.min_tokens_floor, proportional)


def ceiling_for(text_token_count: int, *, config: PostprocessConfig, window: int) -> int:
    """Row entries at which generation is stopped, for what follows would be thrown away."""
    plausible = int(text_token_count * config.ceiling_speech_per_text_token)
    return min(plausible + config.ceiling_slack_tokens, window)


def pacing_outliers(ratios: Sequence[float], *, config: PostprocessConfig) -> list[int]:
    """Indices of the chunks that were read much faster or slower than the passage's median.

    `ratios` are row entries a text token. Fewer than three chunks cannot tell which one drifted.
    """
    if len(ratios) < 3:
        return []
    middle = median(ratios)
    if middle <= 0:
        return []
    slowest, fastest = middle * config.pacing_tolerance, middle / config.pacing_tolerance
    return [i for i, ratio in enumerate(ratios) if ratio > slowest or ratio < fastest]


def inspect(
    tokens: Sequence[int],
    *,
    text_token_count: int,
    min_tokens: int,
    eos_peak_at: int,
    eos_peak_prob: float,
    ended: bool,
    is_terminal: bool,
    hit_ceiling: bool,
    silence: Collection[int],
    config: PostprocessConfig,
) -> Inspection:
    """Run the detectors in their order of trust and return the first verdict.

    `tokens` is a row without its stop token. `min_tokens` is the row's `eos_floor`. The EOS peak is
    the entry at which the model came nearest to stopping, and its probability.
    """
    whole = len(tokens)
    if config.mode == "off" or not whole:
        return Inspection(whole)
    if whole < config.dropout_min_tokens and whole < text_token_count:
        return Inspection(whole, "dropout", suspect=True)

    loop = _earliest_loop(tokens, silence, config)
    if loop is not None and loop.resumed and config.repetition_resume == "condemn":
        # The decoder found its way back, so a cut would take real speech with it.
        return Inspection(whole, "repetition", suspect=True)
    if loop is None and _is_stalled(tokens, hit_ceiling, silence, config):
        return Inspection(whole, "stall", suspect=True)

    row = _Row(
        length=whole,
        pauses=_pauses(tokens, silence),
        text_token_count=text_token_count,
        earliest_cut=max(min_tokens, config.earliest_cut),
        peak_at=eos_peak_at,
        peak_prob=eos_peak_prob,
        ended=ended,
        is_terminal=is_terminal,
        hit_ceiling=hit_ceiling,
        config=config,
    )
    found = _Cut(loop.cut, "repetition") if loop is not None else _tail_cut(row)
    if found is None:
        return Inspection(whole, suspect=row.overran)
    starved = found.reason == "desperation" and _is_starved(row, found.at)
    return Inspection(found.at, found.reason, suspect=starved)


_Span = tuple[int, int]
"""First entry, and one past the last."""


class _Cut(NamedTuple):
    """How many entries stay, and which rule says so."""

    at: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Loop:
    """A stuck decoder: `cut` leaves one cycle; `resumed` says that it came out again."""

    cut: int
    resumed: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """What the tail rules read of a row."""

    length: int
    pauses: list[_Span]
    text_token_count: int
    earliest_cut: int
    peak_at: int
    peak_prob: float
    ended: bool
    is_terminal: bool
    hit_ceiling: bool
    config: PostprocessConfig

    @property
    def overran(self) -> bool:
        """Whether the row is too long for its text under any reading; short texts are exempt."""
        config, count = self.config, self.text_token_count
        return (
            count >= config.desperation_min_text_tokens
            and self.length >= count * config.desperation_speech_per_text_token
        )


def _runs(flags: Iterable[bool]) -> Iterator[_Span]:
    """The maximal runs of true flags."""
    start = 0
    for flag, group in groupby(flags):
        end = start + sum(1 for _ in group)
        if flag:
            yield start, end
        start = end


def _pauses(tokens: Sequence[int], silence: Collection[int]) -> list[_Span]:
    ids = frozenset(silence)
    return list(_runs(token in ids for token in tokens))


def _earliest_loop(
    tokens: Sequence[int], silence: Collection[int], config: PostprocessConfig
) -> _Loop | None:
    """The loop that leaves the shortest row, the shorter cycle on a tie."""
    if len(tokens) < config.repetition_min_span:
        return None
    quiet = frozenset(silence)
    if config.repetition_silence == "acoustic":
        quiet = quiet.union(config.silence_render_ids, config.quiet_render_ids)
    longest = min(config.repetition_max_period, len(tokens) // 2)
    loops = (_loop_of_period(tokens, period, quiet, config) for period in range(1, longest + 1))
    return min((loop for loop in loops if loop is not None), key=lambda x: x.cut, default=None)


def _loop_of_period(
    tokens: Sequence[int], period: int, quiet: frozenset[int], config: PostprocessConfig
) -> _Loop | None:
    """The first region that repeats with this period long enough and is not all quiet.

    A cycle repeats k times after itself exactly where the row equals itself shifted by one period
    for k periods. In such a run the first entry has the most cycles and every entry sees the same
    tokens, so a run is judged by its first entry and the row is read once.
    """
    cycles = max(config.repetition_min_cycles, math.ceil(config.repetition_min_span / period))
    for start, end in _runs(map(eq, tokens, islice(tokens, period, None))):
        repeats = (end - start) // period
        if repeats + 1 < cycles or quiet.issuperset(tokens[start : start + period]):
            continue
        left_over = len(tokens) - (start + (repeats + 1) * period)
        return _Loop(cut=start + period, resumed=left_over >= period)
    return None


def _is_stalled(
    tokens: Sequence[int], hit_ceiling: bool, silence: Collection[int], config: PostprocessConfig
) -> bool:
    """Whether the decoder was caught in silence before the row's tail.

    With a census of the ids that render as digital silence those ids count; without one the
    sampler's silence list does. Quiet ids hold a run together and do not count.
    """
    census = bool(config.silence_render_ids)
    dead = frozenset(config.silence_render_ids if census else silence)
    hushed = dead.union(config.quiet_render_ids)
    runs = list(_runs(token in hushed for token in tokens))
    if census:
        share = sum(end - start for start, end in runs)
        if share == len(tokens) or (hit_ceiling and 2 * share > len(tokens)):
            return True
    return any(
        sum(token in dead for token in tokens[start:end]) >= config.stall_run_tokens
        for start, end in runs
        if end < len(tokens)
    )


def _tail_cut(row: _Row) -> _Cut | None:
    """The first tail rule that fires, from the best corroborated to the mildest."""
    if _is_filler_after_peak(row):
        return _Cut(row.peak_at, "silence_tail")
    if _is_echo_after_peak(row):
        return _Cut(row.peak_at, "terminal_echo")
    desperate = _desperation_cut(row)
    if desperate is not None:
        return _Cut(desperate, "desperation")
    trimmed = _ended_tail_cut(row) if row.ended else None
    return None if trimmed is None else _Cut(trimmed, "ended_tail")


def _is_filler_after_peak(row: _Row) -> bool:
    """Whether a passage that did not end only fills up after a credible place to stop."""
    config = row.config
    if not row.is_terminal or row.ended:
        return False
    if not row.earliest_cut < row.peak_at < row.length:
        return False
    if not row.peak_prob > config.filler_min_eos_probability:
        return False
    tail = [(max(a, row.peak_at), b) for a, b in row.pauses if b > row.peak_at]
    silent = sum(end - start for start, end in tail)
    if silent / (row.length - row.peak_at) >= config.trailing_filler_threshold:
        return True
    # Otherwise seams of silence with no more than a stray word before, between and after them. A
    # seam counts as exactly its minimal length; the rest of a longer pause counts as distance.
    seam = config.trailing_silence_run_tokens
    seams = [start for start, end in tail if end - start >= seam > 0]
    since = [row.peak_at, *(start + seam for start in seams)]
    until = [*seams, row.length]
    strays = (
        b - a <= config.filler_max_speech_after_run for a, b in zip(since, until, strict=True)
    )
    return bool(seams) and all(strays)


def _is_echo_after_peak(row: _Row) -> bool:
    """Whether the last chunk ended late in the row and then ran on for a word or two."""
    config, tail = row.config, row.length - row.peak_at
    if not row.is_terminal or not row.earliest_cut < row.peak_at < row.length:
        return False
    position = row.peak_at * 100
    confident = (
        row.peak_prob >= config.echo_strong_eos_probability
        and tail <= config.echo_strong_max_tail
        and position >= row.length * config.echo_strong_min_position_pct
    )
    # A faint peak is believed only in a row that also ran into its ceiling.
    faint = (
        row.hit_ceiling
        and row.peak_prob >= config.echo_weak_eos_probability
        and tail <= config.echo_weak_max_tail
        and position >= row.length * config.echo_weak_min_position_pct
    )
    return confident or faint


def _desperation_cut(row: _Row) -> int | None:
    """Where to cut a row that is too long for its text: its first seam, else its EOS peak."""
    if not row.overran:
        return None
    config = row.config
    for start, end in row.pauses:
        if start >= row.earliest_cut and end - start >= config.trailing_silence_run_tokens:
            return start
    band = int(config.desperation_band_ratio * row.text_token_count) + config.desperation_band_floor
    in_band = row.earliest_cut <= row.peak_at <= band and row.peak_at < row.length
    return row.peak_at if row.is_terminal and in_band else None


def _is_starved(row: _Row, cut: int) -> bool:
    """Whether a desperate cut leaves too little of a row that ran into its ceiling."""
    return row.hit_ceiling and cut < row.text_token_count * (
        row.config.desperation_min_keep_per_text_token
    )


def _ended_tail_cut(row: _Row) -> int | None:
    """Where a row that stopped by itself is trimmed: dead air, or a stray sound behind dead air."""
    config, pauses = row.config, list(row.pauses)
    speech_end = row.length
    if pauses and pauses[-1][1] == row.length:
        speech_end, _ = pauses.pop()
    if speech_end == 0:
        return None
    if row.length - speech_end >= config.trailing_silence_run_tokens:
        return _keep_some(speech_end, row.length, row)
    if not pauses or pauses[-1][0] == 0:
        return None  # nothing before the last sound: it is the sentence
    start, end = pauses[-1]
    sound, pause = speech_end - end, end - start
    click = sound <= config.ended_tail_blip_max and pause >= config.ended_tail_silence_run
    word = (
        row.is_terminal
        and sound <= config.ended_tail_word_max
        and pause >= config.trailing_silence_run_tokens
    )
    return _keep_some(start, end, row) if click or word else None


def _keep_some(start: int, end: int, row: _Row) -> int | None:
    """The cut that leaves a short part of the pause, or None when nothing would come off."""
    cut = min(end, start + row.config.ended_tail_keep)
    return cut if cut < row.length else None
