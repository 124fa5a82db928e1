"""`verify`: what lies there against what its records say, every byte of it read.

A published roster is looked at as its readers get it; an output folder also against its token
Parquet. Nothing is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from catalog.errors import CatalogError, show
from catalog.export import TokenRow, read_token_metadata, read_token_part
from catalog.record_reading import Entry, parse_entries
from catalog.records import ClipRecord, WindowRecord, text_sha256, tokens_sha256
from catalog.releases import releases_of
from catalog.roster import (
    Roster,
    audio_faults,
    object_key,
    read_roster,
    records_by_key,
    release_key,
    release_of,
)
from catalog.roster_files import PAGE, RECORDS, RELEASE, id_of_release
from catalog.store import Store
from catalog.store_errors import ObjectCorruptError, ObjectMissingError, StoreKeyError

_NAMED = 20
"""Orphaned objects that are named one by one; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as its records say."""

    code: str
    """`audio_altered`, `audio_unreadable`, `records_differ`, `file_altered`, `file_missing`,
    `count_differs`, `tokens_differ`."""
    where: str
    """A clip, or the key of a file."""
    told: str


@dataclass(slots=True)
class Verification:
    """What was looked at, and what was found."""

    place: str
    release: str | None
    clips: int = 0
    windows: int = 0
    """Whose tokens were held against the record."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no fault."""

    def as_json(self) -> dict[str, object]:
        """For scripts."""
        return {
            "event": "verify",
            "place": self.place,
            "release": self.release,
            "clips": self.clips,
            "windows": self.windows,
            "findings": [
                {"code": each.code, "where": each.where, "told": each.told}
                for each in self.findings
            ],
            "notes": self.notes,
        }


def verify_store(store: Store, *, folder: Path | None) -> tuple[Verification, Roster]:
    """Look at everything that a place publishes; `folder` is the place where it is one.

    Raises RosterUnreadableError and RecordsError where there is no telling what should be there,
    and what the store raises.
    """
    roster = read_roster(store)
    found = Verification(store.address, roster.release.id if roster.release else None)
    records = records_by_key(roster.records)
    found.clips = len(records)
    found.findings += _records_against_each_other(store, roster)
    if roster.release:
        found.findings += _release_files(store, roster)
        found.notes += _orphaned_objects(store)
    for key, fault in sorted(audio_faults(store, roster, sorted(records), rehash=True).items()):
        found.findings.append(Finding(f"audio_{fault.state}", key, fault.told))
    if folder is not None and roster.release is None:
        _tokens(folder / "tokens", records, found)
        found.notes += _strays(folder, records)
    return found, roster


def _records_against_each_other(store: Store, roster: Roster) -> Iterator[Finding]:
    """Both files tell of the same clips, and the same of each."""
    folder = release_key(roster.release.id, "") if roster.release else ""
    told: dict[str, dict[str, ClipRecord]] = {}
    for name in RECORDS:
        try:
            entries = parse_entries(store.get(folder + name).data, folder + name)
        except ObjectMissingError:
            continue
        told[name] = _by_key(entries)
    if len(told) < len(RECORDS):
        return  # loudkit publishes one of them alone; a release was refused before
    catalog, provenance = (told[name] for name in RECORDS)
    for key in sorted(catalog.keys() ^ provenance.keys()):
        there, absent = RECORDS if key in catalog else RECORDS[::-1]
        yield Finding("records_differ", key, f"is in {there} and not in {absent}")
    for key in sorted(catalog.keys() & provenance.keys()):
        # The language for people stands around the sample: a voice has one, a clip its own.
        differing = [
            name
            for name in ClipRecord.__dataclass_fields__
            if name not in ("language", "language_id", "source")
            and getattr(catalog[key], name) != getattr(provenance[key], name)
        ]
        if differing:
            yield Finding(
                "records_differ", key, f"{' and '.join(RECORDS)} differ in {', '.join(differing)}"
            )


def _by_key(entries: tuple[Entry, ...]) -> dict[str, ClipRecord]:
    return {each.clip.key: each.clip for entry in entries for each in entry.clips}


def _release_files(store: Store, roster: Roster) -> Iterator[Finding]:
    """The release's own files by their hashes, its counts, and the objects that it names."""
    release = roster.release
    if release is None:
        return
    for name, sha256 in sorted(release.files.items()):
        key = release_key(release.id, name)
        try:
            found = hashlib.sha256(store.get(key).data).hexdigest()
        except ObjectMissingError as error:
            yield Finding("file_missing", key, str(error))
            continue
        except (ObjectCorruptError, StoreKeyError) as error:
            yield Finding("file_altered", key, str(error))
            continue
        if found != sha256:
            told = f"has sha256 {found[:12]}, the release says {sha256[:12]}"
            yield Finding("file_altered", key, told)
    key = release_key(release.id, RELEASE)
    if unnamed := [name for name in (*RECORDS, PAGE) if name not in release.files]:
        yield Finding("file_altered", key, f"does not name {' and '.join(unnamed)}")
    if release.id != id_of_release(release.number, release.files, release.not_renewed):
        told = "its id is not that of its number, its files and what it could not renew"
        yield Finding("file_altered", key, told)
    records = records_by_key(roster.records)
    if release.clips != len(records):
        told = f"the release says {release.clips} clips, its records are of {len(records)}"
        yield Finding("count_differs", key, told)
    named = {clip.sha256 for clip in records.values()}
    for sha256 in sorted(named ^ release.objects.keys()):
        whose = "records name" if sha256 in named else "release names"
        yield Finding(
            "count_differs", object_key(sha256), f"only the {whose} it; both have to name it"
        )


def _orphaned_objects(store: Store) -> Iterator[str]:
    """Objects that no release names: of publishers that were killed, or of collected releases."""
    named: set[str] = set()
    for release in releases_of(store):
        try:
            named |= {object_key(sha256) for sha256 in release_of(store, release).objects}
        except CatalogError as error:
            yield f"release {release} cannot be read: {error}"
    orphaned = [facts for facts in store.list("objects/") if facts.key not in named]
    for facts in orphaned[:_NAMED]:
        yield f"{facts.key}: {facts.size_bytes} bytes that no release names"
    if len(orphaned) > _NAMED:
        yield f"{len(orphaned) - _NAMED} more objects that no release names"


def _tokens(folder: Path, records: Mapping[str, ClipRecord], found: Verification) -> None:
    """The token Parquet against the windows of the records."""
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        return
    recorded = {
        (clip.voice, clip.passage, window.index, window.half): window
        for clip in records.values()
        for window in clip.windows
    }
    for path in parts:
        contract = read_token_metadata(path).get("token_contract_fingerprint", "")
        for row in read_token_part(path, token_contract_fingerprint=contract):
            place = (row.voice, row.passage, row.chunk_index, row.half)
            where = f"{row.voice}/{row.passage}"
            clip = records.get(where)
            window = recorded.pop(place, None)
            if clip is None or window is None:
                found.findings.append(
                    Finding("tokens_differ", where, f"{path.name} has a window of no record")
                )
            elif clip.token_contract_fingerprint != contract:
                told = f"{path.name} is under token contract {contract}, its record is not"
                found.findings.append(Finding("tokens_differ", where, told))
            elif what := _differing(row, window, is_dialogue=bool(clip.turns)):
                told = f"{path.name}: {what} of chunk {row.chunk_index} not as recorded"
                found.findings.append(Finding("tokens_differ", where, told))
            else:
                found.windows += 1
    for voice, passage, index, _ in sorted(recorded):
        told = f"the ids of chunk {index} are in no part"
        found.findings.append(Finding("tokens_differ", f"{voice}/{passage}", told))


def _differing(row: TokenRow, window: WindowRecord, *, is_dialogue: bool) -> str:
    """What of a window is not as its record says; nothing where all of it is."""
    if tokens_sha256(row.tokens) != window.tokens_sha256:
        return "the ids"
    if row.seed != window.seed:
        return "the seed"
    # The text of a dialogue is recorded with its marks and exported without them.
    if not is_dialogue and text_sha256(row.text) != window.text_sha256:
        return "the text"
    return ""


def _strays(folder: Path, records: Mapping[str, ClipRecord]) -> Iterator[str]:
    """Audio that no record names: of a catalog that has shrunk, or in another format."""
    named = {folder / clip.audio_key for clip in records.values() if clip.audio_key}
    strays = [
        path
        for path in sorted((folder / "audio").rglob("*"))
        if path.is_file() and path not in named
    ]
    for path in strays[:_NAMED]:
        yield f"{show(str(path.relative_to(folder)))}: no record names it"
    if len(strays) > _NAMED:
        yield f"{len(strays) - _NAMED} more files that no record names"
