"""Where the clips of a release lie under their own names, for whoever wants files with names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import PurePosixPath

from catalog.names import folded
from catalog.records import ClipRecord
from catalog.roster_files import PAGE, RECORDS, RELEASE
from catalog.store import is_key


def copy_names(clips: Mapping[str, ClipRecord]) -> dict[str, str]:
    """Where each clip lies in its release under its own name: at the path of its record, or, where
    that leads out, or belongs to another clip or to a file of the release, at one like ours.

    Of two clips that want one place, the one whose voice and passage it is named after has it.
    """
    taken = dict.fromkeys(map(folded, (*RECORDS, PAGE, RELEASE)), "")
    folders: set[str] = set()
    names: dict[str, str] = {}

    def fits(name: str, sha256: str) -> bool:
        """A key is no folder of others, and one name is of one content in every file system."""
        if not is_key(name):
            return False
        place = PurePosixPath(folded(name))
        is_free = taken.get(str(place), sha256) == sha256 and str(place) not in folders
        return is_free and not any(str(folder) in taken for folder in place.parents)

    for key in sorted(clips, key=lambda key: (clips[key].audio_key != _own_name(clips[key]), key)):
        sha256 = clips[key].sha256
        name = next(name for name in _names(clips[key]) if fits(name, sha256))
        names[key] = name
        taken[folded(name)] = sha256
        folders |= {str(folder) for folder in PurePosixPath(folded(name)).parents}
    return names


def _names(clip: ClipRecord) -> Iterator[str]:
    """Where a copy may lie, the best place first."""
    yield clip.audio_key or _own_name(clip)
    yield _own_name(clip)
    yield from (f"audio-{number}/{clip.sha256}" for number in count(2))


def _own_name(clip: ClipRecord) -> str:
    return f"audio/{clip.key}{PurePosixPath(clip.audio).suffix}"
