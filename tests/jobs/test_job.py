"""The driver alone: failures, deaths, cohorts and resumes, with an engine that computes nothing."""

from __future__ import annotations

import json
import os
import signal
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from engine.events import Event, PassageEvent, PassageJob
from engine.execution import ExecutionConfig
from jobs.history import History
from jobs.output import FolderOutput
from jobs.progress import Silent
from jobs.render import RenderOptions, RenderResult, run_render
from jobs.segments import read_rows
from tests.fakes import NULL_IDENTITY, InProcessFleet, NullRenderer
from tests.jobs.older_ledgers import rewrite_as_format_2

VOICES = "voices: [{name: slt}, {name: rms}]\n"


def write(folder: Path, *, passages: int = 12, voices: str = VOICES, more: str = "") -> Path:
    """A catalog of short passages."""
    lines = [f"  - {{id: p{n:02d}, text: Passage number {n}.}}\n" for n in range(passages)]
    path = folder / "catalog.yaml"
    path.write_text(f"catalog: c\npack: starter\n{voices}passages:\n{''.join(lines)}{more}")
    return path


OPTIONS = {"max_failures", "allow_mixed", "only", "everything", "endpoint_url"}


def render_to(catalog: Path, out: str, *, workers: int = 2, **given: Any) -> RenderResult:
    """A whole run over null engines; what is no option of a render goes to the fleet."""
    fleet = partial(InProcessFleet, **{k: v for k, v in given.items() if k not in OPTIONS})
    result = run_render(
        RenderOptions(
            catalog=catalog,
            out=out,
            workers=workers,
            slots=4,
            execution=ExecutionConfig(),
            fleet=fleet,  # type: ignore[arg-type]
            **{k: v for k, v in given.items() if k in OPTIONS},
        ),
        Silent(),
    )
    report = result.report
    told = report["rendered"] + report["reused"] + report["failed"] + report["remaining"]
    assert report["planned"] == told
    assert (report["remaining"] == 0) or report["stopped"] or report["interrupted"]
    return result


def render(catalog: Path, out: Path, *, workers: int = 2, **given: Any) -> RenderResult:
    """`render_to` a folder, whose report is the result's."""
    result = render_to(catalog, str(out), workers=workers, **given)
    assert json.loads((out / "report.json").read_text()) == result.report
    return result


_ASIDE = ("ledger/", "report.json", ".store-lock")
"""What of an output is not the same for the same clips; the last is a store's in a folder."""


def tree(out: Path) -> dict[str, bytes]:
    """Every file that a reader of the output sees, records without their moments and workers."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.is_file() and not name.startswith(_ASIDE):
            found[name] = path.read_bytes()
    for name in ("catalog.json", "provenance.json"):
        found[name] = _without_moments(found[name])
    return found


def _without_moments(data: bytes) -> bytes:
    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: cleaned(v) for k, v in value.items() if k != "rendered_at"}
        return [cleaned(v) for v in value] if isinstance(value, list) else value

    return json.dumps(cleaned(json.loads(data))).encode()


def test_everything_is_rendered_once_and_then_reused(tmp_path: Path) -> None:
    catalog = write(tmp_path)
    first = render(catalog, tmp_path / "out")
    assert (first.counts.rendered, first.counts.windows) == (24, 72)
    again = render(catalog, tmp_path / "out")
    assert (again.counts.rendered, again.counts.reused) == (0, 24)


def test_a_ledger_of_the_format_before_is_gone_on_from(tmp_path: Path) -> None:
    """Nothing finished is lost for want of a picture; what is rendered from now on has one."""
    catalog = write(tmp_path, passages=4)
    half = render(catalog, tmp_path / "out", only="slt/*")
    assert half.counts.rendered == 4
    assert rewrite_as_format_2(tmp_path / "out" / "ledger") >= 1
    again = render(catalog, tmp_path / "out")
    assert (again.counts.rendered, again.counts.reused) == (4, 4)
    rms, slt = (
        [each["sample"] for each in json.loads((tmp_path / "out/provenance.json").read_text())
         if each["name"] == name]
        for name in ("rms", "slt")
    )  # fmt: skip
    assert not any("waveform" in sample for sample in slt)
    assert all(len(b64decode(sample["waveform"])) == 120 for sample in rms)
    page = (tmp_path / "out" / "site" / "index.html").read_text()
    assert (page.count("<audio "), page.count('<svg class="wave"')) == (8, 4)


def test_a_failure_is_told_with_all_that_is_known(tmp_path: Path) -> None:
    def plan(worker: str, job: PassageJob) -> str | None:
        return "no_speech" if job.key == "slt/p03" else None

    result = render(write(tmp_path), tmp_path / "out", plan=plan)
    [failure] = result.counts.failures
    assert (failure.render, failure.code) == ("slt/p03", "no_speech")
    assert failure.worker is not None
    # It will not be tried again, and is told of again with the same facts.
    again = render(write(tmp_path), tmp_path / "out")
    assert again.counts.failures == [failure]
    assert again.counts.reused == 23


@pytest.mark.parametrize(("most", "failed"), [(0, 1), (2, 3)])
def test_a_run_stops_after_so_many_failures_and_goes_on_later(
    tmp_path: Path, most: int, failed: int
) -> None:
    def plan(worker: str, job: PassageJob) -> str | None:
        return "no_speech" if job.key.startswith("rms/") else None

    catalog = write(tmp_path)
    stopped = render(catalog, tmp_path / "out", workers=1, plan=plan, max_failures=most)
    assert stopped.counts.failed == failed
    assert stopped.stopped
    assert stopped.report["remaining"] > 0
    # Known failures do not count against the next run.
    rest = render(catalog, tmp_path / "out", max_failures=0)
    assert (rest.counts.failed, rest.stopped) == (failed, None)
    assert rest.counts.rendered + rest.counts.reused == 24 - failed


def test_a_worker_that_dies_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    doomed = {"slt/p05", "rms/p08"}

    def plan(worker: str, job: PassageJob) -> str | None:
        if job.key in doomed:
            doomed.remove(job.key)
            return "die"
        return None

    catalog = write(tmp_path)
    hurt = render(catalog, tmp_path / "hurt", plan=plan)
    assert hurt.counts.worker_deaths == 2
    assert (hurt.counts.rendered, hurt.counts.failed) == (24, 0)
    render(catalog, tmp_path / "well")
    assert tree(tmp_path / "hurt") == tree(tmp_path / "well")
    finished = [row for row in read_rows(tmp_path / "hurt" / "ledger") if row["kind"] == "finished"]
    assert len({row["render_key"] for row in finished}) == len(finished) == 24


def test_a_passage_that_kills_its_worker_twice_is_failed_by_name(tmp_path: Path) -> None:
    def plan(worker: str, job: PassageJob) -> str | None:
        return "die" if job.key == "rms/p07" else None

    result = render(write(tmp_path), tmp_path / "out", plan=plan)
    [failure] = result.counts.failures
    assert (failure.render, failure.code) == ("rms/p07", "poisonous_passage")
    # Once in company, which tells nothing, and twice alone.
    assert (result.counts.rendered, result.counts.worker_deaths) == (23, 3)


OTHER = replace(NULL_IDENTITY, capability="AVX2")


def test_in_a_mixed_fleet_a_voice_stays_on_one_identity(tmp_path: Path) -> None:
    voices = "voices: [{name: slt}, {name: rms}, {name: awb}, {name: kal}]\n"
    catalog = write(tmp_path, voices=voices)
    mixed: dict[str, Any] = {"identities": (NULL_IDENTITY, OTHER), "allow_mixed": True}
    result = render(catalog, tmp_path / "out", **mixed)
    assert result.counts.rendered == 48
    assert len(result.report["executions"]) == 2
    made: dict[str, set[str]] = {}
    for row in read_rows(tmp_path / "out" / "ledger"):
        made.setdefault(row["render_key"].partition("/")[0], set()).add(row["execution"])
    assert all(len(each) == 1 for each in made.values())
    assert len({next(iter(each)) for each in made.values()}) == 2
    # More passages later: every voice goes on where it was, so nothing is made again.
    more = render(write(tmp_path, voices=voices, passages=14), tmp_path / "out", **mixed)
    assert (more.counts.rendered, more.counts.reused, more.counts.remade) == (8, 48, 0)


@pytest.mark.parametrize("at", [2, 3, 6])
def test_a_voice_that_a_stopped_run_left_mixed_is_made_whole(tmp_path: Path, at: int) -> None:
    """What was new is finished under the second identity, and not all of the rest made again."""
    render(write(tmp_path, passages=5), tmp_path / "out")
    other: dict[str, Any] = {"identities": (OTHER,), "workers": 1}
    catalog = write(tmp_path, passages=6)
    lines = catalog.read_text().splitlines(keepends=True)
    lines.insert(3 + 1, lines.pop())  # the new passage comes first
    catalog.write_text("".join(lines))
    stopped = render(catalog, tmp_path / "out", plan=interrupting(at), **other)
    assert stopped.interrupted
    rest = render(catalog, tmp_path / "out", **other)
    assert (rest.counts.settled, rest.counts.failed) == (12, 0)
    records = json.loads((tmp_path / "out" / "provenance.json").read_text())
    found = {each["sample"]["execution"]["capability"] for each in records}
    assert found == {OTHER.capability}
    assert render(catalog, tmp_path / "out", **other).counts.reused == 12


def test_a_cohort_without_workers_fails_its_voices_by_name(tmp_path: Path) -> None:
    """The second identity's only worker dies, and what replaces it has the first one."""
    identities = (NULL_IDENTITY, OTHER, NULL_IDENTITY, NULL_IDENTITY)

    def plan(worker: str, job: PassageJob) -> str | None:
        return "die" if worker == "worker-2" and job.key.endswith("p03") else None

    catalog = write(tmp_path)
    result = render(catalog, tmp_path / "out", identities=identities, allow_mixed=True, plan=plan)
    lost = [failure for failure in result.counts.failures if failure.code == "cohort_lost"]
    assert lost
    assert all(failure.retryable for failure in lost)
    voices = {failure.render.partition("/")[0] for failure in lost}
    assert len(voices) == 1
    rest = render(catalog, tmp_path / "out")
    assert rest.counts.failed == 0
    assert rest.counts.settled == 24


def interrupting(at: int) -> Callable[[str, PassageJob], None]:
    """A plan that sends SIGTERM to this process with the n-th passage."""
    seen = 0

    def plan(worker: str, job: PassageJob) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGTERM)

    return plan


def test_an_interrupted_run_says_so_and_goes_on_later(tmp_path: Path) -> None:
    catalog = write(tmp_path)
    stopped = render(catalog, tmp_path / "out", workers=1, plan=interrupting(5))
    assert stopped.interrupted
    assert stopped.report["records_written"]
    assert 0 < stopped.counts.rendered < 24
    rest = render(catalog, tmp_path / "out")
    assert (rest.counts.reused, rest.counts.rendered) == (
        stopped.counts.rendered,
        24 - stopped.counts.rendered,
    )


def test_the_records_of_a_large_job_do_not_hold_up_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.render._RECORDS_WHEN_INTERRUPTED", 10)
    catalog = write(tmp_path)
    stopped = render(catalog, tmp_path / "out", workers=1, plan=interrupting(5))
    assert stopped.interrupted
    assert not stopped.report["records_written"]
    assert not (tmp_path / "out" / "catalog.json").exists()
    rest = render(catalog, tmp_path / "out")
    assert rest.report["records_written"]
    assert len(json.loads((tmp_path / "out" / "provenance.json").read_text())) == 24


def test_records_can_be_interrupted_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = History.on_disk

    def on_disk(history: History, *given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return real(history, *given)

    catalog = write(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(History, "on_disk", on_disk)
        patched.setattr("jobs.interruption.os._exit", lambda code: None)  # the second signal
        stopped = render(catalog, tmp_path / "out", workers=1)
    assert (stopped.interrupted, stopped.counts.rendered) == (True, 24)
    assert not stopped.report["records_written"]
    assert render(catalog, tmp_path / "out").report["records_written"]


class _Killed(BaseException):
    """Nobody handles it, as nobody handles SIGKILL."""


@pytest.mark.parametrize("killed_at", ["put", "told"])
@pytest.mark.parametrize("everything", [False, True], ids=["changed text", "other identity"])
def test_a_clip_that_was_written_over_is_not_taken_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool, killed_at: str
) -> None:
    """Both have one size, as takes of one length do in WAV; the ledger never heard of the second.
    The next run is asked for the first again."""
    monkeypatch.setattr("tests.fakes.NullRenderer.rendered", _said_by(b"first"))
    catalog = write(tmp_path, passages=1)
    render(catalog, tmp_path / "out")
    expected = tree(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("tests.fakes.NullRenderer.rendered", _said_by(b"other"))
        if killed_at == "put":
            real = FolderOutput.put_audio

            def put_audio(output: FolderOutput, path: str, data: bytes) -> None:
                real(output, path, data)
                patch.setattr(FolderOutput, "commit_segment", _killed)

            patch.setattr(FolderOutput, "put_audio", put_audio)
        else:
            patch.setattr(FolderOutput, "put_audio", _killed)
        if not everything:
            catalog.write_text(catalog.read_text().replace("number", "nombre"))
        with pytest.raises(_Killed):
            render(catalog, tmp_path / "out", everything=everything, identities=(OTHER,))
    result = render(write(tmp_path, passages=1), tmp_path / "out")
    assert (result.counts.settled, result.counts.failed) == (2, 0)
    assert tree(tmp_path / "out") == expected


def _killed(*_: object) -> None:
    raise _Killed


def _said_by(who: bytes) -> Callable[[PassageJob], list[Event]]:
    """Renders whose clips differ in their bytes and not in their size."""
    real = NullRenderer.rendered

    def rendered(job: PassageJob) -> list[Event]:
        *windows, last = real(job)
        assert isinstance(last, PassageEvent)
        audio = who + last.audio[len(who) :]
        digest = sha256(audio).hexdigest()
        return [*windows, replace(last, audio=audio, audio_sha256=digest, pcm_sha256=digest)]

    return rendered
