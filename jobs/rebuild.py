"""`rebuild`: render what is stale against the published roster, and publish it as a new release.

Nothing is started for a roster that is current. What is rendered lies in an output folder with its
ledger, so a rebuild that was killed goes on there; what is published changes at the end, at once,
or not at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from catalog.folder_store import FolderStore
from catalog.loader import LoadedCatalog, load_catalog
from catalog.publish import Choice, Published, Publisher, Source
from catalog.publish_errors import PublishRaceError
from catalog.records import voice_json
from catalog.roster import Roster, read_records_of, read_roster
from catalog.roster_files import Release
from catalog.staleness import State, Verdict, differences
from catalog.store import Store, open_store
from engine.pack import Pack
from jobs.errors import DONE, INTERRUPTED, SOME_FAILED, OutputPlaceError
from jobs.plan import open_catalog_pack
from jobs.progress import Progress
from jobs.render import MIRRORS, RenderOptions, RenderResult, run_render
from jobs.roster_plan import (
    RosterPlan,
    StalenessPolicy,
    open_for_reading,
    plan_again,
    plan_roster,
    wanted_clips,
)

_KEPT_FOR_IDENTITY = "kept under another execution identity"

_ROUNDS = 3
"""Times that a rebuild renders because what others published made more clips stale."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """What the command line asks for."""

    render: RenderOptions
    """How to render; `out` is the folder for the work."""
    published: str
    policy: StalenessPolicy = field(default_factory=StalenessPolicy)
    partial: bool = False
    """Publish although some clips failed; those keep their old recording, and are named."""
    remove_orphans: bool = False
    copies: bool = False


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """How a rebuild ended."""

    plan: RosterPlan
    """As it was at the start."""
    exit_code: int
    rendered: RenderResult | None
    """None where nothing had to be made."""
    published: Published | None
    """None where nothing was published."""
    elapsed_s: float

    @property
    def release(self) -> Release | None:
        """What readers get now."""
        return self.published.release if self.published else self.plan.roster.release


class _MoreIsStale(Exception):
    """What somebody else published meanwhile leaves more to render."""

    def __init__(self, plan: RosterPlan) -> None:
        super().__init__("more is stale")
        self.plan = plan


def run_rebuild(options: RebuildOptions, progress: Progress) -> RebuildResult:
    """Bring a published roster up to its catalog.

    Raises the typed errors of all rooms; renders that fail are in the result.
    """
    return _Rebuild(options, progress).run()


class _Rebuild:
    def __init__(self, options: RebuildOptions, progress: Progress) -> None:
        self._options, self._progress = options, progress
        self._loaded: LoadedCatalog = load_catalog(options.render.catalog)
        self._pack: Pack = open_catalog_pack(self._loaded)
        self._out = options.render.out or str(MIRRORS / self._loaded.catalog.catalog)
        if "://" in self._out:
            # Not shown: what stands before an @ may be credentials.
            raise OutputPlaceError("--out: a rebuild works in a folder; give one")
        self._reading = open_for_reading(
            options.published, endpoint_url=options.render.endpoint_url
        )
        self._remade: set[str] = set()
        self._failed: dict[str, str] = {}

    def run(self) -> RebuildResult:
        began = time.monotonic()
        options = self._options
        first = plan = plan_roster(self._loaded, self._pack, self._reading, options.policy)
        rendered: RenderResult | None = None
        published: Published | None = None
        exit_code = DONE
        for _ in range(_ROUNDS):
            if plan.to_render - self._failed.keys():
                rendered = self._render(plan)
                exit_code = self._ended(rendered)
            if exit_code == INTERRUPTED or (exit_code != DONE and not options.partial):
                break
            if rendered is not None and rendered.stopped:
                break
            try:
                published = self._publish(plan)
                break
            except _MoreIsStale as more:
                plan = more.plan
        else:
            raise PublishRaceError(
                f"{options.published}: others publish faster than this rebuild renders; try again"
            )
        return RebuildResult(first, exit_code, rendered, published, time.monotonic() - began)

    def _render(self, plan: RosterPlan) -> RenderResult:
        self._require_other_place(plan)
        standing = plan.standing(self._options.policy)
        policy = self._options.policy
        render = replace(
            self._options.render,
            out=self._out,
            only=policy.only,
            standing=standing,
            required_execution=policy.digest,
        )
        result = run_render(render, self._progress)
        self._remade |= result.remade
        for failure in result.counts.failures:
            self._failed[failure.render] = f"{failure.code}: {failure.message}"
        return result

    def _require_other_place(self, plan: RosterPlan) -> None:
        """Where the work folder is what is published, as plain files, a rendering writes over it:
        readers would get half of it, and what nobody plans any more would go."""
        place = self._options.published
        if plan.roster.pointer is not None or "://" in place:
            return
        if Path(place).resolve() != Path(self._out).resolve():
            return
        # Of the whole catalog: a rendering of a part writes all records anew, too.
        planned = {each.key for each in wanted_clips(self._loaded, self._pack, None)}
        orphaned = plan.roster.records.clips.keys() - planned
        if orphaned or any(each.state == State.STALE for each in plan.verdicts):
            raise OutputPlaceError(
                f"--out {self._out}: is the published folder, whose files a rendering would write "
                f"over; give another --out, or make a release of them first: publish {place} "
                f"{place}"
            )

    def _ended(self, result: RenderResult) -> int:
        if result.interrupted:
            return INTERRUPTED
        return SOME_FAILED if result.counts.failed or result.stopped else DONE

    def _publish(self, plan: RosterPlan) -> Published | None:
        """Publish what there is to say; None where readers would get nothing new."""
        options = self._options
        source = Source(
            Path(self._out), read_records_of(FolderStore(Path(self._out)), "", required=False)
        )
        publisher = Publisher(
            self._reading,
            source,
            catalog=self._loaded.catalog.catalog,
            algorithm_fingerprint=self._pack.algorithm_fingerprint,
            copies=options.copies,
        )
        roster = read_roster(self._reading)
        choice = self._choose(self._reading, source, plan, roster)
        if not publisher.would_change(roster, choice):
            return None
        store = open_store(
            options.published,
            endpoint_url=options.render.endpoint_url,
            unconditional=options.render.unconditional_writes,
        )
        writing = replace(publisher, store=store)
        return writing.publish(lambda roster: self._choose(store, source, plan, roster))

    def _choose(self, store: Store, source: Source, before: RosterPlan, roster: Roster) -> Choice:
        """What to take of ours, given what is published by now."""
        policy = self._options.policy
        plan = plan_again(self._loaded, self._pack, store, policy, roster=roster, before=before)
        ours = {key: clip.record for key, clip in source.records.clips.items()}
        made = {
            each.key
            for each in wanted_clips(self._loaded, self._pack, policy.only)
            if each.key in plan.to_render
            and (clip := ours.get(each.key)) is not None
            and next(differences(clip, each, execution=policy.digest), None) is None
        }
        if plan.to_render - made - self._failed.keys():
            raise _MoreIsStale(plan)
        published = roster.records.clips
        remade = {
            key
            for key in (self._remade & ours.keys() & published.keys()) - made
            if ours[key].execution != published[key].record.execution
        }
        lost = {
            each.key: f"{each.state}: {'; '.join(map(str, each.reasons))}"
            for each in plan.verdicts
            if each.key in published
            and each.key not in made
            and any(reason.fact == "audio" for reason in each.reasons)
        }
        failed = {
            each.key: self._why_failed(each, roster)
            for each in plan.verdicts
            if each.key in plan.to_render - made
        } | {
            key: f"{_KEPT_FOR_IDENTITY}: {told}"
            for key, told in self._failed.items()
            if key in published and key not in plan.to_render | before.to_render
        }
        still = self._still_not_renewed(plan)
        orphans = plan.orphans if self._options.remove_orphans else frozenset()
        return Choice(
            fresh=frozenset(made | remade),
            removed=frozenset(lost) | orphans,
            about={
                voice.name: voice_json(self._loaded.catalog, voice)
                for voice in self._loaded.catalog.voices
            },
            not_renewed={
                key: why
                for key, why in {**still, **lost, **failed}.items()
                if key not in orphans | made | remade
            },
        )

    def _why_failed(self, verdict: Verdict, roster: Roster) -> str:
        """Why a clip could not be made; of one that went with its audio, what was told then."""
        told = f", and could not be made: {self._failed[verdict.key]}"
        before = roster.release.not_renewed.get(verdict.key, "") if roster.release else ""
        is_known = verdict.state == State.MISSING and before.endswith(told)
        return before if is_known else f"{verdict.state}{told}"

    def _still_not_renewed(self, plan: RosterPlan) -> dict[str, str]:
        """What the last release names and this plan does not judge again.

        Those are clips that nobody looked at, those that are gone with their audio, and those kept
        under another execution identity than the rest of their voice, which do not get stale by it.
        """
        told = plan.roster.release.not_renewed if plan.roster.release else {}
        states = {each.key: each.state for each in plan.verdicts}
        executions: dict[str, set[object]] = {}
        for clip in plan.roster.records.clips.values() if told else ():
            digest = (clip.record.execution or {}).get("digest")
            executions.setdefault(clip.record.voice, set()).add(str(digest))
        is_whole = self._options.policy.only is None
        return {
            key: why
            for key, why in told.items()
            if (key not in states and not (is_whole and self._options.remove_orphans))
            or (
                states.get(key) == State.CURRENT
                and why.startswith(_KEPT_FOR_IDENTITY)
                and len(executions.get(key.partition("/")[0], ())) > 1
            )
        }
