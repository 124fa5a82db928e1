"""catalog.json or provenance.json -> typed clips; also reads those that loudkit publishes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from catalog.errors import RecordsError, show
from catalog.files import UnreadableFile, read_bounded, utf8_text
from catalog.names import name_fault
from catalog.records import (
    OUTSIDE_SAMPLE,
    ClipRecord,
    ConditioningRecord,
    PackRecord,
    SourceRecord,
    WindowRecord,
)
from catalog.schema import MAX_SEED

MAX_RECORDS_BYTES = 2**30
SOLE_PASSAGE = "sample"
"""Passage id of a clip whose record names none: a voice with a single `sample`."""

_HEX = re.compile(r"[0-9a-f]+")
_T = TypeVar("_T")


def read_records(path: str | Path) -> tuple[ClipRecord, ...]:
    """The clips of a catalog.json or provenance.json, in file order.

    Unknown fields of a `sample` are kept in `extra`. Raises RecordsError naming the field.
    """
    try:
        data = read_bounded(Path(path), limit_bytes=MAX_RECORDS_BYTES)
    except UnreadableFile as error:
        raise RecordsError(f"{path}: {error.reason}") from None
    return parse_records(data, str(path))


def parse_records(data: bytes, where: str) -> tuple[ClipRecord, ...]:
    """The clips of these bytes, which came from `where`: a path or the address of an object."""
    root = _json(data, where)
    if not isinstance(root, list):
        raise RecordsError(f"{where}: expected a list of voices or entries, got {show(root)}")
    clips: list[ClipRecord] = []
    seen: set[str] = set()
    for n, item in enumerate(root):
        for clip in _clips(_Fields(item, f"[{n}]", where)):
            if clip.key in seen:
                raise RecordsError(f"{where}: [{n}]: clip {show(clip.key)} is recorded twice")
            seen.add(clip.key)
            clips.append(clip)
    return tuple(clips)


def _json(data: bytes, where: str) -> object:
    try:
        return json.loads(
            utf8_text(data), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except UnreadableFile as error:
        raise RecordsError(f"{where}: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise RecordsError(f"{where}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except ValueError as error:
        raise RecordsError(f"{where}: not JSON that we read: {error}") from None
    except RecursionError:
        raise RecordsError(f"{where}: nested too deeply; expected a list of voices") from None


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {show(twice)} is given twice in one object; expected it once")
    return found


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON; expected a finite one")


class _Fields:
    """One object of the file; every reading names the field that it refuses."""

    def __init__(self, value: object, at: str, where: str) -> None:
        self.at = at
        self.where = where
        if not isinstance(value, dict):
            raise self.refuse("", f"expected an object, got {show(value)}")
        self.values: dict[str, object] = value

    def refuse(self, key: str, told: str) -> RecordsError:
        at = f"{self.at}.{key}" if key else self.at
        return RecordsError(f"{self.where}: {at}: {told}")

    def inner(self, key: str) -> _Fields:
        return _Fields(self.values.get(key), f"{self.at}.{key}", self.where)

    def maybe(self, key: str, read: Callable[[str], _T]) -> _T | None:
        """None for a field that is absent or null."""
        return None if self.values.get(key) is None else read(key)

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._unlike(key, "string")
        return value

    def integer(self, key: str, most: int = 2**53) -> int:
        value = self.values.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unlike(key, "integer")
        if not 0 <= value <= most:
            raise self._unlike(key, f"an integer from 0 to {most}")
        return value

    def seed(self, key: str) -> int:
        return self.integer(key, MAX_SEED)

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self._unlike(key, "true or false")
        return value

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._unlike(key, "number")
        if not (value >= 0 and math.isfinite(value)):
            raise self._unlike(key, "a number of at least 0")
        return value

    def sha256(self, key: str) -> str:
        return self._hex(key, 64)

    def fingerprint(self, key: str) -> str:
        return self._hex(key, 16)

    def name(self, key: str) -> str:
        value = self.text(key)
        if fault := name_fault(value):
            raise self.refuse(key, f"{fault}, got {show(value)}")
        return value

    def path(self, key: str) -> str:
        """A path below the output folder: records may come from elsewhere and must not lead out."""
        value = self.text(key)
        path = PurePosixPath(value)
        if (
            path.is_absolute()
            or ".." in path.parts
            or not path.parts
            or re.search(r"[\\\0]", value)
        ):
            raise self._unlike(key, "a path below the output folder")
        return value

    def beyond(
        self, record: type[ClipRecord | SourceRecord], outside: frozenset[str] = frozenset()
    ) -> dict[str, object]:
        """The fields that the record has no place for."""
        known = {each.name for each in fields(record)} - outside - {"extra"}
        return {key: value for key, value in self.values.items() if key not in known}

    def mapping(self, key: str) -> dict[str, object]:
        return self.inner(key).values

    def _hex(self, key: str, digits: int) -> str:
        value = self.text(key)
        if len(value) != digits or not _HEX.fullmatch(value):
            raise self._unlike(key, f"{digits} lower-case hex digits")
        return value

    def _unlike(self, key: str, expected: str) -> RecordsError:
        if key not in self.values:
            return self.refuse(key, f"missing; expected {expected}")
        return self.refuse(key, f"expected {expected}, got {show(self.values[key])}")


def _clips(entry: _Fields) -> Iterator[ClipRecord]:
    sample = entry.inner("sample")
    if isinstance(sample.values.get("audio"), str):
        passage = entry.maybe("passage", entry.name) or SOLE_PASSAGE
        yield _clip(entry, passage, sample)
        return
    for passage in sample.values:
        if fault := name_fault(passage):
            raise sample.refuse("", f"{fault}, got {show(passage)}")
        yield _clip(entry, passage, sample.inner(passage))


def _clip(entry: _Fields, passage: str, sample: _Fields) -> ClipRecord:
    conditioning = sample.maybe("conditioning", lambda key: _conditioning(sample.inner(key)))
    return ClipRecord(
        voice=entry.name("name"),
        passage=passage,
        language=entry.text("language"),
        language_id=(conditioning and conditioning.language_id) or entry.text("language_id"),
        audio=sample.path("audio"),
        sha256=sample.sha256("sha256"),
        text=sample.text("text"),
        seed=sample.seed("seed"),
        model=sample.text("model"),
        checkpoint_sha256=sample.sha256("checkpoint_sha256"),
        edge_fade_seconds=sample.number("edge_fade_seconds"),
        algorithm_fingerprint=sample.fingerprint("algorithm_fingerprint"),
        backend=sample.text("backend"),
        duration_seconds=sample.maybe("duration_seconds", sample.number),
        profile_sha256=sample.maybe("profile_sha256", sample.sha256),
        token_contract_fingerprint=sample.maybe("token_contract_fingerprint", sample.text),
        execution=sample.maybe("execution", sample.mapping),
        pcm_sha256=sample.maybe("pcm_sha256", sample.sha256),
        waveform=sample.maybe("waveform", sample.text),
        rendered_at=sample.maybe("rendered_at", sample.text),
        pack=sample.maybe("pack", lambda key: _pack(sample.inner(key))),
        conditioning=conditioning,
        source=entry.maybe("source", lambda key: _source(entry.inner(key))),
        windows=_windows(sample),
        extra=sample.beyond(ClipRecord, OUTSIDE_SAMPLE),
    )


def _conditioning(given: _Fields) -> ConditioningRecord:
    keys = [each.name for each in fields(ConditioningRecord)]
    return ConditioningRecord(*(given.maybe(key, given.text) for key in keys))


def _pack(given: _Fields) -> PackRecord:
    return PackRecord(given.text("name"), given.sha256("sha256"))


def _source(given: _Fields) -> SourceRecord:
    name, url, license_, consent = map(given.text, ("name", "url", "license", "consent"))
    return SourceRecord(name, url, license_, consent, given.beyond(SourceRecord))


def _windows(sample: _Fields) -> tuple[WindowRecord, ...]:
    given: Any = sample.values.get("windows", [])
    if not isinstance(given, list):
        raise sample.refuse("windows", f"expected a list, got {show(given)}")
    at = f"{sample.at}.windows"
    return tuple(_window(_Fields(item, f"{at}[{n}]", sample.where)) for n, item in enumerate(given))


def _window(given: _Fields) -> WindowRecord:
    return WindowRecord(
        index=given.integer("index"),
        half=given.integer("half", 2),
        attempt=given.integer("attempt"),
        attempts=given.integer("attempts"),
        seed=given.seed("seed"),
        text_sha256=given.sha256("text_sha256"),
        tokens=given.integer("tokens"),
        tokens_sha256=given.sha256("tokens_sha256"),
        prefix_tokens=given.integer("prefix_tokens"),
        verdict=given.text("verdict"),
        keep=given.integer("keep"),
        generated=given.integer("generated"),
        suspect=given.flag("suspect"),
        ended=given.flag("ended"),
    )
