"""The index over a ledger: never believed where it is not the index of these segments."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs import ledger_index
from jobs.errors import LedgerError
from jobs.history import History
from jobs.segments import SegmentReader, segment_files, segment_name, segment_rows
from tests.fuzzing.samples import (
    PASSAGES,
    VOICES,
    content_key_of,
    ledger_rows,
    segment_file,
    write_ledger,
)

INDEX = "index.sqlite"
RENDERS = [(voice, passage) for voice in VOICES for passage in PASSAGES]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output with a ledger and its index."""
    write_ledger(tmp_path / "ledger", 1)
    with History(tmp_path, write=True):
        pass
    assert (tmp_path / "ledger" / INDEX).is_file()
    return tmp_path


def told(out: Path, *, write: bool = False) -> list[Any]:
    """What a history says of every render."""
    with History(out, write=write) as history:
        return [_told(history, f"{voice}/{passage}") for voice, passage in RENDERS]


def _told(history: History, key: str) -> Any:
    done = history.finished(key)
    return done and done.row, history.failed(key)


def without_index(out: Path) -> list[Any]:
    (out / "ledger" / INDEX).unlink(missing_ok=True)
    return told(out)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the segments that are read into an index."""
    names: list[str] = []

    def rows(path: Path) -> Iterator[Any]:
        names.append(path.name)
        return segment_rows(path)

    monkeypatch.setattr(ledger_index, "segment_rows", rows)
    return names


def test_an_index_is_only_read_where_it_fits(out: Path, taken: list[str]) -> None:
    told(out)
    assert taken == []


@pytest.mark.parametrize("place", [0, 18, 30, 100, 5000, 9000, -1])
def test_any_flipped_bit_costs_the_index(out: Path, place: int, taken: list[str]) -> None:
    data = bytearray((out / "ledger" / INDEX).read_bytes())
    data[place] ^= 16
    (out / "ledger" / INDEX).write_bytes(data)
    found = told(out)
    assert len(taken) == len(segment_files(out / "ledger"))
    assert found == told(out, write=True) == told(out) == without_index(out)


@pytest.mark.parametrize("data", [b"", b"x" * 31, b"x" * 32, b"SQLite format 3\0" * 99])
def test_what_is_no_index_is_as_none(out: Path, data: bytes) -> None:
    (out / "ledger" / INDEX).write_bytes(data)
    assert told(out) == without_index(out)


def test_a_folder_in_its_place_is_as_none(out: Path) -> None:
    right = without_index(out)
    (out / "ledger" / INDEX).mkdir()
    assert told(out) == told(out, write=True) == right


def test_the_index_of_another_ledger_is_not_believed(out: Path, tmp_path: Path) -> None:
    """Its segments have the same names and sizes."""
    other = tmp_path / "other"
    write_ledger(other / "ledger", 1)
    path = other / "ledger" / segment_name(2)
    rows = [
        {**row, "audio_bytes": row["audio_bytes"] and row["audio_bytes"] + 1}
        for row in segment_rows(path)
    ]
    path.write_bytes(segment_file(rows))
    assert path.stat().st_size == (out / "ledger" / segment_name(2)).stat().st_size
    for number in (3, 4):
        for ledger in (out, other):
            (ledger / "ledger" / segment_name(number)).unlink()
    told(out, write=True)
    shutil.copy(out / "ledger" / INDEX, other / "ledger" / INDEX)
    found = told(other)
    assert found == without_index(other)
    assert found != told(out)


def test_a_copied_ledger_is_known_again(out: Path, tmp_path: Path, taken: list[str]) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(out / "ledger", copied / "ledger")
    for _, path in segment_files(copied / "ledger"):
        os.utime(path, (1, 1))
    assert told(copied) == told(out)
    assert taken == []


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_segment_that_is_taken_away_and_put_back(out: Path, tmp_path: Path, number: int) -> None:
    path, away = out / "ledger" / segment_name(number), tmp_path / "away"
    whole = told(out)
    path.rename(away)
    assert told(out, write=True) == told(out) == without_index(out)
    told(out, write=True)
    away.rename(path)
    assert told(out) == whole  # not as if it were the latest


def test_a_killed_job_leaves_the_index_that_was(out: Path, taken: list[str]) -> None:
    history = History(out, write=True)
    path = out / "ledger" / segment_name(5)
    rows = ledger_rows(Random(5), 5)
    path.write_bytes(segment_file(rows))
    history.note(5, rows)
    in_run = [_told(history, f"{voice}/{passage}") for voice, passage in RENDERS]
    # No close: the process is gone, and its copy lies there half written.
    (out / "ledger" / ".index.sqlite").write_bytes(b"half")
    assert told(out) == in_run
    assert taken == [path.name]
    assert told(out, write=True) == in_run == without_index(out)


def test_an_index_is_sealed_while_the_job_runs(out: Path, taken: list[str]) -> None:
    history = History(out, write=True)
    for number in range(5, 60):
        rows = ledger_rows(Random(number), number)
        (out / "ledger" / segment_name(number)).write_bytes(segment_file(rows))
        history.note(number, rows)
    told(out)
    assert len(taken) < 30
    assert taken == sorted(taken)
    del history


def test_a_job_leaves_nothing_but_the_index(out: Path) -> None:
    told(out, write=True)
    names = {path.name for path in (out / "ledger").iterdir()}
    assert names == {INDEX, *(path.name for _, path in segment_files(out / "ledger"))}


class _Damaged:
    """A connection whose database has turned out to be malformed."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self.close = inner.close

    def execute(self, *_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")


def test_a_copy_that_breaks_is_made_anew(out: Path) -> None:
    right = told(out)
    with History(out) as history:
        index: Any = history._index
        index._db = _Damaged(index._db)
        assert [_told(history, f"{voice}/{passage}") for voice, passage in RENDERS] == right


def test_an_index_that_cannot_be_kept_is_a_typed_error(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_index, "copy_unsealed", full)
    with pytest.raises(LedgerError, match=r"cannot be indexed: .*No space left"):
        History(out)


def test_keys_that_read_as_the_same_bytes_are_two() -> None:
    keys = ["6162", "ab", "61 62", "AB", "", "3d6162"]
    assert len({ledger_index.content_blob(key) for key in keys}) == len(keys)


def _without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {**row, name: None}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_without("kind"), "is a None, expected one of window, finished, failed"),
        (_without("at"), "has no at"),
        (_without("tokens"), "has no tokens"),
        (lambda row: {**row, "tokens": [1, None]}, "has no tokens"),
        (lambda row: {**row, "kind": "other"}, "is a 'other', expected one of"),
    ],
)
def test_a_row_that_says_too_little_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], expected: str
) -> None:
    rows = [change(row) for row in ledger_rows(Random(1), 1)]
    (tmp_path / segment_name(1)).write_bytes(segment_file(rows))
    with pytest.raises(LedgerError, match=f"row 0 {expected}"):
        SegmentReader(tmp_path).row(1, 0)


@pytest.mark.parametrize("packing", ["zstd", "lz4"])
def test_a_packed_segment_is_refused(tmp_path: Path, packing: str) -> None:
    data = segment_file(ledger_rows(Random(1), 1), packing=packing)
    (tmp_path / segment_name(1)).write_bytes(data)
    with pytest.raises(LedgerError, match="holds a packed batch"):
        list(segment_rows(tmp_path / segment_name(1)))


def test_windows_of_a_render_are_found_by_its_content(out: Path) -> None:
    with History(out) as history:
        rows = [
            row
            for voice, passage in RENDERS
            for execution in ("e" * 16, "f" * 16)
            for row in history.window_rows(content_key_of(voice, passage), execution)
        ]
    assert rows
    assert all(row["kind"] == "window" for row in rows)
