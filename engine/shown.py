"""How an error line shows what a file or an argument held: on one line, escaped, never at length.

A name in a downloaded file may hold a line break, an escape sequence of the terminal, half of a
surrogate pair, or a megabyte.
"""

from __future__ import annotations

import reprlib
import unicodedata
from typing import Final

_LONGEST: Final = 80
_LONGEST_NAME: Final = 120
"""Of tensors: the longest of a published codec's has 66."""

_LONGEST_TEXT: Final = 200
_BREAKS: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of control characters, surrogates, line and paragraph separators."""


class _ShortRepr(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = _LONGEST
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 4
        self.maxlevel = 2

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write a number of more than 4,300 digits.
        return "a very long number" if x.bit_length() > 10_000 else super().repr_int(x, level)


_REPR: Final = _ShortRepr()


def shown(value: object) -> str:
    """A value as Python would write it, its middle left out where it is long."""
    return _cut(_REPR.repr(value))


def shown_name(name: object) -> str:
    """A name as it stands where it can be shown so, or else as `shown` shows it."""
    plain = isinstance(name, str) and name.isprintable() and len(name) <= _LONGEST_NAME
    return str(name) if plain else shown(name)


def shown_key(key: str) -> str:
    """A dotted key of names that were shown; a very long one is cut."""
    return _cut(key)


def is_one_line(text: str) -> bool:
    """Whether a text can be written to a file and be shown on a line: no control characters, and
    no surrogates, which stand for argument bytes that are no UTF-8."""
    return not any(unicodedata.category(char) in _BREAKS for char in text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
