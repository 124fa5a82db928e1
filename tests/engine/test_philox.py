"""Philox against its published vectors and loudkit's generator; addresses against whole blocks."""

from __future__ import annotations

import loudkit.rng
import loudkit.window
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine import philox

SETTINGS = settings(derandomize=True, deadline=None, max_examples=150)

SEEDS = st.one_of(
    st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1)
)
STREAMS = st.one_of(st.sampled_from([0, 1, 3, 4096]), st.integers(0, 2**32 - 1))
STEPS = st.one_of(
    st.integers(0, 600), st.integers(2**31, 2**32 - 1), st.sampled_from([2**32 - 2, 2**32 + 5])
)
WIDTHS = st.integers(1, 130)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        # Random123's kat_vectors for philox4x32-10.
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ),
        (
            (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
            (0xFFFFFFFF, 0xFFFFFFFF),
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_random123_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    lanes = [np.array([word], np.uint64) for word in counter]
    drawn = philox.philox_4x32_10(lanes[0], lanes[1], lanes[2], lanes[3], *key)
    assert tuple(int(word[0]) for word in drawn) == words
    by_row = philox.philox_4x32_10(
        lanes[0], lanes[1], lanes[2], lanes[3], *(np.array([k, k ^ 1], np.uint64) for k in key)
    )
    assert tuple(int(word[0]) for word in by_row) == words
    assert by_row[0].shape == (2,)


@given(SEEDS, STREAMS, STEPS, st.integers(1, 5), WIDTHS)
@SETTINGS
def test_blocks_are_the_reference_s_bit_for_bit(
    seed: int, stream: int, step0: int, n_steps: int, width: int
) -> None:
    ours = philox.uniforms(seed, stream, step0, n_steps, width)
    theirs = loudkit.rng.uniforms(seed, stream, step0, n_steps, width)
    assert ours.shape == (n_steps, width)
    np.testing.assert_array_equal(ours.view(np.uint64), theirs.view(np.uint64))
    noise = philox.gumbel(seed, stream, step0, n_steps, width)
    reference = loudkit.rng.gumbel_noise(seed, stream, step0, n_steps, width)
    np.testing.assert_array_equal(noise.view(np.uint64), reference.view(np.uint64))


def test_a_wide_block_is_the_reference_s() -> None:
    ours = philox.gumbel(2**63 + 11, 0, 2**31 + 7, 3, 30_001)
    theirs = loudkit.rng.gumbel_noise(2**63 + 11, 0, 2**31 + 7, 3, 30_001)
    np.testing.assert_array_equal(ours, theirs)


def test_an_empty_block_is_empty() -> None:
    assert philox.gumbel(1, 0, 0, 0, 5).shape == (0, 5)
    assert philox.gumbel(1, 0, 0, 2, 0).shape == (2, 0)
    assert philox.normals(1, 3, 0, 6, 0).shape == (0,)


@given(st.lists(st.tuples(SEEDS, STEPS, st.integers(0, 300)), max_size=40), STREAMS)
@SETTINGS
def test_a_single_address_holds_what_the_block_holds_there(
    addresses: list[tuple[int, int, int]], stream: int
) -> None:
    seeds = np.array([a[0] for a in addresses], np.uint64)
    steps = np.array([a[1] for a in addresses], np.int64)
    indices = np.array([a[2] for a in addresses], np.int64)
    drawn = philox.gumbel_at(seeds, stream, steps, indices)
    assert drawn.shape == seeds.shape
    for at, (seed, step, index) in enumerate(addresses):
        assert drawn[at] == philox.gumbel(seed, stream, step, 1, 301)[0, index]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8, 9, 31, 300, 5_000])
def test_noise_does_not_depend_on_how_many_are_drawn_with_it(count: int) -> None:
    # The logarithm runs in vectors with a tail; an element must not feel which of them it is in.
    dense = philox.gumbel(77, 0, 5, 1, 40_000)[0]
    for first in (0, 1, 2, 3, 17):
        indices = first + 7 * np.arange(count)
        same = np.broadcast_to(np.uint64(77), indices.shape)
        drawn = philox.gumbel_at(same, 0, np.full(count, 5), indices)
        np.testing.assert_array_equal(drawn, dense[indices])


def test_one_seed_and_step_spread_over_many_indices() -> None:
    indices = np.arange(50)
    drawn = philox.uniforms_at(np.array([9], np.uint64), 0, np.array([4]), indices)
    np.testing.assert_array_equal(drawn, philox.uniforms(9, 0, 4, 1, 50)[0])


def words_of(seed: int, stream: int, layer: int, quad: int) -> list[float]:
    low, high = (np.array([part], np.uint64) for part in (quad & 0xFFFFFFFF, quad >> 32))
    layer_word, stream_word = (np.array([word], np.uint64) for word in (layer, stream))
    words = philox.philox_4x32_10(low, layer_word, stream_word, high, seed & 0xFFFFFFFF, seed >> 32)
    return [(float(word[0]) + 0.5) / 2**32 for word in words]


@given(SEEDS, st.integers(0, 6), st.one_of(st.integers(0, 5_000), st.integers(2**34, 2**35)))
@SETTINGS
def test_a_normal_is_box_muller_of_its_quad(seed: int, layer: int, sample: int) -> None:
    u = words_of(seed, 3, layer, sample // 4)
    lane = sample % 4
    radius = np.sqrt(-2.0 * np.log(u[lane // 2 * 2]))
    angle = 2.0 * np.pi * u[lane // 2 * 2 + 1]
    expected = radius * (np.sin(angle) if lane % 2 else np.cos(angle))
    drawn = philox.normals(seed, 3, layer, sample, 1)
    assert drawn.dtype == np.float32
    assert drawn[0] == pytest.approx(expected, rel=1e-6, abs=1e-7)


@given(SEEDS, st.integers(0, 5), st.integers(0, 3_000), st.integers(0, 1_000))
@SETTINGS
def test_any_stretch_of_normals_is_the_slice_of_the_whole(
    seed: int, layer: int, start: int, count: int
) -> None:
    whole = philox.normals(seed, 3, layer, 0, 4_000)
    part = philox.normals(seed, 3, layer, start, count)
    np.testing.assert_array_equal(part, whole[start : start + count])


def autocorrelation(x: NDArray[np.float64], lag: int) -> float:
    return float(np.mean(x[:-lag] * x[lag:]))


def test_normals_look_normal() -> None:
    drawn = philox.normals(20_261, philox.CODEC_NOISE, 1, 0, 400_000).astype(np.float64)
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.var() - 1.0) < 0.01
    assert abs(np.mean(drawn**4) - 3.0) < 0.1
    assert abs(np.mean(np.abs(drawn) < 1.0) - 0.6827) < 0.005
    assert all(abs(autocorrelation(drawn, lag)) < 0.01 for lag in (1, 2, 3, 4, 8))


def test_layers_streams_and_seeds_draw_different_normals() -> None:
    drawn = [
        philox.normals(seed, stream, layer, 0, 64)
        for seed in (1, 2**40)
        for stream in (3, 4)
        for layer in (0, 1)
    ]
    assert len({row.tobytes() for row in drawn}) == len(drawn)


@given(SEEDS, st.integers(0, 10_000))
@SETTINGS
def test_derived_seeds_are_the_reference_s(seed: int, stream: int) -> None:
    assert philox.derive(seed, stream) == loudkit.window._derive(seed, stream)


def test_the_streams_are_the_reference_s_and_ours_is_free() -> None:
    assert philox.FLOW == loudkit.window._STREAM_FLOW
    assert philox.VOCODER == loudkit.window._STREAM_VOCODER
    assert philox.RETRY == loudkit.window._STREAM_RETRY
    assert philox.CHUNK == loudkit.window._STREAM_CHUNK
    assert philox.RESPLIT == loudkit.window._STREAM_RESPLIT
    assert philox.CODEC_NOISE not in {philox.SAMPLING, philox.FLOW, philox.VOCODER}
    assert philox.CODEC_NOISE < philox.RETRY
