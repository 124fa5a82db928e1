"""catalog.json and provenance.json: built, written, read back; nothing lost and nothing edited."""

from __future__ import annotations

import copy
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.canonical import canonical_json
from catalog.errors import RecordsError, WriteFailedError
from catalog.files import write_atomic, write_atomic_stream
from catalog.loader import LoadedCatalog, load_catalog
from catalog.record_reading import SOLE_PASSAGE, parse_records
from catalog.records import (
    ClipRecord,
    ConditioningRecord,
    PackRecord,
    SourceRecord,
    WindowRecord,
    language_name,
    text_sha256,
    tokens_sha256,
)
from catalog.renders import iter_renders
from tests.catalog.record_lists import catalog_list, provenance_list

CATALOG = """\
catalog: previews
pack: starter
voices:
  - name: slt
    display_name: Slt
    description: A voice.
    source: {name: n, url: "http://u", license: l, consent: c}
  - {name: joe, language: Polski, language_id: pl, status: bundled}
passages: [{id: short, text: Hi.}, {id: alice, text: Alice.}]
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedCatalog:
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    return load_catalog(tmp_path / "catalog.yaml")


def window(index: int = 0) -> WindowRecord:
    return WindowRecord(
        index=index,
        half=0,
        attempt=1,
        attempts=2,
        seed=2**64 - 1,
        text_sha256=text_sha256("Hi."),
        tokens=14,
        tokens_sha256=tokens_sha256(range(14)),
        prefix_tokens=7,
        verdict="clean",
        keep=2,
        generated=3,
        suspect=False,
        ended=True,
    )


def clip(voice: str = "slt", passage: str = "short", **changes: Any) -> ClipRecord:
    whole = ClipRecord(
        voice=voice,
        passage=passage,
        language="English",
        language_id="en",
        audio=f"audio/{voice}/{passage}.flac",
        sha256="a" * 64,
        text="Zażółć.\n",
        seed=7,
        model="starter",
        checkpoint_sha256="b" * 64,
        edge_fade_seconds=0.02,
        algorithm_fingerprint="0123456789abcdef",
        backend="PyTorch CPU",
        duration_seconds=1.5,
        token_contract_fingerprint="fedcba9876543210",
        execution={"torch": "2.13.0", "threads": 1, "tf32": {"matmul": False}},
        pcm_sha256="c" * 64,
        rendered_at="2026-11-30T02:36:00Z",
        pack=PackRecord("starter", "d" * 64),
        conditioning=ConditioningRecord(speaker=voice, language_id="en"),
        source=SourceRecord("n", "http://u", "l", "c"),
        windows=(window(0), window(1)),
    )
    return replace(whole, **changes)


FOUR = [clip(voice, passage) for voice in ("joe", "slt") for passage in ("short", "alice")]

# Of the shape that loudkit publishes: one sample, or samples by name; fields that we do not have.
FOREIGN_SAMPLE = {
    "audio": "audio/x-long.opus",
    "sha256": "1" * 64,
    "text": "A text.",
    "work": "a public-domain work",
    "seed": 7,
    "model": "loudr-1",
    "checkpoint_sha256": "2" * 64,
    "edge_fade_seconds": 0.02,
    "algorithm_fingerprint": "7cd75498ad4e7531",
    "profile_sha256": "3" * 64,
    "backend": "PyTorch CPU",
}
FOREIGN = {
    "name": "x",
    "language": "English",
    "language_id": "en",
    "donor": None,
    "source": {"name": "n", "url": "u", "license": "CC0-1.0", "consent": "c", "terms": "t"},
    "profile": {"sha256": "3" * 64},
}


def test_catalog_json_has_the_published_field_names(loaded: LoadedCatalog) -> None:
    joe, slt = catalog_list(loaded, FOUR)[::-1]
    assert {key: value for key, value in slt.items() if key != "sample"} == {
        "name": "slt",
        "display_name": "Slt",
        "language": "English",
        "language_id": "en",
        "description": "A voice.",
        "status": "available",
        "source": {"name": "n", "url": "http://u", "license": "l", "consent": "c"},
    }
    assert (joe["language"], joe["language_id"], joe["status"]) == ("Polski", "pl", "bundled")
    assert "source" not in joe
    assert set(slt["sample"]) == {"short", "alice"}
    assert set(slt["sample"]["short"]) == {
        *("audio", "sha256", "text", "seed", "model", "checkpoint_sha256", "edge_fade_seconds"),
        *("algorithm_fingerprint", "backend", "duration_seconds"),
        *("token_contract_fingerprint", "execution", "pcm_sha256", "windows", "rendered_at"),
        *("pack", "conditioning"),
    }
    with_profile = catalog_list(loaded, [clip(profile_sha256="e" * 64)])
    assert with_profile[0]["sample"]["short"]["profile_sha256"] == "e" * 64


def test_provenance_json_tells_how_each_clip_was_made() -> None:
    entries = provenance_list(FOUR)
    assert [(entry["name"], entry["passage"]) for entry in entries] == [
        ("joe", "alice"),
        ("joe", "short"),
        ("slt", "alice"),
        ("slt", "short"),
    ]
    entry = entries[3]
    assert entry["source"]["consent"] == "c"
    assert entry["sample"]["pack"] == {"name": "starter", "sha256": "d" * 64}
    assert [each["index"] for each in entry["sample"]["windows"]] == [0, 1]
    assert set(entry["sample"]["windows"][0]) == {each.name for each in fields(WindowRecord)}


def test_records_come_back_as_they_were(loaded: LoadedCatalog, tmp_path: Path) -> None:
    catalog_json = canonical_json(catalog_list(loaded, FOUR))
    provenance_json = canonical_json(provenance_list(FOUR))
    clips = parse_records(provenance_json, "provenance.json")
    assert sorted(clips, key=lambda each: each.key) == sorted(FOUR, key=lambda each: each.key)
    assert canonical_json(provenance_list(clips)) == provenance_json
    again = parse_records(catalog_json, "catalog.json")
    assert canonical_json(catalog_list(loaded, again)) == catalog_json


def test_a_kept_record_keeps_what_we_do_not_know() -> None:
    entries = provenance_list([clip()])
    entries[0]["sample"]["loudness"] = {"lufs": -23}
    entries[0]["source"]["terms"] = "http://terms"
    data = canonical_json(entries)
    (kept,) = parse_records(data, "p")
    assert kept.extra == {"loudness": {"lufs": -23}}
    assert canonical_json(provenance_list([kept])) == data


def test_a_waveform_is_kept_and_never_required(loaded: LoadedCatalog) -> None:
    with_one = clip(waveform="AID/")
    data = canonical_json(provenance_list([with_one]))
    assert parse_records(data, "p") == (with_one,)
    assert catalog_list(loaded, [with_one])[0]["sample"]["short"]["waveform"] == "AID/"
    assert parse_records(canonical_json(provenance_list([clip()])), "p")[0].waveform is None


def test_files_of_loudkit_are_read() -> None:
    single = parse_records(json.dumps([FOREIGN | {"sample": FOREIGN_SAMPLE}]).encode(), "p")
    assert [each.passage for each in single] == [SOLE_PASSAGE]
    keyed = {"short": FOREIGN_SAMPLE | {"duration_seconds": 4.28}, "long": FOREIGN_SAMPLE}
    short, long_ = parse_records(json.dumps([FOREIGN | {"sample": keyed}]).encode(), "p")
    assert (short.key, long_.key) == ("x/short", "x/long")
    assert (short.duration_seconds, long_.duration_seconds) == (4.28, None)
    assert short.algorithm_fingerprint == "7cd75498ad4e7531"
    assert short.extra == {"work": "a public-domain work"}
    assert short.source
    assert short.source.extra == {"terms": "t"}
    assert (short.windows, short.pack, short.execution) == ((), None, None)


@pytest.mark.parametrize("audio", ["../x.flac", "/x.flac", "", "a\0", "a/../../x", "a\\b", "."])
def test_a_path_that_leads_out_is_told_and_not_followed(audio: str) -> None:
    (found,) = parse_records(changed([0, "sample", "audio"], audio), "p")
    assert (found.audio, found.audio_key) == (audio, None)


@pytest.mark.parametrize(
    ("audio", "key"), [("a.flac", "a.flac"), ("audio/x.opus", "audio/x.opus"), ("./a", "a")]
)
def test_a_path_below_the_records_is_a_key(audio: str, key: str) -> None:
    (found,) = parse_records(changed([0, "sample", "audio"], audio), "p")
    assert found.audio_key == key


def test_a_passage_named_audio_is_no_sample(loaded: LoadedCatalog) -> None:
    clips = [clip(passage="audio")]
    assert parse_records(canonical_json(catalog_list(loaded, clips)), "c")[0].key == ("slt/audio")


def test_conditioning_and_language_of_a_render(loaded: LoadedCatalog) -> None:
    slt, joe = list(iter_renders(loaded, "*/short"))
    assert ConditioningRecord.of(joe) == ConditioningRecord(speaker="joe", language_id="pl")
    assert language_name(loaded.catalog, slt.voice, "en") == "English"
    assert language_name(loaded.catalog, slt.voice, "pt-BR") == "Portuguese"
    assert language_name(loaded.catalog, slt.voice, "xx") == "xx"
    assert language_name(loaded.catalog, joe.voice, "pl") == "Polski"
    assert language_name(loaded.catalog, joe.voice, "en") == "English"


def test_hashes_are_over_stated_bytes() -> None:
    assert text_sha256("é") == sha256(b"\xc3\xa9").hexdigest()
    assert (
        tokens_sha256([1, 76, 65536])
        == sha256(bytes.fromhex("010000004c00000000000100")).hexdigest()
    )
    assert tokens_sha256([]) == sha256(b"").hexdigest()


def test_prose_never_promises_an_identical_waveform_unqualified() -> None:
    rooms = Path(__file__).parents[2]
    for path in (*rooms.glob("catalog/*.py"), *rooms.glob("examples/*")):
        assert not re.search(r"identical\s+waveform", path.read_text(), re.IGNORECASE), path


# The one spelling.


def test_canonical_json_is_one_spelling() -> None:
    value = {"b": [1, 2.5, None, True], "a": {"ż": "ü\n", "A": ()}}
    expected = '{\n  "a": {\n    "A": [],\n    "ż": "ü\\n"\n  },\n  "b": [\n    1,\n    2.5,\n'
    expected += "    null,\n    true\n  ]\n}\n"
    assert canonical_json(value) == expected.encode()
    assert canonical_json(dict(reversed(value.items()))) == expected.encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"a": float("nan")}], "[0].a: expected a finite number, got nan"),
        ({"a": {"b": float("-inf")}}, "a.b: expected a finite number, got -inf"),
        ({1: 2}, "record: expected a string as key, got 1"),
        ({"a": {None: 2}}, "a: expected a string as key, got None"),
        ({"a": b"x"}, "a: expected a value of JSON, got bytes"),
        ({"a": {1, 2}}, "a: expected a value of JSON, got set"),
        ({"a": "\ud800"}, "a: half a surrogate pair is no text"),
        ({"\ud800": 1}, "record: half a surrogate pair is no text"),
    ],
)
def test_what_json_does_not_have_is_refused(value: object, expected: str) -> None:
    with pytest.raises(RecordsError) as caught:
        canonical_json(value)
    assert str(caught.value) == expected


def test_a_value_within_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(RecordsError, match="nested too deeply, or within itself"):
        canonical_json(loop)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(value=JSON)
def test_canonical_json_reads_back(value: object) -> None:
    data = canonical_json(value)
    assert json.loads(data) == value
    assert canonical_json(json.loads(data)) == data
    assert data.endswith(b"\n")


# What is refused on reading.


def changed(path: list[Any], value: object) -> bytes:
    """A provenance.json whose field at `path` holds `value`; Ellipsis takes the field away."""
    root: Any = copy.deepcopy(provenance_list([clip()]))
    at = root
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(root).encode()


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ([0], 3, "p: [0]: expected an object, got 3"),
        ([0, "sample"], ..., "p: [0].sample: expected an object, got null"),
        ([0, "sample"], [], "p: [0].sample: expected an object, got a list"),
        ([0, "sample"], {"a": 1}, "p: [0].sample.a: expected an object, got 1"),
        ([0, "sample"], {"../x": {}}, "p: [0].sample: a name must not contain a slash"),
        ([0, "name"], "../x", "p: [0].name: a name must not contain a slash"),
        ([0, "passage"], "..", "p: [0].passage: a name must not start with a dot"),
        ([0, "sample", "seed"], "7", 'p: [0].sample.seed: expected integer, got "7"'),
        ([0, "sample", "seed"], True, "p: [0].sample.seed: expected integer, got true"),
        ([0, "sample", "seed"], 2**64, "p: [0].sample.seed: expected an integer from 0 to 1844"),
        ([0, "sample", "seed"], ..., "p: [0].sample.seed: missing; expected integer"),
        ([0, "sample", "text"], None, "p: [0].sample.text: expected string, got null"),
        ([0, "sample", "sha256"], "A" * 64, "p: [0].sample.sha256: expected 64 lower-case hex"),
        ([0, "sample", "pcm_sha256"], "a" * 63, "p: [0].sample.pcm_sha256: expected 64 lower"),
        ([0, "sample", "audio"], 3, "p: [0].sample.audio: expected an object, got 3"),
        ([0, "sample", "waveform"], [1], "p: [0].sample.waveform: expected string, got a list"),
        ([0, "sample", "duration_seconds"], -1, "p: [0].sample.duration_seconds: expected a num"),
        ([0, "sample", "execution"], [], "p: [0].sample.execution: expected an object, got a l"),
        ([0, "sample", "windows"], {}, "p: [0].sample.windows: expected a list, got a mapping"),
        ([0, "sample", "windows", 1, "half"], 3, "p: [0].sample.windows[1].half: expected an int"),
        ([0, "sample", "windows", 0, "ended"], 1, "p: [0].sample.windows[0].ended: expected tru"),
        ([0, "sample", "pack", "sha256"], "x", "p: [0].sample.pack.sha256: expected 64 lower-c"),
        ([0, "sample", "algorithm_fingerprint"], "x" * 16, "p: [0].sample.algorithm_fingerprint"),
        ([0, "source", "license"], ..., "p: [0].source.license: missing; expected string"),
        ([0, "language"], ..., "p: [0].language: missing; expected string"),
    ],
)
def test_a_record_of_the_wrong_shape_is_refused(
    path: list[Any], value: object, expected: str
) -> None:
    with pytest.raises(RecordsError) as caught:
        parse_records(changed(path, value), "p")
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "p:1:1: not JSON"),
        (b"[1,\n 2", "p:2:3: not JSON"),
        (b"{}", "p: expected a list of voices or entries, got a mapping"),
        (b'[{"a": 1, "a": 2}]', 'key "a" is given twice in one object'),
        (b"[NaN]", "NaN is no number of JSON"),
        (b"[1e5", "not JSON"),
        (b"caf\xe9", "byte 0xe9 at offset 3 (line 1) is not UTF-8"),
        (b"[" * 100_000, "p: nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "not JSON that we read"),
    ],
)
def test_what_is_no_records_file_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(RecordsError) as caught:
        parse_records(data, "p")
    assert expected in str(caught.value)


def test_one_clip_recorded_twice_is_refused() -> None:
    entry = provenance_list([clip()])[0]
    with pytest.raises(RecordsError, match=r'\[1\]: clip "slt/short" is recorded twice'):
        parse_records(json.dumps([entry, entry]).encode(), "p")


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    at=st.floats(0, 1, exclude_max=True),
    cut=st.integers(0, 20),
    insert=st.sampled_from(["", "{", "}", "[]", "null", '"', ",", "1e999", "-1", "\ud83d", "\\u"]),
)
def test_damaged_records_are_typed_errors(at: float, cut: int, insert: str) -> None:
    text = canonical_json(provenance_list([clip()])).decode()
    start = int(at * len(text))
    damaged = text[:start] + insert + text[start + cut :]
    try:
        clips = parse_records(damaged.encode("utf-8", "surrogatepass"), "p")
    except RecordsError as error:
        message = str(error)
        assert "\n" not in message
    else:
        assert parse_records(canonical_json(provenance_list(clips)), "p") == clips


# Writing.


def test_write_atomic_replaces_whole_files(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "file.json"
    write_atomic(target, b"one")
    write_atomic(target, b"")
    assert target.read_bytes() == b""
    write_atomic(target, b"two")
    assert target.read_bytes() == b"two"
    assert os.listdir(target.parent) == ["file.json"]


def test_a_stream_is_written_whole(tmp_path: Path) -> None:
    write_atomic_stream(tmp_path / "a" / "f", (bytes([n % 256]) * 1000 for n in range(3000)))
    assert (tmp_path / "a" / "f").stat().st_size == 3_000_000
    write_atomic_stream(tmp_path / "a" / "f", [])
    assert (tmp_path / "a" / "f").read_bytes() == b""
    assert os.listdir(tmp_path / "a") == ["f"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RecordsError("clip: no"), RecordsError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(5, "Input/output error"), WriteFailedError),
    ],
)
def test_a_stream_that_breaks_off_leaves_the_old_file(
    tmp_path: Path, raised: BaseException, expected: type[BaseException]
) -> None:
    def stream() -> Iterator[bytes]:
        yield b"n" * 2**20
        raise raised

    write_atomic(tmp_path / "f", b"old")
    with pytest.raises(expected):
        write_atomic_stream(tmp_path / "f", stream())
    assert ((tmp_path / "f").read_bytes(), os.listdir(tmp_path)) == (b"old", ["f"])


def test_written_files_are_readable_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "f", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o644


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("x" * 200 + ".flac"), b"x")
    write_atomic(tmp_path / ("x" * 255), b"x")


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = tmp_path / "f"
    write_atomic(target, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if step == "fsync":
            patch.setattr(os, "fsync", fail)
        elif step == "replace":
            patch.setattr(Path, "replace", fail)
        else:
            patch.setattr(os, "fdopen", fail)
        with pytest.raises(WriteFailedError, match="f: cannot be written: No space left") as caught:
            write_atomic(target, b"new")
    assert caught.value.code == "write_failed"
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "f"
    write_atomic(target, b"old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(target, b"new")
    assert (target.read_bytes(), os.listdir(tmp_path)) == (b"old", ["f"])


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "x", Path("/proc/nowhere/x"), tmp_path / "a\0b" / "c"):
        with pytest.raises(WriteFailedError):
            write_atomic(path, b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteFailedError, match="Is a directory"):
        write_atomic(tmp_path / "folder", b"x")


def test_data_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("sync folder" if is_folder else "sync file")
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_atomic(tmp_path / "f", b"x")
    assert steps == ["sync file", "rename", "sync folder"]
