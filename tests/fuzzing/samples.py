"""The real files that are damaged: a ledger, corpora and token parts as they are written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.export import TokenRow, write_token_parts
from jobs.ledger import Ledger
from jobs.output import FolderOutput
from jobs.segments import SCHEMA, LedgerIdentity, Row, row_crc32

IDENTITY = LedgerIdentity("p" * 64, "a" * 16, "c" * 16, "d" * 16)
CONTRACT = "c0b13d2f4a5e6f70"
SEGMENTS = 4
VOICES, PASSAGES = ("ann", "bob"), ("one", "two", "three")
EXECUTIONS = ("e" * 16, "f" * 16)


def content_key_of(voice: str, passage: str) -> str:
    """The key of a render, of the form that keys have."""
    return Random(f"{voice}/{passage}").randbytes(16).hex()


def ledger_rows(rng: Random, number: int) -> list[Row]:
    """The rows of one segment: every render's windows, some of them finished, some failed."""
    rows = []
    for voice in VOICES:
        for passage in PASSAGES:
            common = {
                **dict.fromkeys(SCHEMA.names),
                "content_key": content_key_of(voice, passage),
                "render_key": f"{voice}/{passage}",
                "worker": f"worker-{rng.randrange(3)}",
                "execution": rng.choice(EXECUTIONS),
                "at": f"2026-11-30T00:00:{number:02d}+00:00",
            }
            common.pop("crc32")
            rows += [{**common, **_window(rng, chunk)} for chunk in range(rng.randint(1, 3))]
            rows += [{**common, **rng.choice((_finished, _failed))(rng, voice, passage)}]
    return rows


def _window(rng: Random, chunk: int) -> Row:
    tokens = [rng.randrange(4096) for _ in range(24)]
    return {
        "kind": "window",
        "chunk_index": chunk,
        "half": 0,
        "attempt": 0,
        "attempts": 1,
        "seed": rng.getrandbits(64),
        "text": f"Text number {rng.randrange(1000)}.",
        "prefix": tokens[:4],
        "tokens": tokens,
        "keep": 24,
        "reason": "",
        "suspect": False,
        "n_generated": 24,
        "hit_cap": False,
        "hit_window": False,
        "ended": True,
    }


def _finished(rng: Random, voice: str, passage: str) -> Row:
    return {
        "kind": "finished",
        "audio": f"audio/{voice}/{passage}.flac",
        "audio_sha256": rng.randbytes(32).hex(),
        "audio_bytes": rng.randrange(1000, 9999),
        "pcm_sha256": rng.randbytes(32).hex(),
        "samples": rng.randrange(10_000, 99_999),
        "peak_dbfs": -rng.random(),
        "clipped_share": 0.0,
        "execution_facts": '{"device": "cpu"}',
    }


def _failed(rng: Random, voice: str, passage: str) -> Row:
    return {
        "kind": "failed",
        "chunk_index": 0,
        "code": "no_speech",
        "message": f"{voice}/{passage}: the model ended {rng.randrange(9)} windows",
        "retryable": rng.random() < 0.5,
    }


def segment_file(rows: list[Row], *, packing: str | None = None) -> bytes:
    """Rows with their checksums as a segment, whatever is in them."""
    schema = SCHEMA.with_metadata(IDENTITY.metadata())
    table = pa.Table.from_pylist([{**row, "crc32": row_crc32(row)} for row in rows], schema=schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=packing)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_ledger(folder: Path, seed: int) -> None:
    """A ledger of `SEGMENTS` segments, in this very folder."""
    rng = Random(seed)
    output = FolderOutput(folder / "job")
    ledger = Ledger(output, IDENTITY)
    for number in range(1, SEGMENTS + 1):
        for row in ledger_rows(rng, number):
            ledger.append(row)
        ledger.flush()
    for path in (output.folder / "ledger").iterdir():
        path.rename(folder / path.name)
    shutil.rmtree(output.folder)


_NO_WORDS = {"use_dictionary": False, "data_page_version": "2.0"}


def write_corpora(folder: Path) -> list[Path]:
    """One corpus a way of writing Parquet: pages, encodings, compressions, kinds of string."""
    ids = [f"p{n}" for n in range(60)]
    texts = [f"Passage number {n % 7}, and a word or two more." for n in range(60)]
    plain = pa.table({"id": ids, "text": texts})
    large = pa.table(
        {
            "id": pa.array(ids, pa.large_string()),
            "text": pa.array(texts).dictionary_encode(),
            "notes": [[{"key": "k", "value": n}] * (n % 3) for n in range(60)],
        }
    )
    view = pa.table({"id": pa.array(ids, pa.string_view()), "text": texts, "n": list(range(60))})
    ways: list[tuple[pa.Table, dict[str, Any]]] = [
        (plain, {}),
        (plain, {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"}),
        (plain, {"compression": "none", "row_group_size": 16, "write_page_index": True}),
        (
            plain,
            {
                "compression": "none",
                "use_dictionary": False,
                "column_encoding": {"id": "DELTA_BYTE_ARRAY", "text": "DELTA_LENGTH_BYTE_ARRAY"},
            },
        ),
        (
            plain,
            {"compression": "lz4", "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, **_NO_WORDS},
        ),
        (large, {"compression": "gzip", "data_page_size": 256}),
        (large, {"compression": "brotli", "write_page_checksum": True}),
        (view, {"compression": "none", "data_page_size": 128, "dictionary_pagesize_limit": 64}),
    ]
    paths = []
    for number, (table, options) in enumerate(ways):
        paths.append(folder / f"corpus-{number}.parquet")
        pq.write_table(table, paths[-1], **options)
    return paths


def write_tokens(folder: Path) -> list[Path]:
    """A part of token Parquet, and one of many rows."""
    for name, count in (("few", 12), ("many", 600)):
        write_token_parts(
            folder / name,
            _token_rows(count),
            algorithm_fingerprint="7cd75498ad4e7531",
            token_contract_fingerprint=CONTRACT,
            pack_sha256="ab" * 32,
            token_contract='{"name": "one"}',
        )
    return sorted(folder.glob("*/part-*.parquet"))


def _token_rows(count: int) -> Iterator[TokenRow]:
    rng = Random(count)
    for n in range(count):
        tokens = [rng.randrange(4096) for _ in range(rng.randrange(40))]
        yield TokenRow("slt", f"p{n // 3}", n % 3, 0, rng.getrandbits(64), f"Text {n}.", tokens)
