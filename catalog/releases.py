"""The pointer and the releases it may lead to: swapped under a condition, held against what is
there, and led back."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from catalog.publish_errors import NoSuchReleaseError, PublishRaceError, RosterUnreadableError
from catalog.roster import (
    Roster,
    object_key,
    read_roster,
    release_key,
    release_of,
    sizes_of,
)
from catalog.roster_files import (
    POINTER,
    RECORDS,
    RELEASE,
    Pointer,
    Release,
    pointer_bytes,
    require_release_id,
)
from catalog.store import Store


def roll_back(store: Store, release_id: str, *, now: datetime) -> Pointer:
    """Point readers to an older release, which must be whole.

    Raises NoSuchReleaseError, PublishRaceError and what the store raises.
    """
    require_release_id(release_id, "--rollback")
    roster = read_roster(store)
    if roster.pointer is None:
        raise NoSuchReleaseError(f"{store.address}: nothing has been published here")
    if roster.pointer.release == release_id:
        return roster.pointer
    if release_id in roster.pointer.collected:
        raise NoSuchReleaseError(f"{store.address}: release {release_id} was collected")
    try:
        release = release_of(store, release_id)
    except RosterUnreadableError as error:
        listed = ", ".join(releases_of(store)) or "none"
        raise NoSuchReleaseError(f"{error}; there are: {listed}") from None
    require_objects(store, release)
    _require_records(store, release)
    pointer = moved(roster, release_id, utc(now))
    if not swap_pointer(store, roster, pointer):
        raise PublishRaceError(
            f"{store.address}: somebody published meanwhile; look again, and roll back again"
        )
    return pointer


def releases_of(store: Store) -> list[str]:
    """The ids of the releases that say what they are, the oldest first."""
    suffix = f"/{RELEASE}"
    keys = (facts.key for facts in store.list("releases/"))
    return [key.split("/")[1] for key in keys if key.endswith(suffix) and key.count("/") == 2]


def moved(roster: Roster, release_id: str, at: str) -> Pointer:
    """The pointer that leads to a release, after the one there is."""
    if roster.pointer is None:
        return Pointer(number=1, release=release_id, swapped_at=at)
    return roster.pointer.moved(release_id, at)


def swap_pointer(store: Store, roster: Roster, pointer: Pointer) -> bool:
    """Swap the pointer if it is still the one in `roster`; False for a lost race."""
    return store.compare_and_swap(POINTER, pointer_bytes(pointer), roster.etag) is not None


def require_objects(store: Store, release: Release) -> None:
    """That all that a release names is there, of the right size. Raises NoSuchReleaseError."""
    sizes = sizes_of(store, [object_key(sha256) for sha256 in release.objects])
    files = {facts.key for facts in store.list(release_key(release.id, ""))}
    wrong = [
        object_key(sha256)
        for sha256, size in release.objects.items()
        if sizes.get(object_key(sha256)) != size
    ]
    wrong += [
        release_key(release.id, name)
        for name in release.files
        if release_key(release.id, name) not in files
    ]
    if wrong:
        raise NoSuchReleaseError(
            f"{store.address}: release {release.id} is not whole: {wrong[0]} is missing or of "
            f"another size{f', and {len(wrong) - 1} more' if wrong[1:] else ''}"
        )


def _require_records(store: Store, release: Release) -> None:
    """That its records are those that it was published with: without them nobody can read it.
    Raises NoSuchReleaseError."""
    for name in RECORDS:
        key = release_key(release.id, name)
        if hashlib.sha256(store.get(key).data).hexdigest() != release.files.get(name):
            raise NoSuchReleaseError(f"{store.address}: {key} is not what was published")


def utc(at: datetime) -> str:
    """`2026-11-30T02:36:00Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
