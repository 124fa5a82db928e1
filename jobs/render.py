"""`render`: plan, start the fleet if there is work, run the job, write what it leaves."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from catalog.loader import load_catalog
from engine.execution import ExecutionConfig
from engine.pack import Pack
from jobs.history import History
from jobs.job import Counts, Job
from jobs.ledger import Ledger, LedgerIdentity
from jobs.outputs import RunFacts, write_outputs, write_report
from jobs.plan import PlannedRender, open_catalog_pack, plan_renders
from jobs.progress import Progress
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


class Interrupted(Exception):
    """SIGINT or SIGTERM: stop, keep what is committed, and say that the run can be resumed."""


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
    if voices:
        try:
            with _interruptible(), _fleet(options, pack) as fleet:
                workers = len(fleet.workers)
                execution = asdict(fleet.identity) if fleet.identity else None
                _run(options, pack, out, history, fleet, counts, voices, planned(), progress)
        except Interrupted:
            interrupted = True
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
    return RenderResult(out, counts, report, interrupted)


def _fleet(options: RenderOptions, pack: Pack) -> Fleet:
    spec = WorkerSpec(
        pack=str(pack.root),
        pack_sha256=pack.sha256,
        execution=options.execution,
        slots=options.slots,
    )
    return Fleet(spec, workers=options.workers, address=options.address)


def _run(
    options: RenderOptions,
    pack: Pack,
    out: Path,
    history: History,
    fleet: Fleet,
    counts: Counts,
    voices: set[str],
    planned: Iterator[PlannedRender],
    progress: Progress,
) -> None:
    ledger = Ledger(
        out / "ledger",
        LedgerIdentity(
            pack_sha256=pack.sha256,
            algorithm_fingerprint=pack.algorithm.fingerprint(),
            token_contract_fingerprint=pack.manifest.token_contract.fingerprint,
        ),
    )
    progress.started(counts, len(fleet.workers))
    job = Job(
        fleet,
        out=out,
        ledger=ledger,
        history=history,
        sample_rate_hz=pack.algorithm.sample_rate,
        slots=options.slots,
        counts=counts,
        progress=progress,
    )
    job.run(_to_make(planned, history, counts, voices, fleet))


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


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into `Interrupted`; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(signal.Signals(number).name)

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def first_failures(counts: Counts, most: int = 20) -> list[str]:
    """One line a failed render, for people."""
    return [
        f"failed {failure.render}: {failure.code}: {failure.message}"
        for failure in itertools.islice(counts.failures, most)
    ]
