"""Rebuilding a roster: exactly what is stale is recorded anew, and nothing else moves a byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from catalog.folder_store import FolderStore
from catalog.publish_errors import PublishRaceError
from catalog.releases import swap_pointer
from catalog.roster import object_key, read_roster
from catalog.staleness import State
from jobs.errors import OutputPlaceError
from jobs.rebuild import RebuildResult
from jobs.rebuild_summary import headline, summary_json, summary_markdown
from tests.fakes import NULL_IDENTITY, InProcessFleet
from tests.outputs import publish
from tests.rosters import Lab, Voice, entries, failing, lab_of

OTHER_IDENTITY = replace(NULL_IDENTITY, capability="another")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Twelve voices with two passages each, published."""
    made = lab_of(tmp_path, str(tmp_path / "published"), voices=12)
    result = made.rebuild()
    assert (result.exit_code, fresh_of(result)) == (
        0,
        {f"{v}/{p}" for v in made.voices for p in made.texts},
    )
    return made


def store_of(lab: Lab) -> FolderStore:
    return FolderStore(Path(lab.published))


def fresh_of(result: RebuildResult) -> set[str]:
    return set(result.published.choice.fresh) if result.published else set()


def no_fleet(*_: object, **__: object) -> InProcessFleet:
    raise AssertionError("nothing had to be rendered")


def test_nothing_stale_starts_nothing_and_publishes_nothing(lab: Lab) -> None:
    release = read_roster(store_of(lab)).release
    result = lab.rebuild(fleet=no_fleet)
    assert (result.exit_code, result.rendered, result.published) == (0, None, None)
    assert result.plan.counts == {"current": 24} | {
        str(state): 0 for state in State if state != State.CURRENT
    }
    assert read_roster(store_of(lab)).release == release
    assert "nothing stale" in headline(summary_json(lab.options(), result))


def change_text(lab: Lab) -> set[str]:
    lab.texts["short"] = "Good evening."
    return {f"{voice}/short" for voice in lab.voices}


def change_conditioning(lab: Lab) -> set[str]:
    lab.voices["v05"].speaker = "kal"
    return {"v05/short", "v05/long"}


def change_seed(lab: Lab) -> set[str]:
    lab.voices["v07"].seed = 4711
    return {"v07/short", "v07/long"}


def change_pack(lab: Lab) -> set[str]:
    lab.change_pack()
    return {f"{voice}/{passage}" for voice in lab.voices for passage in lab.texts}


def add_voice(lab: Lab) -> set[str]:
    lab.voices["new"] = Voice("slt", 1)
    return {"new/short", "new/long"}


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (change_text, "text"),
        (change_conditioning, "conditioning"),
        (change_seed, "seed"),
        (change_pack, "pack"),
        (add_voice, None),
    ],
)
def test_exactly_what_is_stale_is_recorded_anew(
    lab: Lab, change: Callable[[Lab], set[str]], fact: str | None
) -> None:
    before = entries(store_of(lab))
    stale = change(lab)
    result = lab.rebuild()
    assert result.exit_code == 0
    assert fresh_of(result) == stale == set(result.plan.to_render)
    for verdict in result.plan.verdicts:
        facts = [reason.fact for reason in verdict.reasons]
        assert facts == ([fact] if verdict.key in stale and fact else []), verdict
    after = entries(store_of(lab))
    assert {key for key in before if after[key] == before[key]} == before.keys() - stale
    assert after.keys() == before.keys() | stale
    assert lab.rebuild(fleet=no_fleet).published is None


def test_changes_together_are_one_release(lab: Lab) -> None:
    before = entries(store_of(lab))
    lab.voices["v05"].speaker = "kal"
    lab.voices["v07"].seed = 4711
    result = lab.rebuild()
    stale = {f"{voice}/{passage}" for voice in ("v05", "v07") for passage in lab.texts}
    assert fresh_of(result) == stale
    after = entries(store_of(lab))
    assert {key for key in before if after[key] == before[key]} == before.keys() - stale
    pointer = read_roster(store_of(lab)).pointer
    assert pointer is not None
    assert pointer.number == 2


def test_facts_of_a_voice_follow_the_catalog_without_rendering(lab: Lab) -> None:
    before = entries(store_of(lab))
    lab.voices["v03"].description = "Warm, and a little slow."
    result = lab.rebuild(fleet=no_fleet)
    assert result.published is not None
    assert result.published.is_new
    assert fresh_of(result) == set()
    assert entries(store_of(lab)) == before
    release = result.published.release.id
    data = store_of(lab).get(f"releases/{release}/catalog.json").data
    told = {voice["name"]: voice["description"] for voice in json.loads(data)}
    assert told["v03"] == "Warm, and a little slow."


def test_a_fingerprint_alone_never_edits_a_record(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another algorithm makes all clips stale: their records stand until they are made again."""
    before = entries(store_of(lab))
    monkeypatch.setattr("engine.pack.Pack.algorithm_fingerprint", "f" * 16)
    result = lab.rebuild(fleet=failing(*before), partial=True)
    assert set(result.plan.to_render) == before.keys()
    assert {reason.fact for each in result.plan.verdicts for reason in each.reasons} == {
        "algorithm"
    }
    assert entries(store_of(lab)) == before
    release = read_roster(store_of(lab)).release
    assert release is not None
    assert release.not_renewed.keys() == before.keys()
    assert (release.algorithm_fingerprint, result.exit_code) == ("f" * 16, 3)


def test_orphans_are_kept_and_listed_until_a_flag_says_otherwise(lab: Lab) -> None:
    before = entries(store_of(lab))
    del lab.voices["v11"]
    kept = lab.rebuild(fleet=no_fleet)
    assert set(kept.plan.orphans) == {"v11/short", "v11/long"}
    assert entries(store_of(lab)) == before
    removed = lab.rebuild(fleet=no_fleet, remove_orphans=True)
    assert removed.published is not None
    assert removed.published.choice.removed == kept.plan.orphans
    assert entries(store_of(lab)) == {
        key: text for key, text in before.items() if not key.startswith("v11/")
    }


def test_only_looks_at_a_part_and_orphans_nothing(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    result = lab.rebuild(only="v01/*")
    assert fresh_of(result) == {"v01/short"}
    assert result.plan.orphans == frozenset()
    assert len(lab.rebuild(only="v02/long", fleet=no_fleet).plan.verdicts) == 1


@pytest.mark.parametrize("harm", ["missing", "altered", "shorter"])
@pytest.mark.parametrize("clip", ["v04/long"])
def test_published_audio_that_is_not_as_recorded_is_made_again(
    lab: Lab, harm: str, clip: str
) -> None:
    store = store_of(lab)
    sha256 = read_roster(store).records.clips[clip].record.sha256
    path = Path(lab.published) / object_key(sha256)
    data = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] + (b"" if harm == "shorter" else bytes([data[-1] ^ 1])))
    if harm == "altered":  # of the same size: nobody sees it who does not read
        assert lab.rebuild(fleet=no_fleet).published is None
    result = lab.rebuild(rehash=harm == "altered")
    state = State.UNREADABLE if harm == "missing" else State.ALTERED
    assert [(each.key, each.state) for each in result.plan.verdicts if each.reasons] == [
        (clip, state)
    ]
    assert fresh_of(result) == {clip}
    assert path.read_bytes() == data
    assert lab.rebuild(fleet=no_fleet, rehash=True).published is None


def test_an_orphan_whose_audio_is_gone_goes_by_name(lab: Lab) -> None:
    store = store_of(lab)
    sha256 = read_roster(store).records.clips["v11/long"].record.sha256
    (Path(lab.published) / object_key(sha256)).unlink()
    del lab.voices["v11"]
    result = lab.rebuild(fleet=no_fleet)
    assert result.release is not None
    assert "v11/long" in result.release.not_renewed
    assert "v11/long" not in entries(store)
    assert "v11/short" in entries(store)


def test_failures_publish_nothing_unless_partial(lab: Lab) -> None:
    before, release = entries(store_of(lab)), read_roster(store_of(lab)).release
    lab.texts["short"] = "Good evening."
    failed = "v02/short"
    result = lab.rebuild(fleet=failing(failed))
    assert (result.exit_code, result.published) == (3, None)
    assert read_roster(store_of(lab)).release == release
    partly = lab.rebuild(fleet=failing(failed), partial=True)
    assert partly.exit_code == 3
    assert fresh_of(partly) == {f"{voice}/short" for voice in lab.voices} - {failed}
    after = entries(store_of(lab))
    assert after[failed] == before[failed]
    assert partly.release is not None
    assert list(partly.release.not_renewed) == [failed]
    told = summary_json(lab.options(), partly)
    assert "no_speech" in told["not_renewed"][failed]
    assert failed.replace("/", "/") in summary_markdown(told)


def test_a_voice_does_not_mix_identities(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    other = partial(InProcessFleet, identities=[OTHER_IDENTITY])
    result = lab.rebuild(fleet=other, only="v01/short")
    assert fresh_of(result) == {"v01/short"}  # only what was looked at
    lab.texts["long"] = "Somebody answered, so he stayed."
    lab.texts["short"] = "Good evening."
    whole = lab.rebuild(fleet=other)
    assert set(whole.plan.to_render) == {
        f"{voice}/{passage}" for voice in lab.voices for passage in lab.texts
    } - {"v01/short"}
    digests = {
        clip.record.voice: (clip.record.execution or {})["digest"]
        for clip in read_roster(store_of(lab)).records.clips.values()
    }
    assert set(digests.values()) == {OTHER_IDENTITY.digest()}


def test_clips_of_another_identity_in_the_same_voice_are_made_again(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    other = partial(InProcessFleet, identities=[OTHER_IDENTITY])
    result = lab.rebuild(fleet=other)
    assert result.rendered is not None
    assert result.rendered.remade == {f"{voice}/long" for voice in lab.voices}
    assert fresh_of(result) == {f"{v}/{p}" for v in lab.voices for p in lab.texts}


def test_identities_may_mix_where_the_policy_says_so(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    other = partial(InProcessFleet, identities=[OTHER_IDENTITY])
    result = lab.rebuild(fleet=other, execution="any")
    assert fresh_of(result) == {f"{voice}/short" for voice in lab.voices}


def test_an_identity_that_is_asked_for_makes_others_stale(lab: Lab) -> None:
    other = partial(InProcessFleet, identities=[OTHER_IDENTITY])
    result = lab.rebuild(fleet=other, execution=OTHER_IDENTITY.digest())
    assert len(fresh_of(result)) == 24
    assert {reason.fact for each in result.plan.verdicts for reason in each.reasons} == {
        "execution"
    }
    assert lab.rebuild(fleet=no_fleet, execution=OTHER_IDENTITY.digest()).published is None


def test_what_was_rendered_before_a_kill_is_published_by_the_next_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.texts["short"] = "Good evening."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("catalog.publish.Publisher.publish", _killed)
        with pytest.raises(KeyboardInterrupt):
            lab.rebuild()
    result = lab.rebuild(fleet=no_fleet)
    assert fresh_of(result) == {f"{voice}/short" for voice in lab.voices}


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_lost_race_is_planned_anew(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody publishes the same change first: what they recorded stands, ours is dropped."""
    lab.texts["short"] = "Good evening."
    theirs = replace_folder(lab, "theirs")
    once: list[RebuildResult] = []

    def faster(*_: object, **__: object) -> None:
        if not once:
            once.append(theirs.rebuild())

    interpose(monkeypatch, faster)
    result = lab.rebuild()
    (winner,) = once
    assert result.published is not None
    assert not result.published.is_new
    assert result.release == winner.release


def test_a_lost_race_that_makes_more_stale_renders_more(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.texts["short"] = "Good evening."
    theirs = replace_folder(lab, "theirs")
    theirs.texts = {"short": "Good morning.", "long": "Somebody answered."}
    once: list[RebuildResult] = []

    def faster(*_: object, **__: object) -> None:
        if not once:
            once.append(theirs.rebuild())

    interpose(monkeypatch, faster)
    result = lab.rebuild()
    assert result.exit_code == 0
    texts = {
        (clip.record.passage, clip.record.text)
        for clip in read_roster(store_of(lab)).records.clips.values()
    }
    assert texts == set(lab.texts.items())


def test_rebuilds_that_always_lose_give_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.texts["short"] = "Good evening."
    monkeypatch.setattr("catalog.publish.swap_pointer", lambda *_: False)
    with pytest.raises(PublishRaceError):
        lab.rebuild()


def replace_folder(lab: Lab, name: str) -> Lab:
    folder = lab.folder / name
    folder.mkdir()
    return replace(lab, folder=folder, texts=dict(lab.texts))


def interpose(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Have something happen just before the pointer is swapped."""
    swap = swap_pointer
    inside: list[bool] = []

    def swapped(*arguments: object) -> bool:
        if not inside:
            inside.append(True)
            before()
            inside.pop()
        return swap(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("catalog.publish.swap_pointer", swapped)


def test_a_rendered_folder_is_a_roster_and_becomes_one_of_releases(tmp_path: Path) -> None:
    """The output of render, read as published: current, and published without rendering."""
    lab = lab_of(tmp_path, str(tmp_path / "work"), voices=2)
    other = replace(lab, published=str(tmp_path / "elsewhere"))
    other.rebuild()
    result = lab.rebuild(fleet=no_fleet)
    assert result.plan.counts["current"] == 4
    assert result.published is not None
    assert fresh_of(result) == set()
    assert entries(FolderStore(tmp_path / "work")) == entries(FolderStore(tmp_path / "elsewhere"))


def not_renewed_of(lab: Lab) -> dict[str, str]:
    release = read_roster(store_of(lab)).release
    assert release is not None
    return release.not_renewed


def test_what_was_not_renewed_stays_named_by_who_does_not_look_at_it(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    lab.rebuild(fleet=failing("v02/short"), partial=True)
    told = not_renewed_of(lab)
    assert told.keys() == {"v02/short"}
    assert lab.rebuild(only="v01/*", fleet=no_fleet).published is None
    lab.texts["long"] = "Somebody answered."
    lab.rebuild(only="v01/*")
    assert not_renewed_of(lab) == told
    lab.rebuild(only="v02/*", fleet=failing("v02/short"), partial=True)
    assert not_renewed_of(lab) == told
    lab.texts["short"] = "Good night."
    lab.rebuild()
    assert not_renewed_of(lab) == {}


def test_a_clip_that_went_with_its_audio_is_named_once_and_written_once(lab: Lab) -> None:
    sha256 = read_roster(store_of(lab)).records.clips["v11/long"].record.sha256
    (Path(lab.published) / object_key(sha256)).unlink()
    del lab.voices["v11"]
    assert lab.rebuild(fleet=no_fleet).published is not None
    assert not_renewed_of(lab).keys() == {"v11/long"}
    assert lab.rebuild(fleet=no_fleet).published is None
    assert lab.rebuild(fleet=no_fleet, remove_orphans=True).published is not None
    assert not_renewed_of(lab) == {}


def test_a_clip_kept_under_another_identity_stays_named_while_it_is(lab: Lab) -> None:
    lab.texts["short"] = "Good evening."
    other = partial(
        InProcessFleet,
        identities=[OTHER_IDENTITY],
        plan=lambda worker, job: "no_speech" if job.key == "v00/long" else None,
    )
    assert lab.rebuild(fleet=other, partial=True).exit_code == 3
    assert "another execution identity" in not_renewed_of(lab)["v00/long"]
    assert lab.rebuild(fleet=no_fleet).published is None
    lab.texts["long"] = "Somebody answered."
    lab.rebuild(fleet=partial(InProcessFleet, identities=[OTHER_IDENTITY]))
    assert not_renewed_of(lab) == {}


def test_a_failure_that_somebody_else_made_good_is_not_told_of(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We could not make it and lost the race: the winner's clip is current."""
    lab.texts["short"] = "Good evening."
    theirs = replace_folder(lab, "theirs")
    once: list[RebuildResult] = []

    def faster(*_: object, **__: object) -> None:
        if not once:
            once.append(theirs.rebuild(only="v02/short"))

    interpose(monkeypatch, faster)
    lab.rebuild(fleet=failing("v02/short"), partial=True)
    assert not_renewed_of(lab) == {}


def test_a_rendering_does_not_write_over_what_is_published_as_plain_files(tmp_path: Path) -> None:
    """The work folder itself, before it has a release: orphans would go, and readers get half."""
    lab = lab_of(tmp_path, str(tmp_path / "work"), voices=2)
    replace(lab, published=str(tmp_path / "elsewhere")).rebuild()
    before = {path: path.read_bytes() for path in (tmp_path / "work").glob("*.json")}
    lab.texts["short"] = "Good evening."
    with pytest.raises(OutputPlaceError, match="make a release of them first"):
        lab.rebuild()
    lab.texts["short"] = "Good morning."
    lab.texts["new"] = "One more."
    del lab.voices["v01"]
    with pytest.raises(OutputPlaceError, match="make a release of them first"):
        lab.rebuild(only="v00/new")  # it would leave no record of v01
    assert {path: path.read_bytes() for path in before} == before
    publish(store_of(lab), tmp_path / "work")
    assert lab.rebuild().exit_code == 0
    assert len(entries(store_of(lab))) == 5


def test_a_first_rebuild_into_its_own_work_folder_goes_on_after_a_failure(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, str(tmp_path / "work"), voices=2)
    assert lab.rebuild(fleet=failing("v01/short")).exit_code == 3
    lab.texts = {"short": lab.texts["short"], "long": lab.texts["long"], "new": "One more."}
    assert lab.rebuild(fleet=failing("v01/short"), partial=True).exit_code == 3
    assert len(entries(store_of(lab))) == 5


@pytest.mark.parametrize("harm", ["missing", "shorter"])
def test_a_failing_clip_whose_audio_is_gone_is_published_without_once(lab: Lab, harm: str) -> None:
    """It goes by name; the next night nothing is new, although it is missing by then."""
    sha256 = read_roster(store_of(lab)).records.clips["v04/long"].record.sha256
    path = Path(lab.published) / object_key(sha256)
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    (lab.folder / "work").rename(lab.folder / "gone")
    fleet = failing("v04/long")
    first = lab.rebuild(fleet=fleet, partial=True)
    assert (first.exit_code, "v04/long" in entries(store_of(lab))) == (3, False)
    told = not_renewed_of(lab)
    assert "no_speech" in told["v04/long"]
    again = lab.rebuild(fleet=fleet, partial=True)
    assert (again.exit_code, again.published, not_renewed_of(lab)) == (3, None, told)
