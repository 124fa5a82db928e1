"""A whole ledger under damage: its index, its segments, its lease."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

from jobs.errors import JobError, OutputBusyError
from jobs.history import History
from jobs.lease import FolderLease
from jobs.output_lock import OutputLock
from jobs.segments import segment_name
from jobs.status import job_status
from tests.fuzzing.damage import damaged
from tests.fuzzing.samples import (
    EXECUTIONS,
    PASSAGES,
    SEGMENTS,
    VOICES,
    content_key_of,
    write_ledger,
)
from tests.fuzzing.target import Target

_INDEX, _LEASE = "index.sqlite", "lease.json"
_LEASE_OF_ANOTHER = (
    b'{"owner": "0123456789abcdef", "machine": "another", "host": "far", "pid": 7, "beat": 12}\n'
)


Answers = dict[str, Any]


class WholeLedger(Target):
    """What a history and a status say, by the index that is there and without one."""

    refusals = (JobError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._out = folder / "out"
        self._ledgers = [folder / "real" / name for name in ("one", "two")]
        for seed, ledger in enumerate(self._ledgers):
            write_ledger(ledger, seed)
            (ledger / _INDEX).write_bytes(self._index_of(ledger))
        self._indexes = [(ledger / _INDEX).read_bytes() for ledger in self._ledgers]
        self._is_whole = True
        self._known: dict[tuple[str, ...], tuple[JobError | None, Answers]] = {}

    def _index_of(self, ledger: Path) -> bytes:
        """The index that a job leaves beside such segments."""
        shutil.rmtree(self._out, ignore_errors=True)
        shutil.copytree(ledger, self._out / "ledger")
        with History(self._out, write=True):
            pass
        return (self._out / "ledger" / _INDEX).read_bytes()

    def spoil(self, rng: Random) -> None:
        ledger = self._renewed()
        what = rng.choice(("index", "index", "index", "other index", "segment", "gap", "lease"))
        if what == "index":
            data = damaged(self._indexes[0], rng, self._indexes)
            (ledger / _INDEX).write_bytes(data)
        elif what == "other index":
            (ledger / _INDEX).write_bytes(self._indexes[1])
        elif what == "segment":
            path = ledger / segment_name(rng.randint(1, SEGMENTS))
            path.write_bytes(damaged(path.read_bytes(), rng, [path.read_bytes()]))
            self._is_whole = False
        elif what == "lease":
            lease = damaged(_LEASE_OF_ANOTHER, rng, self._indexes, text=True)
            (ledger / _LEASE).write_bytes(lease)
        if what == "gap" or rng.random() < 0.1:
            (ledger / segment_name(rng.randint(1, SEGMENTS))).unlink()

    def _renewed(self) -> Path:
        """The first of the real ledgers, as it was."""
        shutil.rmtree(self._out, ignore_errors=True)
        shutil.copytree(self._ledgers[0], self._out / "ledger")
        self._is_whole = True
        return self._out / "ledger"

    def place(self, data: bytes) -> None:
        (self._renewed() / segment_name(2)).write_bytes(data)
        self._is_whole = False

    def read(self) -> None:
        if (self._out / "ledger" / _LEASE).exists():
            assert len(self._busy_line().splitlines()) <= 1
        found = [self._answers(write=write) for write in (False, True)]
        (self._out / "ledger" / _INDEX).unlink(missing_ok=True)
        refused, without = self._without_index()
        for again, answers in found:
            if again is None and refused is None:
                assert answers == without, "the index gives another answer than the segments"
            elif self._is_whole:
                raise again or refused or AssertionError
        if refused is not None:
            raise refused

    def _busy_line(self) -> str:
        """What stands in the way of holding the output as a job does, if anything."""
        lock = OutputLock(
            FolderLease(self._out), address="out", stale_after_s=0.0, sleep=lambda _: None
        )
        try:
            with lock:
                lock.require_held()
        except OutputBusyError as error:
            return str(error)
        return ""

    def _without_index(self) -> tuple[JobError | None, Answers]:
        """What the segments alone say; of undamaged ones it is known from the last time."""
        if not self._is_whole:
            return self._answers(write=False)
        which = tuple(sorted(path.name for path in (self._out / "ledger").glob("segment-*")))
        if which not in self._known:
            self._known[which] = self._answers(write=False)
        return self._known[which]

    def _answers(self, *, write: bool) -> tuple[JobError | None, Answers]:
        try:
            with History(self._out, write=write) as history:
                told = _told_by(history)
            status = job_status(self._out, "out")
        except JobError as error:
            return error, {}
        return None, {**told, "status": status}


def _told_by(history: History) -> Answers:
    """All that a history says of the renders that there may be."""
    told: Answers = {voice: history.executions_of(voice) for voice in VOICES}
    for voice in VOICES:
        for passage in PASSAGES:
            key = f"{voice}/{passage}"
            done = history.finished(key)
            facts = done and (done.content_key, done.execution, done.audio, done.audio_bytes)
            told[key] = facts, done and done.row, history.failed(key)
            for execution in EXECUTIONS:
                content = content_key_of(voice, passage)
                told[f"{key} {execution}"] = history.window_rows(content, execution)
    return told
