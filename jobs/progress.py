"""How a job is told while it runs: a line that moves on a terminal, one JSON line an event else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from jobs.counts import Counts, Failure


class Progress(Protocol):
    """What a job says while it runs."""

    def starting(self, counts: Counts, workers: int) -> None:
        """There is work, and workers are being started; that takes a while."""

    def started(self, counts: Counts, workers: int) -> None:
        """The workers are up; `counts.planned` renders are planned."""

    def rendered(self, render: str, counts: Counts) -> None:
        """A render is on disk."""

    def failed(self, failure: Failure, counts: Counts) -> None:
        """A render failed."""

    def worker_died(self, worker: str, reason: str) -> None:
        """A worker is gone and is being replaced."""

    def committed(self, counts: Counts) -> None:
        """Everything that can be made has been made; records are written next."""


class Silent:
    """Says nothing; a base for whoever listens to one thing."""

    def starting(self, counts: Counts, workers: int) -> None:
        """See `Progress`."""

    def started(self, counts: Counts, workers: int) -> None:
        """See `Progress`."""

    def rendered(self, render: str, counts: Counts) -> None:
        """See `Progress`."""

    def failed(self, failure: Failure, counts: Counts) -> None:
        """See `Progress`."""

    def worker_died(self, worker: str, reason: str) -> None:
        """See `Progress`."""

    def committed(self, counts: Counts) -> None:
        """See `Progress`."""


class JsonLines(Silent):
    """One JSON object a line and event, for logs and schedulers."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._began = stream, clock, clock()

    def starting(self, counts: Counts, workers: int) -> None:
        """See `Progress`."""
        self._say("starting", planned=counts.planned, reused=counts.reused, workers=workers)

    def started(self, counts: Counts, workers: int) -> None:
        """See `Progress`."""
        self._began = self._clock()
        self._say("started", planned=counts.planned, reused=counts.reused, workers=workers)

    def rendered(self, render: str, counts: Counts) -> None:
        """See `Progress`."""
        elapsed_s = max(self._clock() - self._began, 1e-9)
        self._say(
            "rendered",
            render=render,
            settled=counts.settled,
            planned=counts.planned,
            audio_s=round(counts.audio_s, 3),
            times_real_time=round(counts.audio_s / elapsed_s, 2),
            eta_s=eta_s(counts, elapsed_s),
        )

    def failed(self, failure: Failure, counts: Counts) -> None:
        """See `Progress`."""
        self._say("failed", settled=counts.settled, planned=counts.planned, **asdict(failure))

    def worker_died(self, worker: str, reason: str) -> None:
        """See `Progress`."""
        self._say("worker_died", worker=worker, reason=reason)

    def _say(self, event: str, **facts: object) -> None:
        print(json.dumps({"event": event, **facts}), file=self._stream, flush=True)


class TerminalLine(Silent):
    """A bar with counts, seconds of audio, speed against real time and the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._console = Console(stderr=True)
        self._bar = RichProgress(
            TextColumn("{task.completed}/{task.total} renders"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("render", total=0, told="planning")
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def starting(self, counts: Counts, workers: int) -> None:
        """See `Progress`."""
        told = f"starting {workers} worker{'s' if workers > 1 else ''}"
        self._bar.update(self._task, total=counts.planned, completed=counts.settled, told=told)

    def started(self, counts: Counts, workers: int) -> None:
        """See `Progress`."""
        self._began = time.monotonic()
        self._update(counts)

    def rendered(self, render: str, counts: Counts) -> None:
        """See `Progress`."""
        self._update(counts)

    def failed(self, failure: Failure, counts: Counts) -> None:
        """See `Progress`."""
        self._console.print(
            f"failed {failure.render}: {failure.code}: {failure.message}", markup=False
        )
        self._update(counts)

    def worker_died(self, worker: str, reason: str) -> None:
        """See `Progress`."""
        self._console.print(f"{worker} died and is replaced: {reason}", markup=False)

    def _update(self, counts: Counts) -> None:
        speed = counts.audio_s / max(time.monotonic() - self._began, 1e-9)
        told = f"{counts.audio_s:.0f} s of audio, {speed:.1f} x real time"
        if counts.failed:
            told += f", {counts.failed} failed"
        self._bar.update(self._task, total=counts.planned, completed=counts.settled, told=told)


def eta_s(counts: Counts, elapsed_s: float) -> float | None:
    """Seconds left at the pace so far; None before the first render of this run."""
    made = counts.rendered + counts.failed
    if not made:
        return None
    return round(elapsed_s / made * (counts.planned - counts.settled), 1)


@contextmanager
def progress_for(*, as_json: bool) -> Iterator[Progress]:
    """A moving line when a person watches, JSON lines otherwise."""
    if not as_json and sys.stderr.isatty():
        with TerminalLine() as line:
            yield line
    else:
        yield JsonLines(sys.stdout)
