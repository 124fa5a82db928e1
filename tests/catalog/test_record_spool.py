"""The records as they are streamed: the bytes of the plain lists, and nothing left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.canonical import canonical_json, canonical_text, document, list_chunks, object_chunks
from catalog.errors import RecordsError, WriteFailedError
from catalog.loader import LoadedCatalog, load_catalog
from catalog.record_spool import RecordSpool, open_spool
from catalog.records import ClipRecord, ConditioningRecord, SourceRecord
from tests.catalog.record_lists import catalog_list, provenance_list
from tests.catalog.test_records import CATALOG, FOUR, JSON, clip

VOICES = ("slt", "joe")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedCatalog:
    path = tmp_path_factory.mktemp("catalog") / "catalog.yaml"
    path.write_text(CATALOG)
    return load_catalog(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "a place #1?" / "ż" / ".records"


def fill(spool: RecordSpool, clips: list[ClipRecord]) -> RecordSpool:
    for each in clips:
        spool.add(each)
    return spool


def whole(loaded: LoadedCatalog, place: Path, clips: list[ClipRecord]) -> tuple[bytes, bytes]:
    """catalog.json and provenance.json of these clips."""
    with open_spool(place, loaded) as spool:
        fill(spool, clips)
        return b"".join(spool.catalog_json()), b"".join(spool.provenance_json())


# Anything that a record may hold, names that no catalog has included.
NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
RECORDS = st.builds(
    clip,
    voice=st.sampled_from(VOICES),
    passage=NAMES,
    text=NAMES,
    language=NAMES,
    duration_seconds=st.none() | st.floats(0, 1e6),
    execution=st.none() | st.dictionaries(NAMES, JSON, max_size=2),
    conditioning=st.none() | st.builds(ConditioningRecord, language_id=st.none() | NAMES),
    source=st.none()
    | st.builds(
        SourceRecord, NAMES, NAMES, NAMES, NAMES, st.dictionaries(st.just("x"), JSON, max_size=1)
    ),
    windows=st.just(()) | st.just(clip().windows),
    extra=st.dictionaries(st.sampled_from(["work", "a\nb", "  x"]), JSON, max_size=2),
)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(clips=st.lists(RECORDS, max_size=6, unique_by=lambda each: (each.voice, each.passage)))
def test_the_streams_are_the_plain_lists(
    loaded: LoadedCatalog, place: Path, clips: list[ClipRecord]
) -> None:
    catalog_json, provenance_json = whole(loaded, place, clips)
    assert catalog_json == canonical_json(catalog_list(loaded, clips))
    assert provenance_json == canonical_json(provenance_list(clips))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(value=st.lists(st.dictionaries(NAMES, JSON, max_size=3), max_size=3))
def test_chunks_are_the_one_spelling(value: list[dict[str, Any]]) -> None:
    items = (
        object_chunks((key, canonical_text(item[key])) for key in sorted(item)) for item in value
    )
    assert b"".join(document(list_chunks(items))) == canonical_json(value)


def test_names_are_sorted_by_code_point(loaded: LoadedCatalog, place: Path) -> None:
    names = ["a", "B", "Ż", "\uff5e", "\U0001f600", "a b", "a-b", "10", "9", "\x7f", "a\0b"]
    _, provenance_json = whole(loaded, place, [clip(passage=name) for name in names])
    assert [each["passage"] for each in json.loads(provenance_json)] == sorted(names)


def test_the_order_of_arrival_leaves_no_trace(loaded: LoadedCatalog, place: Path) -> None:
    assert whole(loaded, place, FOUR) == whole(loaded, place, FOUR[::-1])


def test_a_voice_without_clips_is_not_listed(loaded: LoadedCatalog, place: Path) -> None:
    catalog_json, _ = whole(loaded, place, [clip("joe")])
    assert [voice["name"] for voice in json.loads(catalog_json)] == ["joe"]
    assert whole(loaded, place, []) == (b"[]\n", b"[]\n")


def test_what_the_page_is_told(loaded: LoadedCatalog, place: Path) -> None:
    seconds = [0.1, 0.7, None, 1e9, 0.3]
    clips = [
        clip(voice, str(9 - n), duration_seconds=length, algorithm_fingerprint=str(n % 2))
        for n, length in enumerate(seconds)
        for voice in reversed(VOICES)
    ]
    clips.append(clip("slt", "en", conditioning=None))
    with open_spool(place, loaded) as spool:
        fill(spool, clips)
        assert len(spool) == 11
        assert [about["name"] for about in spool.voices()] == ["slt", "joe"]
        assert spool.counts == {"slt": 6, "joe": 5}
        assert spool.by_algorithm == {"0": 6, "1": 4, clip().algorithm_fingerprint: 1}
        assert spool.language_ids == {"en"}
        passages = [passage for passage, _ in spool.samples("slt")]
        assert passages == ["9", "8", "7", "6", "5", "en"]  # as they came
        assert next(spool.samples("joe"))[1]["audio"] == "audio/joe/9.flac"
        known = [each or 0.0 for each in seconds]
        assert spool.seconds() == sum([*known, 1.5, *known])


def test_impossible_sets_of_clips_are_refused(loaded: LoadedCatalog, place: Path) -> None:
    with open_spool(place, loaded) as spool:
        with pytest.raises(RecordsError, match=r'clip "eve/short": no such voice .*: slt, joe'):
            spool.add(clip("eve"))
        spool.add(clip())
        with pytest.raises(RecordsError, match='clip "slt/short" is given twice'):
            spool.add(clip(text="another"))
        spool.add(clip("joe"))
        assert b"".join(spool.provenance_json()) == canonical_json(
            provenance_list([clip("joe"), clip()])
        )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"duration_seconds": float("nan")}, 'slt/short": sample.duration_seconds: expected a fin'),
        ({"execution": {"a": [float("inf")]}}, 'slt/short": sample.execution.a[0]: expected a fin'),
        ({"execution": {"a": b""}}, 'slt/short": sample.execution.a: expected a value of JSON'),
        ({"extra": {1: 2}}, 'slt/short": sample: expected a string as key, got 1'),
        ({"text": "\ud800"}, 'slt/short": sample.text: half a surrogate pair is no text'),
        ({"passage": "\udfff"}, 'slt/\\udfff": passage: half a surrogate pair is no text'),
        ({"language": "\ud800"}, 'slt/short": language: half a surrogate pair is no text'),
    ],
)
def test_what_json_does_not_have_is_refused_by_clip(
    loaded: LoadedCatalog, place: Path, changes: dict[str, Any], expected: str
) -> None:
    with open_spool(place, loaded) as spool:
        with pytest.raises(RecordsError) as caught:
            spool.add(clip(**changes))
        assert str(caught.value).startswith(f'clip "{expected}')
        assert len(spool) == 0


@pytest.mark.parametrize("raised", [RecordsError("no"), KeyboardInterrupt()])
def test_nothing_is_left_behind(
    loaded: LoadedCatalog, tmp_path: Path, raised: BaseException
) -> None:
    def break_off() -> None:
        with open_spool(tmp_path / ".records", loaded) as spool:
            fill(spool, FOUR)
            assert list(tmp_path.rglob("*.sqlite"))
            next(spool.provenance_json())
            raise raised

    with pytest.raises(type(raised)):
        break_off()
    assert list(tmp_path.iterdir()) == []


def test_the_leftovers_of_a_killed_process_go(loaded: LoadedCatalog, tmp_path: Path) -> None:
    (tmp_path / ".records").mkdir()
    (tmp_path / ".records" / "clips.sqlite").write_bytes(b"torn")
    assert whole(loaded, tmp_path / ".records", FOUR)[0]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(loaded: LoadedCatalog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "x", Path("/proc/nowhere")):
        with (
            pytest.raises(WriteFailedError, match=f"{folder}: cannot be written"),
            open_spool(folder, loaded),
        ):
            pass
    assert (tmp_path / "file").is_file()


def test_a_full_disk_is_told(loaded: LoadedCatalog, place: Path) -> None:
    def fill_up() -> None:
        with open_spool(place, loaded) as spool:
            spool._database.execute("PRAGMA max_page_count = 8")
            for number in range(100):
                spool.add(clip(passage=str(number)))

    with pytest.raises(WriteFailedError, match=r"\.records: cannot be written: .* full"):
        fill_up()
    assert not place.exists()


def test_no_query_sorts(loaded: LoadedCatalog, place: Path) -> None:
    with open_spool(place, loaded) as spool:
        asked: list[str] = []
        spool._database.set_trace_callback(asked.append)
        fill(spool, FOUR)
        for stream in (spool.catalog_json(), spool.provenance_json(), spool.samples("slt")):
            assert list(stream)
        assert spool.seconds()
        spool._database.set_trace_callback(None)
        queries = {each for each in asked if each.startswith("SELECT")}
        assert len(queries) >= 3
        for query in queries:
            plan = spool._database.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
            assert "TEMP B-TREE" not in str(plan)


def test_a_pipe_in_its_place_is_refused_and_not_waited_for(
    loaded: LoadedCatalog, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / ".records")
    with (
        pytest.raises(WriteFailedError, match="Not a directory"),
        open_spool(tmp_path / ".records", loaded),
    ):
        pass
