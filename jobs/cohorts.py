"""Which worker may speak which voice: a voice stays within one cohort."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from jobs.history import History
from jobs.plan import PlannedRender
from jobs.standing import Standing
from workers.fleet import Fleet

_HELD_AT_MOST = 4096
"""Renders read ahead for cohorts whose workers are busy."""


class VoiceCohorts:
    """Gives every voice a cohort: the one that made most of its clips, else the emptiest."""

    def __init__(self, fleet: Fleet, history: History, standing: Standing) -> None:
        self._fleet, self._history, self._standing = fleet, history, standing
        self._of: dict[str, str] = {}

    def of(self, voice: str) -> str:
        """The execution digest under which a voice is rendered in this job."""
        if voice not in self._of:
            self._of[voice] = self._choose(voice)
        return self._of[voice]

    def _choose(self, voice: str) -> str:
        cohorts = list(self._fleet.cohorts)
        if len(cohorts) == 1:
            return cohorts[0]
        made = Counter(self._history.executions_of(voice)) + self._standing.executions_of(voice)
        if known := [digest for digest in cohorts if digest in made]:
            return max(known, key=lambda digest: made[digest])
        workers = Counter(map(self._fleet.execution_of, self._fleet.workers))
        voices = Counter(self._of.values())
        return min(cohorts, key=lambda digest: voices[digest] / max(workers[digest], 1e-9))


class Queue:
    """The renders to make, in order, for whichever cohort asks. Reads ahead within a bound."""

    def __init__(self, todo: Iterator[PlannedRender], cohorts: VoiceCohorts) -> None:
        self._todo, self._cohorts = todo, cohorts
        self._held: dict[str, deque[PlannedRender]] = {}
        self._is_exhausted = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left for anybody, as far as has been read."""
        return self._is_exhausted and not any(self._held.values())

    def take(self, execution: str) -> PlannedRender | None:
        """The next render that a worker of this cohort may make; None when there is none now."""
        held = self._held.setdefault(execution, deque())
        while not held and not self._is_exhausted:
            if sum(map(len, self._held.values())) >= _HELD_AT_MOST:
                return None
            planned = next(self._todo, None)
            if planned is None:
                self._is_exhausted = True
            else:
                digest = self._cohorts.of(planned.render.voice.name)
                self._held.setdefault(digest, deque()).append(planned)
        return held.popleft() if held else None

    def orphans(self, alive: set[str]) -> list[PlannedRender]:
        """Take out what was read ahead for cohorts that have no worker any more."""
        lost: list[PlannedRender] = []
        for digest, held in self._held.items():
            if digest not in alive:
                lost += held
                held.clear()
        return lost
