"""A clip's `waveform` as a picture: one small path, the upper half, and its mirror image."""

from __future__ import annotations

from base64 import b64decode
from itertools import pairwise

LEVELS = 24
"""Heights above the middle; about one a pixel."""
MAX_PARTS = 1000
"""Ours have 120; a record with more than this is drawn by whoever made it."""


def waveform_svg(waveform: object, name: str) -> str:
    """The picture as inline SVG whose path has the id `name`, or nothing.

    Nothing for a record without one, and for what is no base64 of one byte a part: no picture is
    better than a wrong one. It holds numbers and `name`, and nothing of the record's own text.
    """
    parts = _parts(waveform)
    if not parts:
        return ""
    loudest = max(max(parts), 1)
    # Silence is a line, not a gap; and the last step leads back to the middle.
    heights = [0, *(max(1, -(-part * LEVELS // loudest)) for part in parts), 0]
    steps = (before - after for before, after in pairwise(heights))
    path = " ".join(f"1{step}" if step < 0 else f"1 {step}" for step in steps)
    return (
        f'<svg class="wave" viewBox="0 -{LEVELS} {len(parts) + 1} {2 * LEVELS}" '
        'preserveAspectRatio="none" aria-hidden="true">'
        f'<path id="{name}" d="M0 0l{path}"/>'
        f'<use href="#{name}" transform="scale(1,-1)"/></svg>'
    )


def _parts(waveform: object) -> bytes:
    if not isinstance(waveform, str) or len(waveform) > 4 * MAX_PARTS // 3:
        return b""
    try:
        return b64decode(waveform, validate=True)
    except ValueError:  # binascii's, and that of a character beyond ASCII
        return b""
