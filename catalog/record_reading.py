"""catalog.json or provenance.json -> typed clips; also reads those that loudkit publishes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TypeVar

from catalog.errors import RecordsError, show
from catalog.files import UnreadableFile, utf8_text
from catalog.json_spans import elements
from catalog.names import name_fault
from catalog.records import (
    OUTSIDE_SAMPLE,
    ClipRecord,
    ConditioningRecord,
    PackRecord,
    SourceRecord,
    TurnRecord,
    WindowRecord,
    holds_samples,
    passage_under,
)
from catalog.schema import MAX_SEED

SOLE_PASSAGE = "sample"
"""Passage id of a clip whose record names none: a voice with a single `sample`."""

_HEX = re.compile(r"[0-9a-f]+")
_T = TypeVar("_T")


def parse_records(data: bytes, where: str) -> tuple[ClipRecord, ...]:
    """The clips of these bytes, which came from `where`: a path or the address of an object."""
    return tuple(each.clip for entry in parse_entries(data, where) for each in entry.clips)


@dataclass(frozen=True, slots=True)
class FoundClip:
    """A clip, and where its `sample` stands in its entry: `sample`, or `sample` and `short`."""

    path: tuple[str, ...]
    clip: ClipRecord


@dataclass(frozen=True, slots=True)
class Entry:
    """An element of the list: a voice of catalog.json, or an entry of provenance.json."""

    text: str
    """As it stands in the file, to be copied where it is kept."""
    clips: tuple[FoundClip, ...]


def parse_entries(data: bytes, where: str) -> tuple[Entry, ...]:
    """The same clips by the voice or entry that they stand in, with its text."""
    text = _text(data, where)
    root = _json(text, where)
    if not isinstance(root, list):
        raise RecordsError(f"{where}: expected a list of voices or entries, got {show(root)}")
    entries: list[Entry] = []
    seen: set[str] = set()
    for n, (item, span) in enumerate(zip(root, elements(text), strict=True)):
        found = tuple(_clips(_Fields(item, f"[{n}]", where)))
        for each in found:
            if each.clip.key in seen:
                raise RecordsError(f"{where}: [{n}]: clip {show(each.clip.key)} is recorded twice")
            seen.add(each.clip.key)
        entries.append(Entry(span, found))
    return tuple(entries)


def _text(data: bytes, where: str) -> str:
    try:
        return utf8_text(data)
    except UnreadableFile as error:
        raise RecordsError(f"{where}: {error.reason}") from None


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
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

    def items(self, key: str) -> Iterator[_Fields]:
        """The objects of a list, which may be absent."""
        given = self.values.get(key, [])
        if not isinstance(given, list):
            raise self.refuse(key, f"expected a list, got {show(given)}")
        for n, item in enumerate(given):
            yield _Fields(item, f"{self.at}.{key}[{n}]", self.where)

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


def _clips(entry: _Fields) -> Iterator[FoundClip]:
    """Those of `sample`, and of `sample_turbo` and its like: there, `short` is `short-turbo`."""
    for key in entry.values:
        if holds_samples(key):
            yield from _samples(entry, key)
    if "sample" not in entry.values:
        entry.inner("sample")  # refuses


def _samples(entry: _Fields, key: str) -> Iterator[FoundClip]:
    sample = entry.inner(key)
    if isinstance(sample.values.get("audio"), str):
        passage = passage_under(key, entry.maybe("passage", entry.name) or SOLE_PASSAGE)
        yield FoundClip((key,), _clip(entry, passage, sample))
        return
    for name in sample.values:
        passage = passage_under(key, name)
        if fault := name_fault(passage):
            raise sample.refuse("", f"{fault}, got {show(passage)}")
        yield FoundClip((key, name), _clip(entry, passage, sample.inner(name)))


def _clip(entry: _Fields, passage: str, sample: _Fields) -> ClipRecord:
    conditioning = sample.maybe("conditioning", lambda key: _conditioning(sample.inner(key)))
    return ClipRecord(
        voice=entry.name("name"),
        passage=passage,
        language=entry.text("language"),
        language_id=(conditioning and conditioning.language_id) or entry.text("language_id"),
        audio=sample.text("audio"),
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
        turns=_turns(sample),
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
    return tuple(map(_window, sample.items("windows")))


def _turns(sample: _Fields) -> tuple[TurnRecord, ...]:
    return tuple(
        TurnRecord(each.text("speaker"), each.text("text")) for each in sample.items("turns")
    )


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
