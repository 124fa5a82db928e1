"""The two small files that a published roster is found by: the pointer, and what a release is.

current.json                    the pointer: which release readers get, swapped under a condition
releases/<id>/release.json      what the release names, written after its other files
releases/<id>/catalog.json, provenance.json, index.html
objects/<sha256>                audio, shared by all releases
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog.canonical import canonical_json
from catalog.errors import cut, show
from catalog.publish_errors import RosterUnreadableError

POINTER = "current.json"
RELEASE = "release.json"
RECORDS = ("catalog.json", "provenance.json")
PAGE = "index.html"

POINTER_FORMAT = "loudkit-roster-1"
RELEASE_FORMAT = "loudkit-release-1"
MAX_HISTORY = 1000
"""Swaps that the pointer remembers; a release that left it is as old as the oldest of them."""

_ID = re.compile(r"[0-9]{6,}-[0-9a-f]{12}")
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _File(BaseModel):
    # Extra keys are those of a later version; a format that changes its meaning has a new name.
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


_T = TypeVar("_T", "Pointer", "Release")


class Swap(_File):
    """A release that readers got until the pointer moved on."""

    release: str
    until: str
    """UTC, as `published_at`."""


class Pointer(_File):
    """Which release readers get."""

    format: str = POINTER_FORMAT
    number: int = Field(ge=1)
    """Counts the swaps, so that no two versions of the pointer are the same bytes."""
    release: str
    swapped_at: str
    history: tuple[Swap, ...] = ()
    """The newest first."""
    collected: tuple[str, ...] = ()
    """The releases that the last collection took away, or is taking away: nobody goes back there.
    """

    def moved(self, release: str, at: str) -> Pointer:
        """The pointer after a swap."""
        left = (Swap(release=self.release, until=at),) if release != self.release else ()
        return Pointer(
            number=self.number + 1,
            release=release,
            swapped_at=at,
            history=(left + self.history)[:MAX_HISTORY],
            collected=self.collected,
        )

    def collecting(self, releases: tuple[str, ...]) -> Pointer:
        """The pointer to the same release, with what is about to be taken away."""
        return self.model_copy(update={"number": self.number + 1, "collected": releases})

    def remembers_since(self, at: str) -> bool:
        """Whether every release that readers got since then is in the history, or is this one."""
        return len(self.history) < MAX_HISTORY or self.history[-1].until < at


class Release(_File):
    """What a release is and names."""

    format: str = RELEASE_FORMAT
    id: str
    number: int = Field(ge=1)
    parent: str | None = None
    """The release whose place it was made to take."""
    published_at: str
    """UTC, `2026-11-30T02:36:00Z`, by the clock of whoever published."""
    tool: str
    catalog: str
    """The name of the catalog."""
    algorithm_fingerprint: str
    """Today's, at the time; a clip that was kept may have been made under another."""
    clips: int
    objects: dict[_Sha256, int]
    """Size in bytes of every object that the records name."""
    files: dict[str, _Sha256]
    """sha256 of the other files of the release."""
    not_renewed: dict[str, str] = Field(default_factory=dict)
    """Clips that should have been made again and were kept as they were, or are missing: why."""


def id_of_release(number: int, files: Mapping[str, str], not_renewed: Mapping[str, str]) -> str:
    """The name of a release: two of the same number and content are one, of whoever they are."""
    told = repr((sorted(files.items()), sorted(not_renewed.items())))
    return f"{number:06d}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def pointer_bytes(pointer: Pointer) -> bytes:
    """As it is stored."""
    return canonical_json(_plain(pointer))


def release_bytes(release: Release) -> bytes:
    """As it is stored."""
    return canonical_json(_plain(release))


def read_pointer(data: bytes, where: str) -> Pointer:
    """Raises RosterUnreadableError."""
    pointer = _read(Pointer, data, where, POINTER_FORMAT)
    require_release_id(pointer.release, where)
    return pointer


def read_release(data: bytes, where: str) -> Release:
    """Raises RosterUnreadableError."""
    return _read(Release, data, where, RELEASE_FORMAT)


def require_release_id(release: str, where: str) -> None:
    """It becomes part of a key. Raises RosterUnreadableError."""
    if not _ID.fullmatch(release):
        raise RosterUnreadableError(
            f"{where}: {show(release)} is no release; one is like 000012-3f9a0c11d2b4"
        )


def _plain(file: BaseModel) -> dict[str, Any]:
    return file.model_dump(mode="json", exclude_none=True)


def _read(kind: type[_T], data: bytes, where: str, expected: str) -> _T:
    try:
        found = kind.model_validate_json(data, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        place = cut(".".join(map(str, first["loc"])) or "the file")
        raise RosterUnreadableError(f"{where}: {place}: {cut(first['msg'], limit=200)}") from None
    if found.format != expected:
        raise RosterUnreadableError(
            f"{where}: expected format {expected}, got {show(found.format)}; "
            "it was written by another version"
        )
    return found
