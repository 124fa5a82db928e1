"""What the listening page is told of a catalog: sums over all clips, and the clips it plays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from catalog.canonical import JsonObject

MAX_CLIPS = 5000
"""Players on one page; of a larger catalog every voice shows its first clips."""


@dataclass(frozen=True, slots=True)
class VoiceClips:
    """One voice of catalog.json."""

    about: JsonObject
    """Without its `sample`."""
    count: int
    samples: Iterable[tuple[str, JsonObject]]
    """Passage and `sample` of its clips, first ones first; read once, as far as the page plays."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A catalog as the page shows it. The sums count the clips for which it has no room, too."""

    name: str
    """Of the catalog."""
    algorithm_fingerprint: str
    """A clip whose record names another one is told apart, not left out."""
    voices: Sequence[VoiceClips]
    """Those that have clips."""
    seconds: float
    """The length of all clips."""
    others: int
    """Clips that were made under another algorithm."""
    language_ids: Collection[str]
    """The tags of the languages of all clips."""

    @property
    def count(self) -> int:
        """How many clips there are."""
        return sum(voice.count for voice in self.voices)

    def played_each(self) -> int:
        """How many clips of a voice the page plays at most, for every voice to have its share.

        At least one, whatever the number of voices: one that cannot be heard is no page.
        """
        if self.count <= MAX_CLIPS:
            return MAX_CLIPS
        return max(1, bisect_right(range(MAX_CLIPS + 2), MAX_CLIPS, key=self.played) - 1)

    def played(self, each: int) -> int:
        """How many clips the page plays with at most `each` of a voice."""
        return sum(min(voice.count, each) for voice in self.voices)
