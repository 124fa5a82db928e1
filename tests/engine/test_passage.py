"""The law of a passage against loudkit 0.1.1 on scripted models, in frames, and across restarts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit import window as reference
from loudkit.config import AlgorithmConfig as ReferenceAlgorithm
from loudkit.config import ChunkConfig as ReferenceChunks
from loudkit.config import SamplingConfig as ReferenceSampling
from loudkit.config import WindowConfig as ReferenceWindow
from loudkit.postprocess import PostprocessConfig as ReferencePostprocess
from loudkit.stream import pipelined

from engine.algorithm import (
    UNSET,
    AlgorithmConfig,
    ChunkConfig,
    FrameConfig,
    PostprocessConfig,
    SamplingConfig,
    WindowConfig,
)
from engine.chunking import split_text
from engine.errors import EngineError, NoSpeechError, NothingToSpeakError, WindowOverflowError
from engine.passage import (
    FinishedWindow,
    Passage,
    PassageMismatchError,
    RawWindow,
    WindowRequest,
    carry_tail,
    run_passage,
)
from engine.philox import CHUNK, RESPLIT, RETRY, derive

START, STOP = 6561, 6562
SILENCE, CENSUS, QUIET = (1, 2, 3), (3, 4), (5, 6)
AUDIO_BASE, CODEBOOK = 128_266, 4096

Event = WindowRequest | FinishedWindow
Script = Callable[[WindowRequest], RawWindow]


def count_text_tokens(text: str) -> int:
    return len(text) // 2 + 1


# -- a model that is a hash -------------------------------------------------------------------


def scripted(seed: int, text: str, prefix: Sequence[int], max_row: int) -> RawWindow:
    """What the scripted model answers: a pure function of what it is asked."""
    rng = random.Random(repr((seed, text, tuple(prefix), max_row)))
    kind, ended = rng.random(), rng.random() < 0.6
    length = rng.randint(1, max_row)
    row = [rng.randrange(10, 6000) for _ in range(length)]
    if kind < 0.30:  # ran until it was stopped
        row += [rng.randrange(10, 6000) for _ in range(max_row - length)]
        ended = False
    elif kind < 0.45:  # got stuck, and perhaps came out again
        cycle = row[: rng.randint(1, 12)]
        row += cycle * (30 // len(cycle)) + row[: rng.choice((0, 0, 15))]
    elif kind < 0.60:  # a hole of varying depth
        row += rng.choices(SILENCE + CENSUS + QUIET, k=rng.randint(10, 40)) + row[:20]
    elif kind < 0.72:  # trails off
        row += rng.choices(SILENCE, k=rng.randint(5, 30)) + row[: rng.choice((0, 2, 9))]
    elif kind < 0.80:
        row = row[: rng.randint(1, 24)]
    elif kind < 0.803:
        row, ended = [], True
    elif kind < 0.806:  # a model that ignores its bound
        return RawWindow(tuple(range(10, 11 + max_row)) * 3, False, -1, 0.0)
    row = row[:max_row]
    if rng.random() < 0.2:
        for _ in range(min(len(row), rng.choice((1, 1, 4)))):
            row[rng.randrange(len(row))] = rng.choice((START, START + 2, 8000))
    peak_at = rng.choice((-1, rng.randrange(max(len(row), 1)), len(row) - 5))
    return RawWindow(tuple(row), ended, peak_at, rng.choice((0.001, 0.01, 0.06, 0.5)))


def in_loudr(request: WindowRequest) -> RawWindow:
    return scripted(request.seed, request.text, request.prefix, request.max_row)


def in_frames(row: Sequence[int]) -> tuple[int, ...]:
    """A row of small ids as a SNAC stream: c0 carries the row, the other six follow from it."""
    return tuple(
        AUDIO_BASE + position * CODEBOOK + (token + position * 37) % CODEBOOK
        for token in row
        for position in range(7)
    )


def in_snac(request: WindowRequest) -> RawWindow:
    raw = in_loudr(request)
    return replace(raw, tokens=in_frames(raw.tokens))


def drive(passage: Passage, script: Script) -> tuple[list[Event], str | None]:
    """All that a passage yields, and the name of the error it ended in."""
    events: list[Event] = []
    reply: RawWindow | None = None
    try:
        while True:
            event = passage.send(reply)
            events.append(event)
            reply = script(event) if isinstance(event, WindowRequest) else None
    except StopIteration:
        return events, None
    except EngineError as error:
        return events, type(error).__name__


def requests_of(events: Sequence[Event]) -> list[WindowRequest]:
    return [event for event in events if isinstance(event, WindowRequest)]


def windows_of(events: Sequence[Event]) -> list[FinishedWindow]:
    return [event for event in events if isinstance(event, FinishedWindow)]


# -- random passages --------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What one run of the law gets."""

    chunks: list[str]
    seed: int
    algorithm: AlgorithmConfig
    carry: tuple[int, ...] = ()

    def run(
        self, script: Script, done: Sequence[FinishedWindow] = ()
    ) -> tuple[list[Event], str | None]:
        passage = run_passage(
            self.chunks,
            seed=self.seed,
            algorithm=self.algorithm,
            count_text_tokens=count_text_tokens,
            carry=self.carry,
            done=done,
        )
        return drive(passage, script)


def random_numbers(rng: random.Random) -> dict[str, dict[str, Any]]:
    """The blocks of an algorithm with small windows, so that many windows fill."""
    window = rng.randint(30, 80)
    return {
        "window": {"max_speech_tokens": window},
        "sampling": {
            "max_new_tokens": rng.choice((window, window, window, window - 1)),
            "silence_token_ids": SILENCE,
            "min_tokens_floor": rng.choice((0, 10)),
            "min_tokens_text_ratio": rng.choice((0.0, 1.2)),
        },
        "chunking": {
            "max_tokens": rng.randint(window // 2, window),
            "prefix_tokens": rng.choice((0, 1, 2, 5, 6, 6, 6, 7, 9)),
            "cap_resplit": rng.choice(("word", "word", "word", "off")),
        },
        "postprocess": {
            "mode": rng.choice(("trim", "trim", "trim", "report", "off")),
            "retry_max_attempts": rng.choice((0, 1, 2, 2, 2, 4, 7)),
            "repetition_resume": rng.choice(("condemn", "cut")),
            "ceiling_slack_tokens": rng.choice((40, 40, 10)),
            "silence_render_ids": rng.choice(((), CENSUS)),
            "quiet_render_ids": rng.choice(((), QUIET)),
            "stall_run_tokens": rng.choice((8, 25)),
        },
    }


def ours(numbers: dict[str, dict[str, Any]], **fields: Any) -> AlgorithmConfig:
    return AlgorithmConfig(
        window=WindowConfig(**numbers["window"]),
        sampling=SamplingConfig(**numbers["sampling"]),
        chunking=ChunkConfig(**numbers["chunking"]),
        postprocess=PostprocessConfig(**numbers["postprocess"]),
        **fields,
    )


def theirs(numbers: dict[str, dict[str, Any]], decode_mode: Any) -> ReferenceAlgorithm:
    return ReferenceAlgorithm(
        window=ReferenceWindow(**numbers["window"]),
        sampling=ReferenceSampling(**numbers["sampling"]),
        chunking=ReferenceChunks(**numbers["chunking"]),
        postprocess=ReferencePostprocess(**numbers["postprocess"]),
        decode_mode=decode_mode,
    )


def random_chunks(rng: random.Random, algorithm: AlgorithmConfig) -> list[str]:
    words = ("a", "of", "night", "reader", "slowly,", "went.", "Dr.", "So", "unbrokenly" * 3)
    text = "Go " + " ".join(rng.choices(words, k=rng.randint(1, 24)))
    return split_text(text, algorithm.chunking)


SINGLE_LAWS: dict[str, Any] = {"decode_mode": UNSET}
FUSED_LAWS: dict[str, Any] = {"decode_mode": "fusion_mtp2"}
SNAC_LAWS: dict[str, Any] = {
    "frame": FrameConfig(tokens_per_frame=7, samples_per_frame=2048),
    "token_rate_hz": 24_000 / 2048 * 7,
    "speech_vocab_size": 160_000,
    "start_speech_token": 128_257,  # below the audio band: nothing may be stripped for it
    "stop_speech_token": 128_258,
}


def in_absolute_ids(numbers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The silence lists as a SNAC pack gives them: the ids of the stream's c0 position."""
    return {
        block: {
            name: tuple(AUDIO_BASE + token for token in value) if name.endswith("_ids") else value
            for name, value in values.items()
        }
        for block, values in numbers.items()
    }


def random_case(
    rng: random.Random, numbers: dict[str, dict[str, Any]], laws: dict[str, Any]
) -> tuple[Case, list[int]]:
    """A passage, and the tokens that were spoken before it."""
    algorithm = ours(numbers, **laws)
    before = [rng.randrange(10, 4000) for _ in range(rng.choice((0, 0, 3, 20)))]
    if algorithm.tokens_per_row_entry == 7:
        before = list(in_frames(before))
    # A pack without carry is given one all the same, now and then.
    uncut = algorithm.chunking.prefix_tokens == 0 and rng.random() < 0.5
    case = Case(
        chunks=random_chunks(rng, algorithm),
        seed=rng.choice((0, 7, rng.getrandbits(64))),
        algorithm=algorithm,
        carry=tuple(before) if uncut else carry_tail(before, algorithm),
    )
    return case, before


def random_case_under(rng: random.Random, laws: dict[str, Any]) -> Case:
    numbers = random_numbers(rng)
    return random_case(rng, in_absolute_ids(numbers) if "frame" in laws else numbers, laws)[0]


# -- the reference, driven by the same script -------------------------------------------------


class TextTokens(list[int]):
    """Text tokens that remember their text, for the script."""

    text = ""


@dataclass(frozen=True)
class Asked:
    """One generation, as both sides ask for it."""

    text: str
    seed: int
    prefix: tuple[int, ...]
    max_row: int
    eos_floor: int


class ReferenceRun:
    """An engine of the reference whose model is `scripted` and whose renderer passes through."""

    def __init__(self, algorithm: ReferenceAlgorithm) -> None:
        self.algorithm = algorithm
        self.frontend = self.token_generator = self
        self.execution = SimpleNamespace(
            resolved_generator_device=lambda: "cpu", resolved_renderer_device=lambda: "cuda"
        )
        self.asked: list[Asked] = []

    def encode(self, text: str, language: str) -> TextTokens:
        tokens = TextTokens([0] * count_text_tokens(text))
        tokens.text = text
        return tokens

    def generate(
        self,
        text_tokens: TextTokens,
        voice: object,
        *,
        sampler: Any,
        max_new_tokens: int,
        prefix: Sequence[int],
        should_cancel: object,
    ) -> list[int]:
        seen = tuple(prefix)
        self.asked.append(
            Asked(text_tokens.text, sampler.seed, seen, max_new_tokens, sampler._eos_floor)
        )
        raw = scripted(sampler.seed, text_tokens.text, seen, max_new_tokens)
        sampler.absorb_peak(raw.eos_peak_at, raw.eos_peak_prob)
        return [*raw.tokens, STOP] if raw.ended else list(raw.tokens)

    def _windows_for_chunk(self, chunk: str, voice: Any, **how: Any) -> Any:
        return reference.windows_for_chunk(self, chunk, voice, **how)  # type: ignore[arg-type]

    def _render_window(self, window: Any, voice: Any, **how: Any) -> Any:
        return window

    def run(self, given: Case) -> tuple[list[reference.GeneratedWindow], str | None]:
        windows: list[Any] = []
        stream = pipelined(
            self,  # type: ignore[arg-type]
            given.chunks,
            None,  # type: ignore[arg-type]
            seed=given.seed,
            language="en",
            speed=1.0,
            carry=list(given.carry),
            prefix_len=self.algorithm.chunking.prefix_tokens,
            should_cancel=None,
            latency_mode=False,
        )
        try:
            windows.extend(stream)
        except ValueError as error:
            overflow = "exceed" in str(error)
            return windows, "WindowOverflowError" if overflow else "NoSpeechError"
        return windows, None


def assert_same_window(mine: FinishedWindow, other: reference.GeneratedWindow) -> None:
    assert mine.text == other.text
    assert mine.seed == other.seed
    assert list(mine.tokens) == other.speech
    assert mine.n_generated == other.n_generated
    assert (mine.hit_cap, mine.hit_window) == (other.hit_token_cap, other.hit_window_cap)
    verdict, expected = mine.verdict, other.verdict
    assert (verdict.keep, verdict.reason) == (expected.keep, expected.reason)
    assert verdict.suspect == expected.suspect


def compare_with_reference(rng: random.Random, decode_mode: Any, seen: Counter[str]) -> None:
    numbers = random_numbers(rng)
    case, before = random_case(rng, numbers, {"decode_mode": decode_mode})
    other = ReferenceRun(theirs(numbers, decode_mode))
    carry = reference.carry_from(other.algorithm, before)
    assert list(carry_tail(before, case.algorithm)) == carry

    events, error = case.run(in_loudr)
    expected, expected_error = other.run(case)
    asked = [Asked(r.text, r.seed, r.prefix, r.max_row, r.eos_floor) for r in requests_of(events)]
    assert asked == other.asked
    assert error == expected_error
    windows = windows_of(events)
    # The reference loses the first half when the second one fails; here it is already out.
    surplus = windows[len(expected) :]
    assert not surplus or (error is not None and [w.half for w in surplus] == [1])
    for mine, their_window in zip(windows, expected, strict=False):
        assert_same_window(mine, their_window)
    assert len(windows) >= len(expected)
    assert_coherent(case, events, in_loudr)
    count_what_happened(windows, events, error, seen)


def assert_coherent(case: Case, events: Sequence[Event], script: Script) -> None:
    """What must hold of any run, whoever the reference is."""
    algorithm, last = case.algorithm, len(case.chunks) - 1
    unit = algorithm.tokens_per_row_entry
    prefix, position = case.carry, (0, 0)
    open_requests: list[WindowRequest] = []
    for event in events:
        own = case.seed if event.chunk_index == 0 else derive(case.seed, CHUNK + event.chunk_index)
        own = derive(own, RESPLIT) if event.half == 2 else own
        assert event.prefix == prefix
        if isinstance(event, WindowRequest):
            if (event.chunk_index, event.half) != position and open_requests:
                # Only a whole chunk is ever abandoned, and for its own first half.
                assert (event.chunk_index, event.half) == (position[0], 1)
                open_requests = []
            position = (event.chunk_index, event.half)
            assert event.attempt == len(open_requests)
            assert event.seed == (derive(own, RETRY + event.attempt) if event.attempt else own)
            assert event.is_terminal == (event.chunk_index == last and event.half != 1)
            open_requests.append(event)
            continue
        assert event.seed == own
        assert (event.chunk_index, event.half) == position
        assert event.attempts == len(open_requests)
        raw = script(open_requests[event.attempt])
        assert event.n_generated == len(raw.tokens) // unit
        assert event.ended == raw.ended
        kept = raw.tokens
        if algorithm.postprocess.mode == "trim":
            kept = kept[: event.verdict.keep * unit]
        if unit == 1:
            kept = tuple(token for token in kept if token < START)
        assert event.tokens == kept
        if algorithm.chunking.prefix_tokens:
            prefix = carry_tail(event.tokens, algorithm)
        open_requests = []


def count_what_happened(
    windows: Sequence[FinishedWindow],
    events: Sequence[Event],
    error: str | None,
    seen: Counter[str],
) -> None:
    seen["passages"] += 1
    seen["requests"] += len(requests_of(events))
    seen[error or "no error"] += 1
    for window in windows:
        seen[f"half {window.half}"] += 1
        seen[f"verdict {window.verdict.reason}"] += 1
        seen["retried"] += window.attempts > 1
        seen["an attempt in the middle shipped"] += 0 < window.attempt < window.attempts - 1
        seen["the first of several shipped"] += window.attempt == 0 < window.attempts - 1
        seen["filled and not split"] += window.half == 0 and window.hit_window
        seen["cut"] += window.verdict.keep < window.n_generated


MUST_HAPPEN = (
    *("half 0", "half 1", "half 2", "NoSpeechError", "WindowOverflowError", "retried", "cut"),
    *("an attempt in the middle shipped", "the first of several shipped", "filled and not split"),
    *(f"verdict {reason}" for reason in ("dropout", "stall", "repetition", "ended_tail", "clean")),
)


def compare_many(count: int, decode_mode: Any, seed: int) -> None:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(count):
        compare_with_reference(rng, decode_mode, seen)
    for what, times in sorted(seen.items()):
        print(f"{what:34}{times:8}")
    for what in MUST_HAPPEN:
        assert seen[what] > count // 1000, what


@pytest.mark.parametrize("decode_mode", ["single", "fusion_mtp2"])
def test_two_thousand_passages_go_as_in_the_reference(decode_mode: str) -> None:
    compare_many(2_000, decode_mode, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("decode_mode", ["single", "fusion_mtp2"])
def test_twenty_thousand_passages_go_as_in_the_reference(decode_mode: str) -> None:
    compare_many(20_000, decode_mode, seed=2)


# -- frames -----------------------------------------------------------------------------------


def test_a_snac_passage_decides_as_its_rows_would_alone() -> None:
    """The same rows, once as a stream of one token an entry and once of seven."""

    def rows_only(request: WindowRequest) -> RawWindow:
        raw = scripted(request.seed, request.text, (), request.max_row)
        return replace(raw, tokens=tuple(token % CODEBOOK for token in raw.tokens))

    def absolute_rows(request: WindowRequest) -> RawWindow:
        raw = rows_only(request)
        return replace(raw, tokens=tuple(AUDIO_BASE + token for token in raw.tokens))

    def frames(request: WindowRequest) -> RawWindow:
        raw = rows_only(request)
        return replace(raw, tokens=in_frames(raw.tokens))

    rng = random.Random(4)
    cuts = 0
    for _ in range(300):
        numbers = in_absolute_ids(random_numbers(rng))
        flat = ours(
            numbers,
            speech_vocab_size=200_000,
            start_speech_token=199_998,
            stop_speech_token=199_999,
        )
        framed = ours(numbers, **SNAC_LAWS)
        chunks, seed = random_chunks(rng, flat), rng.getrandbits(64)
        expected, expected_error = Case(chunks, seed, flat).run(absolute_rows)
        events, error = Case(chunks, seed, framed).run(frames)
        assert error == expected_error
        assert [replace(r, prefix=()) for r in requests_of(events)] == [
            replace(r, prefix=()) for r in requests_of(expected)
        ]
        for mine, flat_window in zip(windows_of(events), windows_of(expected), strict=True):
            assert mine.tokens[::7] == flat_window.tokens
            assert len(mine.tokens) == 7 * len(flat_window.tokens)
            assert replace(mine, tokens=(), prefix=()) == replace(flat_window, tokens=(), prefix=())
            cuts += len(flat_window.tokens) < flat_window.n_generated
    assert cuts > 20


def test_a_snac_passage_is_coherent_and_carries_whole_frames() -> None:
    rng = random.Random(6)
    seen: Counter[str] = Counter()
    for _ in range(300):
        case = random_case_under(rng, SNAC_LAWS)
        events, error = case.run(in_snac)
        assert_coherent(case, events, in_snac)
        for event in events:
            assert len(event.prefix) % 7 == 0
            if event.prefix:
                assert (event.prefix[0] - AUDIO_BASE) // CODEBOOK == 0
        for window in windows_of(events):
            assert len(window.tokens) % 7 == 0
        count_what_happened(windows_of(events), events, error, seen)
    for what in ("half 2", "retried", "verdict repetition", "NoSpeechError"):
        assert seen[what], what


def snac(**chunking: Any) -> AlgorithmConfig:
    return AlgorithmConfig(chunking=ChunkConfig(**chunking), **SNAC_LAWS)


def test_a_carry_of_six_is_a_frame_of_seven() -> None:
    tokens = in_frames([10, 11, 12])
    assert carry_tail(tokens, snac()) == tokens[14:]
    assert carry_tail(tokens, snac(prefix_tokens=7)) == tokens[14:]
    assert carry_tail(tokens, snac(prefix_tokens=8)) == tokens[7:]
    assert carry_tail(tokens, snac(prefix_tokens=22)) == tokens
    assert carry_tail(tokens[:7], snac(prefix_tokens=8)) == tokens[:7]
    assert carry_tail(tokens, snac(prefix_tokens=0)) == ()
    assert carry_tail((), snac()) == ()
    # A broken frame at the end is no context.
    assert carry_tail(tokens[:20], snac()) == tokens[7:14]


def test_a_carry_under_fusion_is_in_pairs() -> None:
    fused = AlgorithmConfig(**FUSED_LAWS)
    assert carry_tail(range(20), fused) == tuple(range(14, 20))
    assert carry_tail(range(21), fused) == tuple(range(14, 20))
    five = replace(fused, chunking=ChunkConfig(prefix_tokens=5))
    assert carry_tail(range(20), five) == tuple(range(14, 20))
    assert carry_tail(range(3), fused) == (0, 1)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    length=st.integers(0, 40),
    wanted=st.integers(0, 30),
    decode_mode=st.sampled_from(["single", "fusion_mtp2"]),
)
def test_any_carry_is_the_references(length: int, wanted: int, decode_mode: Any) -> None:
    numbers = random_numbers(random.Random(0))
    numbers["chunking"].update(prefix_tokens=wanted, max_tokens=31)
    expected = reference.carry_pair_aligned(theirs(numbers, decode_mode), range(length), wanted)
    assert list(carry_tail(range(length), ours(numbers, decode_mode=decode_mode))) == expected


# -- re-splits --------------------------------------------------------------------------------

FOUR_WORDS = ["alpha beta", "gamma delta", "epsilon zeta"]


def answer(row: Sequence[int], unit: int = 1, *, ended: bool = True) -> RawWindow:
    return RawWindow(in_frames(row) if unit == 7 else tuple(row), ended, -1, 0.0)


@pytest.mark.parametrize(("laws", "unit"), [(SINGLE_LAWS, 1), (SNAC_LAWS, 7)])
def test_a_resplit_moves_no_later_seed(laws: dict[str, Any], unit: int) -> None:
    algorithm = AlgorithmConfig(**laws, window=WindowConfig(max_speech_tokens=255))
    whole = Case(FOUR_WORDS, 7, replace(algorithm, postprocess=PostprocessConfig(mode="off")))

    def fitting(request: WindowRequest) -> RawWindow:
        return answer(range(100, 140), unit)

    def overflowing(request: WindowRequest) -> RawWindow:
        if request.text == "gamma delta":
            return answer(range(100, 100 + request.max_row), unit, ended=False)
        return fitting(request)

    plain, _ = whole.run(fitting)
    split, _ = whole.run(overflowing)
    assert [(w.chunk_index, w.half, w.text) for w in windows_of(plain)] == [
        (0, 0, "alpha beta"),
        (1, 0, "gamma delta"),
        (2, 0, "epsilon zeta"),
    ]
    assert [(w.chunk_index, w.half, w.text) for w in windows_of(split)] == [
        (0, 0, "alpha beta"),
        (1, 1, "gamma"),
        (1, 2, "delta"),
        (2, 0, "epsilon zeta"),
    ]
    chunk_seed = derive(7, CHUNK + 1)
    assert [w.seed for w in windows_of(split)] == [
        7,
        chunk_seed,
        derive(chunk_seed, RESPLIT),
        derive(7, CHUNK + 2),
    ]
    assert windows_of(plain)[-1] == windows_of(split)[-1]


def test_a_full_half_is_not_split_again() -> None:
    def always_full(request: WindowRequest) -> RawWindow:
        return answer(range(100, 100 + request.max_row), ended=False)

    algorithm = AlgorithmConfig(postprocess=PostprocessConfig(mode="off"))
    events, error = Case(["one two three four"], 7, algorithm).run(always_full)
    assert error is None
    assert [(w.half, w.text, w.hit_window) for w in windows_of(events)] == [
        (1, "one two", True),
        (2, "three four", True),
    ]
    assert [r.is_terminal for r in requests_of(events)] == [True, False, True]


def test_the_length_ceiling_alone_splits_nothing() -> None:
    """A short text that runs on is one runaway; halved it would be two."""

    def runs_on(request: WindowRequest) -> RawWindow:
        return answer(range(100, 100 + request.max_row), ended=False)

    events, _ = Case(["one two"], 7, AlgorithmConfig()).run(runs_on)
    assert [(w.half, w.hit_cap, w.hit_window) for w in windows_of(events)] == [(0, True, False)]


# -- the ladder -------------------------------------------------------------------------------


def test_the_quietest_attempt_does_not_ship_and_ties_go_to_the_earliest() -> None:
    """Silence before speech condemns all three rows; the one with the least of it ships."""

    def hole(request: WindowRequest) -> RawWindow:
        depth = (40, 30, 30)[request.attempt]
        return answer([*range(100, 140), *[1] * depth, *range(200, 240)])

    algorithm = AlgorithmConfig(sampling=SamplingConfig(silence_token_ids=SILENCE))
    events, _ = Case(["some words"], 7, algorithm).run(hole)
    (window,) = windows_of(events)
    assert (window.attempt, window.attempts, window.verdict.reason) == (1, 3, "stall")
    assert window.seed == 7
    assert [r.seed for r in requests_of(events)] == [7, derive(7, 9), derive(7, 10)]


def test_a_good_attempt_ends_the_ladder() -> None:
    def second_time(request: WindowRequest) -> RawWindow:
        depth = 40 if request.attempt == 0 else 0
        return answer([*range(100, 140), *[1] * depth, *range(200, 240)])

    algorithm = AlgorithmConfig(sampling=SamplingConfig(silence_token_ids=SILENCE))
    events, _ = Case(["some words"], 7, algorithm).run(second_time)
    (window,) = windows_of(events)
    assert (window.attempt, window.attempts, window.verdict.reason) == (1, 2, "clean")


# -- resuming ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("laws", "script"),
    [(SINGLE_LAWS, in_loudr), (FUSED_LAWS, in_loudr), (SNAC_LAWS, in_snac)],
    ids=["single", "fused", "snac"],
)
def test_a_passage_resumes_after_any_window_as_if_it_had_not_stopped(
    laws: dict[str, Any], script: Script
) -> None:
    rng = random.Random(8)
    between_halves = 0
    for _ in range(200):
        case = random_case_under(rng, laws)
        events, error = case.run(script)
        windows = windows_of(events)
        for finished in range(len(windows) + 1):
            at = events.index(windows[finished - 1]) + 1 if finished else 0
            rest, rest_error = case.run(script, done=windows[:finished])
            assert rest == events[at:]
            assert rest_error == error
            between_halves += finished > 0 and windows[finished - 1].half == 1
    assert between_halves > 40


def _finished() -> tuple[Case, list[FinishedWindow]]:
    def script(request: WindowRequest) -> RawWindow:
        full = request.text == "gamma delta"
        return answer(range(100, 100 + (request.max_row if full else 40)), ended=not full)

    case = Case(FOUR_WORDS, 7, AlgorithmConfig(postprocess=PostprocessConfig(mode="off")))
    return case, windows_of(case.run(script)[0])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda windows: windows[1:],
        lambda windows: [windows[0], *windows[2:]],
        lambda windows: [windows[0], windows[2], windows[1], windows[3]],
        lambda windows: [*windows, windows[3]],
        lambda windows: [replace(windows[0], seed=8), *windows[1:]],
        lambda windows: [replace(windows[0], text="alpha"), *windows[1:]],
        lambda windows: [windows[0], replace(windows[1], prefix=(1, 2)), *windows[2:]],
        lambda windows: [replace(windows[0], tokens=windows[0].tokens[:-1]), *windows[1:]],
        lambda windows: [replace(windows[0], chunk_index=1), *windows[1:]],
        lambda windows: [replace(windows[0], half=1), *windows[1:]],
        lambda windows: [windows[0], replace(windows[1], half=2), *windows[2:]],
    ],
    ids=[
        *("start", "gap", "order", "surplus", "seed", "text", "prefix", "tokens"),
        *("chunk", "whole as half", "half"),
    ],
)
def test_windows_of_another_passage_are_refused(
    spoil: Callable[[list[FinishedWindow]], list[FinishedWindow]],
) -> None:
    case, windows = _finished()
    assert case.run(in_loudr, done=windows) == ([], None)
    assert case.run(in_loudr, done=spoil(windows)) == ([], "PassageMismatchError")


def test_halves_of_a_chunk_that_cannot_be_halved_are_refused() -> None:
    case, windows = _finished()
    never = ChunkConfig(cap_resplit="off")
    stranger = replace(case, algorithm=replace(case.algorithm, chunking=never))
    assert stranger.run(in_loudr, done=windows) == ([], "PassageMismatchError")


# -- refusals ---------------------------------------------------------------------------------


def first_request(case: Case) -> Passage:
    passage = run_passage(
        case.chunks,
        seed=case.seed,
        algorithm=case.algorithm,
        count_text_tokens=count_text_tokens,
        carry=case.carry,
    )
    assert isinstance(next(passage), WindowRequest)
    return passage


def test_no_chunks_ask_for_nothing() -> None:
    assert Case([], 7, AlgorithmConfig()).run(in_loudr) == ([], None)


def test_a_blank_chunk_has_nothing_to_speak() -> None:
    passage = run_passage(
        [" \n"], seed=7, algorithm=AlgorithmConfig(), count_text_tokens=count_text_tokens
    )
    with pytest.raises(NothingToSpeakError, match="chunk 0"):
        next(passage)


@pytest.mark.parametrize("tokens", [(), (START, START + 5)])
def test_a_window_without_speech_is_refused(tokens: tuple[int, ...]) -> None:
    passage = first_request(Case(["Hi"], 7, AlgorithmConfig()))
    with pytest.raises(NoSpeechError, match="chunk 0"):
        passage.send(RawWindow(tokens, ended=True, eos_peak_at=-1, eos_peak_prob=0.0))


def test_a_ceiling_without_room_is_refused_before_it_is_asked_for() -> None:
    tight = PostprocessConfig(ceiling_speech_per_text_token=0.4, ceiling_slack_tokens=0)
    events, error = Case(["Hi"], 7, AlgorithmConfig(postprocess=tight)).run(in_loudr)
    assert (events, error) == ([], "NoSpeechError")


@pytest.mark.parametrize(("laws", "unit"), [(SINGLE_LAWS, 1), (SNAC_LAWS, 7)])
def test_a_window_past_its_renderer_is_refused(laws: dict[str, Any], unit: int) -> None:
    algorithm = AlgorithmConfig(**laws, postprocess=PostprocessConfig(mode="off"))
    for length, refused in ((255, False), (256, True)):
        passage = first_request(Case(["Hi"], 7, algorithm))
        raw = answer(range(100, 100 + length), unit)
        if refused:
            with pytest.raises(WindowOverflowError, match="255"):
                passage.send(raw)
        else:
            assert isinstance(passage.send(raw), FinishedWindow)


def test_a_broken_frame_is_refused() -> None:
    tokens = in_frames(range(10, 60))[:-1]
    passage = first_request(Case(["Hi"], 7, snac()))
    with pytest.raises(PassageMismatchError, match="whole frames"):
        passage.send(RawWindow(tokens, ended=True, eos_peak_at=-1, eos_peak_prob=0.0))
    assert Case(["Hi"], 7, snac(), carry=tokens[:6]).run(in_snac) == ([], "PassageMismatchError")


def test_a_request_needs_an_answer() -> None:
    with pytest.raises(PassageMismatchError, match="nothing"):
        first_request(Case(["Hi"], 7, AlgorithmConfig())).send(None)


def test_control_ids_are_stripped_from_loudr_windows_only() -> None:
    passage = first_request(Case(["Hi"], 7, AlgorithmConfig()))
    row = [*range(100, 140), START, START + 3, *range(140, 150)]
    window = passage.send(answer(row))
    assert isinstance(window, FinishedWindow)
    assert window.tokens == (*range(100, 140), *range(140, 150))
    assert window.n_generated == 52

    passage = first_request(Case(["Hi"], 7, snac()))
    window = passage.send(answer(range(10, 60), 7))
    assert isinstance(window, FinishedWindow)
    assert min(window.tokens) > snac().start_speech_token
    assert window.tokens == in_frames(range(10, 60))
