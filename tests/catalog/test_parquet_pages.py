"""The sizes that a Parquet file announces: whole files pass, whoever wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import corpus, parquet_pages
from catalog.corpus import BATCH_ROWS, Corpus
from catalog.errors import CorpusError
from catalog.parquet_delta import require_lengths
from catalog.parquet_pages import MAX_BATCH_BYTES, read_layout
from catalog.thrift_compact import MAX_DEPTH, Reader, Torn

_MANY = pa.list_(pa.string())
_INNER = pa.struct({"a": pa.string(), "b": pa.list_(pa.struct({"c": pa.int32()}))})
ENCODINGS = ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", None)


def written(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    texts=st.lists(st.one_of(st.text(max_size=40), st.none()), min_size=1, max_size=300),
    encoding=st.sampled_from(ENCODINGS),
    compression=st.sampled_from(("none", "snappy", "gzip", "brotli", "lz4", "zstd")),
    version=st.sampled_from(("1.0", "2.0")),
    page_bytes=st.sampled_from((64, 1000, 2**20)),
    group_rows=st.integers(1, 300),
)
def test_what_pyarrow_writes_is_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str | None],
    encoding: str | None,
    compression: str,
    version: str,
    page_bytes: int,
    group_rows: int,
) -> None:
    path = written(
        tmp_path_factory.mktemp("pages") / "a.parquet",
        {
            "text": pa.array(texts, pa.string()),
            "many": pa.array([[text] * (n % 3) for n, text in enumerate(texts)], _MANY),
            "inner": pa.array([{"a": text, "b": [{"c": 1}]} for text in texts], _INNER),
        },
        use_dictionary=encoding is None,
        column_encoding=encoding and {"text": encoding, "inner.a": encoding},
        compression=compression,
        data_page_version=version,
        data_page_size=page_bytes,
        row_group_size=group_rows,
    )
    layout = read_layout(path)
    names = {"text", "many.list.element", "inner.a", "inner.b.list.element.c"}
    assert {chunk.leaf.name for chunk in layout.chunks} == names
    assert 0 < layout.rows_at_once(None, most=BATCH_ROWS) <= BATCH_ROWS


def test_long_words_make_small_batches(tmp_path: Path) -> None:
    words = pa.array(["a" * 1000, "b" * 3_000_000]).dictionary_encode()
    path = written(tmp_path / "a.parquet", {"id": ["x", "y"], "text": words})
    layout = read_layout(path)
    assert layout.rows_at_once(["id"], most=BATCH_ROWS) == BATCH_ROWS
    assert layout.rows_at_once(["id", "text"], most=BATCH_ROWS) == MAX_BATCH_BYTES // 3_001_008


def test_only_the_pages_that_will_be_read_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_pages, "MAX_PAGE_BYTES", 1000)
    columns = {"id": ["x"], "text": ["y"], "text.x": ["a" * 2000], "tex": ["a" * 2000]}
    layout = read_layout(written(tmp_path / "a.parquet", columns))
    assert layout.rows_at_once(["id"], most=9) == 9
    with pytest.raises(ValueError, match=r"at most 1000, write the file with smaller pages"):
        layout.rows_at_once(["text"], most=9)  # pyarrow reads text.x with it


def test_values_in_lists_are_bounded(tmp_path: Path) -> None:
    layout = read_layout(written(tmp_path / "a.parquet", {"ids": [[1] * 50, [2] * 51]}))
    assert layout.rows_at_once(None, most=9, most_values=101) == 9
    with pytest.raises(ValueError, match="a row group of 101 values in lists"):
        layout.rows_at_once(None, most=9, most_values=100)


def test_a_long_text_is_refused_by_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_TEXT_BYTES", 10)
    for texts in (pa.array(["short", "é" * 6]), pa.array(["short", "é" * 6]).dictionary_encode()):
        path = written(tmp_path / "a.parquet", {"id": ["p", "q"], "text": texts})
        rows = Corpus(path, "id", "text", "here").rows()
        assert next(rows) == ("p", "short")
        with pytest.raises(CorpusError, match="row 1: text has 12 bytes; expected at most 10"):
            next(rows)


def test_long_texts_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_TEXT_BYTES", 10)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        texts = [f"é{n}" for n in range(20)]
        table = {"id": [f"p{n}" for n in range(20)], "text": pa.array(texts, kind)}
        path = written(tmp_path / "a.parquet", table)
        assert [text for _, text in Corpus(path, "id", "text", "here").rows()] == texts


def test_equal_ids_are_found_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_FIRST_LOOK", 4)
    digests = corpus.IdDigests()
    looks = [digests.add(f"p{n % 10}") for n in range(20)]
    assert [n for n, look in enumerate(looks) if look] == [3, 7, 15]
    assert digests.first_collision() == (0, 10)


@pytest.mark.parametrize(
    ("data", "values", "expected"),
    [
        (b"\x80\x01\x04\x80\x80\x80\x80\x01\0\0\0\0\0\0", 60, "268435456 lengths"),
        (b"\x80\x01\x00\x05\0", 60, "lengths in blocks of 128, 0 parts"),
        (b"\x81\x01\x04\x05\0", 60, "lengths in blocks of 129, 4 parts"),
        (b"\x80\x01\x04\x05\0\0\xff\xff\xff\xff", 60, "bytes announced, 0 left"),
        (b"\x80", 60, "the bytes end too early"),
        (b"\xff" * 12, 60, "more than 64 bits"),
    ],
)
def test_lengths_that_are_not_there_are_refused(data: bytes, values: int, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        require_lengths(data, 6, values, 0)


def test_thrift_is_read_as_it_is_written() -> None:
    # 1: i32 3; 2: {1: list of i32 [1, -1], 2: true, 3: "ab"}; 20: i64 -2, its number spelt out
    reader = Reader(bytes.fromhex("1506 1c 192502 01 11 18026162 00 062803 00") + b"rest")
    assert reader.struct() == {1: 3, 2: {1: [1, -1], 2: True, 3: b"ab"}, 20: -2}
    assert reader.at == 17


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (b"\x1c" * (MAX_DEPTH + 1), ValueError, "nested more than"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f", Torn, "items announced"),
        (b"\x18\xff\xff\xff\xff\x0f", Torn, "bytes announced"),
        (b"\x1d\x00", ValueError, "none of Thrift's"),
        (b"\x14\xff\xff\xff\x0f\x00", ValueError, "more than 16 bits"),
        (b"\x15", Torn, "end too early"),
    ],
)
def test_thrift_that_is_none_is_refused(data: bytes, kind: type[ValueError], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        Reader(data).struct()
