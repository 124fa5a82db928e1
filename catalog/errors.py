"""Every refusal of the catalog room: one line that says where, what, and what would be right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import ClassVar

MAX_PROBLEMS = 20
"""Problems of one file that are reported one by one; the rest are counted."""

# Control characters, line separators, direction marks, lone surrogates.
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def one_line(text: object) -> str:
    """The text on a single line that any terminal can show: control characters are escaped."""
    return _UNPRINTABLE.sub(lambda match: _escape(match.group()), str(text))


def cut(text: str, *, limit: int = 60) -> str:
    """The text, or its first `limit` characters and an ellipsis."""
    return text if len(text) <= limit else text[:limit] + "…"


def show(value: object, *, limit: int = 60) -> str:
    """A value as its author would recognise it in the file, cut to about `limit` characters."""
    if isinstance(value, str):
        return one_line(json.dumps(cut(value, limit=limit), ensure_ascii=False))
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < 3 * limit else "a very long number"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else one_line(type(value).__name__)


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return named.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


class CatalogError(Exception):
    """Base of all refusals of this room; `problems` has one line for each of the first 20."""

    code: ClassVar[str] = "catalog_error"
    retryable: ClassVar[bool] = False

    def __init__(self, *problems: str, more: int = 0) -> None:
        """`more` are problems that are counted and not told."""
        lines = tuple(one_line(problem) for problem in problems) or (self.code,)
        super().__init__(*lines)
        self.problems: tuple[str, ...] = lines[:MAX_PROBLEMS]
        self.total = len(lines) + more

    def __str__(self) -> str:
        rest = self.total - 1
        return self.problems[0] + (f" (and {rest} more)" if rest else "")


class Problems:
    """The first problems of a file as lines, and how many more: to tell costs more than to find."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def add(self, tell: Callable[[], str]) -> None:
        """Take a problem; `tell` is only called when its line is wanted."""
        if len(self._lines) < MAX_PROBLEMS:
            self._lines.append(tell())
        else:
            self._more += 1

    def refuse_as(self, kind: type[CatalogError]) -> None:
        """Raises an error of that kind if there were any."""
        if self._lines:
            raise kind(*self._lines, more=self._more)


class CatalogNotFoundError(CatalogError):
    """There is no catalog at that path."""

    code = "catalog_not_found"


class CatalogUnreadableError(CatalogError):
    """The catalog is there and cannot be read: a folder, no permission, too large."""

    code = "catalog_unreadable"


class CatalogEncodingError(CatalogError):
    """The bytes of the catalog are not UTF-8 text."""

    code = "catalog_encoding"


class CatalogSyntaxError(CatalogError):
    """The text of the catalog is not the YAML that we read."""

    code = "catalog_syntax"


class CatalogInvalidError(CatalogError):
    """The catalog is YAML, and asks for something that does not exist."""

    code = "catalog_invalid"


class CatalogCollisionError(CatalogError):
    """Two names cannot live side by side in every file system."""

    code = "catalog_collision"


class TextFileError(CatalogError):
    """The `text_file` of a passage is missing, outside the catalog's folder or not text."""

    code = "catalog_text_file"


class CorpusError(CatalogError):
    """The Parquet source of passages cannot be read as it was asked for."""

    code = "catalog_corpus"


class NothingSelectedError(CatalogError):
    """A pattern, or the catalog as a whole, selects no render."""

    code = "catalog_nothing_selected"


class RecordsError(CatalogError):
    """A published record cannot be read, or what should be recorded is not a value of JSON."""

    code = "records_invalid"


class WriteFailedError(CatalogError):
    """A file of the output folder could not be written; what stood there before still stands."""

    code = "write_failed"
