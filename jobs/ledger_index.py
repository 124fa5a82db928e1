"""An index over a ledger's segments, so that no run holds a history of millions in memory.

A SQLite file beside the segments, derived from them and from nothing else. It is sealed with a
checksum and never worked on: whoever opens it works on a copy, and the job that holds the output
puts its own copy in the place from time to time. So a kill leaves the index of some minutes ago,
and damage of any kind leaves none; either costs a read of the segments that it lacks.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.errors import LedgerError
from jobs.sealed_files import Mark, copy_unsealed, mark_of, put_sealed
from jobs.segments import REPLACED, Row, segment_files, segment_name, segment_rows

_NAME, _WORKED_ON = "index.sqlite", ".index.sqlite"
_VERSION = 2
_CACHE_KIB = 64 * 1024
_FEWEST_UNSEALED = 16
_TABLES = """
CREATE TABLE segments (
    number INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    crc32 INTEGER NOT NULL
);
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
        self._folder, self._write = folder, write
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._known = self._unsealed = 0
        with self._refused():
            if write:
                folder.mkdir(parents=True, exist_ok=True)
                self._path = folder / _WORKED_ON
            else:
                self._scratch = tempfile.TemporaryDirectory(prefix="loudkit-batch-")
                self._path = Path(self._scratch.name) / _NAME
            self._db = self._opened(use_sealed=True)
        try:
            self.catch_up()
        except BaseException:
            self._discard()
            raise

    def close(self) -> None:
        """Seal the index, if it is this one's to keep, and let go of the copy."""
        if self._unsealed:
            self._seal()
        self._discard()

    def catch_up(self) -> None:
        """Take the segments that are not known yet; start anew where a known one has changed.

        Raises `LedgerError`.
        """
        with self._refused():
            try:
                self._catch_up()
            except sqlite3.DatabaseError:
                self._renew()
        self._seal_if_due()

    def note(self, number: int, rows: Iterable[Row]) -> None:
        """Take a segment that was just committed. Raises sqlite3.Error and OSError."""
        self._take(number, mark_of(self._folder / segment_name(number)), rows)
        self._seal_if_due()

    def query(self, sql: str, values: tuple[object, ...] = ()) -> list[Any]:
        """The rows of a SELECT. Raises `LedgerError`."""
        with self._refused():
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.DatabaseError:
                self._renew()
                return self._db.execute(sql, values).fetchall()

    def _catch_up(self) -> None:
        files = dict(segment_files(self._folder))
        known = {
            number: Mark(*mark)
            for number, *mark in self._db.execute("SELECT * FROM segments ORDER BY number")
        }
        new = sorted(set(files) - set(known))
        # Later rows win, so that a segment which was put back cannot be taken behind later ones.
        is_in_order = not known or not new or new[0] > max(known)
        if not is_in_order or not all(self._is_as_known(files, *each) for each in known.items()):
            self._db.close()
            self._db, new = self._opened(use_sealed=False), sorted(files)
            known = {}
        self._known = len(known)
        for number in new:
            self._take(number, mark_of(files[number]), segment_rows(files[number]))

    def _is_as_known(self, files: dict[int, Path], number: int, known: Mark) -> bool:
        """Whether a segment is the one that was taken. A copied ledger has other times."""
        if number not in files:
            return False
        found = mark_of(files[number], known)
        if found is not known and found.content == known.content:
            with self._db:
                sql = "UPDATE segments SET mtime_ns = ? WHERE number = ?"
                self._db.execute(sql, (found.mtime_ns, number))
            self._unsealed += 1
        return found.content == known.content

    def _take(self, number: int, mark: Mark, rows: Iterable[Row]) -> None:
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
                "DELETE FROM finished WHERE render_key = ? AND (segment, at) < (?, ?)",
                [(row[0], row[3], row[4]) for row in failed if row[2] == REPLACED],
            )
            self._db.executemany(
                "INSERT INTO workers VALUES (?,?) "
                "ON CONFLICT (worker) DO UPDATE SET windows = windows + excluded.windows",
                sorted(workers.items()),
            )
            self._db.execute("UPDATE last_commit SET at = max(at, ?)", (last,))
            self._db.execute("INSERT INTO segments VALUES (?,?,?,?)", (number, *mark))
        self._known += 1
        self._unsealed += 1

    def _opened(self, *, use_sealed: bool) -> sqlite3.Connection:
        """The copy to work on: of the sealed index, or an empty one."""
        self._remove_copy()
        if use_sealed and copy_unsealed(self._folder / _NAME, self._path):
            try:
                return _connected(self._path)
            except sqlite3.DatabaseError:  # of another version
                self._remove_copy()
        return _connected(self._path)

    def _renew(self) -> None:
        """Make the index anew: SQLite found its copy damaged."""
        self._db.close()
        self._db = self._opened(use_sealed=False)
        self._catch_up()

    def _seal_if_due(self) -> None:
        """A seal costs a copy of the index, so that it waits for a share of the ledger."""
        if self._unsealed >= _FEWEST_UNSEALED + self._known // 16:
            self._seal()

    def _seal(self) -> None:
        if self._write:
            put_sealed(self._path, self._folder / _NAME)
        self._unsealed = 0  # what could not be sealed now waits for the next time

    def _discard(self) -> None:
        self._db.close()
        # One that stays behind is written over by the next job, and believed by nobody.
        with contextlib.suppress(OSError):
            self._remove_copy()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _remove_copy(self) -> None:
        self._path.unlink(missing_ok=True)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self._folder}: cannot be indexed: {error}") from error


def content_blob(content_key: str) -> bytes | str:
    """A content key as the index keeps it: half as long, a million times; SQLite tells the two."""
    with contextlib.suppress(ValueError):
        halved = bytes.fromhex(content_key)
        if halved.hex() == content_key:
            return halved
    return content_key


def _connected(path: Path) -> sqlite3.Connection:
    """The database of a file that nobody else opens; it need not survive anything."""
    db = sqlite3.connect(path)
    try:
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("PRAGMA synchronous = OFF")
        [(version,)] = db.execute("PRAGMA user_version")
        [(tables,)] = db.execute("SELECT count(*) FROM sqlite_master")
        if tables and version != _VERSION:
            raise sqlite3.DatabaseError("another version")
        if not tables:
            with db:
                for statement in filter(str.strip, _TABLES.split(";")):
                    db.execute(statement)
                db.execute("INSERT INTO last_commit VALUES ('')")
                db.execute(f"PRAGMA user_version = {_VERSION}")
    except BaseException:
        db.close()
        raise
    return db
