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
from engine.shown import shown


def require_bands(contract: TokenContract, tokens: Sequence[int], what: str = "tokens") -> None:
    """Refuse the first id that may not stand where it stands.

    Raises `TokenBandError` naming index, id and band, also for what is no id or no row of ids, and
    `FrameShapeError` for a part of a frame.
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
    """The ids as an array; nothing is cut to a whole number or taken for one.

    What can be read but once is no row: to check it would be to use it up.
    """
    if isinstance(tokens, str | bytes | bytearray) or not isinstance(tokens, Sequence | np.ndarray):
        raise TokenBandError(f"{what}: {shown(tokens)} is no row of token ids")
    ids = _quickly(tokens)
    if ids is not None:
        return ids
    if isinstance(tokens, np.ndarray) and tokens.ndim == 0:
        raise TokenBandError(f"{what}: {shown(tokens)} is no row of token ids")
    for index, token in enumerate(tokens):
        if (
            isinstance(token, bool)
            or not isinstance(token, Integral)
            or not 0 <= int(token) < 2**63
        ):
            raise TokenBandError(f"{what}[{index}]: {shown(token)} is no token id")
    return np.array([int(token) for token in tokens], dtype=np.int64)


def _quickly(tokens: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The array of what is plainly numbers; None for what is to be looked at one by one."""
    if isinstance(tokens, np.ndarray):
        whole = tokens.ndim == 1 and tokens.dtype.kind in "iu"
        safe = whole and np.can_cast(tokens.dtype, np.int64)
        return tokens.astype(np.int64, copy=False) if safe else None
    if not set(map(type, tokens)) <= {int}:
        return None
    try:
        return np.array(tokens, dtype=np.int64)
    except OverflowError:
        return None


def band_name(contract: TokenContract, position: int) -> str:
    """How errors and listings call the band of a position."""
    first, past = contract.band(position)
    if first >= past:
        return f"band {position}, which is empty: {contract.name} has no audio ids here"
    order = contract.frame_order
    code = f" {order[position]}" if order else ""
    return f"band {position}{code} ({first}..{past - 1})"
