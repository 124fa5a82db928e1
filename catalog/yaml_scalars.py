"""The core schema of YAML 1.2 (10.3.2): what an unquoted word means."""

from __future__ import annotations

import re

MAX_NUMBER_LENGTH = 400

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEAN = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BASES = {"0x": 16, "0o": 8}


def core_value(word: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar; ValueError for a number too long to be meant as one.

    `no`, `yes`, `on`, `off`, `1:30` and dates are text here, unlike in YAML 1.1.
    """
    if word in _NULL:
        return None
    if word in _BOOLEAN:
        return _BOOLEAN[word]
    if word[0] not in "+-.0123456789":
        return word
    integer = _INTEGER.fullmatch(word)
    if not integer and not _FLOAT.fullmatch(word):
        return float(word.replace(".", "")) if _NOT_FINITE.fullmatch(word) else word
    if len(word) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number of {len(word)} characters; put it in quotes if it is text")
    if integer:
        return int(word[2:], _BASES[word[:2]]) if word[:2] in _BASES else int(word)
    return float(word)
