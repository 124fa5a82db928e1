"""Putting a release in the place of another, so that a reader always sees one whole release.

Audio first, read back; then the release's own files; then a look whether everything that it names
is there; last the pointer, swapped only if nobody swapped it since. A publisher that was killed
leaves objects and files that nobody is pointed to; one that lost the race plans anew on what the
winner published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from catalog.canonical import JsonObject
from catalog.errors import RecordsError, show
from catalog.publish_errors import (
    PublishRaceError,
    PublishSourceError,
)
from catalog.records import ClipRecord
from catalog.release_copies import copy_names
from catalog.release_text import ReleaseRecords
from catalog.releases import moved, require_objects, swap_pointer, utc
from catalog.roster import (
    PublishedClip,
    Records,
    Roster,
    in_threads,
    object_key,
    read_roster,
    release_key,
    release_of,
    sizes_of,
)
from catalog.roster_files import (
    PAGE,
    RELEASE,
    Release,
    id_of_release,
    release_bytes,
)
from catalog.site import build_page
from catalog.store import Content, Store, is_key

TRIES = 5
"""Races that a publisher runs before it leaves the field to the others."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the next release is to hold."""

    fresh: frozenset[str]
    """Clips whose new recording takes the place of what is published."""
    removed: frozenset[str] = frozenset()
    """Published clips that are to go."""
    about: Mapping[str, JsonObject] = field(default_factory=dict)
    """The facts of today's voices."""
    not_renewed: Mapping[str, str] = field(default_factory=dict)
    """Clips that should have been made again and were not: why."""


@dataclass(frozen=True, slots=True)
class Source:
    """A folder that `render` left, with its records."""

    folder: Path
    records: Records

    def audio(self, key: str) -> Path:
        """The file of a clip. Raises PublishSourceError."""
        clip = self.records.clips[key].record
        path = clip.audio_key
        if path is None or not is_key(path):
            raise PublishSourceError(
                f"{key}: its audio {show(clip.audio)} "
                f"{'leads out of' if path is None else 'is no path in'} {self.folder}"
            )
        return self.folder / path


@dataclass(frozen=True, slots=True)
class Published:
    """What came of publishing."""

    release: Release
    choice: Choice
    is_new: bool
    """False where everything was published already."""
    races_lost: int


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes the recordings of one source to one store."""

    store: Store
    source: Source
    catalog: str
    """The catalog's name."""
    algorithm_fingerprint: str
    """Today's; the page tells clips of another one apart."""
    copies: bool = False
    """Put every clip into the release under its own name, too, beside the shared object."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def publish(self, choose: Callable[[Roster], Choice]) -> Published:
        """Make a release of what `choose` takes, given what is published, and point readers to it.

        `choose` is asked again each time that somebody else was faster. Raises PublishRaceError,
        PublishSourceError, what `choose` raises and what the store raises.
        """
        for races_lost in range(TRIES):
            roster = read_roster(self.store)
            choice = choose(roster)
            records = merged(roster, self.source.records, choice)
            release, files = self._released(roster, records, choice)
            if roster.release and _is_no_news(roster.release, release, choice):
                return Published(roster.release, choice, False, races_lost)
            self._put_objects(roster, records, choice)
            release = self._put_files(release, files, records, choice)
            require_objects(self.store, release)
            if swap_pointer(self.store, roster, moved(roster, release.id, release.published_at)):
                self._heal(records, choice)
                return Published(release, choice, True, races_lost)
        raise PublishRaceError(
            f"{self.store.address}: {TRIES} times somebody else published first; try again"
        )

    def would_change(self, roster: Roster, choice: Choice) -> bool:
        """Whether readers would get anything new; nothing is written."""
        if roster.release is None or choice.fresh:
            return True
        release, _ = self._released(roster, merged(roster, self.source.records, choice), choice)
        return not _is_no_news(roster.release, release, choice)

    def _released(
        self, roster: Roster, records: ReleaseRecords, choice: Choice
    ) -> tuple[Release, dict[str, bytes]]:
        try:
            return self._release(roster, records, choice)
        except RecursionError:  # what could just be read may be too deep to be cut up here
            raise RecordsError(
                f"{self.store.address}: a record is nested too deeply to be copied"
            ) from None

    def _release(
        self, roster: Roster, records: ReleaseRecords, choice: Choice
    ) -> tuple[Release, dict[str, bytes]]:
        number = roster.pointer.number + 1 if roster.pointer else 1
        published_at = utc(self.now())
        edition = f"Release {number} of {published_at[:10]}"
        page = build_page(
            records.listing(self.catalog, self.algorithm_fingerprint, edition, choice.not_renewed)
        )
        files = {
            "catalog.json": records.catalog_json(),
            "provenance.json": records.provenance_json(),
            PAGE: b"".join(page),
        }
        clips = {key: clip.record for key, clip in records.clips.items()}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        if self.copies:
            names = copy_names(clips)
            hashes |= {names[key]: clip.sha256 for key, clip in clips.items()}
        release = Release(
            id=id_of_release(number, hashes, choice.not_renewed),
            number=number,
            parent=roster.pointer.release if roster.pointer else None,
            published_at=published_at,
            tool=f"loudkit-batch {version('loudkit-batch')}",
            catalog=self.catalog,
            algorithm_fingerprint=self.algorithm_fingerprint,
            clips=len(clips),
            objects=self._sizes(roster, clips, choice),
            files=hashes,
            not_renewed=dict(choice.not_renewed),
        )
        return release, files

    def _sizes(
        self, roster: Roster, clips: Mapping[str, ClipRecord], choice: Choice
    ) -> dict[str, int]:
        known = dict(roster.release.objects) if roster.release else {}
        kept = [key for key in clips if key not in choice.fresh]
        places = {key: roster.audio_key(clips[key]) for key in kept}
        missing = [key for key in kept if clips[key].sha256 not in known]
        found = sizes_of(self.store, [p for key in missing if (p := places[key])])
        for key in missing:
            place = places[key]
            if place is None or place not in found:
                raise PublishSourceError(f"{key}: its published audio {place} is gone; rebuild it")
            known[clips[key].sha256] = found[place]
        for key in choice.fresh & clips.keys():
            known[clips[key].sha256] = _size_bytes(self.source.audio(key), key)
        return {clip.sha256: known[clip.sha256] for clip in clips.values()}

    def _put_objects(self, roster: Roster, records: ReleaseRecords, choice: Choice) -> None:
        """New audio, whatever lies there: what was altered is mended, and what an older release
        left is young again, so that nobody who collects takes it away."""
        todo: dict[str, PublishedClip] = {}
        for key, clip in records.clips.items():
            if key in choice.fresh or roster.release is None:
                todo.setdefault(clip.record.sha256, clip)

        def put(clip: PublishedClip) -> None:
            record = clip.record
            key = object_key(record.sha256)
            fresh = record.key in choice.fresh
            content = self._fresh(record) if fresh else self._published(roster, record)
            self.store.put(key, content)
            _require_sha256(self.store.get(key).data, record, f"{self.store.address}/{key}")

        for _ in in_threads(put, todo.values()):
            pass

    def _fresh(self, clip: ClipRecord) -> Content:
        path = self.source.audio(clip.key)
        try:
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise PublishSourceError(f"{path}: cannot be read: {error.strerror}") from None
        if found != clip.sha256:
            raise PublishSourceError(
                f"{path}: has sha256 {found[:12]}, its record says {clip.sha256[:12]}; render again"
            )
        return path

    def _published(self, roster: Roster, clip: ClipRecord) -> bytes:
        """The audio of a clip that is kept, out of plain files."""
        place = roster.audio_key(clip)
        if place is None:
            raise PublishSourceError(f"{clip.key}: its audio {show(clip.audio)} leads elsewhere")
        data = self.store.get(place).data
        _require_sha256(data, clip, f"{self.store.address}/{place}")
        return data

    def _put_files(
        self,
        release: Release,
        files: Mapping[str, bytes],
        records: ReleaseRecords,
        choice: Choice,
    ) -> Release:
        """The files of the release; the one that says what it is comes last."""

        def copy(clip: PublishedClip) -> None:
            record = clip.record
            content: Content
            if record.key in choice.fresh:
                content = self.source.audio(record.key)
            else:
                content = self.store.get(object_key(record.sha256)).data
            self._put_file(release, names[record.key], content)

        for name, data in files.items():
            self._put_file(release, name, data)
        if self.copies:
            names = copy_names({key: clip.record for key, clip in records.clips.items()})
            for _ in in_threads(copy, records.clips.values()):
                pass
        # One that is there is of a publisher that was killed, or is as fast, with the same bytes.
        key = release_key(release.id, RELEASE)
        is_ours = self.store.put_new(key, release_bytes(release))
        return release if is_ours else release_of(self.store, release.id)

    def _put_file(self, release: Release, name: str, content: Content) -> None:
        key = release_key(release.id, name)
        self.store.put(key, content)

    def _heal(self, records: ReleaseRecords, choice: Choice) -> None:
        """Put back what somebody who collected took away between our look and our swap."""
        fresh = {key: records.clips[key].record for key in choice.fresh & records.clips.keys()}
        sizes = sizes_of(self.store, [object_key(clip.sha256) for clip in fresh.values()])
        for clip in fresh.values():
            key = object_key(clip.sha256)
            if key not in sizes:
                self.store.put(key, self._fresh(clip))


def merged(roster: Roster, source: Records, choice: Choice) -> ReleaseRecords:
    """The clips of the next release: the published ones, less those that go, with the new ones."""
    clips = {key: clip for key, clip in roster.records.clips.items() if key not in choice.removed}
    clips |= {key: source.clips[key] for key in sorted(choice.fresh)}
    return ReleaseRecords(clips, roster.records.voices, choice.about)


def _is_no_news(old: Release, new: Release, choice: Choice) -> bool:
    """Whether a new release would say nothing that the old one does not; a page may look better."""
    if choice.fresh:
        return False
    names = new.files.keys() - {PAGE}
    same_files = all(old.files.get(name) == new.files[name] for name in names)
    return same_files and old.objects == new.objects and old.not_renewed == new.not_renewed


def _require_sha256(data: bytes, clip: ClipRecord, where: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != clip.sha256:
        raise PublishSourceError(
            f"{where}: has sha256 {found[:12]}, the record of {clip.key} says {clip.sha256[:12]}"
        )


def _size_bytes(path: Path, key: str) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise PublishSourceError(f"{key}: {path}: cannot be read: {error.strerror}") from None
