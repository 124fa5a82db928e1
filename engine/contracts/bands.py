"""Whether a stream of ids can have been minted under a contract: every id in its position's band.

It is a necessary check and no more: sibling contracts share their bands, and only the fingerprint
tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from engine.contracts.contract import TokenContract
from engine.errors import TokenBandError
from engine.frames import FrameShapeError


def require_bands(contract: TokenContract, tokens: Sequence[int], what: str = "tokens") -> None:
    """Refuse the first id that may not stand where it stands.

    Raises `TokenBandError` naming index, id and band, and `FrameShapeError` for a part of a frame.
    """
    unit = contract.tokens_per_frame
    ids = _whole_numbers(tokens, what)
    at = np.arange(len(ids), dtype=np.int64) % unit
    starts = contract.audio_base + at * contract.codebook_size
    outside = np.flatnonzero((ids < starts) | (ids >= starts + contract.codebook_size))
    if len(outside):
        index = int(outside[0])
        more = f"; and {len(outside) - 1} more" if len(outside) > 1 else ""
        raise TokenBandError(
            f"{what}[{index}]: id {ids[index]} is outside {band_name(contract, index % unit)}{more}"
        )
    if len(ids) % unit:
        raise FrameShapeError(
            f"{what}: {len(ids)} ids are {len(ids) // unit} frames of {unit} and "
            f"{len(ids) % unit} over"
        )


def _whole_numbers(tokens: Sequence[int], what: str) -> NDArray[np.int64]:
    """The ids as an array; a fraction would otherwise be cut to the id below it."""
    array = np.asarray(tokens)
    if not array.size:
        return np.zeros(0, dtype=np.int64)
    if array.ndim == 1 and np.can_cast(array.dtype, np.int64):
        return array.astype(np.int64, copy=False)
    for index, token in enumerate(tokens):
        if not isinstance(token, Integral) or not 0 <= token < 2**63:
            raise TokenBandError(f"{what}[{index}]: {token!r} is no token id")
    return np.array([int(token) for token in tokens], dtype=np.int64)


def band_name(contract: TokenContract, position: int) -> str:
    """How errors and listings call the band of a position."""
    first, past = contract.band(position)
    if first >= past:
        return f"band {position}, which is empty: {contract.name} has no audio ids here"
    order = contract.frame_order
    code = f" {order[position]}" if order else ""
    return f"band {position}{code} ({first}..{past - 1})"
