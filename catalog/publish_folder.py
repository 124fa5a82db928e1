"""What publishing a folder changes: its recordings take the place of others of the same clips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from catalog.canonical import JsonObject
from catalog.errors import show
from catalog.folder_store import FolderStore
from catalog.publish import Choice, Source
from catalog.publish_errors import PublishConflictError, PublishSourceError
from catalog.records import ClipRecord, facts_of_voice
from catalog.roster import Records, Roster, audio_faults, read_records_of
from catalog.store import Store


def open_source(folder: Path) -> Source:
    """The records of a folder that `render` left. Raises PublishSourceError."""
    records = read_records_of(FolderStore(folder), "", required=False)
    if not records.clips:
        raise PublishSourceError(
            f"{folder}: has no catalog.json or provenance.json with clips; "
            "give a folder that render left"
        )
    return Source(folder, records)


def facts_of_voices(records: Records) -> dict[str, JsonObject]:
    """What the folder's catalog.json says of its voices, without their samples."""
    return {name: facts_of_voice(voice.text) for name, voice in records.voices.items()}


def newest_algorithm(records: Records) -> str:
    """The algorithm that most clips were made under."""
    found = Counter(clip.record.algorithm_fingerprint for clip in records.clips.values())
    return found.most_common(1)[0][0]


@dataclass(slots=True)
class FolderChoice:
    """Chooses for a whole folder; on a lost race it never undoes what the winner recorded."""

    store: Store
    source: Source
    remove_orphans: bool
    about: Mapping[str, JsonObject]
    _seen: dict[str, ClipRecord] | None = field(default=None, init=False)
    """The published clips as they were when we first looked."""

    def __call__(self, roster: Roster) -> Choice:
        """Raises PublishConflictError."""
        published = {key: clip.record for key, clip in roster.records.clips.items()}
        ours = {key: clip.record for key, clip in self.source.records.clips.items()}
        faults = audio_faults(self.store, roster, published.keys() & ours.keys(), rehash=False)
        fresh = {
            key
            for key, clip in ours.items()
            if key in faults or key not in published or not is_same_recording(published[key], clip)
        }
        removed = published.keys() - ours.keys() if self.remove_orphans else set()
        if self._seen is None:
            self._seen = published
        changed = {key for key, clip in published.items() if self._seen.get(key) != clip}
        if theirs := sorted((fresh | removed) & changed):
            raise PublishConflictError(
                f"{self.store.address}: somebody else has just published {show(theirs[0])}"
                f"{f' and {len(theirs) - 1} more of our clips' if theirs[1:] else ''}; "
                "look at what is there, and publish again"
            )
        told = roster.release.not_renewed if roster.release else {}
        still = {
            key: why
            for key, why in told.items()
            if key not in fresh and (key in ours or not self.remove_orphans)
        }
        return Choice(frozenset(fresh), frozenset(removed), self.about, still)


def is_same_recording(published: ClipRecord, ours: ClipRecord) -> bool:
    """Whether both records tell of the same bytes, made of the same: then the older one stands."""
    facts = (
        "sha256 text turns seed model checkpoint_sha256 algorithm_fingerprint profile_sha256 "
        "token_contract_fingerprint pcm_sha256 pack conditioning execution windows"
    )
    return all(getattr(published, fact) == getattr(ours, fact) for fact in facts.split())
