"""The ledger: what is committed is whole, read back as written, and never skipped in silence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import LedgerError
from jobs.history import History, finished_window, window_row
from jobs.ledger import Ledger
from jobs.output import FolderOutput
from jobs.segments import SCHEMA, LedgerIdentity, read_rows, segment_files
from tests.fakes import finished_window_of
from tests.jobs.older_ledgers import rewrite_as_format_2

IDENTITY = LedgerIdentity("p" * 64, "a" * 16, "c" * 16, "d" * 16)


def _row(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "kind": "window",
        "content_key": "key",
        "render_key": "ann/one",
        "worker": "worker-1",
        "execution": "exec",
        "at": "2026-11-30T00:00:00+00:00",
        **window_row(finished_window_of(chunk_index=number)),
        **facts,
    }


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY, flush_rows=3)
    written = [_row(n) for n in range(8)]
    for row in written:
        ledger.append(row)
        if ledger.is_due:
            ledger.flush()
    assert len(segment_files(tmp_path / "ledger")) == 2  # the last two rows are not due yet
    ledger.flush()
    found = list(read_rows(tmp_path / "ledger"))
    assert [{k: row[k] for k in written[0]} for row in found] == written
    assert [path.name for _, path in segment_files(tmp_path / "ledger")] == [
        f"segment-{n:08d}.arrow" for n in (1, 2, 3)
    ]


def test_a_flush_is_due_by_time_as_well(tmp_path: Path) -> None:
    now = [0.0]
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY, flush_s=5.0, clock=lambda: now[0])
    ledger.append(_row(0))
    now[0] = 4.9
    assert not ledger.is_due
    now[0] = 5.0
    assert ledger.is_due


def test_a_new_writer_goes_on_after_the_last_segment(tmp_path: Path) -> None:
    for number in range(3):
        ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
        ledger.append(_row(number))
        ledger.flush()
    assert [row["chunk_index"] for row in read_rows(tmp_path / "ledger")] == [0, 1, 2]


def test_seeds_over_two_to_the_63_survive(tmp_path: Path) -> None:
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
    ledger.append(_row(0, seed=2**64 - 1))
    ledger.flush()
    assert [row["seed"] for row in read_rows(tmp_path / "ledger")] == [2**64 - 1]


def test_segments_carry_what_they_were_made_under(tmp_path: Path) -> None:
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
    ledger.append(_row(0))
    ledger.flush()
    [(_, path)] = segment_files(tmp_path / "ledger")
    with pa.ipc.open_file(str(path)) as reader:
        metadata = reader.schema.metadata
    assert metadata[b"token_contract_fingerprint"] == b"c" * 16
    assert metadata[b"algorithm_fingerprint"] == b"a" * 16


@settings(derandomize=True, deadline=None, max_examples=120)
@given(cut=st.floats(0, 0.999), flip=st.integers(0, 7))
def test_a_torn_segment_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    ledger = Ledger(FolderOutput(folder), IDENTITY)
    for number in range(20):
        ledger.append(_row(number))
    ledger.flush()
    [(_, path)] = segment_files(folder / "ledger")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(LedgerError, match=path.name):
        list(read_rows(folder / "ledger"))


def test_a_foreign_arrow_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "segment-00000001.arrow"
    path.parent.mkdir()
    table = pa.table({"kind": ["window"]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(LedgerError, match="segment-00000001"):
        list(read_rows(tmp_path / "ledger"))


def test_segments_of_the_format_before_are_read_and_gone_on_from(tmp_path: Path) -> None:
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
    written = [_row(n) for n in range(3)]
    for row in written:
        ledger.append(row)
    ledger.flush()
    before = list(read_rows(tmp_path / "ledger"))
    assert rewrite_as_format_2(tmp_path / "ledger") == 1
    assert list(read_rows(tmp_path / "ledger")) == before
    newer = Ledger(FolderOutput(tmp_path), IDENTITY)
    newer.append(_row(3, waveform="AID/"))
    newer.flush()
    assert [row["waveform"] for row in read_rows(tmp_path / "ledger")] == [None] * 3 + ["AID/"]


def test_an_altered_row_of_the_format_before_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
    ledger.append(_row(0, text="Before."))
    ledger.flush()
    rewrite_as_format_2(tmp_path / "ledger")
    [(_, path)] = segment_files(tmp_path / "ledger")
    data = path.read_bytes()
    assert data.count(b"Before.") == 1
    path.write_bytes(data.replace(b"Before.", b"Behind."))
    with pytest.raises(LedgerError, match="row 0 is not what was committed"):
        list(read_rows(tmp_path / "ledger"))


def test_the_format_before_has_its_own_columns_and_no_others(tmp_path: Path) -> None:
    """What says it is of one format and has the columns of another is of neither."""
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
    ledger.append(_row(0))
    ledger.flush()
    [(_, path)] = segment_files(tmp_path / "ledger")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"loudkit-batch-ledger-3", b"loudkit-batch-ledger-2"))
    with pytest.raises(LedgerError, match="is not a segment of loudkit-batch-ledger-3"):
        list(read_rows(tmp_path / "ledger"))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_refused_by_name_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    make(folder / "segment-00000003.arrow")
    for read in (lambda: list(read_rows(folder)), lambda: History(tmp_path)):
        with pytest.raises(LedgerError, match=r"segment-00000003\.arrow: is no file"):
            read()


def test_a_folder_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        segment_files(tmp_path / ("x" * 300))


def test_other_files_in_the_folder_are_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / ".tmp-1-ab").write_bytes(b"half a segment")
    (tmp_path / "ledger" / "notes.txt").write_text("mine")
    assert list(read_rows(tmp_path / "ledger")) == []


def test_windows_are_taken_up_to_the_first_gap(tmp_path: Path) -> None:
    ledger = Ledger(FolderOutput(tmp_path), IDENTITY)
    for chunk, half in ((0, 0), (1, 1), (1, 2), (2, 1), (3, 0)):
        ledger.append(_row(chunk, half=half))
    ledger.flush()
    history = History(tmp_path)
    windows = history.windows("key", "exec")
    assert [(w.chunk_index, w.half) for w in windows] == [(0, 0), (1, 1), (1, 2), (2, 1)]
    assert history.windows("key", "another execution") == ()
    assert history.windows("another key", "exec") == ()


def test_a_window_survives_the_round_trip() -> None:
    window = finished_window_of(chunk_index=3, half=2, seed=2**63 + 5)
    row = dict.fromkeys(SCHEMA.names) | window_row(window)
    assert finished_window(row) == window
