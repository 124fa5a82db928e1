"""Where the values of a JSON text stand in it: a record that is kept is copied, not written anew.

Only for texts that have been parsed: what is found here is cut out, never checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

_SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


def elements(text: str) -> Iterator[str]:
    """The texts of the elements of a list."""
    at = _after(text, _after(text, 0) + 1)
    while text[at] != "]":
        _, end = _decode(text, at)
        yield text[at:end]
        at = _next(text, end)


def members(text: str) -> dict[str, str]:
    """The texts of the values of an object by their keys, in its order."""
    found: dict[str, str] = {}
    at = _after(text, _after(text, 0) + 1)
    while text[at] != "}":
        key, end = _decode(text, at)
        start = _after(text, _after(text, end) + 1)
        _, end = _decode(text, start)
        found[key] = text[start:end]
        at = _next(text, end)
    return found


def values_at(text: str, paths: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The texts of the values at these paths of keys; each object on the way is cut up once,
    however many of them lead through it."""
    cut_up: dict[tuple[str, ...], dict[str, str]] = {}

    def value(path: tuple[str, ...]) -> str:
        if not path:
            return text
        around = path[:-1]
        if around not in cut_up:
            cut_up[around] = members(value(around))
        return cut_up[around][path[-1]]

    return map(value, paths)


def outdented(text: str) -> str:
    """An object or list that was cut out, as if nothing stood around it.

    How deep it stood is told by its last line, that of the closing bracket.
    """
    last = text.rpartition("\n")[2]
    around = len(last) - len(last.lstrip(" ")) if "\n" in text else 0
    return text.replace("\n" + " " * around, "\n") if around else text


def indented(text: str, spaces: int) -> str:
    """The same to stand inside something else. Newlines stand between the lines of a text of JSON,
    never in its strings."""
    return text.replace("\n", "\n" + " " * spaces)


def _next(text: str, end: int) -> int:
    """Where the next key or value stands, or the closing bracket."""
    at = _after(text, end)
    return _after(text, at + 1) if text[at] == "," else at


def _after(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
