"""What a ledger knows: which renders are finished, and the windows of those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalog.renders import Render
from engine.detectors import Inspection
from engine.passage import FinishedWindow
from jobs.ledger import Row, read_rows


@dataclass(frozen=True, slots=True)
class Finished:
    """A render that was finished, as its ledger row says."""

    content_key: str
    execution: str
    audio: str
    audio_bytes: int
    row: Row


class History:
    """The last word of a ledger on every render. Empty for a new output folder."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.finished: dict[str, Finished] = {}
        self.failed: dict[str, Row] = {}
        self._windows: dict[tuple[str, str], dict[tuple[int, int], Row]] = {}
        for row in read_rows(out / "ledger"):
            self.note(row)

    def note(self, row: Row) -> None:
        """Take a row that was committed after the ones known."""
        if row["kind"] == "window":
            windows = self._windows.setdefault((row["content_key"], row["execution"]), {})
            windows[row["chunk_index"], row["half"]] = row
        elif row["kind"] == "finished":
            self.failed.pop(row["render_key"], None)
            self.finished[row["render_key"]] = Finished(
                content_key=row["content_key"],
                execution=row["execution"],
                audio=row["audio"],
                audio_bytes=row["audio_bytes"],
                row=row,
            )
        else:
            self.failed[row["render_key"]] = row

    def reason(self, render: Render, key: str) -> str:
        """Why a render must be made, or `current`."""
        failed = self.failed.get(render.key)
        if failed is not None and failed["content_key"] == key:
            return "failed before" if failed["retryable"] else "cannot be made"
        finished = self.finished.get(render.key)
        if finished is None:
            return "new"
        if finished.content_key != key:
            return "changed"
        fault = self._fault(finished)
        return fault or ("current" if finished.audio == render.audio_path else "other format")

    def on_disk(self, render: Render, key: str) -> Finished | None:
        """The clip of this content that the output has, whatever its format."""
        finished = self.finished.get(render.key)
        if finished is None or finished.content_key != key or self._fault(finished):
            return None
        return finished

    def _fault(self, finished: Finished) -> str:
        """What is wrong with a clip's file, as far as its size can tell; hashes are `verify`'s."""
        try:
            size = (self._out / finished.audio).stat().st_size
        except OSError:
            return "file missing"
        return "" if size == finished.audio_bytes else "file altered"

    def windows(self, key: str, execution: str) -> tuple[FinishedWindow, ...]:
        """The committed windows of a content under an execution identity, from the first one on."""
        rows = self._windows.get((key, execution), {})
        return tuple(finished_window(rows[at]) for at in _unbroken(rows))

    def window_rows(self, key: str, execution: str) -> list[Row]:
        """The same windows as ledger rows."""
        rows = self._windows.get((key, execution), {})
        return [rows[at] for at in _unbroken(rows)]


def _unbroken(rows: dict[tuple[int, int], Row]) -> Iterator[tuple[int, int]]:
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
