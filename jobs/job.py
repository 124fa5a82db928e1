"""The driver: it hands passages to the fleet, commits what comes back, and counts.

Work in flight is bounded by the slots of the workers, so a catalog of any length is a stream.
Whatever a worker had in flight when it died goes elsewhere with the windows it had settled. A
passage that was there is then run alone in a worker, until it comes through or until two workers
died with it alone: then it was the passage, and it is failed by name. (One such death may be the
machine's: spot nodes go when they please.)
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from engine.events import Event, FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.passage import FinishedWindow
from jobs.cohorts import Queue, VoiceCohorts
from jobs.counts import Counts, Failure
from jobs.history import History, window_row
from jobs.interruption import Interrupted
from jobs.ledger import Ledger
from jobs.output import Output
from jobs.plan import PlannedRender
from jobs.progress import Progress
from jobs.replacing import could_be_taken_for, taken_back
from jobs.segments import Row
from workers.fleet import Fleet, WorkerDied

_POLL_S = 1.0
_REPLACED_AT_ONCE = 64
"""Clips that wait in memory until the ledger has taken back those they are written over."""


@dataclass(slots=True)
class _Flight:
    planned: PlannedRender
    windows: list[FinishedWindow]
    worker: str = ""
    execution: str = ""
    deaths: int = 0
    deaths_alone: int = 0


class TooManyFailures(Exception):
    """More renders failed than this run was to go on with. What was committed stands."""


class Job:
    """One run over the renders that have to be made."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        output: Output,
        ledger: Ledger,
        history: History,
        sample_rate_hz: int,
        slots: int,
        counts: Counts,
        progress: Progress,
        cohorts: VoiceCohorts,
        max_failures: int | None = None,
        require_held: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`require_held` raises once the output is another job's; nothing is committed then.

        `max_failures` is how many renders of this run may fail before it stops.
        """
        self._fleet, self._output, self._ledger, self._history = fleet, output, ledger, history
        self._cohorts, self._require_held = cohorts, require_held
        self._most_failures = None if max_failures is None else counts.failed + max_failures
        self._sample_rate_hz, self._counts, self._progress = sample_rate_hz, counts, progress
        self._now = now
        self._most_in_flight = slots + max(2, slots // 2)
        self._flights: dict[str, _Flight] = {}
        self._quarantine: deque[_Flight] = deque()
        self._replacing: list[tuple[_Flight, PassageEvent]] = []
        self._unannounced: list[str] = []

    def run(
        self, todo: Iterator[PlannedRender], *, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Render everything in `todo`. What was committed is durable when this raises, too.

        Raises `Interrupted` at a safe point once `should_stop` says so, `TooManyFailures`, and
        what the fleet and the ledger raise.
        """
        queue = Queue(todo, self._cohorts)
        try:
            while True:
                if should_stop():
                    raise Interrupted("asked to stop")
                if self._most_failures is not None and self._counts.failed > self._most_failures:
                    raise TooManyFailures(f"{self._counts.failed} renders have failed")
                self._top_up(queue)
                self._give_up(queue)
                if queue.is_empty and not self._flights and not self._quarantine:
                    break
                for arrival in self._fleet.wait(_POLL_S):
                    if isinstance(arrival, WorkerDied):
                        self._take_back(arrival)
                    else:
                        self._settle(*arrival)
                if self._ledger.is_due or len(self._replacing) >= _REPLACED_AT_ONCE:
                    self._flush()
        finally:
            self._flush()

    # -- work goes out -------------------------------------------------------------------------

    def _top_up(self, queue: Queue) -> None:
        """Give the workers as much as they can hold, evenly."""
        held: dict[str, list[_Flight]] = {worker: [] for worker in self._fleet.workers}
        for flight in self._flights.values():
            held[flight.worker].append(flight)
        batches: dict[str, list[_Flight]] = {worker: [] for worker in held}
        if self._quarantine:
            # A suspect runs alone: workers drain first, then take exactly one each.
            for worker, flights in held.items():
                if not flights and (suspect := self._suspect_for(worker)):
                    batches[worker].append(suspect)
        else:
            open_to_all = [w for w, flights in held.items() if not any(f.deaths for f in flights)]
            while open_to_all:
                worker = min(open_to_all, key=lambda w: len(held[w]) + len(batches[w]))
                if len(held[worker]) + len(batches[worker]) >= self._most_in_flight:
                    break
                execution = self._fleet.execution_of(worker)
                if planned := queue.take(execution):
                    batches[worker].append(self._flight(planned, execution))
                else:
                    open_to_all.remove(worker)
        for worker, batch in batches.items():
            self._send(worker, batch)

    def _suspect_for(self, worker: str) -> _Flight | None:
        """The next passage in quarantine that this worker's cohort may speak."""
        execution = self._fleet.execution_of(worker)
        for flight in self._quarantine:
            if flight.execution == execution:
                self._quarantine.remove(flight)
                return flight
        return None

    def _give_up(self, queue: Queue) -> None:
        """Fail by name what only a cohort without a worker could go on with."""
        if self._fleet.is_growing:
            return
        alive = set(map(self._fleet.execution_of, self._fleet.workers))
        lost = [flight for flight in self._quarantine if flight.execution not in alive]
        for flight in lost:
            self._quarantine.remove(flight)
        for planned in queue.orphans(alive):
            voice = planned.render.voice.name
            lost.append(_Flight(planned, [], execution=self._cohorts.of(voice)))
        for flight in lost:
            key = flight.planned.render.key
            told = (
                f"no worker of execution identity {flight.execution} is left, under which its "
                "voice was begun; render again"
            )
            self._fail(flight, FailureEvent(key, "cohort_lost", told, retryable=True))

    def _flight(self, planned: PlannedRender, execution: str) -> _Flight:
        """A render with the windows that need not be made again."""
        done = (
            ()
            if planned.reason == "asked for"
            else self._history.windows(planned.content_key, execution)
        )
        return _Flight(planned, list(done), execution=execution)

    def _send(self, worker: str, flights: list[_Flight]) -> None:
        jobs = []
        for flight in flights:
            flight.worker = worker
            self._flights[flight.planned.render.key] = flight
            render = flight.planned.render
            jobs.append(
                PassageJob(
                    key=render.key,
                    text=render.text,
                    conditioning=flight.planned.conditioning,
                    seed=render.seed,
                    language=render.language,
                    format=render.format,
                    turns=render.turns,
                    done=tuple(flight.windows),
                )
            )
        self._fleet.submit(worker, jobs)

    # -- results come back ---------------------------------------------------------------------

    def _settle(self, worker: str, events: list[Event]) -> None:
        for event in events:
            flight = self._flights.get(event.key)
            if flight is None or flight.worker != worker:
                continue  # a worker that was given up on; its passage runs elsewhere
            if isinstance(event, WindowEvent):
                flight.windows.append(event.window)
                self._counts.windows += 1
                self._commit("window", flight, window_row(event.window))
            elif isinstance(event, PassageEvent):
                self._finish(flight, event)
            else:
                self._fail(flight, event)

    def _finish(self, flight: _Flight, event: PassageEvent) -> None:
        del self._flights[event.key]
        path = flight.planned.render.audio_path
        if there := could_be_taken_for(self._history, path, event):
            self._ledger.append(taken_back(there, event.key, self._now()))
            self._replacing.append((flight, event))
        else:
            self._keep(flight, event)

    def _keep(self, flight: _Flight, event: PassageEvent) -> None:
        render = flight.planned.render
        self._output.put_audio(render.audio_path, event.audio)
        self._commit(
            "finished",
            flight,
            {
                "audio": render.audio_path,
                "audio_sha256": event.audio_sha256,
                "audio_bytes": len(event.audio),
                "pcm_sha256": event.pcm_sha256,
                "samples": event.samples,
                "peak_dbfs": event.gates.peak_dbfs,
                "clipped_share": event.gates.clipped_share,
                "waveform": b64encode(event.picture).decode() or None,
                "execution_facts": self._facts_of(flight.execution),
            },
        )
        self._counts.rendered += 1
        self._counts.audio_s += event.samples / self._sample_rate_hz
        self._unannounced.append(render.key)

    def _facts_of(self, execution: str) -> str:
        return json.dumps(asdict(self._fleet.cohorts[execution]), sort_keys=True)

    def _flush(self) -> None:
        """Make durable what has been done, audio before the rows that tell of it; then say so."""
        self._require_held()
        self._output.make_durable()
        self._ledger.flush()
        if self._replacing:
            replacing, self._replacing = self._replacing, []
            for flight, event in replacing:
                self._keep(flight, event)
            self._output.make_durable()
            self._ledger.flush()
        for key in self._unannounced:
            self._progress.rendered(key, self._counts)
        self._unannounced.clear()

    def _fail(self, flight: _Flight, event: FailureEvent) -> None:
        self._commit(
            "failed",
            flight,
            {
                "code": event.code,
                "message": event.message,
                "retryable": event.retryable,
                "chunk_index": event.chunk_index,
                "half": event.half,
                "attempt": event.attempt,
            },
        )
        self._flights.pop(event.key, None)
        failure = Failure(
            render=event.key,
            code=event.code,
            message=event.message,
            retryable=event.retryable,
            chunk_index=event.chunk_index,
            half=event.half,
            attempt=event.attempt,
            worker=flight.worker or None,
        )
        self._counts.failures.append(failure)
        self._progress.failed(failure, self._counts)

    def _commit(self, kind: str, flight: _Flight, facts: Row) -> None:
        row: Row = {
            "kind": kind,
            "content_key": flight.planned.content_key,
            "render_key": flight.planned.render.key,
            "worker": flight.worker,
            "execution": flight.execution,
            "at": self._now().isoformat(timespec="seconds"),
            **facts,
        }
        self._ledger.append(row)

    def _take_back(self, death: WorkerDied) -> None:
        """A worker is gone: its passages run again, each alone, from where they were."""
        self._counts.worker_deaths += 1
        self._progress.worker_died(death.worker, death.reason)
        lost = [flight for flight in self._flights.values() if flight.worker == death.worker]
        for flight in lost:
            flight.deaths += 1
            flight.deaths_alone += len(lost) == 1
            if flight.deaths_alone < 2:
                del self._flights[flight.planned.render.key]
                self._quarantine.append(flight)
                continue
            told = f"two workers died while they had nothing else: {death.reason}"
            self._fail(
                flight,
                FailureEvent(
                    flight.planned.render.key,
                    "poisonous_passage",
                    told,
                    retryable=False,
                    chunk_index=flight.windows[-1].chunk_index + 1 if flight.windows else 0,
                ),
            )
