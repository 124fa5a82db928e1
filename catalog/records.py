"""What is recorded of every clip, in `catalog.json` and `provenance.json`.

The shapes and field names are those of loudkit's published files: a list of voices with `sample`
(here always keyed by passage id) and a list of provenance entries with one `sample` each; ours add
to them. A field that has no value is left out, so a record read and written again keeps its bytes.
A record tells of a past event: it is kept as it stands or replaced by that of a new rendering.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from catalog.canonical import JsonObject
from catalog.renders import Render
from catalog.schema import Catalog, Source, Voice

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
class TurnRecord:
    """What one speaker says in a dialogue, before the next one does."""

    speaker: str
    """Of the pack, not a voice of the roster."""
    text: str


@dataclass(frozen=True, slots=True)
class ClipRecord:
    """How one (voice, passage) was rendered. None: unknown, in records of other tools."""

    voice: str
    passage: str
    language: str
    """For people; the tag is in `language_id`."""
    language_id: str
    audio: str
    """Path in the output folder, with slashes; as recorded, see `audio_key`."""
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
    waveform: str | None = None
    """What the clip looks like: base64 of one byte for each of some (ours: 120) equal parts of it,
    the part's largest |sample| with full scale at 255. For a picture, and for nothing else."""
    rendered_at: str | None = None
    """UTC, `2026-11-30T02:36:00Z`."""
    pack: PackRecord | None = None
    conditioning: ConditioningRecord | None = None
    turns: tuple[TurnRecord, ...] = ()
    """Of a dialogue, whose `text` is the same for people."""
    source: SourceRecord | None = None
    windows: tuple[WindowRecord, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields of `sample` that this version does not know, kept as they were."""

    @property
    def key(self) -> str:
        return f"{self.voice}/{self.passage}"

    @property
    def audio_key(self) -> str | None:
        """`audio` where it lies below the records; None for a path that leads elsewhere.

        Records may come from others: nobody follows their paths to wherever they lead.
        """
        path = PurePosixPath(self.audio)
        leads_out = path.is_absolute() or ".." in path.parts or not path.parts
        if leads_out or re.search(r"[\\\0]", self.audio):
            return None
        return str(path)


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


def voice_json(catalog: Catalog, voice: Voice) -> JsonObject:
    """A voice as catalog.json has it, without its `sample`."""
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


def entry_json(clip: ClipRecord) -> JsonObject:
    """A clip as provenance.json has it, without its `sample`."""
    entry: JsonObject = {
        "name": clip.voice,
        "passage": clip.passage,
        "language": clip.language,
        "language_id": clip.language_id,
    }
    return entry | ({"source": _plain(clip.source)} if clip.source else {})


def sample_json(clip: ClipRecord) -> JsonObject:
    """The `sample` of a clip, the same in both files."""
    return {key: value for key, value in _plain(clip).items() if key not in OUTSIDE_SAMPLE}


def holds_samples(key: str) -> bool:
    """Whether a key of a voice or an entry is one of those that clips stand under: `sample`, and in
    loudkit's files others beside it, such as `sample_turbo`."""
    return key == "sample" or key.startswith("sample_")


def passage_under(key: str, passage: str) -> str:
    """The id of what is called `passage` there: `short` of `sample_turbo` is `short-turbo`."""
    return passage + key.removeprefix("sample").replace("_", "-")


def facts_of_voice(voice: str) -> JsonObject:
    """A voice, from its text in catalog.json, without its samples."""
    found: JsonObject = json.loads(voice)
    return {key: value for key, value in found.items() if not holds_samples(key)}


def spoken_language_id(voice: JsonObject, sample: JsonObject) -> str:
    """The tag of the language that a clip of catalog.json is in: its own, else its voice's."""
    own = (sample.get("conditioning") or {}).get("language_id")
    return str(own or voice.get("language_id") or "")


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
