"""Token Parquet: what is written comes back, under its contract or not at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import export
from catalog.errors import CatalogError, WriteFailedError
from catalog.export import TokenRow, read_token_part, write_token_parts
from catalog.export_errors import (
    TokenContractMismatchError,
    TokenPartError,
    TokenPartLayoutError,
    TokenPartUnreadableError,
    TokenRowError,
)

ROOT = Path(__file__).parents[2]
CONTRACT = "c0b13d2f4a5e6f70"
IDENTITY = {
    "algorithm_fingerprint": "7cd75498ad4e7531",
    "token_contract_fingerprint": CONTRACT,
    "pack_sha256": "ab" * 32,
}
FIRST = "part-00000.parquet"

texts = st.text(st.characters(codec="utf-8"))
token_rows = st.builds(
    TokenRow,
    voice=texts,
    passage=texts,
    chunk_index=st.integers(0, 2**31 - 1),
    half=st.integers(0, 2),
    seed=st.integers(0, 2**64 - 1),
    text=texts,
    tokens=st.lists(st.integers(0, 2**31 - 1)),
)


def rows(count: int, *, of: str = "slt") -> list[TokenRow]:
    return [
        TokenRow(of, f"p{n // 3}", n % 3, 0, 2**64 - 1 - n, f"Tekst {n}.", list(range(n, 8 * n)))
        for n in range(count)
    ]


def write(folder: Path, given_rows: list[TokenRow], **more: Any) -> int:
    return write_token_parts(folder, iter(given_rows), **{**IDENTITY, **more})


def read(folder: Path) -> list[TokenRow]:
    parts = sorted(folder.glob("part-*.parquet"))
    return [row for part in parts for row in read_part(part)]


def read_part(path: Path) -> list[TokenRow]:
    return list(read_token_part(path, token_contract_fingerprint=CONTRACT))


def names(folder: Path) -> list[str]:
    """Everything in the folder, what is unfinished or hidden included."""
    return sorted(path.name for path in folder.iterdir())


def refusal(path: Path, kind: type[TokenPartError], contract: str = CONTRACT) -> str:
    with pytest.raises(CatalogError) as caught:
        list(read_token_part(path, token_contract_fingerprint=contract))
    assert type(caught.value) is kind
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_rows_come_back_in_order_over_several_parts(tmp_path: Path) -> None:
    given_rows = rows(25)
    assert write(tmp_path, given_rows, rows_per_part=10) == 25
    assert names(tmp_path) == [f"part-0000{n}.parquet" for n in range(3)]
    assert [len(read_part(tmp_path / name)) for name in names(tmp_path)] == [10, 10, 5]
    assert read(tmp_path) == given_rows


def test_a_full_last_part_is_not_followed_by_an_empty_one(tmp_path: Path) -> None:
    write(tmp_path, rows(20), rows_per_part=10)
    assert len(names(tmp_path)) == 2


@settings(deadline=None, derandomize=True, max_examples=60)
@given(given_rows=st.lists(token_rows, max_size=9), rows_per_part=st.integers(1, 10))
def test_any_rows_come_back(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[TokenRow], rows_per_part: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write(folder, given_rows, rows_per_part=rows_per_part)
    assert read(folder) == given_rows


def test_a_tuple_of_ids_is_written_like_a_list(tmp_path: Path) -> None:
    write(tmp_path / "list", [replace(row, tokens=list(row.tokens)) for row in rows(5)])
    write(tmp_path / "tuple", [replace(row, tokens=tuple(row.tokens)) for row in rows(5)])
    assert (tmp_path / "tuple" / FIRST).read_bytes() == (tmp_path / "list" / FIRST).read_bytes()


def test_schema_and_metadata_are_explicit(tmp_path: Path) -> None:
    write(tmp_path, rows(2))
    schema = pq.read_schema(tmp_path / FIRST)
    assert schema.metadata == {
        b"format": b"loudkit-batch-tokens-1",
        **{key.encode(): value.encode() for key, value in IDENTITY.items()},
    }
    assert {field.name: str(field.type) for field in schema} == {
        "voice": "string",
        "passage": "string",
        "chunk_index": "int32",
        "half": "int8",
        "seed": "uint64",
        "text": "string",
        "tokens": "list<element: int32 not null>",
    }
    assert not any(field.nullable for field in schema)


def test_no_rows_give_one_part_that_keeps_schema_and_contract(tmp_path: Path) -> None:
    assert write(tmp_path, []) == 0
    assert names(tmp_path) == [FIRST]
    assert read(tmp_path) == []
    empty = pq.read_schema(tmp_path / FIRST)
    write(tmp_path, rows(3))
    assert pq.read_schema(tmp_path / FIRST).equals(empty, check_metadata=True)


def test_bytes_repeat_and_row_groups_do_not_depend_on_parts_before(tmp_path: Path) -> None:
    write(tmp_path / "a", rows(30), rows_per_part=10)
    write(tmp_path / "b", rows(30), rows_per_part=10)
    write(tmp_path / "c", rows(30)[10:20], rows_per_part=10)
    contents = [path.read_bytes() for path in sorted((tmp_path / "a").iterdir())]
    assert [path.read_bytes() for path in sorted((tmp_path / "b").iterdir())] == contents
    assert (tmp_path / "c" / FIRST).read_bytes() == contents[1]


@pytest.mark.parametrize(("limit", "value"), [("GROUP_ROWS", 4), ("GROUP_TOKENS", 40)])
def test_row_groups_are_bounded_so_that_memory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(export, limit, value)
    write(tmp_path, rows(24))
    metadata = pq.read_metadata(tmp_path / FIRST)
    assert metadata.num_row_groups >= 6
    assert read(tmp_path) == rows(24)


def test_rows_are_written_while_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "GROUP_ROWS", 100)
    sizes: list[int] = []

    def watched() -> Iterator[TokenRow]:
        for row in rows(300):
            sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            yield row

    write_token_parts(tmp_path, watched(), rows_per_part=1000, **IDENTITY)
    assert sizes[299] > sizes[150] > sizes[0]


def test_parts_of_a_longer_run_go_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    write(tmp_path, rows(40), rows_per_part=10)
    for name in ("notes.txt", "part-1.parquet", "part-00009.parquet.bak"):
        (tmp_path / name).write_text("not ours")
    write(tmp_path, rows(12), rows_per_part=10)
    assert names(tmp_path) == [
        "notes.txt",
        FIRST,
        "part-00001.parquet",
        "part-00009.parquet.bak",
        "part-1.parquet",
    ]


def test_a_source_that_fails_leaves_the_old_set_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, rows(25), rows_per_part=10)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def failing() -> Iterator[TokenRow]:
        yield from rows(15, of="other")
        raise OSError("the ledger is torn")

    with pytest.raises(OSError, match="the ledger is torn"):
        write_token_parts(tmp_path, failing(), rows_per_part=10, **IDENTITY)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_kill_leaves_the_old_set_and_the_next_run_clears_up(tmp_path: Path) -> None:
    write(tmp_path, rows(25), rows_per_part=10)
    before = read(tmp_path)
    script = f"""
import os
from pathlib import Path
from catalog.export import TokenRow, write_token_parts
def rows():
    for n in range(25):
        yield TokenRow("other", "p", n, 0, 7, "text", [n])
    os._exit(9)
write_token_parts(Path({str(tmp_path)!r}), rows(), rows_per_part=10, **{IDENTITY!r})
"""
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert killed.returncode == 9
    assert len(names(tmp_path)) > 3
    assert read(tmp_path) == before
    write(tmp_path, rows(5))
    assert names(tmp_path) == [FIRST]


def test_a_folder_that_cannot_be_one_is_a_typed_refusal(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a file")
    with pytest.raises(WriteFailedError, match="cannot be written") as caught:
        write(tmp_path / "tokens", rows(1))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"tokens": [1, 2**31]},
        {"seed": -1},
        {"seed": 2**64},
        {"half": 200},
        {"text": "half \ud800"},
        {"text": 3},
        {"text": None},
        {"tokens": [1, None]},
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, bad: dict[str, Any]) -> None:
    given_rows = rows(5)
    given_rows[3] = replace(given_rows[3], **bad)
    with pytest.raises(TokenRowError, match='tokens of "slt/p1", chunk 0: ') as caught:
        write(tmp_path, given_rows)
    assert len(str(caught.value).splitlines()) == 1
    assert names(tmp_path) == []


def test_parts_of_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows_per_part"):
        write(tmp_path, rows(1), rows_per_part=0)


def test_another_contract_is_refused_with_both_fingerprints(tmp_path: Path) -> None:
    write(tmp_path, rows(3))
    told = refusal(tmp_path / FIRST, TokenContractMismatchError, "0123456789abcdef")
    assert CONTRACT in told
    assert "0123456789abcdef" in told
    assert TokenContractMismatchError.code == "contract_mismatch"


def test_it_is_refused_before_the_first_row_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, rows(3))
    with pytest.raises(TokenContractMismatchError):
        read_token_part(tmp_path / FIRST, token_contract_fingerprint="0123456789abcdef")


def test_tokens_without_a_contract_are_refused(tmp_path: Path) -> None:
    write(tmp_path, rows(3))
    bare = pq.read_table(tmp_path / FIRST).replace_schema_metadata(None)
    pq.write_table(bare, tmp_path / "bare.parquet")
    told = refusal(tmp_path / "bare.parquet", TokenContractMismatchError)
    assert "no token contract" in told
    assert CONTRACT in told


@pytest.mark.parametrize("format_", ["loudkit-batch-tokens-2", None])
def test_another_format_is_refused(tmp_path: Path, format_: str | None) -> None:
    write(tmp_path, rows(3))
    table = pq.read_table(tmp_path / FIRST)
    metadata = {**table.schema.metadata, **({b"format": format_.encode()} if format_ else {})}
    if format_ is None:
        del metadata[b"format"]
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / FIRST)
    assert "loudkit-batch-tokens-1" in refusal(tmp_path / FIRST, TokenPartLayoutError)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path, rows(3))
    pq.write_table(pq.read_table(tmp_path / FIRST).drop_columns(["half"]), tmp_path / FIRST)
    assert "columns" in refusal(tmp_path / FIRST, TokenPartLayoutError)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"no Parquet at all" * 20])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FIRST).write_bytes(content)
    refusal(tmp_path / FIRST, TokenPartUnreadableError)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / FIRST, TokenPartUnreadableError)
    refusal(tmp_path, TokenPartUnreadableError)


def test_a_torn_part_is_refused_wherever_it_is_torn(tmp_path: Path) -> None:
    write(tmp_path, rows(20))
    whole = (tmp_path / FIRST).read_bytes()
    for size in range(0, len(whole), 97):
        (tmp_path / FIRST).write_bytes(whole[:size])
        refusal(tmp_path / FIRST, TokenPartUnreadableError)


def test_a_flipped_bit_of_the_ids_is_refused_midway(tmp_path: Path) -> None:
    write(tmp_path, rows(20))
    data = bytearray((tmp_path / FIRST).read_bytes())
    column = pq.read_metadata(tmp_path / FIRST).row_group(0).column(6)
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 4
    (tmp_path / FIRST).write_bytes(data)
    refusal(tmp_path / FIRST, TokenPartUnreadableError)


def test_any_flipped_bit_is_a_typed_refusal_or_harmless(tmp_path: Path) -> None:
    given_rows = rows(6)
    write(tmp_path, given_rows)
    whole = (tmp_path / FIRST).read_bytes()
    refusals: list[TokenPartError] = []
    for place in range(0, len(whole), 5):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        (tmp_path / FIRST).write_bytes(data)
        try:
            assert len(read_part(tmp_path / FIRST)) == len(given_rows)
        except TokenPartError as error:
            refusals.append(error)
    assert len(refusals) > len(whole) // 10
    assert all(len(str(error).splitlines()) == 1 for error in refusals)


def test_rows_that_a_damaged_page_header_drops_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, rows(6))
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **given: (batch.slice(1) for batch in batches(self, **given)),
    )
    assert "1 of them missing" in refusal(tmp_path / FIRST, TokenPartUnreadableError)


def test_other_readers_find_plain_parquet(tmp_path: Path) -> None:
    write(tmp_path, rows(4))
    table: Any = pq.read_table(tmp_path)
    assert table.column("seed").type == pa.uint64()
    assert table.column("tokens").to_pylist() == [list(row.tokens) for row in rows(4)]


def test_importing_does_not_import_pyarrow() -> None:
    script = "import sys, catalog.export, catalog.site; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
