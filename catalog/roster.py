"""A published roster as readers get it: one whole release, or the plain files of a folder.

A place without a pointer is read as loudkit publishes and as `render` leaves it: `catalog.json`,
`provenance.json` or both, with the audio where their paths say. Records are held with their text,
for they are never written anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from catalog.errors import RecordsError, one_line, show
from catalog.json_spans import outdented, values_at
from catalog.publish_errors import RosterUnreadableError
from catalog.record_reading import Entry, parse_entries
from catalog.records import ClipRecord
from catalog.roster_files import (
    POINTER,
    RELEASE,
    Pointer,
    Release,
    read_pointer,
    read_release,
)
from catalog.staleness import AudioFault, State
from catalog.store import Store, is_key
from catalog.store_errors import ObjectCorruptError, ObjectMissingError, StoreKeyError

MAX_RECORDS_BYTES = 2**28
"""Of a file of records: more than a hundred thousand clips."""

THREADS = 8
"""Objects on their way at once; a store is waited for more than it works."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class PublishedClip:
    """A record, and its text where it stands."""

    record: ClipRecord
    sample: str
    """The text of its `sample`, as if nothing stood around it."""
    entry: str | None
    """The text of its own entry in provenance.json; None where it shares one, or has none."""
    around: str
    """The text of the entry or voice that it was found in."""
    in_catalog: bool
    """It was found in a voice of catalog.json, and there is nothing of it in provenance.json."""


@dataclass(frozen=True, slots=True)
class PublishedVoice:
    """A voice of catalog.json."""

    text: str
    """The whole of it."""
    places: dict[str, tuple[str, ...]]
    """Where the samples stand in it, by passage: `sample` and `short`, or `sample_turbo`."""


@dataclass(frozen=True, slots=True)
class Records:
    """What catalog.json and provenance.json say together."""

    clips: dict[str, PublishedClip] = field(default_factory=dict)
    """By `voice/passage`."""
    voices: dict[str, PublishedVoice] = field(default_factory=dict)
    """By name, in the order of catalog.json; none where there is only provenance.json."""


@dataclass(frozen=True, slots=True)
class Roster:
    """What a place publishes, and what must be there still to put another release in its place."""

    records: Records
    pointer: Pointer | None = None
    etag: str | None = None
    """Of the pointer."""
    release: Release | None = None
    """None for a place without a pointer."""

    def audio_key(self, clip: ClipRecord) -> str | None:
        """Where a clip's audio lies in the store; None for a path that leads out of it, or that no
        object can have."""
        if self.release:
            return object_key(clip.sha256)
        key = clip.audio_key
        return key if key and is_key(key) else None


def object_key(sha256: str) -> str:
    """Where an object lies."""
    return f"objects/{sha256}"


def release_key(release: str, name: str) -> str:
    """Where a file of a release lies."""
    return f"releases/{release}/{name}"


def read_roster(store: Store) -> Roster:
    """The whole release that the pointer names, whatever is published meanwhile.

    Raises RosterUnreadableError and RecordsError naming the file, and what the store raises.
    """
    try:
        stored = store.get(POINTER)
    except ObjectMissingError:
        return Roster(read_records_of(store, "", required=False))
    pointer = read_pointer(stored.data, f"{store.address}/{POINTER}")
    release = release_of(store, pointer.release)
    records = read_records_of(store, release_key(release.id, ""), required=True)
    return Roster(records, pointer, stored.etag, release)


def release_of(store: Store, release: str) -> Release:
    """What a release says of itself. Raises RosterUnreadableError."""
    key = release_key(release, RELEASE)
    try:
        found = read_release(store.get(key).data, f"{store.address}/{key}")
    except ObjectMissingError as error:
        raise RosterUnreadableError(f"{error}; the release is not whole") from None
    if found.id != release:
        raise RosterUnreadableError(f"{store.address}/{key}: says that it is {show(found.id)}")
    return found


def read_records_of(store: Store, folder: str, *, required: bool) -> Records:
    """The records below `folder`, which is empty or ends with a slash.

    A release has both files. Elsewhere one is enough, and none is an empty roster.
    """
    found: dict[str, tuple[Entry, ...]] = {}
    for name in ("provenance.json", "catalog.json"):
        key = folder + name
        try:
            data = _bounded(store, key)
            found[name] = parse_entries(data, f"{store.address}/{key}")
        except ObjectMissingError as error:
            if required:
                raise RosterUnreadableError(f"{error}; the release is not whole") from None
    try:
        return merge_records(found.get("catalog.json", ()), found.get("provenance.json", ()))
    except RecursionError:  # what could just be parsed may be too deep to be cut up here
        raise RecordsError(
            f"{store.address}/{folder}: a record is nested too deeply to be copied"
        ) from None


def _bounded(store: Store, key: str) -> bytes:
    """A file of records, which is held in memory. Raises RecordsError, ObjectMissingError."""
    sizes = (facts.size_bytes for facts in store.list(key) if facts.key == key)
    size = next(sizes, 0)
    if size > MAX_RECORDS_BYTES:
        raise RecordsError(
            f"{store.address}/{key}: has {size:,} bytes, a roster's records at most "
            f"{MAX_RECORDS_BYTES:,}; a corpus of that size is rendered with --out, not published"
        )
    return store.get(key).data


def merge_records(catalog: Iterable[Entry], provenance: Iterable[Entry]) -> Records:
    """The clips of both files: what provenance.json says of one counts."""
    records = Records()
    for entry in provenance:
        records.clips.update(_published(entry, in_catalog=False))
    known = records.clips.keys()
    for entry in catalog:
        if any(each.clip.key not in known for each in entry.clips):
            found = _published(entry, in_catalog=True)
            records.clips.update((key, clip) for key, clip in found if key not in known)
        if entry.clips:
            places = {each.clip.passage: each.path for each in entry.clips}
            name = entry.clips[0].clip.voice
            if name in records.voices:
                raise RecordsError(f"catalog.json: voice {name} is listed twice")
            records.voices[name] = PublishedVoice(entry.text, places)
    return records


def _published(entry: Entry, *, in_catalog: bool) -> Iterator[tuple[str, PublishedClip]]:
    """The clips of an entry by `voice/passage`."""
    own = entry.text if len(entry.clips) == 1 and not in_catalog else None
    texts = values_at(entry.text, (each.path for each in entry.clips))
    for each, text in zip(entry.clips, texts, strict=True):
        clip = PublishedClip(each.clip, outdented(text), own, entry.text, in_catalog)
        yield each.clip.key, clip


def audio_faults(
    store: Store, roster: Roster, clips: Iterable[str], *, rehash: bool
) -> dict[str, AudioFault]:
    """What is wrong with the published audio of clips, by clip.

    Without `rehash` nothing is read: an object must be there, and of the recorded size where the
    release knows it. With it every byte is read and hashed.
    """
    faults: dict[str, AudioFault] = {}
    places: dict[str, str] = {}
    for key in clips:
        record = roster.records.clips[key].record
        place = roster.audio_key(record)
        if place is None:
            told = f"{show(record.audio)} is no path in the published place"
            faults[key] = AudioFault(State.UNREADABLE, told)
        else:
            places[key] = place
    sizes = sizes_of(store, places.values())
    known = roster.release.objects if roster.release else {}
    for key, place in list(places.items()):
        size = sizes.get(place)
        expected = known.get(roster.records.clips[key].record.sha256, size)
        if size is None:
            faults[key] = AudioFault(State.UNREADABLE, one_line(f"there is no object {place}"))
        elif size != expected:
            told = f"{place} has {size} bytes, {expected} were published"
            faults[key] = AudioFault(State.ALTERED, one_line(told))
        else:
            continue
        del places[key]
    if rehash:
        recorded = {key: roster.records.clips[key].record.sha256 for key in places}
        looked = in_threads(lambda key: _hash_fault(store, places[key], recorded[key]), places)
        faults |= {key: fault for key, fault in looked if fault}
    return faults


def sizes_of(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """The sizes of all objects in the first folders of these keys: few listings, no reading."""
    keys = list(keys)
    folders = {key.partition("/")[0] + "/" for key in keys if "/" in key}
    sizes = {
        facts.key: facts.size_bytes for folder in sorted(folders) for facts in store.list(folder)
    }
    for key in keys:
        if "/" not in key and (facts := store.stat(key)) is not None:
            sizes[key] = facts.size_bytes
    return sizes


def in_threads(work: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[tuple[_T, _R]]:
    """What `work` makes of each item, in their order, several at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        started = [(item, pool.submit(work, item)) for item in items]
        try:
            for item, each in started:
                yield item, each.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _hash_fault(store: Store, key: str, sha256: str) -> AudioFault | None:
    try:
        found = hashlib.sha256(store.get(key).data).hexdigest()
    except ObjectCorruptError:
        return AudioFault(State.ALTERED, one_line(f"{key} is not what was stored"))
    except (ObjectMissingError, StoreKeyError) as error:
        return AudioFault(State.UNREADABLE, str(error))
    if found == sha256:
        return None
    told = f"{key} has sha256 {found[:12]}, {sha256[:12]} is recorded"
    return AudioFault(State.ALTERED, one_line(told))


def records_by_key(records: Records) -> Mapping[str, ClipRecord]:
    """The records alone."""
    return {key: clip.record for key, clip in records.clips.items()}
