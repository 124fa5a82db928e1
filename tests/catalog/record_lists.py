"""What the records of a few clips hold, as plain lists that the streams are held against."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.canonical import JsonObject
from catalog.loader import LoadedCatalog
from catalog.records import ClipRecord, entry_json, sample_json, voice_json


def provenance_list(clips: Iterable[ClipRecord]) -> list[JsonObject]:
    """One entry a clip, by voice and passage."""
    ordered = sorted(clips, key=lambda clip: (clip.voice, clip.passage))
    return [entry_json(clip) | {"sample": sample_json(clip)} for clip in ordered]


def catalog_list(loaded: LoadedCatalog, clips: Iterable[ClipRecord]) -> list[JsonObject]:
    """The voices that have clips, in catalog order, `sample` keyed by passage id."""
    samples: dict[str, dict[str, JsonObject]] = {}
    for clip in clips:
        samples.setdefault(clip.voice, {})[clip.passage] = sample_json(clip)
    return [
        voice_json(loaded.catalog, voice) | {"sample": samples[voice.name]}
        for voice in loaded.catalog.voices
        if voice.name in samples
    ]
