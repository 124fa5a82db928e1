"""What the listening page is told of a catalog: sums over all clips, and the clips it plays.

Clips may lie in an output folder or in a published release, and a publisher knows more of a clip
than its record does; so a listing says where the audio is and, clip by clip, in which state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from catalog.canonical import JsonObject
from catalog.record_reading import SOLE_PASSAGE
from catalog.records import holds_samples, passage_under, spoken_language_id

MAX_CLIPS = 5000
"""Players on one page; of a larger catalog every voice shows its first clips."""

AudioUrl = Callable[[JsonObject], str]
"""The address of a clip's audio, relative to the page, from its `sample`."""


def by_path(base: str) -> AudioUrl:
    """Audio below `base` at the path its record says: `../` in an output folder, `./` beside the
    page. `base` ends with a slash, so that no record can lead to another machine."""
    _require_slash(base)
    return lambda sample: base + quote(str(sample["audio"]), errors="replace")


def by_sha256(base: str) -> AudioUrl:
    """Audio below `base` under its sha256, as a release keeps it: `../../objects/`."""
    _require_slash(base)
    return lambda sample: base + quote(str(sample["sha256"]), safe="", errors="replace")


def _require_slash(base: str) -> None:
    if not base.endswith("/"):
        raise ValueError(f"{base!r}: a base of addresses ends with a slash")


IN_OUTPUT = by_path("../")
"""Where an output folder has it: the page lies in `site`, the audio beside it."""


@dataclass(frozen=True, slots=True)
class State:
    """What a clip is to whoever listens now: a value to filter by, and the words for it."""

    key: str
    """Letters; of two states of one key the words are the same."""
    words: str
    """As a sentence could end: "3 clips were ..."."""
    is_current: bool = False
    """Nothing has to be done about it."""


CURRENT = State("current", "current", is_current=True)
OTHER = State("other", "made under another algorithm")
STALE = State("stale", "kept although stale")
"""Only a publisher can tell it: made of another text, voice or pack, and published all the same."""


@dataclass(frozen=True, slots=True)
class VoiceClips:
    """One voice of catalog.json."""

    about: JsonObject
    """Without its `sample`."""
    count: int
    samples: Iterable[tuple[str, JsonObject]]
    """Passage and `sample` of its clips, first ones first; read once, as far as the page plays."""
    states: Mapping[str, State] = field(default_factory=dict)
    """By passage, of clips whose state is not what their algorithm fingerprint says."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A catalog as the page shows it. The sums count the clips for which it has no room, too."""

    name: str
    """Of the catalog."""
    algorithm_fingerprint: str
    """A clip whose record names another one, or none, is told apart, not left out."""
    voices: Sequence[VoiceClips]
    """Those that have clips."""
    seconds: float
    """The length of all clips."""
    others: int
    """Clips that were made under another algorithm and that no voice's `states` names."""
    language_ids: Collection[str]
    """The tags of the languages of all clips."""
    audio_url: AudioUrl = IN_OUTPUT
    """Where a clip's audio is. The page plays what it says, as `<audio src>`."""
    edition: str = ""
    """Which release this is and of when, for whoever listens to more than one."""

    @property
    def count(self) -> int:
        """How many clips there are."""
        return sum(voice.count for voice in self.voices)

    def state_of(self, voice: VoiceClips, passage: str, sample: JsonObject) -> State:
        """The state in which a clip is shown."""
        told = voice.states.get(passage)
        if told is not None:
            return told
        is_of_now = sample.get("algorithm_fingerprint") == self.algorithm_fingerprint
        return CURRENT if is_of_now else OTHER

    def states(self) -> dict[State, int]:
        """Every state there may be with the number of its clips; the first one is the current."""
        told = [state for voice in self.voices for state in voice.states.values()]
        counts = {CURRENT: self.count - self.others - len(told), OTHER: self.others}
        for state in sorted(told, key=lambda each: each.key):
            counts[state] = counts.get(state, 0) + 1
        return counts

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


def listing_of(
    catalog: Iterable[JsonObject],
    *,
    name: str,
    algorithm_fingerprint: str,
    audio_url: AudioUrl = IN_OUTPUT,
    edition: str = "",
    states: Mapping[str, State] | None = None,
) -> Listing:
    """The listing of a whole catalog.json, ours or of loudkit's, that is held in memory.

    `states` are those that records cannot tell, by `voice/passage`. A catalog that does not fit in
    memory makes its own listing, as a run does.
    """
    voices, fingerprints, language_ids, seconds = [], list[object](), set[str](), 0.0
    for about in catalog:
        clips = list(clips_of(about))
        told = {
            passage: state
            for passage, _ in clips
            if (state := (states or {}).get(f"{about.get('name')}/{passage}"))
        }
        for passage, sample in clips:
            seconds += seconds_of(sample) or 0.0
            language_ids.add(spoken_language_id(about, sample))
            if passage not in told:
                fingerprints.append(sample.get("algorithm_fingerprint"))
        if clips:
            voices.append(VoiceClips(about, len(clips), clips, told))
    return Listing(
        name=name,
        algorithm_fingerprint=algorithm_fingerprint,
        voices=voices,
        seconds=seconds,
        others=sum(each != algorithm_fingerprint for each in fingerprints),
        language_ids=language_ids,
        audio_url=audio_url,
        edition=edition,
    )


def seconds_of(sample: JsonObject) -> float | None:
    """The length of a clip as its record says, if it does."""
    value = sample.get("duration_seconds")
    return value if isinstance(value, int | float) and 0 <= value < float("inf") else None


def clips_of(voice: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Passage and sample of the clips of a voice of catalog.json.

    Ours are keyed by passage; loudkit's may also be a single one, and others stand beside it under
    names of their own: `short` of `sample_turbo` is passage `short-turbo`, as where records are
    read. What has no audio is no clip.
    """
    for key, value in voice.items():
        if not holds_samples(key):
            continue
        inner = value if isinstance(value, dict) else {}
        if isinstance(inner.get("audio"), str):
            yield passage_under(key, SOLE_PASSAGE), inner
            continue
        for passage, sample in inner.items():
            if isinstance(sample, dict) and isinstance(sample.get("audio"), str):
                yield passage_under(key, passage), sample
