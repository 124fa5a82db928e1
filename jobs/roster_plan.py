"""A catalog against what is published: how every clip stands today, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from catalog.errors import show
from catalog.loader import LoadedCatalog
from catalog.records import ConditioningRecord, TurnRecord
from catalog.renders import Render, iter_renders
from catalog.roster import Roster, audio_faults, read_roster, records_by_key
from catalog.staleness import TO_RENDER, AudioFault, State, Verdict, Wanted, counts, judge
from catalog.store import Store, open_store
from engine.pack import Pack
from jobs.content import profile_sha256
from jobs.errors import ExecutionPolicyError
from jobs.plan import conditioning_for
from jobs.standing import Standing

_DIGEST = re.compile("[0-9a-f]{16}")

ANY, WITHIN_A_VOICE = "any", "voice"
"""Policies: clips of several execution identities may stand side by side, or not in one voice."""


@dataclass(frozen=True, slots=True)
class StalenessPolicy:
    """What makes a clip stale besides what it is made of."""

    execution: str = WITHIN_A_VOICE
    """`ANY`, `WITHIN_A_VOICE`, or the digest that every clip must have been made under."""
    rehash: bool = False
    """Read every published byte; otherwise objects are only looked for."""
    only: str | None = None

    def __post_init__(self) -> None:
        if self.execution not in (ANY, WITHIN_A_VOICE) and not _DIGEST.fullmatch(self.execution):
            raise ExecutionPolicyError(
                f"--execution {show(self.execution)}: expected {ANY}, {WITHIN_A_VOICE}, or the 16 "
                "hex digits of an execution identity"
            )

    @property
    def digest(self) -> str | None:
        """The execution identity that is asked for."""
        return None if self.execution in (ANY, WITHIN_A_VOICE) else self.execution


@dataclass(frozen=True, slots=True)
class RosterPlan:
    """How every clip stands against one published roster."""

    roster: Roster
    verdicts: tuple[Verdict, ...]
    faults: Mapping[str, AudioFault]
    """What is wrong with published audio, by clip."""

    @property
    def to_render(self) -> frozenset[str]:
        """The clips that must be made."""
        return self._of(TO_RENDER)

    @property
    def orphans(self) -> frozenset[str]:
        """The clips that nobody plans any more."""
        return self._of(frozenset((State.ORPHANED,)))

    @property
    def counts(self) -> dict[str, int]:
        """How many clips there are of each state."""
        return counts(self.verdicts)

    def standing(self, policy: StalenessPolicy) -> Standing:
        """The clips that need not be made."""
        current = self._of(frozenset((State.CURRENT,)))
        records = self.roster.records.clips
        executions = {
            key: str((records[key].record.execution or {}).get("digest", ""))
            for key in sorted(current)
        }
        return Standing(executions, may_mix=policy.execution == ANY)

    def _of(self, states: frozenset[State]) -> frozenset[str]:
        return frozenset(each.key for each in self.verdicts if each.state in states)


def plan_roster(
    loaded: LoadedCatalog, pack: Pack, store: Store, policy: StalenessPolicy
) -> RosterPlan:
    """Every clip of the catalog and of the roster; nothing is rendered or written."""
    roster = read_roster(store)
    # Plain files become objects when they are published, and are read for that anyway.
    rehash = policy.rehash or roster.release is None
    looked_at = _looked_at(loaded, pack, roster, policy)
    faults = audio_faults(store, roster, looked_at, rehash=rehash)
    return _judged(loaded, pack, roster, policy, faults)


def plan_again(
    loaded: LoadedCatalog,
    pack: Pack,
    store: Store,
    policy: StalenessPolicy,
    *,
    roster: Roster,
    before: RosterPlan,
) -> RosterPlan:
    """The same for what is published by now; what was read already is not read again."""
    faults = audio_faults(store, roster, _looked_at(loaded, pack, roster, policy), rehash=False)
    records = roster.records.clips
    for key, fault in before.faults.items():
        known = before.roster.records.clips[key].record.sha256
        if key in records and records[key].record.sha256 == known:
            faults.setdefault(key, fault)
    return _judged(loaded, pack, roster, policy, faults)


def _looked_at(
    loaded: LoadedCatalog, pack: Pack, roster: Roster, policy: StalenessPolicy
) -> list[str]:
    """The published clips that the policy is about."""
    published = roster.records.clips
    if policy.only is None:
        return sorted(published)
    return [each.key for each in wanted_clips(loaded, pack, policy.only) if each.key in published]


def _judged(
    loaded: LoadedCatalog,
    pack: Pack,
    roster: Roster,
    policy: StalenessPolicy,
    faults: Mapping[str, AudioFault],
) -> RosterPlan:
    verdicts = judge(
        wanted_clips(loaded, pack, policy.only),
        records_by_key(roster.records),
        faults,
        execution=policy.digest,
        orphans=policy.only is None,
    )
    return RosterPlan(roster, tuple(verdicts), faults)


def wanted_clips(loaded: LoadedCatalog, pack: Pack, only: str | None) -> Iterator[Wanted]:
    """What every selected clip would be made of today."""
    return (_wanted(pack, render) for render in iter_renders(loaded, only))


def _wanted(pack: Pack, render: Render) -> Wanted:
    return Wanted(
        voice=render.voice.name,
        passage=render.passage_id,
        text=render.text,
        turns=tuple(TurnRecord(*turn) for turn in render.turns),
        seed=render.seed,
        format=render.format,
        algorithm_fingerprint=pack.algorithm_fingerprint,
        token_contract_fingerprint=pack.manifest.token_contract.fingerprint,
        pack_sha256=pack.sha256,
        profile_sha256=profile_sha256(pack, conditioning_for(render)),
        conditioning=ConditioningRecord.of(render),
    )


def open_for_reading(uri: str, *, endpoint_url: str | None) -> Store:
    """A store that nothing is written to, so that it does not matter whether it minds conditions
    and the credentials need not allow any."""
    return open_store(uri, endpoint_url=endpoint_url, unconditional=uri.lower().startswith("s3:"))
