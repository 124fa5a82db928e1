"""The files of a release, from the texts of the records that are kept and of those that are new.

A record is copied with its spaces and its order of keys; only what stands around it is written
here: the list, and a voice's facts, which follow the catalog of today.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from catalog.canonical import JsonObject, canonical_text
from catalog.json_spans import indented, members, values_at
from catalog.records import facts_of_voice, holds_samples
from catalog.roster import PublishedClip, PublishedVoice
from catalog.site_listing import STALE, Listing, by_sha256, listing_of

_SAMPLE = "sample"
_IN_ENTRY = ("name", "language", "language_id", "source")
"""What an entry of provenance.json takes from a voice of catalog.json; from an entry that several
clips shared it takes all that stood around them."""


@dataclass(frozen=True, slots=True)
class ReleaseRecords:
    """All that a release says of its clips."""

    clips: Mapping[str, PublishedClip]
    """By `voice/passage`."""
    published: Mapping[str, PublishedVoice]
    """The voices of the release before."""
    about: Mapping[str, JsonObject]
    """The facts of today's voices, without their samples, in the order of the catalog."""

    def provenance_json(self) -> bytes:
        """One entry a clip, by voice and passage."""
        cut_up: dict[str, dict[str, str]] = {}  # one text stands around many clips
        for clip in self.clips.values():
            if clip.entry is None and clip.around not in cut_up:
                cut_up[clip.around] = members(clip.around)
        return _list(_entry(clip, cut_up) for clip in self._ordered())

    def catalog_json(self) -> bytes:
        """The voices: today's in their order, then those that only the release before knows."""
        return _list(self._voices().values())

    def listing(
        self, name: str, algorithm_fingerprint: str, edition: str, not_renewed: Iterable[str]
    ) -> Listing:
        """What the page shows, from where a release has its page."""
        return listing_of(
            json.loads(self.catalog_json()),
            name=name,
            algorithm_fingerprint=algorithm_fingerprint,
            audio_url=by_sha256("../../objects/"),
            edition=edition,
            states=dict.fromkeys(not_renewed, STALE),
        )

    def _ordered(self) -> list[PublishedClip]:
        return sorted(self.clips.values(), key=lambda c: (c.record.voice, c.record.passage))

    def _by_voice(self) -> Iterator[tuple[str, list[PublishedClip]]]:
        for voice, clips in groupby(self._ordered(), key=lambda clip: clip.record.voice):
            yield voice, list(clips)

    def _voices(self) -> dict[str, str]:
        of_voice = dict(self._by_voice())
        order = dict.fromkeys([*self.about, *self.published, *of_voice])
        return {
            name: _voice(of_voice[name], self.published.get(name), self.about.get(name))
            for name in order
            if name in of_voice
        }


def _entry(clip: PublishedClip, cut_up: Mapping[str, Mapping[str, str]]) -> str:
    """An entry of its own for a clip that shared one, or was in catalog.json alone."""
    if clip.entry is not None:
        return clip.entry
    around = cut_up[clip.around]
    if clip.in_catalog:
        found = {key: around[key] for key in _IN_ENTRY if key in around}
    else:
        found = {key: text for key, text in around.items() if not holds_samples(key)}
    passage = canonical_text(clip.record.passage)
    return _object({**found, "passage": passage, _SAMPLE: indented(clip.sample, 4)}, 2)


def _voice(
    clips: list[PublishedClip], published: PublishedVoice | None, about: JsonObject | None
) -> str:
    """A voice of catalog.json; the one of the release before if nothing in it changes."""
    whole_text = published.text if published else "{}"
    base = members(whole_text)
    places = dict(published.places) if published else {}
    stood = dict(zip(places, values_at(whole_text, places.values()), strict=True))
    kept = {
        clip.record.passage
        for clip in clips
        if (text := stood.get(clip.record.passage)) and json.loads(text) == json.loads(clip.sample)
    }
    facts = about if about is not None else facts_of_voice(whole_text)
    told = {key: json.loads(text) for key, text in base.items()}
    as_before = all(told.get(key) == value for key, value in facts.items())
    if published and as_before and kept == set(places) == {c.record.passage for c in clips}:
        return published.text
    found = {key: text for key, text in base.items() if not holds_samples(key)}
    found |= {
        key: indented(canonical_text(value, f"catalog.json: {clips[0].record.voice}.{key}"), 4)
        for key, value in facts.items()
        if told.get(key) != value
    }
    if published is None and about is None:
        around = members(clips[0].around)
        found = {key: around[key] for key in _IN_ENTRY if key in around}
    # `sample_turbo` stays where it is while all of it stays.
    whole = {
        key
        for key in base
        if key != _SAMPLE
        and holds_samples(key)
        and {passage for passage, path in places.items() if path[0] == key} <= kept
    }
    found |= {key: base[key] for key in whole}
    listed = {
        clip.record.passage: indented(clip.sample, 6)
        for clip in clips
        if places.get(clip.record.passage, ("",))[0] not in whole
    }
    found[_SAMPLE] = _object(dict(sorted(listed.items())), 4)
    if list(base) == sorted(base):
        found = dict(sorted(found.items()))
    return _object(found, 2)


def _object(found: Mapping[str, str], depth: int) -> str:
    """An object that stands `depth` spaces deep, from texts that fit there."""
    if not found:
        return "{}"
    inner, outer = " " * (depth + 2), " " * depth
    lines = ",\n".join(
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {text}" for key, text in found.items()
    )
    return f"{{\n{lines}\n{outer}}}"


def _list(texts: Iterable[str]) -> bytes:
    found = ",\n".join("  " + text for text in texts)
    return (f"[\n{found}\n]\n" if found else "[]\n").encode()
