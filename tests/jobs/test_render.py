"""`render` through Ray: the same bytes from any fleet, nothing twice, every failure by name."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from catalog.export import read_token_part
from engine.audio import picture
from jobs.segments import read_rows
from tests.engine.test_session import TEXTS
from tests.jobs.conftest import HEAD, Outcome, write_catalog

pytestmark = pytest.mark.ray

SPEAKERS = ("slt", "rms", "awb", "kal")


def _topology_catalog(folder: Path, order: list[int]) -> Path:
    """One voice a passage, in the given order."""
    voices = "voices:\n" + "".join(f"  - {{name: {s}}}\n" for s in SPEAKERS)
    passages = "passages:\n" + "".join(
        f"  - {{id: p{n}, seed: {7 + n}, text: {json.dumps(TEXTS[n])}}}\n" for n in order
    )
    renders = "renders:\n" + "".join(
        f"  - {{voice: {SPEAKERS[n % 4]}, passage: p{n}}}\n" for n in order
    )
    return write_catalog(folder, voices=voices, passages=passages, more=renders)


def _samples(out: Path) -> dict[str, dict[str, Any]]:
    """What provenance.json says of every clip, by voice/passage."""
    entries = json.loads((out / "provenance.json").read_text(encoding="utf-8"))
    return {f"{entry['name']}/{entry['passage']}": entry["sample"] for entry in entries}


def _decided(out: Path) -> dict[str, tuple[str, str, list[Any]]]:
    """What the promise is about: samples, file and tokens of every clip."""
    return {
        key: (sample["pcm_sha256"], sample["sha256"], sample["windows"])
        for key, sample in _samples(out).items()
    }


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Path:
    """The topology set rendered by one worker with four slots."""
    return _render_topology(
        tmp_path_factory.mktemp("one"), list(range(len(TEXTS))), workers=1, slots=4
    )


def _render_topology(folder: Path, order: list[int], *, workers: int, slots: int) -> Path:
    from click.testing import CliRunner

    from jobs.cli import main

    catalog, out = _topology_catalog(folder, order), folder / "out"
    result = CliRunner().invoke(
        main,
        ["render", str(catalog), "--out", str(out), "--workers", str(workers),
         "--slots", str(slots), "--json"],
        catch_exceptions=False,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return out


def test_two_workers_and_another_order_make_the_same_bytes(
    one_worker: Path, tmp_path: Path
) -> None:
    order = list(range(len(TEXTS)))
    random.Random(3).shuffle(order)
    two = _render_topology(tmp_path, order, workers=2, slots=8)
    assert _decided(two) == _decided(one_worker)
    rows = [row for row in read_rows(two / "ledger") if row["kind"] == "finished"]
    assert {row["worker"] for row in rows} == {"worker-1", "worker-2"}


def test_a_passage_alone_makes_the_same_bytes(one_worker: Path, tmp_path: Path) -> None:
    alone = _render_topology(tmp_path, [1], workers=1, slots=16)
    assert _decided(alone) == {"rms/p1": _decided(one_worker)["rms/p1"]}


def test_the_set_is_worth_the_name(one_worker: Path) -> None:
    windows = {key: sample["windows"] for key, sample in _samples(one_worker).items()}
    assert len(windows) >= 12
    halves = [(w["index"], w["half"]) for w in windows["rms/p5"]]
    assert {(0, 1), (0, 2)} <= set(halves)
    assert min(len(each) for each in windows.values()) == 1
    assert max(len(each) for each in windows.values()) >= 2


def test_records_are_complete_and_every_hash_is_that_of_the_file(one_worker: Path) -> None:
    catalog = json.loads((one_worker / "catalog.json").read_text(encoding="utf-8"))
    assert [voice["name"] for voice in catalog] == list(SPEAKERS)
    for voice in catalog:
        assert {"name", "display_name", "language", "language_id", "description", "status",
                "sample"} <= voice.keys()  # fmt: skip
    samples = _samples(one_worker)
    for voice in catalog:
        for passage, sample in voice["sample"].items():
            assert samples[f"{voice['name']}/{passage}"] == sample
    tokens: dict[tuple[str, str], list[tuple[int, int, list[int]]]] = {}
    contract = next(iter(samples.values()))["token_contract_fingerprint"]
    for part in sorted((one_worker / "tokens").glob("part-*.parquet")):
        for row in read_token_part(part, token_contract_fingerprint=contract):
            found = tokens.setdefault((row.voice, row.passage), [])
            found.append((row.chunk_index, row.half, list(row.tokens)))
    for key, sample in samples.items():
        wanted = {
            "audio", "sha256", "text", "seed", "model", "checkpoint_sha256", "edge_fade_seconds",
            "algorithm_fingerprint", "profile_sha256", "backend", "duration_seconds",
            "token_contract_fingerprint", "execution", "pcm_sha256", "waveform", "windows",
            "rendered_at",
        }  # fmt: skip
        assert wanted <= sample.keys()
        data = (one_worker / sample["audio"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == sample["sha256"]
        pcm, rate_hz = soundfile.read(io.BytesIO(data), dtype="int16")
        assert rate_hz == 24000
        assert hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest() == sample["pcm_sha256"]
        assert len(pcm) / rate_hz == sample["duration_seconds"]
        assert base64.b64decode(sample["waveform"]) == picture(pcm)
        assert np.abs(pcm).max() > 1000
        voice_name, passage = key.split("/")
        recorded = [(w["index"], w["half"], w["tokens"]) for w in sample["windows"]]
        kept = tokens[voice_name, passage]
        assert recorded == [(index, half, len(ids)) for index, half, ids in kept]
        for window, (_, _, ids) in zip(sample["windows"], kept, strict=True):
            assert window["keep"] * 7 == window["tokens"]
            words = np.asarray(ids, dtype="<u4").tobytes()
            assert hashlib.sha256(words).hexdigest() == window["tokens_sha256"]


def _counts(outcome: Outcome) -> tuple[int, int, int, int]:
    report = outcome.last_json
    assert report["planned"] == report["rendered"] + report["reused"] + report["failed"]
    return report["planned"], report["rendered"], report["reused"], report["failed"]


def test_the_life_of_an_output_folder(
    loudkit: Callable[..., Outcome], tmp_path: Path, ray_session: None
) -> None:
    """First run, second run, one text changed, one file lost, another format, --only and --all."""

    def render(*arguments: str) -> Outcome:
        return loudkit(
            "render", "catalog.yaml", "--out", "out", "--workers", "1", "--json", *arguments
        )

    path = write_catalog(tmp_path)
    first = render("--only", "*/one")
    assert first.exit_code == 0
    assert _counts(first) == (2, 2, 0, 0)
    assert set(_samples(tmp_path / "out")) == {"ann/one", "bob/one"}

    rest = render()
    assert _counts(rest) == (4, 2, 2, 0)
    before = {path: path.read_bytes() for path in (tmp_path / "out" / "audio").rglob("*.flac")}
    assert len(before) == 4

    again = loudkit("render", "catalog.yaml", "--out", "out")
    assert again.exit_code == 0
    assert "nothing to render" in again.stdout
    assert {path: path.read_bytes() for path in before} == before

    path.write_text(path.read_text().replace("Nobody answered.", "Nobody came."))
    (tmp_path / "out" / "audio" / "ann" / "one.flac").unlink()
    planned = loudkit("plan", "catalog.yaml", "--out", "out", "--json")
    reasons = [json.loads(line) for line in planned.stdout.splitlines()]
    assert {row["render"]: row["reason"] for row in reasons[:-1]} == {
        "ann/one": "file missing", "bob/one": "current", "ann/two": "changed", "bob/two": "changed"
    }  # fmt: skip
    changed = render()
    assert _counts(changed) == (4, 3, 1, 0)
    assert changed.last_json["windows"] == 2  # the lost file came back from the ledger's tokens
    same = [tmp_path / "out" / "audio" / voice / "one.flac" for voice in ("ann", "bob")]
    assert [path.read_bytes() for path in same] == [before[path] for path in same]

    path.write_text(path.read_text().replace("format: flac", "format: wav"))
    other = render()
    assert _counts(other) == (4, 4, 0, 0)
    assert other.last_json["windows"] == 0
    assert all(sample["audio"].endswith(".wav") for sample in _samples(tmp_path / "out").values())

    everything = render("--all", "--only", "ann/*")
    assert _counts(everything) == (2, 2, 0, 0)
    assert everything.last_json["windows"] == 2


BAD = {"empty": "", "marks": "... !? --", "emoji": "\U0001f600 \U0001f680", "script": "日本語"}


def test_bad_passages_fail_by_name_and_the_rest_is_rendered(
    loudkit: Callable[..., Outcome], tmp_path: Path, ray_session: None
) -> None:
    passages = "passages:\n  - {id: good, text: Good morning.}\n" + "".join(
        f"  - {{id: {name}, text: {json.dumps(text, ensure_ascii=False)}}}\n"
        for name, text in BAD.items()
    )
    write_catalog(tmp_path, voices="voices: [{name: slt}]\n", passages=passages)
    outcome = loudkit("render", "catalog.yaml", "--out", "out", "--workers", "1", "--json")
    assert outcome.exit_code == 3
    assert _counts(outcome) == (5, 1, 0, 4)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {f["render"]: f["code"] for f in report["failures"]} == {
        "slt/empty": "nothing_to_speak",
        "slt/marks": "nothing_to_speak",
        "slt/emoji": "nothing_to_speak",
        "slt/script": "unsupported_text",
    }
    assert set(_samples(tmp_path / "out")) == {"slt/good"}
    status = loudkit("status", "out", "--json").last_json
    assert (status["finished"], status["failed"]) == (1, 4)
    told = loudkit("plan", "catalog.yaml", "--out", "out")
    assert told.exit_code == 3
    assert "slt/marks" in told.stdout
    again = loudkit("render", "catalog.yaml", "--out", "out")
    assert again.exit_code == 3
    assert "4 of them are not tried again until the text, pack or seed changes" in again.stderr


@pytest.mark.parametrize("audio_format", ["mp3", "opus"])
def test_lossy_formats_are_written_and_recorded(
    loudkit: Callable[..., Outcome], tmp_path: Path, ray_session: None, audio_format: str
) -> None:
    head = HEAD.replace("flac", audio_format)
    write_catalog(
        tmp_path, head=head, voices="voices: [{name: awb}]\n",
        passages="passages: [{id: one, text: Good morning.}]\n",
    )  # fmt: skip
    outcome = loudkit("render", "catalog.yaml", "--out", "out", "--workers", "1", "--json")
    assert outcome.exit_code == 0
    [sample] = _samples(tmp_path / "out").values()
    data = (tmp_path / "out" / sample["audio"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == sample["sha256"]
    audio, _ = soundfile.read(io.BytesIO(data))
    assert len(audio) > 10000
