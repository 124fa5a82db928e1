"""The law of one passage: which windows are asked for, with which seeds, and which of them ship.

`run_passage` is a generator, so that the same law serves one passage on a laptop and thousands in
the slots of a batch: it yields a `WindowRequest`, is sent the `RawWindow` that a model made of it,
and yields a `FinishedWindow` whenever one is settled. It reads no clock, draws no number and
touches no file; everything follows from its arguments and from what it is sent. The decisions are
those of loudkit 0.1.1, and a SNAC stream adds only that all cuts fall between frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import ClassVar, Literal, TypeVar

from engine.algorithm import AlgorithmConfig, Unset
from engine.chunking import split_in_half
from engine.detectors import Inspection, ceiling_for, eos_floor, inspect
from engine.errors import EngineError, NoSpeechError, NothingToSpeakError, WindowOverflowError
from engine.philox import CHUNK, RESPLIT, RETRY, derive

Halve = Callable[[str], tuple[str, str] | None]
"""Cuts a chunk in two near its middle; None where it cannot be cut."""

Half = Literal[0, 1, 2]
"""0 is a whole chunk; 1 and 2 are the halves of a chunk that filled its window."""


class PassageMismatchError(EngineError):
    """A passage was handed a window that it could not have asked for."""

    code: ClassVar[str] = "passage_mismatch"


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """One generation that the passage waits for."""

    chunk_index: int
    half: Half
    attempt: int
    text: str
    seed: int  # of this attempt
    prefix: tuple[int, ...]  # stream tokens
    max_row: int  # row entries at which generation stops
    eos_floor: int  # row entries before which the model may not stop
    is_terminal: bool


@dataclass(frozen=True, slots=True)
class RawWindow:
    """What a model generated for a request."""

    tokens: tuple[int, ...]  # stream tokens in whole frames, without the stop token
    ended: bool  # the stop token was drawn
    eos_peak_at: int  # row entry at which stopping was likeliest; -1 for nowhere
    eos_peak_prob: float


@dataclass(frozen=True, slots=True)
class FinishedWindow:
    """A settled window: the attempt that ships, cut to where it ended."""

    chunk_index: int
    half: Half
    attempt: int  # the one that ships
    attempts: int  # how many were generated
    seed: int  # the window's own: its first attempt's, and its rendering's
    text: str
    prefix: tuple[int, ...]
    tokens: tuple[int, ...]
    verdict: Inspection
    n_generated: int  # row entries before the cut
    hit_cap: bool
    hit_window: bool
    ended: bool


_T = TypeVar("_T")
_Settling = Generator[WindowRequest | FinishedWindow, RawWindow | None, _T]
Passage = _Settling[None]


def run_passage(
    chunks: Sequence[str],
    *,
    seed: int,
    algorithm: AlgorithmConfig,
    count_text_tokens: Callable[[str], int],
    carry: Sequence[int] = (),
    done: Sequence[FinishedWindow] = (),
    halve: Halve = split_in_half,
) -> Passage:
    """Speak `chunks` in order, each window with the tail of the one before it as its prefix.

    `carry` is the first window's prefix (`carry_tail` of what was spoken before). `done` are the
    windows that an earlier run of this same passage finished, in order: they are not asked for and
    not yielded again, and the rest comes out as if the run had never stopped. `halve` cuts a chunk
    that filled its window; chunks that are not plain text bring their own.

    Raises:
        NothingToSpeakError: a chunk is blank.
        NoSpeechError: a window has no tokens left.
        WindowOverflowError: a window has more tokens than the renderer takes.
        PassageMismatchError: `carry` or a raw window is not in whole frames, `done` is not of this
            passage, or nothing was sent for a request.
    """
    _require_whole_units(carry, algorithm, "the carry")
    law = _Law(algorithm, count_text_tokens, deque(done), halve)
    prefix = tuple(carry)
    for index, text in enumerate(chunks):
        plan = _Plan(
            chunk_index=index,
            half=0,
            text=text,
            seed=seed if index == 0 else derive(seed, CHUNK + index),
            prefix=prefix,
            is_terminal=index == len(chunks) - 1,
        )
        prefix = yield from _speak_chunk(plan, law)
    if law.done:
        raise PassageMismatchError(f"{len(law.done)} done windows follow the last chunk")


def carry_tail(tokens: Sequence[int], algorithm: AlgorithmConfig) -> tuple[int, ...]:
    """The end of `tokens` that the next window gets as its prefix.

    At least `prefix_tokens` where there are as many, and always whole units (a pair under
    `fusion_mtp2`, a frame in a SNAC stream): a model given half a unit would read every token of
    the prefix in the wrong place.
    """
    wanted = algorithm.chunking.prefix_tokens
    unit = lcm(algorithm.tokens_per_row_entry, 2 if algorithm.decode == "fusion_mtp2" else 1)
    end = len(tokens) // unit * unit
    start = max(end - wanted, 0) // unit * unit
    return tuple(tokens[start:end])


@dataclass(frozen=True, slots=True)
class _Plan:
    """A window before its first attempt."""

    chunk_index: int
    half: Half
    text: str
    seed: int
    prefix: tuple[int, ...]
    is_terminal: bool


@dataclass(frozen=True, slots=True)
class _Law:
    """What holds for all windows of a passage, and the finished ones that are still to be met."""

    algorithm: AlgorithmConfig
    count_text_tokens: Callable[[str], int]
    done: deque[FinishedWindow]
    halve: Halve

    def carry_after(self, window: FinishedWindow) -> tuple[int, ...]:
        """The prefix of the window after this one. Where the pack asks for no carry, nothing
        replaces the one that the passage was given."""
        if self.algorithm.chunking.prefix_tokens == 0:
            return window.prefix
        return carry_tail(window.tokens, self.algorithm)

    @property
    def stands_in_a_split(self) -> bool:
        """Whether the next finished window is a half."""
        return bool(self.done) and self.done[0].half != 0

    def recall(self, plan: _Plan) -> FinishedWindow | None:
        """The finished window of this plan, or None when the passage has come to its frontier."""
        if not self.done:
            return None
        window = self.done.popleft()
        for name in ("chunk_index", "half", "text", "seed", "prefix"):
            found, wanted = getattr(window, name), getattr(plan, name)
            if found != wanted:
                raise PassageMismatchError(
                    f"a done window stands where chunk {plan.chunk_index}, half {plan.half} is"
                    f" due: its {name} is {found!r}, this passage has {wanted!r}"
                )
        return window


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A generated row and what the detectors say of it."""

    raw: RawWindow
    row: tuple[int, ...]
    verdict: Inspection
    hit_cap: bool
    hit_window: bool

    def dead_air(self, algorithm: AlgorithmConfig) -> int:
        """How many row entries render as true silence, as far as the pack can tell."""
        census = algorithm.postprocess.silence_render_ids
        dead = frozenset(census or algorithm.sampling.silence_token_ids)
        return sum(token in dead for token in self.row)


def _speak_chunk(plan: _Plan, law: _Law) -> _Settling[tuple[int, ...]]:
    """Settle a chunk in one window, or in two when it filled the first; return the next prefix.

    Both halves keep the chunk's index, so a re-split moves no later chunk's seed. A half that
    fills its window again is not split again.
    """
    halves = _halves_of(plan, law)
    if not law.stands_in_a_split:
        whole = law.recall(plan)
        if whole is not None:
            return law.carry_after(whole)
        whole = yield from _settle(plan, law)
        if halves is None or not whole.hit_window:
            yield whole
            return law.carry_after(whole)
    if halves is None:
        raise PassageMismatchError(f"chunk {plan.chunk_index} is done in halves but has none")
    prefix = plan.prefix
    for half in halves:
        half = replace(half, prefix=prefix)
        window = law.recall(half)
        if window is None:
            window = yield from _settle(half, law)
            yield window
        prefix = law.carry_after(window)
    return prefix


def _halves_of(plan: _Plan, law: _Law) -> tuple[_Plan, _Plan] | None:
    """The two plans that replace a chunk which fills its window, where it can be cut at all."""
    resplit = law.algorithm.chunking.cap_resplit == "word"
    texts = law.halve(plan.text) if resplit else None
    if texts is None:
        return None
    first = replace(plan, half=1, text=texts[0], is_terminal=False)
    return first, replace(plan, half=2, text=texts[1], seed=derive(plan.seed, RESPLIT))


def _settle(plan: _Plan, law: _Law) -> _Settling[FinishedWindow]:
    """Climb the retry ladder until a row is not suspect, or take the best of the suspects."""
    if not plan.text.strip():
        raise NothingToSpeakError(f"chunk {plan.chunk_index} is blank")
    algorithm, text_tokens = law.algorithm, law.count_text_tokens(plan.text)
    request = _first_request(plan, text_tokens, algorithm)
    if request.max_row < 1:
        raise NoSpeechError(f"chunk {plan.chunk_index}: its length ceiling leaves no room")
    attempts: list[_Attempt] = []
    while not attempts or (
        attempts[-1].verdict.suspect and len(attempts) <= algorithm.postprocess.retry_max_attempts
    ):
        number = len(attempts)
        if number:
            request = replace(request, attempt=number, seed=derive(plan.seed, RETRY + number))
        raw = yield request
        if raw is None:
            raise PassageMismatchError("a window request was answered with nothing")
        attempts.append(_judge(raw, request, text_tokens, algorithm))
    shipped = len(attempts) - 1
    if attempts[shipped].verdict.suspect:
        # min() keeps the earliest of equals.
        shipped = min(range(len(attempts)), key=lambda n: attempts[n].dead_air(algorithm))
    return _finish(plan, attempts, shipped, algorithm)


def _first_request(plan: _Plan, text_tokens: int, algorithm: AlgorithmConfig) -> WindowRequest:
    """What the window's first attempt asks for; later ones differ in seed only."""
    max_row, postprocess = algorithm.sampling.max_new_tokens, algorithm.postprocess
    if postprocess.mode != "off":
        window = algorithm.window.max_speech_tokens
        max_row = min(max_row, ceiling_for(text_tokens, config=postprocess, window=window))
    return WindowRequest(
        chunk_index=plan.chunk_index,
        half=plan.half,
        attempt=0,
        text=plan.text,
        seed=plan.seed,
        prefix=plan.prefix,
        max_row=max_row,
        eos_floor=eos_floor(text_tokens, algorithm.sampling),
        is_terminal=plan.is_terminal,
    )


def _judge(
    raw: RawWindow, request: WindowRequest, text_tokens: int, algorithm: AlgorithmConfig
) -> _Attempt:
    """Reduce a raw window to its row and let the detectors read it."""
    _require_whole_units(raw.tokens, algorithm, "a raw window")
    row = raw.tokens[:: algorithm.tokens_per_row_entry]
    hit_cap = not raw.ended and len(row) >= request.max_row
    verdict = inspect(
        row,
        text_token_count=text_tokens,
        min_tokens=request.eos_floor,
        eos_peak_at=raw.eos_peak_at,
        eos_peak_prob=raw.eos_peak_prob,
        ended=raw.ended,
        is_terminal=request.is_terminal,
        hit_ceiling=hit_cap,
        silence=algorithm.sampling.silence_token_ids,
        config=algorithm.postprocess,
    )
    hit_window = not raw.ended and len(row) >= algorithm.window.max_speech_tokens
    return _Attempt(raw, row, verdict, hit_cap, hit_window)


def _finish(
    plan: _Plan, attempts: Sequence[_Attempt], shipped: int, algorithm: AlgorithmConfig
) -> FinishedWindow:
    """Cut the shipped attempt where its verdict says, and refuse what cannot be rendered."""
    attempt = attempts[shipped]
    tokens = _speech_of(attempt, algorithm)
    longest = algorithm.window.max_speech_tokens
    where = f"chunk {plan.chunk_index}, half {plan.half}"
    if len(tokens) > longest * algorithm.tokens_per_row_entry:
        raise WindowOverflowError(
            f"{where}: {len(tokens)} tokens do not fit a window of {longest} row entries"
        )
    if not tokens:
        raise NoSpeechError(
            f"{where}: the model stopped at once; a min_tokens_floor above 0 forbids that"
        )
    return FinishedWindow(
        chunk_index=plan.chunk_index,
        half=plan.half,
        attempt=shipped,
        attempts=len(attempts),
        seed=plan.seed,
        text=plan.text,
        prefix=plan.prefix,
        tokens=tokens,
        verdict=attempt.verdict,
        n_generated=len(attempt.row),
        hit_cap=attempt.hit_cap,
        hit_window=attempt.hit_window,
        ended=attempt.raw.ended,
    )


def _speech_of(attempt: _Attempt, algorithm: AlgorithmConfig) -> tuple[int, ...]:
    """The attempt's stream tokens up to its cut, without control ids."""
    tokens = attempt.raw.tokens
    if algorithm.postprocess.mode == "trim":
        tokens = tokens[: attempt.verdict.keep * algorithm.tokens_per_row_entry]
    if isinstance(algorithm.frame, Unset):
        return tuple(token for token in tokens if token < algorithm.start_speech_token)
    return tokens  # in a SNAC stream every position has its band, and control ids are in none


def _require_whole_units(tokens: Sequence[int], algorithm: AlgorithmConfig, what: str) -> None:
    """Refuse a broken frame: every token behind it would be read in another's place."""
    if len(tokens) % algorithm.tokens_per_row_entry:
        raise PassageMismatchError(
            f"{what} has {len(tokens)} tokens, which are not whole frames of"
            f" {algorithm.tokens_per_row_entry}"
        )
