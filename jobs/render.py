"""`render`: plan, start the fleet if there is work, run the job, write what it leaves."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog.loader import load_catalog
from engine.execution import ExecutionConfig
from engine.pack import Pack
from jobs.history import History
from jobs.interruption import Interrupted, Interruption
from jobs.job import Counts, Job
from jobs.ledger import Ledger, LedgerIdentity
from jobs.outputs import RunFacts, write_outputs, write_report
from jobs.plan import PlannedRender, open_catalog_pack, plan_renders
from jobs.progress import Progress
from workers.errors import WorkerError
from workers.fleet import Fleet
from workers.renderer import WorkerSpec


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What the command line asks for."""

    catalog: Path
    out: Path | None
    workers: int
    slots: int
    execution: ExecutionConfig
    only: str | None = None
    everything: bool = False
    address: str | None = None


@dataclass(frozen=True, slots=True)
class RenderResult:
    """How a render command ended."""

    out: Path
    counts: Counts
    report: dict[str, Any]
    interrupted: bool


def run_render(options: RenderOptions, progress: Progress) -> RenderResult:
    """Bring an output folder up to its catalog.

    Raises the typed errors of all rooms for what can be refused before anything is written;
    renders that fail are in the result's counts.
    """
    began, started_at = time.monotonic(), datetime.now(UTC)
    loaded = load_catalog(options.catalog)
    pack = open_catalog_pack(loaded)
    out = options.out or Path("out") / loaded.catalog.catalog
    history = History(out)

    def planned() -> Iterator[PlannedRender]:
        return plan_renders(loaded, pack, history, only=options.only, everything=options.everything)

    counts, voices = Counts(), set[str]()
    for each in planned():
        counts.planned += 1
        if each.is_current:
            counts.reused += 1
        else:
            voices.add(each.render.voice.name)
    workers, execution, interrupted = 0, None, False
    broken: WorkerError | None = None
    if voices:
        try:
            with Interruption() as interruption, _fleet(options, pack) as fleet:
                workers = len(fleet.workers)
                execution = asdict(fleet.identity) if fleet.identity else None
                job = _job(options, pack, out, history, fleet, counts, progress)
                progress.started(counts, workers)
                with interruption.deferred():
                    job.run(
                        _to_make(planned(), history, counts, voices, fleet),
                        should_stop=lambda: interruption.requested,
                    )
        except Interrupted:
            interrupted = True
        except WorkerError as error:
            if not workers:
                raise  # nothing ran, so nothing is written
            broken = error
    write_outputs(out, loaded, pack, history)
    report = write_report(
        out,
        pack,
        counts,
        RunFacts(
            command="render",
            started_at=started_at,
            elapsed_s=time.monotonic() - began,
            workers=workers,
            slots=options.slots,
            execution=execution,
            interrupted=interrupted,
        ),
    )
    if broken is not None:
        raise broken
    return RenderResult(out, counts, report, interrupted)


def _fleet(options: RenderOptions, pack: Pack) -> Fleet:
    spec = WorkerSpec(
        pack=str(pack.root),
        pack_sha256=pack.sha256,
        execution=options.execution,
        slots=options.slots,
    )
    return Fleet(spec, workers=options.workers, address=options.address)


def _job(
    options: RenderOptions,
    pack: Pack,
    out: Path,
    history: History,
    fleet: Fleet,
    counts: Counts,
    progress: Progress,
) -> Job:
    ledger = Ledger(
        out / "ledger",
        LedgerIdentity(
            pack_sha256=pack.sha256,
            algorithm_fingerprint=pack.algorithm.fingerprint(),
            token_contract_fingerprint=pack.manifest.token_contract.fingerprint,
        ),
    )
    return Job(
        fleet,
        out=out,
        ledger=ledger,
        history=history,
        sample_rate_hz=pack.algorithm.sample_rate,
        slots=options.slots,
        counts=counts,
        progress=progress,
    )


def _to_make(
    planned: Iterator[PlannedRender],
    history: History,
    counts: Counts,
    voices: set[str],
    fleet: Fleet,
) -> Iterator[PlannedRender]:
    """The renders that are not current; and those that are, in a voice that this run mixes into.

    A voice is never left with clips of two execution identities: where some of its clips are made
    now, those made earlier under another identity are made again.
    """
    here = fleet.identity.digest() if fleet.identity else ""
    for each in planned:
        if not each.is_current:
            yield each
        elif (
            each.render.voice.name in voices and history.finished[each.render.key].execution != here
        ):
            counts.reused -= 1
            yield each


def first_failures(counts: Counts, most: int = 20) -> list[str]:
    """One line a failed render, for people."""
    return [
        f"failed {failure.render}: {failure.code}: {failure.message}"
        for failure in itertools.islice(counts.failures, most)
    ]
