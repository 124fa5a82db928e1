"""What a ledger knows: which renders are finished, and the windows of those that are not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from catalog.renders import Render
from engine.detectors import Inspection
from engine.passage import FinishedWindow
from jobs.ledger_index import LedgerIndex, Place, content_blob
from jobs.output import FolderOutput
from jobs.segments import Row, SegmentReader


@dataclass(frozen=True, slots=True)
class Finished:
    """A render that was finished, as its ledger row says."""

    content_key: str
    execution: str
    audio: str
    audio_bytes: int
    place: Place
    rows: SegmentReader = field(repr=False)

    @property
    def row(self) -> Row:
        """The whole ledger row. Raises `LedgerError`."""
        return self.rows.row(self.place.segment, self.place.at)


class History:
    """The last word of a ledger on every render. Empty for a new output folder.

    Nothing but an index is kept, on disk; rows are read where they are asked for.
    """

    def __init__(
        self,
        out: Path,
        *,
        size_of: Callable[[str], int | None] | None = None,
        write: bool = False,
    ) -> None:
        """`size_of` tells a clip's bytes; by default that of the file below `out`. `write` is for
        the job that holds the output: the index stays beside the ledger.

        Raises `LedgerError` naming a segment that cannot be read.
        """
        self._size_of = size_of or FolderOutput(out).size_of
        self._index = LedgerIndex(out / "ledger", write=write)
        self._rows = SegmentReader(out / "ledger")
        self._is_behind = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._index.close()

    def note(self, number: int, rows: list[Row]) -> None:
        """Take a segment that was just committed."""
        if self._is_behind:
            return
        try:
            self._index.note(number, rows)
        except (sqlite3.Error, OSError):
            # The segment is what counts; the index is brought up to date when it is needed.
            self._is_behind = True

    def catch_up(self) -> None:
        """Know every segment there is."""
        if self._is_behind:
            self._index.catch_up()
            self._is_behind = False

    def finished(self, render_key: str) -> Finished | None:
        """The last time that a render was finished."""
        sql = (
            "SELECT content_key, execution, audio, audio_bytes, segment, at FROM finished "
            "WHERE render_key = ?"
        )
        for content_key, execution, audio, size, segment, at in self._index.query(
            sql, (render_key,)
        ):
            return Finished(content_key, execution, audio, size, Place(segment, at), self._rows)
        return None

    def executions_of(self, voice: str) -> dict[str, int]:
        """How many clips of a voice were finished under each execution identity."""
        sql = (
            "SELECT execution, count(*) FROM finished "
            "WHERE render_key >= ? AND render_key < ? GROUP BY execution"
        )
        # Every key of the voice starts with `voice/`; `0` is the character after the slash.
        return dict(self._index.query(sql, (f"{voice}/", f"{voice}0")))

    def failed(self, render_key: str) -> Row | None:
        """The row of a render that failed and was not finished since."""
        sql = "SELECT segment, at FROM failed WHERE render_key = ?"
        for segment, at in self._index.query(sql, (render_key,)):
            return self._rows.row(segment, at)
        return None

    def reason(self, render: Render, key: str) -> str:
        """Why a render must be made, or `current`."""
        failed = self.failed(render.key)
        if failed is not None and failed["content_key"] == key:
            return "failed before" if failed["retryable"] else "cannot be made"
        finished = self.finished(render.key)
        if finished is None:
            return "new"
        if finished.content_key != key:
            return "changed"
        fault = self._fault(finished)
        return fault or ("current" if finished.audio == render.audio_path else "other format")

    def on_disk(self, render: Render, key: str) -> Finished | None:
        """The clip of this content that the output has, whatever its format."""
        finished = self.finished(render.key)
        if finished is None or finished.content_key != key or self._fault(finished):
            return None
        return finished

    def _fault(self, finished: Finished) -> str:
        """What is wrong with a clip's file, as far as its size can tell; hashes are `verify`'s."""
        size = self._size_of(finished.audio)
        if size is None:
            return "file missing"
        return "" if size == finished.audio_bytes else "file altered"

    def windows(self, key: str, execution: str) -> tuple[FinishedWindow, ...]:
        """The committed windows of a content under an execution identity, from the first one on."""
        return tuple(finished_window(row) for row in self.window_rows(key, execution))

    def window_rows(self, key: str, execution: str) -> list[Row]:
        """The same windows as ledger rows."""
        sql = (
            "SELECT chunk_index, half, segment, at FROM windows "
            "WHERE content_key = ? AND execution = ?"
        )
        found = self._index.query(sql, (content_blob(key), execution))
        places = {(chunk, half): Place(segment, at) for chunk, half, segment, at in found}
        return [
            self._rows.row(places[window].segment, places[window].at)
            for window in _unbroken(places)
        ]


def _unbroken(rows: Mapping[tuple[int, int], object]) -> Iterator[tuple[int, int]]:
    """The places of windows in order, up to the first gap; half 1 without its half 0 is a split."""
    chunk = 0
    while True:
        if (chunk, 0) in rows:
            yield chunk, 0
        elif (chunk, 1) in rows:
            yield chunk, 1
            if (chunk, 2) not in rows:
                return
            yield chunk, 2
        else:
            return
        chunk += 1


def window_row(window: FinishedWindow) -> Row:
    """The columns of a window's ledger row."""
    return {
        "chunk_index": window.chunk_index,
        "half": window.half,
        "attempt": window.attempt,
        "attempts": window.attempts,
        "seed": window.seed,
        "text": window.text,
        "prefix": list(window.prefix),
        "tokens": list(window.tokens),
        "keep": window.verdict.keep,
        "reason": window.verdict.reason,
        "suspect": window.verdict.suspect,
        "n_generated": window.n_generated,
        "hit_cap": window.hit_cap,
        "hit_window": window.hit_window,
        "ended": window.ended,
    }


def finished_window(row: Row) -> FinishedWindow:
    """The window that a ledger row describes."""
    return FinishedWindow(
        chunk_index=row["chunk_index"],
        half=row["half"],
        attempt=row["attempt"],
        attempts=row["attempts"],
        seed=row["seed"],
        text=row["text"],
        prefix=tuple(row["prefix"]),
        tokens=tuple(row["tokens"]),
        verdict=Inspection(keep=row["keep"], reason=row["reason"], suspect=row["suspect"]),
        n_generated=row["n_generated"],
        hit_cap=row["hit_cap"],
        hit_window=row["hit_window"],
        ended=row["ended"],
    )
