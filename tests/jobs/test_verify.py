"""`verify`: whatever is not as recorded is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from catalog.export import read_token_metadata, read_token_part, write_token_parts
from catalog.folder_store import FolderStore
from catalog.roster import object_key, read_roster, records_by_key, release_key
from engine.events import Event, PassageEvent
from jobs.rerender import Outcome, choose_clips, compare, rerender
from jobs.verify import Verification, verify_store
from tests.fakes import NULL_IDENTITY, InProcessFleet, NullRenderer
from tests.jobs.conftest import Outcome as CommandOutcome
from tests.rosters import Lab, lab_of
from tests.s3_server import S3Server


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Three voices with two passages each, published; the output folder is `work`."""
    made = lab_of(tmp_path, str(tmp_path / "published"))
    assert made.rebuild().exit_code == 0
    return made


def verified(folder: Path) -> Verification:
    return verify_store(FolderStore(folder), folder=folder)[0]


def codes(found: Verification) -> list[tuple[str, str]]:
    return [(each.code, each.where) for each in found.findings]


def clip_file(lab: Lab, clip: str) -> Path:
    sha256 = read_roster(FolderStore(Path(lab.published))).records.clips[clip].record.sha256
    return Path(lab.published) / object_key(sha256)


def test_what_is_as_recorded_has_no_findings(lab: Lab) -> None:
    roster, output = verified(Path(lab.published)), verified(lab.folder / "work")
    assert (roster.clips, roster.findings, roster.notes) == (6, [], [])
    assert (output.clips, output.findings, output.notes) == (6, [], [])
    assert output.windows == 6 * NullRenderer.WINDOWS


def test_one_byte_flipped_is_found(lab: Lab) -> None:
    path = clip_file(lab, "v01/long")
    data = path.read_bytes()
    for at in (0, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert codes(verified(Path(lab.published))) == [("audio_altered", "v01/long")]
    path.write_bytes(data)
    assert codes(verified(Path(lab.published))) == []


def test_a_missing_object_is_found(lab: Lab) -> None:
    clip_file(lab, "v01/long").unlink()
    assert codes(verified(Path(lab.published))) == [("audio_unreadable", "v01/long")]


@pytest.mark.parametrize("name", ["catalog.json", "provenance.json", "index.html"])
def test_a_file_of_the_release_that_changed_is_found(lab: Lab, name: str) -> None:
    store = FolderStore(Path(lab.published))
    release = read_roster(store).release
    assert release is not None
    key = release_key(release.id, name)
    store.put(key, store.get(key).data + b"\n")
    assert codes(verified(Path(lab.published))) == [("file_altered", key)]
    if name == "index.html":
        store.delete(key)
        assert codes(verified(Path(lab.published))) == [("file_missing", key)]


def edit(path: Path, change: Callable[[Any], None]) -> None:
    told = json.loads(path.read_bytes())
    change(told)
    path.write_text(json.dumps(told), encoding="utf-8")


def test_records_that_contradict_each_other_are_found(lab: Lab) -> None:
    work = lab.folder / "work"
    edit(work / "catalog.json", lambda told: told[0]["sample"]["short"].update(seed=8))
    assert codes(verified(work)) == [("records_differ", "v00/short")]
    edit(work / "catalog.json", lambda told: told[0]["sample"].pop("short"))
    assert codes(verified(work)) == [("records_differ", "v00/short")]


def test_an_object_of_nobody_is_a_note(lab: Lab) -> None:
    store = FolderStore(Path(lab.published))
    store.put(object_key("f" * 64), b"?")
    found = verified(Path(lab.published))
    assert found.findings == []
    assert found.notes == [f"{object_key('f' * 64)}: 1 bytes that no release names"]


def test_a_stray_file_is_a_note(lab: Lab) -> None:
    (lab.folder / "work/audio/v00/other.flac").write_bytes(b"?")
    found = verified(lab.folder / "work")
    assert (len(found.findings), len(found.notes)) == (0, 1)


def test_tokens_that_are_not_those_recorded_are_found(lab: Lab) -> None:
    work = lab.folder / "work"

    def change(told: Any) -> None:
        told[0]["sample"]["windows"][1]["tokens_sha256"] = "0" * 64

    edit(work / "provenance.json", change)
    edit(
        work / "catalog.json",
        lambda told: told[0]["sample"]["long"]["windows"][1].update(tokens_sha256="0" * 64),
    )
    assert codes(verified(work)) == [("tokens_differ", "v00/long")]


def test_windows_without_tokens_are_found(lab: Lab) -> None:
    work = lab.folder / "work"
    lab.texts["more"] = "One more."
    other = replace(lab, published=str(lab.folder / "elsewhere"))
    for name in ("catalog.json", "provenance.json"):
        (lab.folder / name).write_bytes((work / name).read_bytes())
    other.rebuild()
    assert codes(verified(work)) == []
    for name in ("catalog.json", "provenance.json"):
        (work / name).write_bytes((lab.folder / name).read_bytes())
    assert {code for code, _ in codes(verified(work))} == {"tokens_differ"}


def test_the_command_says_so(lab: Lab, loudkit: Callable[..., CommandOutcome]) -> None:
    good = loudkit("verify", lab.published)
    assert (good.exit_code, "6 clips, all as recorded" in good.stdout) == (0, True)
    clip_file(lab, "v01/long").unlink()
    bad = loudkit("verify", lab.published)
    assert (bad.exit_code, "v01/long: audio_unreadable" in bad.stdout) == (3, True)
    told = loudkit("verify", lab.published, "--json").last_json
    assert [each["where"] for each in told["findings"]] == ["v01/long"]
    nothing = loudkit("verify", "nowhere")
    assert (nothing.exit_code, "there are no records" in nothing.stderr) == (2, True)


def test_a_bucket_is_verified_like_a_folder(
    tmp_path: Path, weed_s3: S3Server, loudkit: Callable[..., CommandOutcome]
) -> None:
    uri = f"s3://{weed_s3.new_bucket()}/roster"
    with weed_s3.credentials():
        lab = lab_of(tmp_path, uri, endpoint_url=weed_s3.endpoint_url)
        assert lab.rebuild().exit_code == 0
        endpoint = ("--endpoint-url", weed_s3.endpoint_url)
        assert loudkit("verify", uri, *endpoint).exit_code == 0
        store = weed_s3.open(uri)
        sha256 = read_roster(store).records.clips["v02/short"].record.sha256
        data = store.get(object_key(sha256)).data
        weed_s3.client().put_object(
            Bucket=uri.split("/")[2], Key=f"roster/objects/{sha256}", Body=data[:-1] + b"?"
        )
        told = loudkit("verify", uri, *endpoint)
        assert told.exit_code == 3
        assert "v02/short: audio_altered" in told.stdout


# -- rendering again -------------------------------------------------------------------------------


def again(lab: Lab, **fleet: Any) -> dict[str, tuple[Outcome, str]]:
    clips = records_by_key(read_roster(FolderStore(Path(lab.published))).records)

    done = rerender(clips, slots=4, fleet=partial(InProcessFleet, **fleet))
    assert [each.key for each in done] == sorted(clips)
    return {each.key: (each.outcome, each.told) for each in done}


def test_the_same_again_is_bit_identical(lab: Lab) -> None:
    assert {outcome for outcome, _ in again(lab).values()} == {Outcome.BIT_IDENTICAL}


def test_other_samples_of_the_same_tokens(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NullRenderer, "rendered", classmethod(other_samples))
    for outcome, told in again(lab).values():
        assert (outcome, "the same tokens, other samples" in told) == (Outcome.DIFFERENT, True)
    elsewhere = replace(NULL_IDENTITY, torch="2.99")
    for outcome, told in again(lab, identities=[elsewhere]).values():
        assert (outcome, "torch none there, 2.99 here" in told) == (Outcome.EQUIVALENT, True)


_rendered = NullRenderer.rendered.__func__  # type: ignore[attr-defined]


def other_samples(cls: type[NullRenderer], job: Any) -> list[Event]:
    events: list[Event] = _rendered(cls, job)
    return [
        replace(each, pcm_sha256="0" * 64) if isinstance(each, PassageEvent) else each
        for each in events
    ]


def test_other_tokens(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NullRenderer, "rendered", classmethod(other_samples))
    monkeypatch.setattr(NullRenderer, "FRAMES", 21)
    assert {outcome for outcome, _ in again(lab).values()} == {Outcome.DIFFERENT}
    elsewhere = [replace(NULL_IDENTITY, capability="other")]
    found = again(lab, identities=elsewhere)
    assert {outcome for outcome, _ in found.values()} == {Outcome.INCOMPARABLE}


def test_a_pack_that_is_not_here(lab: Lab) -> None:
    lab.change_pack()
    lab.rebuild()
    found = again(lab)
    assert {outcome for outcome, _ in found.values()} == {Outcome.INCOMPARABLE}
    assert all("give --pack" in told for _, told in found.values())
    clips = records_by_key(read_roster(FolderStore(Path(lab.published))).records)
    done = rerender(clips, packs=[lab.folder / "pack"], slots=4, fleet=InProcessFleet)
    assert {each.outcome for each in done} == {Outcome.BIT_IDENTICAL}


def test_a_record_that_does_not_say_enough(lab: Lab) -> None:
    clips = records_by_key(read_roster(FolderStore(Path(lab.published))).records)
    for field in ("pack", "conditioning"):
        without: dict[str, Any] = {field: None}
        bare = {key: replace(clip, **without) for key, clip in clips.items()}
        done = rerender(bare, slots=4, fleet=InProcessFleet)
        assert {each.outcome for each in done} == {Outcome.INCOMPARABLE}
    other = {key: replace(clip, algorithm_fingerprint="f" * 16) for key, clip in clips.items()}
    done = rerender(other, slots=4, fleet=InProcessFleet)
    assert {each.outcome for each in done} == {Outcome.INCOMPARABLE}


def test_a_record_without_an_identity_is_compared_by_its_bytes(lab: Lab) -> None:
    clips = records_by_key(read_roster(FolderStore(Path(lab.published))).records)
    clip = replace(clips["v00/short"], execution=None)
    tokens = [window.tokens_sha256 for window in clip.windows]
    same = compare(clip, str(clip.pcm_sha256), tokens, NULL_IDENTITY)
    assert same[0] == Outcome.BIT_IDENTICAL
    assert compare(clip, "0" * 64, tokens, NULL_IDENTITY)[0] == Outcome.EQUIVALENT
    told = compare(clip, "0" * 64, tokens[:-1], NULL_IDENTITY)
    assert told[0] == Outcome.INCOMPARABLE
    assert "no execution identity" in told[1]


def test_a_worker_that_dies_leaves_its_clips_uncompared(lab: Lab) -> None:
    found = again(lab, plan=lambda worker, job: "die" if job.key == "v01/short" else None)
    assert found["v01/short"][0] == Outcome.INCOMPARABLE
    assert Outcome.BIT_IDENTICAL in {outcome for outcome, _ in found.values()}


def test_a_clip_that_fails_is_different(lab: Lab) -> None:
    found = again(lab, plan=lambda worker, job: "no_speech" if job.key == "v01/short" else None)
    assert found["v01/short"][0] == Outcome.DIFFERENT
    assert "no_speech" in found["v01/short"][1]


def test_a_seed_chooses_the_same_clips_whatever_else_there_is() -> None:
    keys = [f"v/{number}" for number in range(200)]
    chosen = choose_clips(keys, 10, seed=3)
    assert chosen == choose_clips(reversed(keys), 10, seed=3)
    assert len(set(chosen)) == 10
    assert chosen != choose_clips(keys, 10, seed=4)
    assert set(choose_clips(chosen, 10, seed=3)) == set(chosen)
    assert choose_clips(keys, 1000, seed=3) == sorted(keys)


@pytest.mark.ray
def test_clips_of_the_real_engine_are_bit_identical(
    tmp_path: Path, loudkit: Callable[..., CommandOutcome]
) -> None:
    """Render, publish and render again by the command line; then alter what the record says."""
    lab = lab_of(tmp_path, str(tmp_path / "published"), voices=2)
    catalog = str(lab.write())
    published = ("--published", lab.published)
    rebuilt = loudkit("rebuild", catalog, *published, "--workers", "1", "--out", "work")
    assert rebuilt.exit_code == 0, rebuilt.stderr
    found = loudkit("verify", lab.published, "--rerender", "2", "--json")
    assert found.exit_code == 0, found.stdout
    outcomes = {each["outcome"] for each in found.last_json["rerendered"]}
    assert outcomes == {"bit-identical"}
    records = read_roster(FolderStore(tmp_path / "work")).records
    pcm = records.clips["v00/short"].record.pcm_sha256
    for name in ("catalog.json", "provenance.json"):
        text = (tmp_path / "work" / name).read_text(encoding="utf-8")
        (tmp_path / "work" / name).write_text(text.replace(str(pcm), "0" * 64), encoding="utf-8")
    told = loudkit("verify", "work", "--rerender", "9")
    assert told.exit_code == 4
    assert "v00/short: different" in told.stdout


def test_samples_that_no_record_speaks_of_cannot_be_compared(lab: Lab) -> None:
    """Neither is called different: there is nothing that they could differ from."""
    clips = records_by_key(read_roster(FolderStore(Path(lab.published))).records)
    silent = {key: replace(clip, pcm_sha256=None) for key, clip in clips.items()}
    done = rerender(silent, slots=4, fleet=InProcessFleet)
    assert {(each.outcome, "pcm_sha256" in each.told) for each in done} == {
        (Outcome.INCOMPARABLE, True)
    }
    clip = replace(clips["v00/short"], windows=(), execution={"digest": "0" * 16})
    outcome, told = compare(clip, "0" * 64, ["1" * 64], NULL_IDENTITY)
    assert (outcome, "has no windows" in told) == (Outcome.INCOMPARABLE, True)


@pytest.mark.parametrize("execution", [{"dtype": []}, {"threads": "many"}, {"device": "abacus"}])
def test_an_execution_that_is_none_cannot_be_compared(
    lab: Lab, execution: dict[str, object]
) -> None:
    clips = records_by_key(read_roster(FolderStore(Path(lab.published))).records)
    odd = {key: replace(clip, execution=execution) for key, clip in clips.items()}
    done = rerender(odd, slots=4, fleet=InProcessFleet)
    assert {each.outcome for each in done} == {Outcome.INCOMPARABLE}


def test_a_failure_under_another_identity_says_nothing_of_the_clip(lab: Lab) -> None:
    """Exit code 4 is for a clip that had to come out the same, and for no other."""

    def plan(worker: Any, job: Any) -> str | None:
        return "no_speech" if job.key == "v01/short" else None

    elsewhere = replace(NULL_IDENTITY, torch="2.99")
    outcome, told = again(lab, plan=plan, identities=[elsewhere])["v01/short"]
    assert (outcome, "no_speech" in told) == (Outcome.INCOMPARABLE, True)
    assert "torch none there, 2.99 here" in told


def change_release(lab: Lab, change: Callable[[Any], None]) -> str:
    """The key of a release.json that now says something else."""
    store = FolderStore(Path(lab.published))
    release = read_roster(store).release
    assert release is not None
    key = release_key(release.id, "release.json")
    edit(Path(lab.published) / key, change)
    return key


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(number=told["number"] + 1),
        lambda told: told["files"].pop("provenance.json"),
        lambda told: told["files"].update({"../../x": "0" * 64}),
        lambda told: told["not_renewed"].update({"v00/short": "stale"}),
    ],
)
def test_a_release_that_lies_is_found(lab: Lab, change: Callable[[Any], None]) -> None:
    """Its id is over its number, its files and what it could not renew."""
    key = change_release(lab, change)
    assert ("file_altered", key) in codes(verified(Path(lab.published)))


def test_tokens_of_another_seed_or_text_are_found(lab: Lab) -> None:
    work = lab.folder / "work"
    (part,) = (work / "tokens").glob("part-*.parquet")
    contract = read_token_metadata(part)
    fingerprint = contract["token_contract_fingerprint"]
    rows = list(read_token_part(part, token_contract_fingerprint=fingerprint))
    for at, changed in ((0, {"seed": rows[0].seed + 1}), (1, {"text": "Other words."})):
        told = [replace(row, **changed) if n == at else row for n, row in enumerate(rows)]
        write_token_parts(
            work / "tokens",
            iter(told),
            algorithm_fingerprint=contract["algorithm_fingerprint"],
            token_contract_fingerprint=fingerprint,
            pack_sha256=contract["pack_sha256"],
        )
        where = f"{rows[at].voice}/{rows[at].passage}"
        assert codes(verified(work)) == [("tokens_differ", where)]
