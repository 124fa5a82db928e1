"""Frames of a SNAC token stream: seven tokens, one step of the coarsest codebook.

SNAC codes one frame in three levels at 1 : 2 : 4 codes. A stream lays them out depth first, so
that a frame can be decoded as soon as its seventh token is there; each position of the frame has
its own band of ids, `audio_base + position * codebook_size + code`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError, TokenBandError

Ids: TypeAlias = NDArray[np.int64]

TOKENS_PER_FRAME: Final = 7
CODES_PER_FRAME: Final = (1, 2, 4)  # of c0, c1, c2
# Position in the frame -> (level, which of the level's codes in this frame).
LAYOUT: Final = ((0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (2, 2), (2, 3))

_NAMED_AT_MOST: Final = 4


class FrameShapeError(EngineError):
    """A row of tokens or codes is not made of whole frames."""

    code = "frame_shape"


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """The codes of F frames: `c0 (F,)`, `c1 (2F,)`, `c2 (4F,)`, without offsets.

    Raises `FrameShapeError` when the three do not stand at 1 : 2 : 4 or are no integers.
    """

    c0: Ids
    c1: Ids
    c2: Ids

    def __post_init__(self) -> None:
        for name in ("c0", "c1", "c2"):
            object.__setattr__(self, name, _integers(getattr(self, name), name))
        lengths = tuple(len(level) for level in self.levels)
        if lengths != tuple(self.n_frames * n for n in CODES_PER_FRAME):
            raise FrameShapeError(
                f"c0, c1, c2 hold {lengths[0]}, {lengths[1]}, {lengths[2]} codes;"
                " frames hold 1, 2 and 4"
            )

    @property
    def levels(self) -> tuple[Ids, Ids, Ids]:
        """The three levels, coarsest first."""
        return self.c0, self.c1, self.c2

    @property
    def n_frames(self) -> int:
        """How many frames these are."""
        return len(self.c0)

    def span(self, first: int, stop: int) -> Codes:
        """The frames `first .. stop`, cut at the ends as a slice is."""
        first, stop, _ = slice(first, stop).indices(self.n_frames)
        return Codes(
            *(c[first * n : stop * n] for c, n in zip(self.levels, CODES_PER_FRAME, strict=True))
        )

    def followed_by(self, after: Codes) -> Codes:
        """These frames and then those."""
        return Codes(*map(np.append, self.levels, after.levels))

    def require_within(self, codebook_size: int) -> None:
        """Raise `TokenBandError` naming level, index and code of what no codebook entry has."""
        for name, level in zip(("c0", "c1", "c2"), self.levels, strict=True):
            bad = np.flatnonzero((level < 0) | (level >= codebook_size))
            if bad.size:
                raise TokenBandError(
                    _listed(
                        [
                            f"{name}[{i}]: code {level[i]} is outside 0..{codebook_size - 1}"
                            for i in bad[:_NAMED_AT_MOST]
                        ],
                        bad.size,
                    )
                )


def interleave(
    c0: Sequence[int] | Ids,
    c1: Sequence[int] | Ids,
    c2: Sequence[int] | Ids,
    *,
    audio_base: int,
    codebook_size: int,
) -> Ids:
    """Codes `(F,)`, `(2F,)`, `(4F,)` as a token stream `(7F,)` of absolute ids.

    Raises `FrameShapeError` for other lengths and `TokenBandError` for a code of no codebook.
    """
    codes = Codes(_integers(c0, "c0"), _integers(c1, "c1"), _integers(c2, "c2"))
    codes.require_within(codebook_size)
    stream = np.empty((codes.n_frames, TOKENS_PER_FRAME), dtype=np.int64)
    for position, (level, nth) in enumerate(LAYOUT):
        stream[:, position] = codes.levels[level][nth :: CODES_PER_FRAME[level]]
    stream += _band_starts(audio_base, codebook_size)
    return stream.reshape(-1)


def deinterleave(
    tokens: Sequence[int] | Ids,
    *,
    audio_base: int,
    codebook_size: int,
    trailing: Literal["refuse", "cut"] = "refuse",
    what: str = "tokens",
) -> Codes:
    """A token stream of absolute ids as codes; the inverse of `interleave`.

    `what` is what errors call the stream. Raises `TokenBandError` naming index, id and band of
    what lies outside its position's band, and `FrameShapeError` for a trailing part of a frame
    unless `trailing` is "cut".
    """
    ids = _integers(tokens, what)
    over = len(ids) % TOKENS_PER_FRAME
    if over and trailing == "refuse":
        raise FrameShapeError(
            f"{what}: {len(ids)} ids are {len(ids) // TOKENS_PER_FRAME} frames of"
            f" {TOKENS_PER_FRAME} and {over} over"
        )
    frames = ids[: len(ids) - over].reshape(-1, TOKENS_PER_FRAME)
    starts = _band_starts(audio_base, codebook_size)
    _require_bands(frames, starts, codebook_size, what)
    values = frames - starts
    levels: tuple[list[Ids], list[Ids], list[Ids]] = ([], [], [])
    for position, (level, _) in enumerate(LAYOUT):
        levels[level].append(values[:, position])
    return Codes(*(np.stack(columns, axis=1).reshape(-1) for columns in levels))


def remove_duplicate_frames(
    tokens: Sequence[int] | Ids, tokens_per_frame: int = TOKENS_PER_FRAME
) -> Ids:
    """The stream without each frame whose first token equals that of the frame before it.

    It is how SNAC streams are thinned at encode; the first of equal frames stays. Raises
    `FrameShapeError` for a partial frame.
    """
    ids = _integers(tokens, "tokens")
    _require_units(len(ids), tokens_per_frame)
    rows = ids.reshape(-1, tokens_per_frame)
    kept = np.ones(len(rows), dtype=np.bool_)
    kept[1:] = rows[1:, 0] != rows[:-1, 0]
    return rows[kept].reshape(-1)


def rows_of(tokens: Sequence[int], unit: int) -> tuple[int, ...]:
    """What the detectors read: the first token of every unit. Raises `FrameShapeError` for a part
    of a unit."""
    _require_units(len(tokens), unit)
    return tuple(int(token) for token in tokens[::unit])


def _require_units(n_tokens: int, unit: int) -> None:
    if unit < 1:
        raise FrameShapeError(f"a unit has at least one token, got {unit}")
    if n_tokens % unit:
        raise FrameShapeError(
            f"{n_tokens} tokens are {n_tokens // unit} units of {unit} and {n_tokens % unit} over"
        )


def _band_starts(audio_base: int, codebook_size: int) -> Ids:
    return audio_base + codebook_size * np.arange(TOKENS_PER_FRAME, dtype=np.int64)


def _require_bands(frames: Ids, starts: Ids, codebook_size: int, what: str) -> None:
    outside = np.argwhere((frames < starts) | (frames >= starts + codebook_size))
    if not len(outside):
        return
    named = [
        f"{what}[{frame * TOKENS_PER_FRAME + position}]: id {frames[frame, position]} is outside"
        f" band {position} ({starts[position]}..{starts[position] + codebook_size - 1})"
        for frame, position in outside[:_NAMED_AT_MOST]
    ]
    raise TokenBandError(_listed(named, len(outside)))


def _listed(named: Sequence[str], total: int) -> str:
    more = f"; and {total - len(named)} more" if total > len(named) else ""
    return "; ".join(named) + more


def _integers(values: Sequence[int] | NDArray[Any], name: str) -> Ids:
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise FrameShapeError(
            f"{name} must be one row of integers, got {array.dtype} of shape {array.shape}"
        )
    if array.dtype == np.uint64 and int(array.max()) > np.iinfo(np.int64).max:
        raise TokenBandError(f"{name} holds {int(array.max())}, which is no token id")
    return array.astype(np.int64, copy=False)
