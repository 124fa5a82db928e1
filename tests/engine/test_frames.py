"""Frames: the layout of a SNAC stream, its bands, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import TokenBandError
from engine.frames import (
    TOKENS_PER_FRAME,
    Codes,
    FrameShapeError,
    deinterleave,
    interleave,
    remove_duplicate_frames,
    rows_of,
)

BASE = 76
SIZE = 512

repeatable = settings(deadline=None, derandomize=True, max_examples=60)


@st.composite
def frames_of_codes(draw: st.DrawFn, size: int = SIZE) -> Codes:
    n = draw(st.integers(0, 6))
    code = st.integers(0, size - 1)
    rows = [draw(st.lists(code, min_size=n * k, max_size=n * k)) for k in (1, 2, 4)]
    return Codes(*(np.array(row, dtype=np.int64) for row in rows))


def stream(codes: Codes, base: int = BASE, size: int = SIZE) -> list[int]:
    return [int(t) for t in interleave(*codes.levels, audio_base=base, codebook_size=size)]


def read(tokens: Any, **options: Any) -> Codes:
    return deinterleave(tokens, audio_base=BASE, codebook_size=SIZE, **options)


def some_codes(n_frames: int) -> Codes:
    rng = np.random.default_rng(n_frames)
    return Codes(*(rng.integers(0, SIZE, n_frames * k) for k in (1, 2, 4)))


def test_the_order_in_a_frame_is_depth_first() -> None:
    codes = Codes(np.array([1, 2]), np.array([10, 11, 12, 13]), np.arange(20, 28))
    plain = np.array(stream(codes, base=0)).reshape(2, 7) - SIZE * np.arange(7)
    assert plain.tolist() == [[1, 10, 20, 21, 11, 22, 23], [2, 12, 24, 25, 13, 26, 27]]


@given(frames_of_codes(), st.integers(0, 10**6))
@repeatable
def test_deinterleave_undoes_interleave(codes: Codes, base: int) -> None:
    tokens = stream(codes, base)
    back = deinterleave(tokens, audio_base=base, codebook_size=SIZE)
    assert len(tokens) == TOKENS_PER_FRAME * codes.n_frames
    for got, want in zip(back.levels, codes.levels, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.int64


@given(st.integers(0, 20), st.one_of(st.integers(-(10**6), -1), st.integers(SIZE, 10**6)))
@repeatable
def test_an_id_outside_its_band_is_named(index: int, code: int) -> None:
    tokens = stream(some_codes(3))
    position = index % TOKENS_PER_FRAME
    low = BASE + position * SIZE
    tokens[index] = low + code
    with pytest.raises(TokenBandError) as refused:
        read(tokens)
    assert str(refused.value) == (
        f"tokens[{index}]: id {low + code} is outside band {position} ({low}..{low + SIZE - 1})"
    )


@given(st.sets(st.integers(0, 20), min_size=1, max_size=21))
@repeatable
def test_several_violations_are_named_in_order_and_counted(indices: set[int]) -> None:
    tokens = stream(some_codes(3))
    for index in indices:
        tokens[index] = 3
    with pytest.raises(TokenBandError) as refused:
        read(tokens, what="carry")
    message = str(refused.value)
    named = [f"carry[{index}]: id 3 is outside band {index % 7} (" for index in sorted(indices)[:4]]
    places = [message.index(name) for name in named]
    assert places == sorted(places)
    assert message.endswith(f"; and {len(indices) - 4} more") == (len(indices) > 4)


@pytest.mark.parametrize("over", range(1, 7))
def test_a_partial_frame_is_refused_or_cut(over: int) -> None:
    codes = some_codes(3)
    tokens = stream(codes)[: 14 + over]
    with pytest.raises(FrameShapeError, match=f"{14 + over} ids are 2 frames of 7 and {over} over"):
        read(tokens)
    cut = read(tokens, trailing="cut")
    np.testing.assert_array_equal(cut.c2, codes.c2[:8])
    assert cut.n_frames == 2


def test_what_is_cut_is_not_judged_but_what_stays_is() -> None:
    tokens = stream(some_codes(2))
    assert read([*tokens, 5], trailing="cut").n_frames == 2
    with pytest.raises(TokenBandError, match=r"tokens\[0\]: id 5"):
        read([5, *tokens[1:], 5], trailing="cut")


@pytest.mark.parametrize(
    "tokens",
    [[1.0] * 7, [True] * 7, [[80] * 7], ["a"] * 7, [None] * 7, [2**70] * 7],
    ids=["floats", "bools", "two rows", "strings", "nothing", "too large"],
)
def test_only_a_row_of_integers_is_read(tokens: Any) -> None:
    with pytest.raises(FrameShapeError, match="one row of integers"):
        read(tokens)


def test_ids_beyond_int64_are_refused() -> None:
    with pytest.raises(TokenBandError, match=str(2**63 + 1)):
        read(np.full(7, 2**63 + 1, dtype=np.uint64))


def test_no_tokens_are_no_frames() -> None:
    assert read([]).n_frames == 0
    assert read(np.zeros(0)).n_frames == 0


@pytest.mark.parametrize(("level", "index"), [(0, 1), (1, 3), (2, 7)])
@pytest.mark.parametrize("code", [-1, SIZE])
def test_a_code_of_no_codebook_is_named(level: int, index: int, code: int) -> None:
    rows = [row.copy() for row in some_codes(2).levels]
    rows[level][index] = code
    with pytest.raises(
        TokenBandError, match=rf"c{level}\[{index}\]: code {code} is outside 0..511"
    ):
        interleave(*rows, audio_base=BASE, codebook_size=SIZE)


@pytest.mark.parametrize("lengths", [(1, 2, 3), (1, 1, 4), (2, 2, 4), (0, 0, 1)])
def test_levels_stand_at_one_two_four(lengths: tuple[int, int, int]) -> None:
    with pytest.raises(FrameShapeError, match=", ".join(map(str, lengths))):
        Codes(*(np.zeros(n, dtype=np.int64) for n in lengths))


def test_spans_and_joins_are_whole_frames() -> None:
    codes = some_codes(5)
    joined = codes.span(0, 2).followed_by(codes.span(2, 99))
    for got, want in zip(joined.levels, codes.levels, strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(codes.span(1, 3).c1, codes.c1[2:6])


def test_a_frame_that_repeats_the_c0_before_it_is_dropped() -> None:
    rows = [[1, 5], [1, 6], [2, 7], [1, 8], [1, 9], [1, 10]]
    flat = [token for row in rows for token in row]
    assert remove_duplicate_frames(flat, 2).tolist() == [1, 5, 2, 7, 1, 8]


@given(st.lists(st.integers(0, 2), max_size=12))
@repeatable
def test_duplicate_removal_keeps_each_first_and_is_idempotent(c0: list[int]) -> None:
    n = len(c0)
    codes = Codes(np.array(c0, dtype=np.int64), np.arange(2 * n), np.arange(4 * n))
    thin = remove_duplicate_frames(stream(codes)).tolist()
    kept = [i for i in range(n) if i == 0 or c0[i] != c0[i - 1]]
    assert read(thin).c0.tolist() == [c0[i] for i in kept]
    assert read(thin).c2[::4].tolist() == [4 * i for i in kept]
    assert remove_duplicate_frames(thin).tolist() == thin


def test_duplicate_removal_refuses_a_partial_frame() -> None:
    with pytest.raises(FrameShapeError, match="8 tokens are 1 units of 7 and 1 over"):
        remove_duplicate_frames([0] * 8)


def test_rows_are_first_tokens_of_units() -> None:
    assert rows_of(list(range(14)), 7) == (0, 7)
    assert rows_of((3, 4, 5), 1) == (3, 4, 5)
    assert rows_of((), 7) == ()
    for tokens, unit in (([1, 2, 3], 2), ([1], 0)):
        with pytest.raises(FrameShapeError):
            rows_of(tokens, unit)
