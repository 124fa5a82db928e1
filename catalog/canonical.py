"""The one spelling of JSON that records are written in, whole or as a stream of its parts.

A list of millions of records is never held: its items come one by one, and an item comes in chunks
of text. What a stream spells is byte for byte what `canonical_json` makes of the same value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from catalog.errors import RecordsError

JsonObject = dict[str, Any]

_INDENT = "  "


def canonical_json(value: object) -> bytes:
    """The one spelling of a value: sorted keys, indent of 2, UTF-8, a newline at the end.

    Raises RecordsError naming the place of a NaN, an infinity, a lone surrogate, a key that is no
    string, or anything that JSON does not have.
    """
    return canonical_text(value).encode() + b"\n"


def canonical_text(value: object, place: str = "") -> str:
    """The same as text, without the newline at the end; a refusal names places below `place`."""
    try:
        _check_json(value, place)
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=len(_INDENT)
        )
    except RecursionError:
        raise RecordsError("record: nested too deeply, or within itself") from None


def list_chunks(items: Iterable[Iterable[str]]) -> Iterator[str]:
    """The text of a list whose items are given in chunks of their own text."""
    return _enclosed("[", "]", (("", item) for item in items))


def object_chunks(members: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    """The text of an object whose values are given in chunks; its keys must come sorted."""
    return _enclosed("{", "}", ((canonical_text(key) + ": ", value) for key, value in members))


def document(chunks: Iterable[str]) -> Iterator[bytes]:
    """The bytes of a file that holds one value, given in chunks of its text."""
    for chunk in chunks:
        yield chunk.encode()
    yield b"\n"


def _enclosed(
    opening: str, closing: str, members: Iterable[tuple[str, Iterable[str]]]
) -> Iterator[str]:
    before, after = opening, opening + closing
    for label, chunks in members:
        yield f"{before}\n{_INDENT}{label}"
        for chunk in chunks:
            # A newline in a text of JSON is one between its lines: those of strings are escaped.
            yield chunk.replace("\n", f"\n{_INDENT}")
        before, after = ",", f"\n{closing}"
    yield after


def _check_json(value: object, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise RecordsError(f"{where or 'record'}: expected a string as key, got {key!r}")
            _check_json(key, where)
            _check_json(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            _check_json(item, f"{where}[{n}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise RecordsError(f"{where or 'record'}: expected a finite number, got {value!r}")
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise RecordsError(f"{where or 'record'}: half a surrogate pair is no text")
    elif value is not None and not isinstance(value, bool | int):
        told = f"expected a value of JSON, got {type(value).__name__}"
        raise RecordsError(f"{where or 'record'}: {told}")
