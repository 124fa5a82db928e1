"""Small files that stand for much: each is refused, or read in little time and memory.

python -m tests.fuzzing.bombs FOLDER writes those that are dear to make; a process that is
measured must not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.export import TokenRow, write_token_parts
from tests.fuzzing.samples import CONTRACT, ledger_rows, segment_file

ROOT = Path(__file__).parents[2]
_HEAD = "catalog: c\npack: starter\nvoices: [{name: a}]\n"
_ONE = "passages: [{id: p, text: x}]\n"


def write_bombs(folder: Path) -> None:
    """All of them, a folder for every target."""
    for target, bombs in {
        "catalog": _catalogs(),
        "manifest": _manifests(),
        "segments": _segments(),
    }.items():
        (folder / target).mkdir(parents=True)
        for name, data in bombs:
            (folder / target / name).write_bytes(data)
    for target in ("corpus", "tokens"):
        (folder / target).mkdir()
    _write_corpora(folder / "corpus")
    _write_tokens(folder / "tokens")


def _catalogs() -> Iterator[tuple[str, bytes]]:
    laughs = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
    )
    voices = ",".join(f"{{name: voice{n}}}" for n in range(10_000))
    texts = {
        "aliases": laughs,
        "alias of a passage": _HEAD + "passages:\n- &p {id: p, text: x}\n" + "- *p\n" * 20_000,
        "scalars": _HEAD + "passages: [" + "a," * 60_000 + "a]\n",
        "too many scalars": _HEAD + "passages: [" + "a," * 900_000 + "a]\n",
        "unknown keys": "".join(f"k{n}: 1\n" for n in range(30_000)),
        "rules": _HEAD + _ONE + "renders: [" + "{voice: a, passage: p}," * 19_000 + "]\n",
        "globs": _HEAD + _ONE + f"renders: [{{voice: a, passage: '{'*a' * 190}b'}}]\n",
        "long glob": _HEAD + _ONE + f"renders: [{{voice: a, passage: '{'[' * 300_000}'}}]\n",
        "turns": f"catalog: c\npack: p\nvoices: [{voices}]\npassages: [{{id: p, turns: ["
        + "{voice: voixe, text: x}," * 9_000
        + "]}]\n",
        "voices": f"catalog: c\npack: p\nvoices: [{voices}]\n" + _ONE,
        "long text": _HEAD + "passages: [{id: p, text: '" + "é" * 4_000_000 + "'}]\n",
        "long name": _HEAD + "passages: [{id: '" + "é" * 4_000_000 + "', text: x}]\n",
        "long key": _HEAD + "'" + "é" * 4_000_000 + "': x\n",
        "brackets": "[" * 1_000_000,
        "braces": "{a: " * 300_000,
        "dashes": "- " * 1_000_000,
        "questions": "? " * 1_000_000,
        "comment": "#" * 5_000_000,
        "lines": "\n" * 5_000_000,
        "anchors": _HEAD + "passages: [" + ",".join(f"&a{n} x" for n in range(60_000)) + "]\n",
        "digits": "catalog: " + "9" * 4_000_000,
    }
    return ((name, text.encode()) for name, text in texts.items())


def _manifests() -> Iterator[tuple[str, bytes]]:
    starter = json.loads((ROOT / "engine/packs/starter/manifest.json").read_bytes())
    size = 450_000

    def with_(key: str, text: str) -> str:
        return json.dumps({**starter, key: 0}).replace(f'"{key}": 0', f'"{key}": {text}')

    texts = {
        "lists": with_("silence_token_ids", "[" + "[]," * (size // 3) + "[]]"),
        "ids": with_("silence_token_ids", "[" + "1," * (size // 2) + "1]"),
        "languages": with_("languages", "[" + "1," * (size // 4) + "1]"),
        "files": json.dumps({**starter, "files": {f"{n}": 0 for n in range(size // 12)}}),
        "large": with_("notes", "[" + "1," * 10_000_000 + "1]"),
        "brackets": "[" * 4_000_000,
        "braces": '{"a":' * 800_000,
        "digits": with_("sample_rate", "9" * size),
        "exponent": with_("sample_rate", "1e" + "9" * 4_000),
        "long name": with_("name", '"' + "x" * size + '"'),
        "long key": json.dumps({**starter, "x" * size: [float("inf")]}),
    }
    return ((name, text.encode()) for name, text in texts.items())


def _segments() -> Iterator[tuple[str, bytes]]:
    rows = ledger_rows(Random(1), 1)
    for packing in ("zstd", "lz4"):
        long = [{**row, "text": "a" * 1_000_000 if n == 0 else ""} for n, row in enumerate(rows)]
        yield packing, segment_file(long, packing=packing)
    for name in ("kind", "at", "content_key", "audio", "tokens", "code", "chunk_index"):
        yield f"no {name}", segment_file([{**row, name: None} for row in rows])
    yield "no token", segment_file([{**row, "tokens": [1, None]} for row in rows])
    yield "no rows", segment_file([])


def _write_corpora(folder: Path) -> None:
    ids = [f"p{n}" for n in range(300)]
    words = [f"{n}" * 4_000_000 for n in range(2)]
    long = pa.DictionaryArray.from_arrays(pa.array([n % 2 for n in range(300)]), pa.array(words))
    ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "long words": ({"id": ids, "text": long}, {"store_schema": False}),
        "long words by number": ({"id": ids, "text": long}, {}),
        "long page": ({"id": ids[:1], "text": ["a" * 150_000_000]}, {"use_dictionary": False}),
        "long text": ({"id": ids[:1], "text": ["é" * 20_000_000]}, {"use_dictionary": False}),
        "one id": ({"id": ["p"] * 3_000_000, "text": ["x"] * 3_000_000}, {}),
    }
    for name, (columns, options) in ways.items():
        pq.write_table(pa.table(columns), folder / name, compression="zstd", **options)
    for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        path, column = folder / encoding, {"text": encoding}
        table = pa.table({"id": ids, "text": [f"Text number {n}." for n in range(300)]})
        pq.write_table(
            table, path, compression="none", use_dictionary=False, column_encoding=column
        )
        data = bytearray(path.read_bytes())
        # 2^28 lengths of nothing, in one block: 128 values a block, four parts, 300 values.
        start = data.index(b"\x80\x01\x04\xac\x02")
        many = b"\x80\x80\x80\x80\x01\x04\x80\x80\x80\x80\x01" + bytes(6)
        data[start : start + len(many)] = many
        path.write_bytes(data)


def _write_tokens(folder: Path) -> None:
    for name, count in (("many ids", 3_000_000), ("too many ids", 5_000_000)):
        row = TokenRow("slt", "p", 0, 0, 1, "Text.", [7] * count)
        write_token_parts(
            folder / "parts",
            iter([row]),
            algorithm_fingerprint="7cd75498ad4e7531",
            token_contract_fingerprint=CONTRACT,
            pack_sha256="ab" * 32,
        )
        (folder / "parts" / "part-00000.parquet").rename(folder / name)
    (folder / "parts").rmdir()


if __name__ == "__main__":
    write_bombs(Path(sys.argv[1]))
