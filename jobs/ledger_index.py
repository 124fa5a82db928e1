"""An index over a ledger's segments, so that no run holds a history of millions in memory.

A SQLite file beside the segments, derived from them and from nothing else: it is brought up to
date when it is opened, and made anew when it does not fit them. Losing it costs a read of the
ledger. Only the job that holds the output writes it; whoever else looks works on a copy.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.segments import Row, segment_files, segment_rows

_NAME = "index.sqlite"
_VERSION = 1
_CACHE_KIB = 64 * 1024
_BUSY_S = 10.0
_TABLES = """
CREATE TABLE segments (number INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
CREATE TABLE finished (
    render_key TEXT PRIMARY KEY, content_key TEXT NOT NULL, execution TEXT NOT NULL,
    audio TEXT NOT NULL, audio_bytes INTEGER NOT NULL, samples INTEGER NOT NULL,
    segment INTEGER NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE failed (
    render_key TEXT PRIMARY KEY, content_key TEXT NOT NULL, code TEXT NOT NULL,
    segment INTEGER NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE windows (
    content_key BLOB NOT NULL, execution TEXT NOT NULL, chunk_index INTEGER NOT NULL,
    half INTEGER NOT NULL, segment INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (content_key, execution, chunk_index, half)
) WITHOUT ROWID;
CREATE TABLE workers (worker TEXT PRIMARY KEY, windows INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE last_commit (at TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is."""

    segment: int
    at: int


class LedgerIndex:
    """Where the last word on every render and every window is."""

    def __init__(self, folder: Path, *, write: bool) -> None:
        """`write` keeps the index in the folder; otherwise nothing there is touched.

        Raises `LedgerError` for a segment that cannot be read.
        """
        self._folder = folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._db = self._open(write=write)
        self.catch_up()

    def close(self) -> None:
        """Let go of the file, and of the copy if it is one."""
        self._db.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def catch_up(self) -> None:
        """Take the segments that are not known yet; start anew where a known one has gone."""
        files = dict(segment_files(self._folder))
        known = dict(self._db.execute("SELECT number, bytes FROM segments"))
        sizes = {number: path.stat().st_size for number, path in files.items()}
        if any(sizes.get(number) != size for number, size in known.items()):
            self._clear()
            known = {}
        for number in sorted(set(files) - set(known)):
            self._take(number, sizes[number], segment_rows(files[number]))

    def note(self, number: int, rows: Iterable[Row]) -> None:
        """Take a segment that was just committed."""
        size = dict(segment_files(self._folder))[number].stat().st_size
        self._take(number, size, rows)

    def query(self, sql: str, values: tuple[object, ...] = ()) -> Iterator[Any]:
        """The rows of a SELECT."""
        return iter(self._db.execute(sql, values))

    def _take(self, number: int, size: int, rows: Iterable[Row]) -> None:
        """One transaction a segment; numbers ascend, so that later rows win."""
        finished, failed, windows = [], [], []
        workers: dict[str, int] = {}
        last = ""
        for at, row in enumerate(rows):
            last = max(last, row["at"])
            place = (number, at)
            key, content = row["render_key"], row["content_key"]
            if row["kind"] == "window":
                at_window = (row["execution"], row["chunk_index"], row["half"])
                windows.append((content_blob(content), *at_window, *place))
                workers[row["worker"]] = workers.get(row["worker"], 0) + 1
            elif row["kind"] == "finished":
                facts = (row["execution"], row["audio"], row["audio_bytes"], row["samples"])
                finished.append((key, content, *facts, *place))
            else:
                failed.append((key, content, row["code"], *place))
        with self._db:
            self._db.executemany("REPLACE INTO windows VALUES (?,?,?,?,?,?)", windows)
            self._db.executemany("REPLACE INTO failed VALUES (?,?,?,?,?)", failed)
            self._db.executemany("REPLACE INTO finished VALUES (?,?,?,?,?,?,?,?)", finished)
            # A render that was finished after it failed has failed no more.
            self._db.executemany(
                "DELETE FROM failed WHERE render_key = ? AND (segment, at) < (?, ?)",
                [(row[0], row[6], row[7]) for row in finished],
            )
            self._db.executemany(
                "INSERT INTO workers VALUES (?,?) "
                "ON CONFLICT (worker) DO UPDATE SET windows = windows + excluded.windows",
                sorted(workers.items()),
            )
            self._db.execute("UPDATE last_commit SET at = max(at, ?)", (last,))
            self._db.execute("INSERT INTO segments VALUES (?,?)", (number, size))

    def _open(self, *, write: bool) -> sqlite3.Connection:
        path = self._folder / _NAME
        if not write:
            self._scratch = tempfile.TemporaryDirectory(prefix="loudkit-batch-")
            copy = Path(self._scratch.name) / _NAME
            if path.is_file():
                shutil.copyfile(path, copy)
            path = copy
        try:
            return _connected(path)
        except sqlite3.DatabaseError:
            # Torn or foreign: it is derived, so nothing is lost with it.
            path.unlink()
            return _connected(path)

    def _clear(self) -> None:
        with self._db:
            for table in ("segments", "finished", "failed", "windows", "workers"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute("UPDATE last_commit SET at = ''")


def content_blob(content_key: str) -> bytes:
    """A content key as the index keeps it: half as long, a million times."""
    try:
        return bytes.fromhex(content_key)
    except ValueError:
        return content_key.encode()


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_BUSY_S)
    try:
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute("PRAGMA synchronous = NORMAL")
        [(version,)] = db.execute("PRAGMA user_version")
        [(tables,)] = db.execute("SELECT count(*) FROM sqlite_master")
        if version != _VERSION or not tables:
            if tables:
                raise sqlite3.DatabaseError("another version")
            with db:
                for statement in filter(str.strip, _TABLES.split(";")):
                    db.execute(statement)
                db.execute("INSERT INTO last_commit VALUES ('')")
                db.execute(f"PRAGMA user_version = {_VERSION}")
        [(told,)] = db.execute("PRAGMA quick_check(1)") if _is_small(path) else [("ok",)]
        if told != "ok":
            raise sqlite3.DatabaseError(told)
    except BaseException:
        db.close()
        raise
    return db


def _is_small(path: Path) -> bool:
    """A check of the whole file is worth its time up to some megabytes."""
    return path.is_file() and path.stat().st_size < 64 * 2**20
