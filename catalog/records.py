"""What is recorded of every clip, in `catalog.json` and `provenance.json`.

The shapes and field names are those of loudkit's published files: a list of voices with `sample`
(here always keyed by passage id) and a list of provenance entries with one `sample` each; ours add
to them. A field that has no value is left out, so a record read and written again keeps its bytes.
A record tells of a past event: it is kept as it stands or replaced by that of a new rendering.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any

from catalog.errors import RecordsError, show
from catalog.loader import LoadedCatalog
from catalog.renders import Render
from catalog.schema import Catalog, Source, Voice

JsonObject = dict[str, Any]

_LANGUAGES = {
    "da": "Danish",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "it": "Italian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "sv": "Swedish",
}


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Whose voice it is, and by what right it was used."""

    name: str
    url: str
    license: str
    consent: str
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields that this version does not know, kept as they were."""

    @classmethod
    def of(cls, source: Source) -> SourceRecord:
        return cls(source.name, source.url, source.license, source.consent)


@dataclass(frozen=True, slots=True)
class PackRecord:
    """The pack that a clip was rendered with; `sha256` identifies the whole folder."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ConditioningRecord:
    """What the model was told besides the text; None for what the pack was not told."""

    speaker: str | None = None
    language_id: str | None = None
    style: str | None = None
    accent: str | None = None
    env: str | None = None

    @classmethod
    def of(cls, render: Render) -> ConditioningRecord:
        voice = render.voice
        if render.turns:
            speakers = dict.fromkeys(speaker for speaker, _ in render.turns)
            return cls(", ".join(speakers), render.language)
        return cls(voice.conditioned_as, render.language, render.style, voice.accent, voice.env)


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """One window as it shipped. `half`: 0 whole chunk, 1 and 2 the halves of a re-split chunk."""

    index: int
    """Of the chunk in the passage."""
    half: int
    attempt: int
    """The attempt that shipped, from 0, of `attempts` that were generated."""
    attempts: int
    seed: int
    """The window's own seed, that of attempt 0."""
    text_sha256: str
    tokens: int
    """Stream tokens that shipped, after the cut; `tokens_sha256` is over these."""
    tokens_sha256: str
    prefix_tokens: int
    """Tokens carried in from the window before."""
    verdict: str
    keep: int
    """Row entries kept of `generated`."""
    generated: int
    suspect: bool
    ended: bool
    """The model ended the window itself."""


@dataclass(frozen=True, slots=True)
class ClipRecord:
    """How one (voice, passage) was rendered. None: unknown, in records of other tools."""

    voice: str
    passage: str
    language: str
    """For people; the tag is in `language_id`."""
    language_id: str
    audio: str
    """Path in the output folder, with slashes."""
    sha256: str
    """Of the audio file; `pcm_sha256` is over the 16-bit samples, whatever the format."""
    text: str
    seed: int
    model: str
    checkpoint_sha256: str
    edge_fade_seconds: float
    algorithm_fingerprint: str
    backend: str
    duration_seconds: float | None = None
    profile_sha256: str | None = None
    token_contract_fingerprint: str | None = None
    execution: Mapping[str, object] | None = None
    """The measured execution identity: what the bits hold under."""
    pcm_sha256: str | None = None
    rendered_at: str | None = None
    """UTC, `2026-11-30T02:36:00Z`."""
    pack: PackRecord | None = None
    conditioning: ConditioningRecord | None = None
    source: SourceRecord | None = None
    windows: tuple[WindowRecord, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields of `sample` that this version does not know, kept as they were."""

    @property
    def key(self) -> str:
        return f"{self.voice}/{self.passage}"


OUTSIDE_SAMPLE = frozenset(("voice", "passage", "language", "language_id", "source"))
"""Fields of a clip that stand around its `sample`, not in it."""


def language_name(catalog: Catalog, voice: Voice, language_id: str) -> str:
    """The language for people: as the voice names it, else in English, else the tag itself."""
    if voice.language_id == language_id and voice.language:
        return voice.language
    return _LANGUAGES.get(language_id.partition("-")[0], language_id)


def text_sha256(text: str) -> str:
    """Of the UTF-8 bytes."""
    return sha256(text.encode()).hexdigest()


def tokens_sha256(tokens: Iterable[int]) -> str:
    """Of the ids as little-endian unsigned 32-bit words, in order."""
    words = array("I", tokens)
    if sys.byteorder == "big":
        words.byteswap()
    return sha256(words.tobytes()).hexdigest()


def build_catalog_json(loaded: LoadedCatalog, clips: Iterable[ClipRecord]) -> list[JsonObject]:
    """catalog.json: the voices that have clips, in catalog order, `sample` keyed by passage id.

    Raises RecordsError for a clip of a voice that the catalog does not have, or one given twice.
    """
    samples: dict[str, dict[str, JsonObject]] = {voice.name: {} for voice in loaded.catalog.voices}
    for clip in clips:
        if clip.voice not in samples:
            known = ", ".join(samples)
            raise RecordsError(f"clip {show(clip.key)}: no such voice in the catalog: {known}")
        if clip.passage in samples[clip.voice]:
            raise RecordsError(f"clip {show(clip.key)} is given twice; expected one record")
        samples[clip.voice][clip.passage] = _sample(clip)
    return [
        _voice(loaded.catalog, voice) | {"sample": samples[voice.name]}
        for voice in loaded.catalog.voices
        if samples[voice.name]
    ]


def build_provenance_json(clips: Iterable[ClipRecord]) -> list[JsonObject]:
    """provenance.json: one entry a clip, by voice and passage, whatever order they finished in."""
    entries: dict[tuple[str, str], JsonObject] = {}
    for clip in clips:
        if (clip.voice, clip.passage) in entries:
            raise RecordsError(f"clip {show(clip.key)} is given twice; expected one record")
        entry: JsonObject = {
            "name": clip.voice,
            "passage": clip.passage,
            "language": clip.language,
            "language_id": clip.language_id,
            "sample": _sample(clip),
        }
        if clip.source is not None:
            entry["source"] = _plain(clip.source)
        entries[clip.voice, clip.passage] = entry
    return [entries[key] for key in sorted(entries)]


def canonical_json(value: object) -> bytes:
    """The one spelling of a value: sorted keys, indent of 2, UTF-8, a newline at the end.

    Raises RecordsError naming the place of a NaN, an infinity, a lone surrogate, a key that is no
    string, or anything that JSON does not have.
    """
    try:
        _check_json(value, "")
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2)
    except RecursionError:
        raise RecordsError("record: nested too deeply, or within itself") from None
    return text.encode() + b"\n"


def _voice(catalog: Catalog, voice: Voice) -> JsonObject:
    language_id = catalog.language_id(voice)
    about: JsonObject = {
        "name": voice.name,
        "display_name": voice.title,
        "language": language_name(catalog, voice, language_id),
        "language_id": language_id,
        "description": voice.description,
        "status": voice.status,
    }
    return about | ({"source": _plain(SourceRecord.of(voice.source))} if voice.source else {})


def _sample(clip: ClipRecord) -> JsonObject:
    return {key: value for key, value in _plain(clip).items() if key not in OUTSIDE_SAMPLE}


def _plain(record: Any) -> JsonObject:
    """The fields that have a value, as JSON has them, and those kept in `extra` beside them."""
    found: JsonObject = dict(getattr(record, "extra", {}))
    for each in fields(record):
        value = getattr(record, each.name)
        if value is None or value == () or each.name == "extra":
            continue
        if isinstance(value, tuple):
            value = [_plain(item) for item in value]
        elif hasattr(value, "__dataclass_fields__"):
            value = _plain(value)
        elif isinstance(value, Mapping):
            value = dict(value)
        found[each.name] = value
    return found


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
