"""What a run leaves: complete, of one pass over the ledger, in the memory of a batch."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.canonical import canonical_json
from catalog.errors import RecordsError, WriteFailedError
from catalog.export import read_token_part
from catalog.loader import LoadedCatalog, load_catalog
from catalog.record_reading import parse_records
from catalog.renders import Render
from engine.pack import Pack, open_pack
from jobs.errors import LedgerError
from jobs.history import Finished, History
from jobs.ledger_index import Place
from jobs.outputs import write_outputs
from jobs.segments import Row, SegmentReader
from tests.catalog.record_lists import catalog_list, provenance_list
from tests.jobs.conftest import write_catalog

ROOT = Path(__file__).parents[2]
EXECUTION = {"torch": "2.13.0", "threads": 1, "device": "cpu", "kernels": ["a", "b"]}
MIB = 2**20
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss`."""
IDS = ("two", "one", "Three", "é", "ten")


@dataclass(frozen=True)
class OneRow:
    """Segments that hold this row wherever one looks."""

    found: Row

    def row(self, segment: int, at: int) -> Row:
        return self.found


@dataclass
class InventedHistory:
    """A ledger that makes its rows up as they are asked for, and so holds none of them."""

    windows: int = 2
    missing: frozenset[str] = frozenset()
    """Renders that were never finished."""
    faults: dict[str, object] = field(default_factory=dict)
    """Renders whose execution facts hold this value, or whose windows raise this error."""

    def reason(self, render: Render, key: str) -> str:
        return "new" if render.key in self.missing else "current"

    def on_disk(self, render: Render, key: str) -> Finished | None:
        if render.key in self.missing:
            return None
        fault = self.faults.get(render.key)
        facts = EXECUTION | ({} if fault is None else {"peak": fault})
        row = {
            "audio_sha256": key * 2,
            "pcm_sha256": key[::-1] * 2,
            "samples": 24_000 + len(render.text),
            "waveform": "AID/",
            "execution_facts": json.dumps(facts, default=str),
            "at": "2026-11-30T02:36:00Z",
        }
        rows = cast(SegmentReader, OneRow(row))
        return Finished(key, render.key, render.audio_path, 1, Place(1, 0), rows)

    def window_rows(self, key: str, execution: str) -> list[Row]:
        fault = self.faults.get(execution)
        if isinstance(fault, BaseException):
            raise fault
        return [
            {
                "chunk_index": index,
                "half": 0,
                "attempt": 0,
                "attempts": 1,
                "seed": 2**64 - 1 - index,
                "text": f"Window {index} of {key}.",
                "prefix": [1, 2, 3],
                "tokens": list(range(1000, 1014)),
                "keep": 2,
                "reason": "clean",
                "suspect": False,
                "n_generated": 3,
                "ended": True,
            }
            for index in range(self.windows)
        ]


def write(out: Path, loaded: LoadedCatalog, pack: Pack, history: InventedHistory) -> int:
    return write_outputs(out, loaded, pack, cast(History, history))


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedCatalog:
    passages = "passages:\n" + "".join(f"  - {{id: {name}, text: Text {name}.}}\n" for name in IDS)
    return load_catalog(write_catalog(tmp_path, passages=passages))


def files(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_files_hold_every_clip_that_is_there(
    loaded: LoadedCatalog, starter: Pack, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert write(out, loaded, starter, InventedHistory(missing=frozenset({"ann/one"}))) == 9
    clips = parse_records((out / "provenance.json").read_bytes(), "p")
    assert [clip.key for clip in clips] == [
        *("ann/Three", "ann/ten", "ann/two", "ann/é"),
        *("bob/Three", "bob/one", "bob/ten", "bob/two", "bob/é"),
    ]
    assert clips[0].execution == EXECUTION | {"digest": "ann/Three"}
    assert (out / "provenance.json").read_bytes() == canonical_json(provenance_list(clips))
    assert (out / "catalog.json").read_bytes() == canonical_json(catalog_list(loaded, clips))
    told = starter.manifest.token_contract.fingerprint
    rows = list(
        read_token_part(out / "tokens" / "part-00000.parquet", token_contract_fingerprint=told)
    )
    renders = list(dict.fromkeys(f"{row.voice}/{row.passage}" for row in rows))
    assert renders[:4] == ["ann/two", "bob/two", "bob/one", "ann/Three"]  # in catalog order
    assert [len(rows), len(renders)] == [18, 9]
    page = (out / "site" / "index.html").read_text()
    played = re.findall(r'src="\.\./audio/(\S+)\.flac', page)
    assert played[:5] == ["ann/two", "ann/Three", "ann/%C3%A9", "ann/ten", "bob/two"]
    assert "9 clips" in page
    assert page.count('<svg class="wave"') == 9
    assert clips[0].waveform == "AID/"
    assert set(files(out)) == {
        *("catalog.json", "provenance.json", "site/index.html", "tokens/part-00000.parquet")
    }
    before = files(out)
    assert write(out, loaded, starter, InventedHistory(missing=frozenset({"ann/one"}))) == 9
    assert files(out) == before


def test_nothing_finished_is_written_too(
    loaded: LoadedCatalog, starter: Pack, tmp_path: Path
) -> None:
    nothing = frozenset(f"{voice}/{name}" for voice in ("ann", "bob") for name in IDS)
    assert write(tmp_path / "out", loaded, starter, InventedHistory(missing=nothing)) == 0
    assert (tmp_path / "out" / "catalog.json").read_bytes() == b"[]\n"
    assert (tmp_path / "out" / "provenance.json").read_bytes() == b"[]\n"
    assert "No clip has been rendered yet." in (tmp_path / "out/site/index.html").read_text()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (float("nan"), r'clip "bob/Three": sample\.execution\.peak: expected a finite number'),
        (LedgerError("segment-00000003.arrow: is torn"), "is torn"),
        (KeyboardInterrupt("stop"), "stop"),
    ],
)
def test_a_failure_midway_leaves_what_was_there(
    loaded: LoadedCatalog, starter: Pack, tmp_path: Path, fault: object, expected: str
) -> None:
    out = tmp_path / "out"
    write(out, loaded, starter, InventedHistory(windows=1))
    before = files(tmp_path)
    with pytest.raises((RecordsError, LedgerError, KeyboardInterrupt), match=expected):
        write(out, loaded, starter, InventedHistory(faults={"bob/Three": fault}))
    assert files(tmp_path) == before
    assert not (out / ".records").exists()


@pytest.mark.parametrize("file", ["site/index.html", "provenance.json", "catalog.json"])
def test_files_are_written_in_order_and_whole(
    loaded: LoadedCatalog,
    starter: Pack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
) -> None:
    """The disk fails when `file` takes its place: those before it are new, it and the rest old."""
    out = tmp_path / "out"
    write(out, loaded, starter, InventedHistory(windows=1))
    before, rename = files(out), Path.replace

    def fail(self: Path, target: Path) -> Path:
        if target == out / file:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(WriteFailedError, match=f"{file}: cannot be written: No space left"):
        write(out, loaded, starter, InventedHistory(missing=frozenset({"ann/one"})))
    after = files(out)
    order = ["tokens/part-00000.parquet", "site/index.html", "provenance.json", "catalog.json"]
    new, old = order[: order.index(file)], order[order.index(file) :]
    assert set(after) == set(before) == set(order)
    assert not (out / ".records").exists()
    assert all(after[name] != before[name] for name in new)
    assert all(after[name] == before[name] for name in old)


# Memory. A child measures itself: the peak of a process never falls.

FEW, MANY = 2_000, 20_000
ALLOWED_GROWTH_MIB = 48
"""Of the peak from FEW to MANY clips: the cache of the database, and the row group of the token
Parquet that FEW do not fill. All records of MANY clips as Python objects take some 300 MiB."""


def write_many(folder: Path, clips: int) -> None:
    """What a run of so many clips leaves, their passages from a corpus."""
    passages = pa.table(
        {
            "id": [f"p{number * 7919 % clips}" for number in range(clips)],
            "text": [f"Text number {number}, which is one line long." for number in range(clips)],
        }
    )
    pq.write_table(passages, folder / "corpus.parquet")
    source = "passages: [{from: corpus.parquet, id: id, text: text}]\n"
    path = write_catalog(folder, voices="voices: [{name: slt}]\n", passages=source)
    count = write(
        folder / "out", load_catalog(path), open_pack("starter"), InventedHistory(windows=1)
    )
    assert count == clips


def print_peaks(folder: str) -> None:
    """Print the peak resident set after FEW and after MANY clips."""
    for clips in (FEW, MANY):
        write_many(Path(folder), clips)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def test_memory_does_not_grow_with_the_catalog(tmp_path: Path) -> None:
    code = "import sys; from tests.jobs.test_outputs import print_peaks; print_peaks(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    few, many = (int(line) * MAXRSS_BYTES for line in done.stdout.split())
    assert many - few < ALLOWED_GROWTH_MIB * MIB, f"{(many - few) / MIB:.0f} MiB"
    assert (tmp_path / "out" / "provenance.json").stat().st_size > 20 * MIB
