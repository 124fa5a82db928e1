"""Reading what is published: releases, plain folders, and the shapes that loudkit publishes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.canonical import canonical_text
from catalog.errors import RecordsError, one_line
from catalog.folder_store import FolderStore
from catalog.json_spans import elements, indented, members, outdented, values_at
from catalog.publish import Choice, Publisher, Source
from catalog.publish_errors import PublishSourceError, RosterUnreadableError
from catalog.roster import Records, Roster, audio_faults, object_key, read_roster, release_key
from catalog.roster_files import POINTER, RELEASE
from catalog.staleness import State

SOURCE = {"name": "Donations", "url": "https://x.test", "license": "CC0-1.0", "consent": "given"}


def sample(audio: str, data: bytes, **more: Any) -> dict[str, Any]:
    """A sample as loudkit writes it, its keys in no order."""
    return {
        "audio": audio,
        "sha256": hashlib.sha256(data).hexdigest(),
        "text": "Es war einmal.",
        "seed": 7,
        "model": "loudr-1",
        "checkpoint_sha256": "7" * 64,
        "edge_fade_seconds": 0.02,
        "algorithm_fingerprint": "7cd75498ad4e7531",
        "backend": "PyTorch CPU",
        **more,
    }


def preview_voice(name: str, folder: Path) -> dict[str, Any]:
    """A voice of a preview catalog: two lengths, each by two models."""
    made: dict[str, dict[str, Any]] = {"sample": {}, "sample_turbo": {}}
    for key, suffix in (("sample", ""), ("sample_turbo", "-turbo")):
        for length in ("short", "long"):
            data = f"{name} {length}{suffix}".encode()
            audio = f"audio/{name}-{length}{suffix}.opus"
            (folder / audio).parent.mkdir(parents=True, exist_ok=True)
            (folder / audio).write_bytes(data)
            made[key][length] = sample(audio, data, duration_seconds=4.28)
    return {
        "name": name,
        "display_name": name.title(),
        "language": "German",
        "language_id": "de",
        "gender": "F",
        "f0_hz": 140,
        "sample": made["sample"],
        "profile": {"path": f"profiles/{name}.safetensors", "sha256": "b" * 64},
        "source": SOURCE | {"terms": "of use"},
        "sample_turbo": made["sample_turbo"],
    }


def roster_entry(name: str, folder: Path, audio: str) -> dict[str, Any]:
    """An entry of a roster's provenance: one sample, without a passage."""
    data = name.encode()
    if ".." not in audio:
        (folder / audio).parent.mkdir(parents=True, exist_ok=True)
        (folder / audio).write_bytes(data)
    return {
        "name": name,
        "language": "German",
        "language_id": "de",
        "donor": "nobody",
        "speaker_id": None,
        "source": SOURCE,
        "speaker_similarity": 0.8966,
        "sample": sample(audio, data, gain_db=4.730),
    }


def write(folder: Path, name: str, value: object, indent: int) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    (folder / name).write_text(text, encoding="utf-8")
    return text


def test_a_preview_catalog_has_a_clip_a_length_and_model(tmp_path: Path) -> None:
    write(tmp_path, "catalog.json", [preview_voice("ute", tmp_path)], 2)
    roster = read_roster(FolderStore(tmp_path))
    assert set(roster.records.clips) == {
        "ute/short",
        "ute/long",
        "ute/short-turbo",
        "ute/long-turbo",
    }
    assert audio_faults(FolderStore(tmp_path), roster, roster.records.clips, rehash=True) == {}


def test_a_sample_that_lies_elsewhere_is_unreadable_and_no_reason_to_refuse(
    tmp_path: Path,
) -> None:
    entries = [
        roster_entry("ute", tmp_path, "audio/ute.opus"),
        roster_entry("uwe", tmp_path, "../preview/audio/uwe.opus"),
    ]
    write(tmp_path, "provenance.json", entries, 1)
    roster = read_roster(FolderStore(tmp_path))
    faults = audio_faults(FolderStore(tmp_path), roster, roster.records.clips, rehash=True)
    assert {key: fault.state for key, fault in faults.items()} == {"uwe/sample": State.UNREADABLE}


def publish(folder: Path, choice: Choice, records: Records | None = None) -> Roster:
    store = FolderStore(folder)
    source = Source(folder, records or Records())
    publisher = Publisher(store, source, catalog="x", algorithm_fingerprint="f" * 16)
    assert publisher.publish(lambda roster: choice).is_new
    return read_roster(store)


@pytest.mark.parametrize("indent", [1, 2, 4])
def test_records_of_others_are_kept_to_the_byte(tmp_path: Path, indent: int) -> None:
    """Their order of keys, their spaces, their numbers: `4.730` is not `4.73`."""
    entries = [roster_entry(name, tmp_path, f"audio/{name}.opus") for name in ("uwe", "ute")]
    text = write(tmp_path, "provenance.json", entries, indent).replace("4.73", "4.730")
    (tmp_path / "provenance.json").write_text(text, encoding="utf-8")
    roster = publish(tmp_path, Choice(frozenset()))
    assert roster.release is not None
    key = release_key(roster.release.id, "provenance.json")
    released = FolderStore(tmp_path).get(key).data.decode()
    assert set(elements(released)) == set(elements(text))
    assert "4.730" in released
    catalog = FolderStore(tmp_path).get(release_key(roster.release.id, "catalog.json")).data
    (ute, uwe) = json.loads(catalog)
    assert ute["sample"]["sample"] == entries[1]["sample"]
    assert (ute["name"], uwe["name"], ute["source"]) == ("ute", "uwe", SOURCE)


def test_a_voice_that_stays_is_copied_whole(tmp_path: Path) -> None:
    text = write(tmp_path, "catalog.json", [preview_voice("ute", tmp_path)], 2)
    roster = publish(tmp_path, Choice(frozenset()))
    assert roster.release is not None
    catalog = FolderStore(tmp_path).get(release_key(roster.release.id, "catalog.json")).data
    assert catalog.decode() == text
    provenance = json.loads(
        FolderStore(tmp_path).get(release_key(roster.release.id, "provenance.json")).data
    )
    assert [entry["passage"] for entry in provenance] == [
        "long",
        "long-turbo",
        "short",
        "short-turbo",
    ]
    again = read_roster(FolderStore(tmp_path)).records
    assert set(again.clips) == set(roster.records.clips)


def test_a_new_recording_leaves_the_rest_of_a_foreign_voice(tmp_path: Path) -> None:
    """What we do not know of a voice is not ours to throw away."""
    voice = preview_voice("ute", tmp_path)
    write(tmp_path, "catalog.json", [voice], 2)
    theirs = read_roster(FolderStore(tmp_path)).records
    work = tmp_path / "work"
    ours = preview_voice("ute", work)
    ours["sample"]["short"]["seed"] = 8
    write(work, "catalog.json", [ours], 2)
    source = Source(work, read_roster(FolderStore(work)).records)
    publisher = Publisher(
        FolderStore(tmp_path), source, catalog="x", algorithm_fingerprint="f" * 16
    )
    about = {"ute": {"name": "ute", "description": "Warm."}}
    publisher.publish(lambda roster: Choice(frozenset(["ute/short"]), about=about))
    roster = read_roster(FolderStore(tmp_path))
    assert roster.release is not None
    catalog = FolderStore(tmp_path).get(release_key(roster.release.id, "catalog.json")).data
    (told,) = json.loads(catalog)
    assert told["sample"]["short"]["seed"] == 8
    assert told["description"] == "Warm."
    for key in ("gender", "f0_hz", "profile", "source", "sample_turbo"):
        assert told[key] == voice[key]
    assert roster.records.clips["ute/long"].sample == theirs.clips["ute/long"].sample


def test_kept_audio_that_is_altered_is_not_published(tmp_path: Path) -> None:
    write(tmp_path, "catalog.json", [preview_voice("ute", tmp_path)], 2)
    (tmp_path / "audio/ute-short.opus").write_bytes(b"ute shorT")
    with pytest.raises(PublishSourceError, match="ute/short"):
        publish(tmp_path, Choice(frozenset()))
    assert not FolderStore(tmp_path).exists(POINTER)


def test_records_that_do_not_fit_in_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.roster.MAX_RECORDS_BYTES", 100)
    write(tmp_path, "catalog.json", [preview_voice("ute", tmp_path)], 2)
    with pytest.raises(RecordsError, match="a roster's records at most 100; a corpus"):
        read_roster(FolderStore(tmp_path))


def test_an_empty_place_is_an_empty_roster(tmp_path: Path) -> None:
    assert read_roster(FolderStore(tmp_path / "none")).records.clips == {}


@pytest.mark.parametrize("gone", [RELEASE, "catalog.json", "provenance.json"])
def test_a_release_that_is_not_whole_is_refused(tmp_path: Path, gone: str) -> None:
    write(tmp_path, "catalog.json", [preview_voice("ute", tmp_path)], 2)
    roster = publish(tmp_path, Choice(frozenset()))
    assert roster.release is not None
    FolderStore(tmp_path).delete(release_key(roster.release.id, gone))
    with pytest.raises(RosterUnreadableError, match=gone):
        read_roster(FolderStore(tmp_path))


def test_objects_are_named_by_their_content(tmp_path: Path) -> None:
    write(tmp_path, "catalog.json", [preview_voice("ute", tmp_path)], 2)
    roster = publish(tmp_path, Choice(frozenset()))
    assert roster.release is not None
    for sha256, size in roster.release.objects.items():
        data = FolderStore(tmp_path).get(object_key(sha256)).data
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (sha256, size)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=6), _JSON, max_size=5), st.sampled_from([None, 0, 1, 2, 4]))
def test_members_are_cut_out_of_any_spelling(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    found = members(text)
    assert {key: json.loads(cut) for key, cut in found.items()} == value
    assert all(cut in text for cut in found.values())


@given(st.lists(_JSON, max_size=5), st.sampled_from([None, 0, 1, 2, 4]))
def test_elements_are_cut_out_of_any_spelling(value: list[Any], indent: int | None) -> None:
    assert [json.loads(cut) for cut in elements(json.dumps(value, indent=indent))] == value


@given(_JSON)
def test_what_was_cut_out_is_spelt_as_if_it_stood_alone(value: Any) -> None:
    whole = canonical_text({"a": {"b": value}})
    cut = members(members(whole)["a"])["b"]
    assert outdented(cut) == canonical_text(value)
    assert indented(canonical_text(value), 4) == cut


def test_what_stood_around_several_clips_stays_around_each(tmp_path: Path) -> None:
    """An entry that two clips shared is cut in two, and nothing that was said of both is lost."""
    entry = roster_entry("ute", tmp_path, "audio/ute.opus")
    entry["sample"] = {"short": entry["sample"], "long": {**entry["sample"], "text": "Es war."}}
    write(tmp_path, "provenance.json", [entry], 1)
    roster = publish(tmp_path, Choice(frozenset()))
    assert roster.release is not None
    key = release_key(roster.release.id, "provenance.json")
    told = {each["passage"]: each for each in json.loads(FolderStore(tmp_path).get(key).data)}
    assert told == {
        passage: {**entry, "passage": passage, "sample": entry["sample"][passage]}
        for passage in ("short", "long")
    }


@pytest.mark.parametrize("audio", ["a\nb/x.opus", "\ud800.opus", "a/.tmp-x/y.opus", "a\\b.opus"])
def test_audio_that_no_object_can_be_is_unreadable(tmp_path: Path, audio: str) -> None:
    """One such record is no reason to refuse the others, and is told on one line."""
    entries = [
        roster_entry("ute", tmp_path, "audio/ute.opus"),
        roster_entry("uwe", tmp_path, "audio/uwe.opus"),
    ]
    entries[1]["sample"]["audio"] = audio
    (tmp_path / "provenance.json").write_text(json.dumps(entries), encoding="utf-8")
    roster = read_roster(FolderStore(tmp_path))
    faults = audio_faults(FolderStore(tmp_path), roster, roster.records.clips, rehash=True)
    assert {key: fault.state for key, fault in faults.items()} == {"uwe/sample": State.UNREADABLE}
    assert faults["uwe/sample"].told == one_line(faults["uwe/sample"].told)
    with pytest.raises(PublishSourceError):
        Source(tmp_path, roster.records).audio("uwe/sample")


def test_values_are_found_by_their_paths_in_one_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clips a voice has, it is not cut up anew for each."""
    samples = {f"p{n:03d}": {"seed": n} for n in range(200)}
    text = json.dumps([{"name": "ann", "sample": samples, "sample_turbo": {"seed": 7}}])
    (voice,) = elements(text)
    cut: list[str] = []

    def counted(text: str) -> dict[str, str]:
        cut.append(text)
        return members(text)

    monkeypatch.setattr("catalog.json_spans.members", counted)
    paths = [("sample", passage) for passage in samples] + [("sample_turbo",), ()]
    found = list(values_at(voice, paths))
    assert [json.loads(each) for each in found[:-2]] == list(samples.values())
    assert found[-2:] == ['{"seed": 7}', voice]
    assert len(cut) == 2


def test_what_is_just_too_deep_is_refused_on_one_line(tmp_path: Path) -> None:
    """What can be read may be too deep to be cut up further down the stack: no traceback."""
    refused = []
    for depth in range(900, 1010, 2):
        folder = tmp_path / str(depth)
        folder.mkdir()
        voice = preview_voice("ute", folder)
        voice["f0_hz"] = voice["sample"]["short"]["extra"] = "DEEP"
        text = json.dumps([voice]).replace('"DEEP"', "[" * depth + "]" * depth)
        (folder / "catalog.json").write_text(text, encoding="utf-8")
        try:
            publish(folder, Choice(frozenset()))
        except RecordsError as error:
            refused.append(str(error))
    assert all("nested too deeply" in told for told in refused)
