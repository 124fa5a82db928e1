"""JSON files as packs hold them: one object, no key twice, no number or text that is none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ManifestError, PackNotFoundError
from engine.shown import shown_key, shown_name

MAX_BYTES = 64 * 2**20


def read_object(path: str | Path, *, limit_bytes: int = MAX_BYTES) -> dict[str, object]:
    """The object in a file of at most so many bytes.

    Raises `PackNotFoundError` where there is no file to read, and `ManifestError` for anything but
    strict JSON; its key is the place in the file, or the dotted key of what is wrong.
    """
    try:
        document = json.loads(_text_of(path, limit_bytes), object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ManifestError(f"{path}:{error.lineno}:{error.colno}", error.msg) from None
    except (RecursionError, ValueError) as error:  # nested too deep, a number of too many digits
        raise ManifestError(f"{path}", f"cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise ManifestError(f"{path}", f"must hold an object, got {type(document).__name__}")
    for key, value in _entries(document):
        if isinstance(value, _Repeated):
            raise ManifestError(shown_key(key), "must stand there once only")
        if isinstance(value, float) and not math.isfinite(value):
            raise ManifestError(shown_key(key), f"must be a finite number, got {value}")
        if isinstance(value, _HalfPair):
            raise ManifestError(shown_key(key), "must be text: half of a surrogate pair is in it")
    return document


def bytes_of(path: str | Path, limit_bytes: int) -> bytes:
    """The bytes of a file. Raises `PackNotFoundError`, and `ManifestError` for too many of them."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise PackNotFoundError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > limit_bytes:
        raise ManifestError(f"{path}", f"must have at most {limit_bytes:,} bytes")
    return data


def _text_of(path: str | Path, limit_bytes: int) -> str:
    try:
        return bytes_of(path, limit_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}", f"must be UTF-8, byte {error.start} is not") from None


class _Repeated:
    """Stands in for a value whose key came twice, until the walk over the document names it."""


class _HalfPair:
    """Stands for a string or a key that `\\ud800` or its like made: no file can hold it again."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in pairs:
        out[key] = _Repeated() if key in out else value
    return out


def _entries(document: object) -> Iterator[tuple[str, object]]:
    """Every value of a document with its dotted key, in the order of the file."""
    pending = [("", document)]
    while pending:
        key, value = pending.pop()
        yield key, _HalfPair() if isinstance(value, str) and not _is_text(value) else value
        inside: list[tuple[str, object]] = []
        if isinstance(value, dict):
            for name, item in value.items():
                at = f"{key}.{shown_name(name)}" if key else shown_name(name)
                inside.append((at, item if _is_text(name) else _HalfPair()))
        elif isinstance(value, list):
            inside = [(f"{key}[{index}]", item) for index, item in enumerate(value)]
        pending += reversed(inside)


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
