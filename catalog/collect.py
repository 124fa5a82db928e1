"""Taking away old releases and the objects that only they name.

Kept are the release that readers get, and every release that they got within the grace period:
whoever began to read one may still be reading. A release that was never pointed to is as old as its
newest file, an object as its last writing. The pointer says first what goes, under the condition
that nobody moved it, so nobody can roll back to a release whose objects are on their way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from catalog.publish_errors import NoSuchReleaseError, PublishRaceError
from catalog.releases import swap_pointer, utc
from catalog.roster import Roster, object_key, read_roster, release_key, release_of
from catalog.roster_files import POINTER, RELEASE, Pointer
from catalog.store import ObjectFacts, Store


@dataclass(frozen=True, slots=True)
class Garbage:
    """What may go."""

    releases: tuple[str, ...]
    """Of which nobody reads any file any more."""
    kept_releases: tuple[str, ...]
    files: tuple[str, ...]
    """Keys of the files of `releases`."""
    objects: tuple[str, ...]
    """Keys of objects that no kept release names."""
    size_bytes: int
    """Of files and objects together."""


@dataclass(frozen=True, slots=True)
class Collector:
    """Finds and takes away what is older than the grace period."""

    store: Store
    grace: timedelta
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def find(self, roster: Roster | None = None) -> Garbage:
        """What may go now. Raises RosterUnreadableError for a kept release that cannot be read."""
        roster = roster or self._roster()
        if roster.pointer is None:
            raise NoSuchReleaseError(f"{self.store.address}: nothing has been published here")
        by_release: dict[str, list[ObjectFacts]] = {}
        for facts in self.store.list("releases/"):
            by_release.setdefault(facts.key.split("/")[1], []).append(facts)
        kept = {roster.pointer.release} | self._read_lately(roster.pointer, by_release)
        if not roster.pointer.remembers_since(self._since()):
            kept |= by_release.keys()  # any of them may have been read lately
        kept |= {name for name, files in by_release.items() if self._is_young(files)}
        named = {
            object_key(sha256)
            for name in sorted(kept & by_release.keys())
            if any(facts.key == release_key(name, RELEASE) for facts in by_release[name])
            for sha256 in release_of(self.store, name).objects
        }
        doomed = sorted(by_release.keys() - kept)
        files = [facts for name in doomed for facts in by_release[name]]
        objects = [
            facts
            for facts in self.store.list("objects/")
            if facts.key not in named and not self._is_young([facts])
        ]
        return Garbage(
            releases=tuple(doomed),
            kept_releases=tuple(sorted(kept & by_release.keys())),
            files=tuple(facts.key for facts in files),
            objects=tuple(facts.key for facts in objects),
            size_bytes=sum(facts.size_bytes for facts in (*files, *objects)),
        )

    def collect(self) -> Garbage:
        """Take it away; what was found. Raises PublishRaceError if somebody publishes meanwhile."""
        roster = self._roster()
        found = self.find(roster)
        if not found.files and not found.objects:
            return found
        if roster.pointer is None:
            raise NoSuchReleaseError(f"{self.store.address}: nothing has been published here")
        # What another collection with a shorter grace period may still be taking away goes on being
        # named: nobody goes back to half a release.
        going = set(roster.pointer.collected) & set(found.kept_releases) - {roster.pointer.release}
        collecting = roster.pointer.collecting(tuple(sorted({*found.releases, *going})))
        if not swap_pointer(self.store, roster, collecting):
            raise PublishRaceError(
                f"{self.store.address}: somebody published or rolled back meanwhile; try again"
            )
        for release in found.releases:
            self.store.delete(release_key(release, RELEASE))
        for key in found.files:
            self.store.delete(key)
        for key in found.objects:
            # A publisher may have put it again since we looked.
            facts = self.store.stat(key)
            if facts is not None and not self._is_young([facts]):
                self.store.delete(key)
        return found

    def _roster(self) -> Roster:
        return read_roster(self.store)

    def _read_lately(
        self, pointer: Pointer, by_release: Mapping[str, list[ObjectFacts]]
    ) -> set[str]:
        """The releases that readers got within the grace period.

        The pointer has it by the clocks of those who published, which may be slow. By that of the
        store a release was left no earlier than the files of the one after it were written, and
        the last one no earlier than the pointer may have been.
        """
        since = self._since()
        written = self.store.stat(POINTER)
        found: set[str] = set()
        is_next_young = written is not None and self._is_young([written])
        for swap in pointer.history:
            if is_next_young or swap.until >= since:
                found.add(swap.release)
            is_next_young = self._is_young(by_release.get(swap.release, ()))
        return found

    def _since(self) -> str:
        return utc(self.now() - self.grace)

    def _is_young(self, files: Iterable[ObjectFacts]) -> bool:
        since_s = (self.now() - self.grace).timestamp()
        return any(facts.modified_at_s >= since_s for facts in files)
