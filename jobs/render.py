"""`render`: plan, start the fleet if there is work, run the job, write what it leaves."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog.loader import LoadedCatalog, load_catalog
from catalog.renders import iter_renders
from engine.execution import ExecutionConfig
from engine.pack import Pack
from jobs.cohorts import VoiceCohorts
from jobs.counts import Counts, Failure
from jobs.history import History
from jobs.interruption import Interrupted, Interruption
from jobs.job import Job, TooManyFailures
from jobs.ledger import Ledger
from jobs.output import RECORDS, Output, open_output
from jobs.output_lock import OutputLock
from jobs.outputs import RunFacts, write_outputs, write_report
from jobs.plan import PlannedRender, open_catalog_pack, plan_renders
from jobs.progress import Progress
from jobs.segments import LedgerIdentity
from jobs.standing import NOTHING_STANDS, Standing
from workers.errors import FleetStoppedError, IdentityMismatchError, WorkerError
from workers.fleet import Fleet
from workers.renderer import WorkerSpec

_RECORDS_WHEN_INTERRUPTED = 2000
"""Renders up to which an interrupted run still writes the records, in a few seconds."""

MIRRORS = Path("out")
"""Where outputs go that are not named, and the mirrors of those that lie in a store."""


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What the command line asks for."""

    catalog: Path
    out: str | None
    """A folder or s3://bucket/prefix."""
    workers: int
    slots: int
    execution: ExecutionConfig
    only: str | None = None
    everything: bool = False
    address: str | None = None
    max_failures: int | None = None
    """How many renders of this run may fail before it stops; None for any number."""
    endpoint_url: str | None = None
    """Of a server other than Amazon's that speaks S3."""
    unconditional_writes: bool = False
    """Write to a server that ignores conditions, so that two jobs would not notice each other."""
    allow_mixed: bool = False
    """Take workers of several execution identities, each voice on one of them."""
    standing: Standing = NOTHING_STANDS
    """What is published elsewhere and current, and so need not be made here."""
    required_execution: str | None = None
    """Digest of the execution identity that the workers must have."""
    fleet: Callable[..., Fleet] = Fleet
    """Makes the fleet: called as `Fleet` is."""


@dataclass(frozen=True, slots=True)
class RenderResult:
    """How a render command ended."""

    out: str
    counts: Counts
    report: dict[str, Any]
    interrupted: bool
    stopped: str | None = None
    """Why the run stopped before its end, if it was not interrupted."""
    remade: frozenset[str] = frozenset()
    """Renders that were current and were made again: no voice mixes two execution identities."""


def run_render(options: RenderOptions, progress: Progress) -> RenderResult:
    """Bring an output folder up to its catalog.

    Raises the typed errors of all rooms for what can be refused before anything is written;
    renders that fail are in the result's counts.
    """
    loaded = load_catalog(options.catalog)
    pack = open_catalog_pack(loaded)
    next(iter_renders(loaded, options.only))  # a selection of nothing is refused here
    output = open_output(
        options.out or str(MIRRORS / loaded.catalog.catalog),
        mirrors=MIRRORS,
        endpoint_url=options.endpoint_url,
        unconditional=options.unconditional_writes,
    )
    with OutputLock(output.lease(), address=output.address) as lock:
        output.prepare([voice.name for voice in loaded.catalog.voices])
        with History(output.folder, size_of=output.size_of, write=True) as history:
            return _Run(options, progress, loaded, pack, output, history, lock).bring_up()


@dataclass(slots=True)
class _Run:
    """One `render` over an output folder that nobody else writes to."""

    options: RenderOptions
    progress: Progress
    loaded: LoadedCatalog
    pack: Pack
    output: Output
    history: History
    lock: OutputLock
    counts: Counts = field(default_factory=Counts)
    voices: set[str] = field(default_factory=set)
    """The voices of which something has to be made."""
    remade: set[str] = field(default_factory=set)
    plan_digest: str = ""
    workers: int = 0
    executions: list[dict[str, object]] = field(default_factory=list)
    turned_away: list[dict[str, object]] = field(default_factory=list)
    stopped: str | None = None
    interruption: Interruption = field(default_factory=Interruption)
    interrupted: bool = False
    records_written: bool = False

    def bring_up(self) -> RenderResult:
        """Plan, render what is missing, and write what a run leaves, however it ended."""
        began, started_at = time.monotonic(), datetime.now(UTC)
        with self.interruption:
            try:
                self._count()
                broken = self._make()
                self.progress.committed(self.counts)
                self._write_records()
            except Interrupted:
                self.interrupted, broken = True, None
        facts = RunFacts(
            command="render",
            started_at=started_at,
            elapsed_s=time.monotonic() - began,
            workers=self.workers,
            slots=self.options.slots,
            executions=self.executions,
            turned_away=self.turned_away,
            interrupted=self.interrupted,
            stopped=self.stopped,
            records_written=self.records_written,
        )
        report = write_report(self.output.folder, self.pack, self.counts, facts)
        self.output.hand_over(("report.json",))
        if broken is not None:
            raise broken
        return RenderResult(
            self.output.address,
            self.counts,
            report,
            self.interrupted,
            self.stopped,
            frozenset(self.remade),
        )

    def _make(self) -> WorkerError | None:
        """Render; what broke the fleet once it had made something, to be raised at the end."""
        if not self.voices:
            return None
        try:
            self._render()
        except (Interrupted, FleetStoppedError):
            self.interrupted = True
        except TooManyFailures as error:
            self.stopped = str(error)
        except WorkerError as error:
            if not self.workers:
                raise  # nothing ran
            return error
        return None

    def _write_records(self) -> None:
        """What readers of the output see. Of a large job that was interrupted they would take
        longer than whoever interrupted it waits; the ledger has everything, the next run writes
        them."""
        if self.interrupted and self.counts.planned > _RECORDS_WHEN_INTERRUPTED:
            return
        self.history.catch_up()
        write_outputs(self.output.folder, self.loaded, self.pack, self.history, check=self._check)
        self.output.hand_over(RECORDS)
        self.records_written = True

    def _check(self) -> None:
        """Raises `Interrupted` if somebody has asked since; not if that is why we are here."""
        if self.interruption.requested and not self.interrupted:
            raise Interrupted("asked to stop")

    def _planned(self) -> Iterator[PlannedRender]:
        return plan_renders(
            self.loaded,
            self.pack,
            self.history,
            only=self.options.only,
            everything=self.options.everything,
        )

    def _count(self) -> None:
        """One pass over the plan: what is there, what would only fail again, what is to make."""
        digest = hashlib.sha256()
        made: dict[str, set[str]] = {}
        made_here: set[str] = set()
        for each in self._planned():
            self._check()
            self.counts.planned += 1
            digest.update(f"{each.render.key} {each.content_key}\n".encode())
            voice = each.render.voice.name
            if self._is_made(each):
                self.counts.reused += 1
                made.setdefault(voice, set()).add(self._made_under(each))
                if each.render.key not in self.options.standing:
                    made_here.add(voice)
            elif each.is_hopeless:
                self.counts.failures.append(known_failure(self.history, each.render.key))
            else:
                self.voices.add(voice)
        # A run that ended while it made a voice's clips again has left the voice mixed. A voice
        # that was published mixed and gets no new clip is the policy's matter and stands.
        if not self.options.standing.may_mix:
            self.voices |= {voice for voice in made_here if len(made[voice]) > 1}
        self.plan_digest = digest.hexdigest()[:16]

    def _render(self) -> None:
        options = self.options
        self.progress.starting(self.counts, options.workers)
        spec = WorkerSpec(
            pack=str(self.pack.root),
            pack_sha256=self.pack.sha256,
            execution=options.execution,
            slots=options.slots,
        )
        with options.fleet(
            spec,
            workers=options.workers,
            address=options.address,
            should_stop=lambda: self.interruption.requested,
            joined=self.interruption.install,
            allow_mixed=options.allow_mixed,
        ) as fleet:
            self.workers = len(fleet.workers)
            _require_execution(options.required_execution, list(fleet.cohorts))
            cohorts = VoiceCohorts(fleet, self.history, options.standing)
            job = Job(
                fleet,
                output=self.output,
                ledger=self._ledger(),
                history=self.history,
                sample_rate_hz=self.pack.algorithm.sample_rate,
                slots=options.slots,
                counts=self.counts,
                progress=self.progress,
                cohorts=cohorts,
                max_failures=options.max_failures,
                require_held=self.lock.require_held,
            )
            self.progress.started(self.counts, self.workers)
            try:
                job.run(self._to_make(cohorts), should_stop=lambda: self.interruption.requested)
            finally:
                self.executions = [asdict(each) for each in fleet.cohorts.values()]
                self.turned_away = [asdict(each) for each in fleet.turned_away]

    def _ledger(self) -> Ledger:
        identity = LedgerIdentity(
            pack_sha256=self.pack.sha256,
            algorithm_fingerprint=self.pack.algorithm_fingerprint,
            token_contract_fingerprint=self.pack.manifest.token_contract.fingerprint,
            plan_digest=self.plan_digest,
        )
        return Ledger(self.output, identity, committed=self.history.note)

    def _to_make(self, cohorts: VoiceCohorts) -> Iterator[PlannedRender]:
        """The renders that are not current; and those that are, in a voice this run would mix.

        A voice is never left with clips of two execution identities: where some of its clips are
        made now, those made earlier under another identity are made again, and counted as such.
        """
        for each in self._planned():
            voice = each.render.voice.name
            if not self._is_made(each):
                if not each.is_hopeless:
                    yield each
            elif self._may_remake(voice) and self._made_under(each) != cohorts.of(voice):
                self.counts.reused -= 1
                self.counts.remade += 1
                self.remade.add(each.render.key)
                yield each

    def _is_made(self, each: PlannedRender) -> bool:
        """Whether a render is there, here or where the standing clips are."""
        if each.render.key in self.options.standing:
            return True
        if not each.is_current:
            return False
        required = self.options.required_execution
        return required is None or self._made_under(each) == required

    def _made_under(self, each: PlannedRender) -> str:
        """The execution identity of a clip that is there; empty where its record has none."""
        if each.render.key in self.options.standing:
            return self.options.standing.execution_of(each.render.key)
        made = self.history.finished(each.render.key)
        return made.execution if made else ""

    def _may_remake(self, voice: str) -> bool:
        return voice in self.voices and not self.options.standing.may_mix


def _require_execution(required: str | None, found: list[str]) -> None:
    if required is not None and found != [required]:
        raise IdentityMismatchError(
            f"the workers have execution identity {', '.join(found)}, asked for was {required}; "
            "render on machines of that identity"
        )


def known_failure(history: History, render_key: str) -> Failure:
    """A failure that an earlier run committed."""
    row = history.failed(render_key)
    if row is None:
        raise RuntimeError(f"{render_key} has not failed")
    return Failure(
        render=render_key,
        code=row["code"],
        message=row["message"],
        retryable=row["retryable"],
        chunk_index=row["chunk_index"],
        half=row["half"],
        attempt=row["attempt"],
        worker=row["worker"],
    )


def first_failures(counts: Counts, most: int = 20) -> list[str]:
    """One line a failed render, for people."""
    return [
        f"failed {failure.render}: {failure.code}: {failure.message}"
        for failure in itertools.islice(counts.failures, most)
    ]
