"""Published records against what would be rendered today: what stands, what must be made again.

Nothing is edited here or anywhere: a clip whose record says the same as today's plan stands as it
is, byte for byte, and any other is recorded anew. What a record does not say is never guessed: a
fact that decides the sound and is not recorded makes the clip stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from catalog.errors import show
from catalog.records import ClipRecord, ConditioningRecord, TurnRecord


class State(StrEnum):
    """How a clip stands."""

    CURRENT = "current"
    STALE = "stale"
    """Its record says that it was made of something else than today's plan."""
    MISSING = "missing"
    """Planned, and not published."""
    ALTERED = "altered"
    """The published bytes are not those that were recorded."""
    UNREADABLE = "unreadable"
    """Recorded, and the published bytes cannot be had."""
    ORPHANED = "orphaned"
    """Published, and not planned any more."""


TO_RENDER = frozenset((State.STALE, State.MISSING, State.ALTERED, State.UNREADABLE))
"""The states of clips that a rebuild makes again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a clip would be made of today; the names are those of `ClipRecord`."""

    voice: str
    passage: str
    text: str
    turns: tuple[TurnRecord, ...]
    seed: int
    format: str
    algorithm_fingerprint: str
    token_contract_fingerprint: str
    pack_sha256: str
    profile_sha256: str
    conditioning: ConditioningRecord

    @property
    def key(self) -> str:
        """`voice/passage`."""
        return f"{self.voice}/{self.passage}"


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact that differs."""

    fact: str
    """`algorithm`, `token contract`, `pack`, `profile`, `text`, `turns`, `seed`, `conditioning`,
    `format`, `execution`; `audio` where not the record but the published bytes are at fault."""
    recorded: str
    wanted: str

    def __str__(self) -> str:
        """For people."""
        if self.fact == "audio":
            return self.recorded
        return f"{self.fact}: {self.recorded} -> {self.wanted}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A clip, how it stands, and why."""

    key: str
    state: State
    reasons: tuple[Reason, ...] = ()

    def as_json(self) -> dict[str, object]:
        """For scripts."""
        return {
            "render": self.key,
            "state": str(self.state),
            "reasons": [
                {"fact": each.fact, "recorded": each.recorded, "wanted": each.wanted}
                for each in self.reasons
            ],
        }


@dataclass(frozen=True, slots=True)
class AudioFault:
    """What is wrong with a published clip's bytes."""

    state: State
    """`ALTERED` or `UNREADABLE`."""
    told: str


def judge(
    wanted: Iterable[Wanted],
    published: Mapping[str, ClipRecord],
    faults: Mapping[str, AudioFault],
    *,
    execution: str | None = None,
    orphans: bool = True,
) -> Iterator[Verdict]:
    """Every planned clip in the order of the plan, then those that nobody plans any more.

    `faults` are those of published audio, by clip. `execution` is the digest of the execution
    identity that every clip must have been made under; None asks for none. Without `orphans` they
    are left out: of a plan that was told to look at a part, the rest is not orphaned.
    """
    planned: set[str] = set()
    for each in wanted:
        planned.add(each.key)
        clip = published.get(each.key)
        if clip is None:
            yield Verdict(each.key, State.MISSING)
        elif fault := faults.get(each.key):
            yield Verdict(each.key, fault.state, (Reason("audio", fault.told, ""),))
        else:
            reasons = tuple(differences(clip, each, execution=execution))
            yield Verdict(each.key, State.STALE if reasons else State.CURRENT, reasons)
    if orphans:
        for key in sorted(published.keys() - planned):
            fault = faults.get(key)
            told = (Reason("audio", fault.told, ""),) if fault else ()
            yield Verdict(key, State.ORPHANED, told)


def differences(
    clip: ClipRecord, wanted: Wanted, *, execution: str | None = None
) -> Iterator[Reason]:
    """The facts in which a record differs from today's plan."""
    found: list[tuple[str, object, object]] = [
        ("algorithm", clip.algorithm_fingerprint, wanted.algorithm_fingerprint),
        ("token contract", clip.token_contract_fingerprint, wanted.token_contract_fingerprint),
        ("pack", clip.pack and clip.pack.sha256, wanted.pack_sha256),
        ("text", clip.text, wanted.text),
        ("turns", clip.turns, wanted.turns),
        ("seed", clip.seed, wanted.seed),
        ("conditioning", _parts(clip.conditioning), _parts(wanted.conditioning)),
        ("format", PurePosixPath(clip.audio).suffix.removeprefix("."), wanted.format),
    ]
    if execution is not None:
        found.append(("execution", (clip.execution or {}).get("digest"), execution))
    differing = [Reason(fact, _shown(old), _shown(new)) for fact, old, new in found if old != new]
    yield from differing
    # It is made of the pack and the conditioning, and tells nothing where one of them differs.
    explained = any(each.fact in ("pack", "conditioning") for each in differing)
    if clip.profile_sha256 != wanted.profile_sha256 and not explained:
        yield Reason("profile", _shown(clip.profile_sha256), _shown(wanted.profile_sha256))


def counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many clips there are of each state, all states named."""
    found = Counter(each.state for each in verdicts)
    return {str(state): found[state] for state in State}


def _parts(conditioning: ConditioningRecord | None) -> dict[str, str] | None:
    if conditioning is None:
        return None
    parts = {
        "speaker": conditioning.speaker,
        "language": conditioning.language_id,
        "style": conditioning.style,
        "accent": conditioning.accent,
        "env": conditioning.env,
    }
    return {name: value for name, value in parts.items() if value}


def _shown(value: object) -> str:
    """Short, for people; whether two facts differ is never told by how they are shown."""
    if isinstance(value, dict):
        value = ", ".join(f"{name} {each}" for name, each in value.items())
    elif isinstance(value, tuple):
        value = " / ".join(f"{turn.speaker}: {turn.text}" for turn in value)
    if value is None or value == "":
        return "not recorded" if value is None else "none"
    text = str(value)
    is_digest = len(text) == 64 and all(char in "0123456789abcdef" for char in text)
    return text[:12] if is_digest else show(text, limit=40).strip('"')
