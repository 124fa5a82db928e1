"""Random numbers by address: Philox-4x32-10, uniforms, Gumbel noise, normals, and seed derivation.

Philox is the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
as easy as 1, 2, 3" (SC11). A draw is a pure function of (seed, stream, step, index), so no draw
depends on how many came before it, in which order, or beside which others.

Address of a token draw: counter = (index // 4, step, stream, 0), key = (low, high) half of the
seed, and lane `index % 4` of the four words that come out.

Streams, two uses of one table. Addresses: the sampler draws stream 0 under a window's seed, the
codec draws stream 3. Derivations, `derive(seed, stream)`:

    stream  constant     derives from      gives the seed of
    1       FLOW         window            the flow prior of a loudr pack
    2       VOCODER      window            the vocoder phase of a loudr pack
    3       CODEC_NOISE  window            the noise blocks of a SNAC decoder
    8 + n   RETRY        window            attempt n > 0 of the window (attempt 0: its own)
    16 + k  CHUNK        passage           chunk k > 0 (chunk 0: the passage's own)
    4096    RESPLIT      chunk             the second half of a re-split chunk

CODEC_NOISE is ours: 3 is the first number that the published recipe leaves free below its retry
ladder, so no derivation of a loudr window shares it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]  # 32-bit values in 64-bit lanes, so that products are exact

SAMPLING: Final = 0
FLOW: Final = 1
VOCODER: Final = 2
CODEC_NOISE: Final = 3
RETRY: Final = 8
CHUNK: Final = 16
RESPLIT: Final = 4096

_LOW_32: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)
_ROUNDS: Final = 10
_MULTIPLIER_0: Final = np.uint64(0xD2511F53)
_MULTIPLIER_1: Final = np.uint64(0xCD9E8D57)
_WEYL_0: Final = np.uint64(0x9E3779B9)
_WEYL_1: Final = np.uint64(0xBB67AE85)

_SEED_FACTOR: Final = 0x9E3779B97F4A7C15
_STREAM_FACTOR: Final = 0xBF58476D1CE4E5B9


def derive(seed: int, stream: int) -> int:
    """The 64-bit seed of a stream under another seed."""
    return (seed * _SEED_FACTOR + stream * _STREAM_FACTOR) % 2**64


def philox_4x32_10(
    c0: Words, c1: Words, c2: Words, c3: Words, k0: Words | int, k1: Words | int
) -> tuple[Words, Words, Words, Words]:
    """Ten rounds over counters and keys that broadcast against each other; four words an element.

    Every input is taken modulo 2**32.
    """
    c0, c1, c2, c3, key_0, key_1 = (_word(word) for word in (c0, c1, c2, c3, k0, k1))
    for _ in range(_ROUNDS):
        product_0 = c0 * _MULTIPLIER_0
        product_1 = c2 * _MULTIPLIER_1
        c0 = (product_1 >> _32) ^ c1 ^ key_0
        c1 = product_1 & _LOW_32
        c2 = (product_0 >> _32) ^ c3 ^ key_1
        c3 = product_0 & _LOW_32
        key_0 = (key_0 + _WEYL_0) & _LOW_32
        key_1 = (key_1 + _WEYL_1) & _LOW_32
    return c0, c1, c2, c3


def uniforms(seed: int, stream: int, step0: int, n_steps: int, width: int) -> NDArray[np.float64]:
    """Uniforms of the open interval (0, 1) for a block of steps: `(n_steps, width)`."""
    n_quads = (width + 3) // 4
    quads = np.arange(n_quads, dtype=np.uint64)[None, :]
    steps = (_word(step0) + np.arange(n_steps, dtype=np.uint64))[:, None]
    words = philox_4x32_10(quads, steps, _word(stream), _ZERO, seed, seed >> 32)
    lanes = np.stack(words, axis=-1).reshape(n_steps, 4 * n_quads)
    return _open_unit(lanes[:, :width])


def gumbel(seed: int, stream: int, step0: int, n_steps: int, width: int) -> NDArray[np.float64]:
    """Standard Gumbel noise for a block of steps: `(n_steps, width)`."""
    return _gumbel_of(uniforms(seed, stream, step0, n_steps, width))


def uniforms_at(
    seeds: Words, stream: int, steps: NDArray[np.integer], indices: NDArray[np.integer]
) -> NDArray[np.float64]:
    """The uniforms at single addresses: element i is the one of `uniforms` at (seeds[i], steps[i],
    indices[i]). Arrays of one length, or that broadcast to one."""
    index = np.asarray(indices).astype(np.uint64)
    step = np.asarray(steps).astype(np.uint64)
    key = np.asarray(seeds, np.uint64)
    words = philox_4x32_10(index >> np.uint64(2), step, _word(stream), _ZERO, key, key >> _32)
    lane = index & np.uint64(3)
    return _open_unit(np.choose(lane.astype(np.intp), words))


def gumbel_at(
    seeds: Words, stream: int, steps: NDArray[np.integer], indices: NDArray[np.integer]
) -> NDArray[np.float64]:
    """The noise at single addresses, bit-equal to `gumbel` there."""
    return _gumbel_of(uniforms_at(seeds, stream, steps, indices))


def normals(seed: int, stream: int, layer: int, start: int, count: int) -> NDArray[np.float32]:
    """Standard normals for the samples `start .. start + count` of one layer: `(count,)`.

    Addressed by absolute sample, so a window draws the very numbers that the whole draws there.
    Counter = (low half of sample // 4, layer, stream, high half); the four words of a quad give two
    Box-Muller pairs.
    """
    first = start // 4
    quads = np.arange(first, (start + count + 3) // 4, dtype=np.uint64)
    words = philox_4x32_10(quads, _word(layer), _word(stream), quads >> _32, seed, seed >> 32)
    u = [_open_unit(word) for word in words]
    lanes: list[NDArray[np.float64]] = []
    for radius_word, angle_word in ((u[0], u[1]), (u[2], u[3])):
        radius = np.sqrt(-2.0 * np.log(radius_word))
        angle = (2.0 * np.pi) * angle_word
        lanes += [radius * np.cos(angle), radius * np.sin(angle)]
    skipped = start - 4 * first
    samples = np.stack(lanes, axis=-1).reshape(-1)[skipped : skipped + count]
    return samples.astype(np.float32)


def _word(value: Words | int) -> Words:
    """A key or counter word, modulo 2**32, in a 64-bit lane. Python integers of any size and sign
    are taken."""
    if isinstance(value, int):
        return np.array(value & 0xFFFFFFFF, dtype=np.uint64)
    return np.asarray(value, np.uint64) & _LOW_32


_ZERO: Final = np.array(0, dtype=np.uint64)


def _open_unit(words: Words) -> NDArray[np.float64]:
    """Words to (0, 1): half a step off both ends, so that no logarithm meets zero."""
    shifted: NDArray[np.float64] = (words.astype(np.float64) + 0.5) / 2.0**32
    return shifted


def _gumbel_of(u: NDArray[np.float64]) -> NDArray[np.float64]:
    noise: NDArray[np.float64] = -np.log(-np.log(u))
    return noise
