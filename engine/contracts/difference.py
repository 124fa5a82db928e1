"""Where two contracts part: the first thing that a person would look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

_ORDER: Final = (
    "vocabulary_size",
    "audio_base",
    "codebook_size",
    "tokens_per_frame",
    "frame_order",
    "start_of_speech",
    "end_of_speech",
    "added_tokens",
    "prompt_layout",
)
"""The numbers that move every id come before single ids, and ids before what is made of them."""

_SHOWN: Final = 80


def first_difference(there: Mapping[str, object], here: Mapping[str, object]) -> str:
    """One clause naming the first part of two `meaning`s that differs; "" when none does."""
    rest = sorted((there.keys() | here.keys()) - set(_ORDER))
    for key in (*_ORDER, *rest):
        theirs, ours = there.get(key), here.get(key)
        if theirs == ours:
            continue
        if key == "added_tokens" and isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            return _first_token(theirs, ours)
        if isinstance(theirs, list) and isinstance(ours, list):
            at = _first_index(theirs, ours)
            return _parts(f"{key}[{at}]", theirs[at : at + 1], ours[at : at + 1])
        return _parts(key, [theirs] if key in there else [], [ours] if key in here else [])
    return ""


def _first_token(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """The lowest id that is spelled otherwise, seen from the id: it is what a file holds."""
    changed = [name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)]
    ids = [ids[name] for name in changed for ids in (theirs, ours) if name in ids]
    numbers = [token for token in ids if isinstance(token, int)]
    if not numbers:
        return f"added_tokens: {_show(min(changed))} has no id"
    token = min(numbers)
    spelled = [sorted(name for name, at in ids.items() if at == token) for ids in (theirs, ours)]
    return _parts(f"added_tokens: id {token}", spelled[0][:1], spelled[1][:1])


def _first_index(theirs: list[object], ours: list[object]) -> int:
    pairs = zip(theirs, ours, strict=False)
    shorter = min(len(theirs), len(ours))
    return next((at for at, (one, other) in enumerate(pairs) if one != other), shorter)


def _parts(what: str, theirs: Sequence[object], ours: Sequence[object]) -> str:
    told = [_show(side[0]) if side else "nothing" for side in (theirs, ours)]
    named = what if what.isprintable() and len(what) <= _SHOWN else _show(what)
    return f"{named} is {told[0]} there, {told[1]} here"


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
