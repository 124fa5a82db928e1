"""Readers of one manifest value: what it must be, or a refusal that names its key.

None of them coerces: `true` is no number, a string is no list, 2.7 is no count.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any, Final

from engine.errors import ManifestError

_LARGEST: Final = 2**53
_LONGEST_WORD: Final = 200

Reader = Callable[[Any, str], Any]
"""From a JSON value and its dotted key to what a config field holds."""


def wrong(key: str, wanted: str, value: object) -> ManifestError:
    """The refusal of a value that is not what was wanted; a long value is shown in part."""
    return ManifestError(key, f"must be {wanted}, got {reprlib.repr(value)}")


def number(value: object, key: str) -> float:
    """A finite JSON number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(key, "a number", value)
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        raise wrong(key, "a finite number", value)
    return as_float


def whole(value: object, key: str) -> int:
    """A count or an id. 2.0 is one, because JSON has one kind of number; past 2**53 that kind no
    longer tells one whole number from the next."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(key, "a whole number", value)
    if isinstance(value, float) and not value.is_integer():
        raise wrong(key, "a whole number", value)
    if abs(value) > _LARGEST:
        raise wrong(key, f"a whole number of at most {_LARGEST}", value)
    return int(value)


def flag(value: object, key: str) -> bool:
    """true or false; 0 and 1 are numbers."""
    if not isinstance(value, bool):
        raise wrong(key, "true or false", value)
    return value


def word(value: object, key: str) -> str:
    """A string, and no essay: what refuses it later shows it whole."""
    if not isinstance(value, str):
        raise wrong(key, "a string", value)
    if len(value) > _LONGEST_WORD:
        raise wrong(key, f"a string of at most {_LONGEST_WORD} characters", value)
    return value


def one_of(*choices: str) -> Reader:
    """A reader of one word of a closed set."""

    def read(value: object, key: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise wrong(key, " or ".join(repr(choice) for choice in choices), value)
        return value

    return read


def list_of(read_item: Reader) -> Reader:
    """A reader of a list, every item by its own reader and under its own key."""

    def read(value: object, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise wrong(key, "a list", value)
        return tuple(read_item(item, f"{key}[{index}]") for index, item in enumerate(value))

    return read


def or_null(read_value: Reader) -> Reader:
    """A reader for keys under which null means none."""
    return lambda value, key: None if value is None else read_value(value, key)
