"""Files that are whole, of any content: hypothesis thinks them up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

from jobs.segments import SCHEMA
from tests.fuzzing.samples import (
    CONTRACT,
    EXECUTIONS,
    PASSAGES,
    VOICES,
    content_key_of,
    segment_file,
)

Shapes = st.SearchStrategy[bytes]

_STARTER = Path(__file__).parents[2] / "engine/packs/starter/manifest.json"
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_LONG = st.builds(lambda text, times: text * times, _TEXT, st.sampled_from((1, 1, 1, 40, 2000)))
_GOOD_NAME = st.text("abcdé_", min_size=1, max_size=6)
_NAME = st.one_of(*[_GOOD_NAME] * 7, _TEXT)
_SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), _LONG, st.sampled_from(("*", "a", "x*"))
)
_CATALOG_KEYS = [
    *("catalog", "pack", "voices", "passages", "renders", "defaults", "name", "id", "text", "from"),
    *("seed", "source", "voice", "passage", "format", "language", "language_id", "text_file"),
    *("turns", "style", "path", "sha256", "speaker", "url", "license", "consent", "status", "env"),
]


def _values(keys: list[str], *, most: int = 14) -> st.SearchStrategy[Any]:
    return st.recursive(
        _SCALAR,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.one_of(st.sampled_from(keys), _TEXT), inner, max_size=5),
        ),
        max_leaves=most,
    )


def catalogs() -> Shapes:
    """YAML of a catalog's keys."""
    seeds = st.one_of(*[st.integers(0, 9)] * 7, _SCALAR)
    lines = st.one_of(*[st.just("s")] * 7, _SCALAR)
    voice = st.fixed_dictionaries({"name": _NAME}, optional={"seed": seeds, "status": lines})
    passage = st.fixed_dictionaries({"id": _NAME, "text": _LONG}, optional={"style": lines})
    glob = st.one_of(st.just("*"), _NAME)
    rule = st.fixed_dictionaries({"voice": glob, "passage": glob}, optional={"seed": seeds})
    good = st.fixed_dictionaries(
        {
            "catalog": st.just("c"),
            "pack": st.just("starter"),
            "voices": st.lists(voice, min_size=1, max_size=3),
            "passages": st.lists(passage, min_size=1, max_size=4),
        },
        optional={"renders": st.lists(rule, min_size=1, max_size=3)},
    )
    change = st.dictionaries(st.sampled_from(_CATALOG_KEYS[:6]), _values(_CATALOG_KEYS), max_size=2)
    changes = st.one_of(st.just({}), change)
    return st.builds(
        lambda good, changes: yaml.safe_dump({**good, **changes}, allow_unicode=True).encode(),
        good,
        changes,
    )


def manifests() -> Shapes:
    """The starter's manifest with values of any shape, at the top or one level down."""
    starter = json.loads(_STARTER.read_bytes())
    blocks = [key for key, value in starter.items() if isinstance(value, dict)]
    inner = [key for block in blocks for key in starter[block]]
    values = _values([*starter, *inner])
    change = st.tuples(st.sampled_from(sorted(starter)), st.sampled_from(sorted(inner)), values)

    def changed(changes: list[tuple[str, str, Any]], deep: bool) -> bytes:
        made = dict(starter)
        for key, below, value in changes:
            is_block = deep and isinstance(made[key], dict)
            made[key] = {**made[key], below: value} if is_block else value
        return json.dumps(made).encode()

    return st.builds(changed, st.lists(change, min_size=1, max_size=3), st.booleans())


_OF_ARROW: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "bool": st.booleans(),
    "double": st.floats(),
    "int8": st.integers(-128, 127),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "list<item: int32>": st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=4),
}
_KEYS = [f"{voice}/{passage}" for voice in VOICES for passage in PASSAGES]
_CONTENTS = [content_key_of(voice, passage) for voice in VOICES for passage in PASSAGES]


def segments() -> Shapes:
    """Rows of any content with the right checksums, most of them of a kind that there is."""
    any_row = {
        name: st.one_of(_OF_ARROW[str(SCHEMA.field(name).type)], st.none())
        for name in SCHEMA.names
        if name != "crc32"
    }
    likely = {
        "kind": st.sampled_from(("window", "finished", "failed")),
        "render_key": st.sampled_from(_KEYS),
        "content_key": st.sampled_from([*_CONTENTS, "key", _CONTENTS[0].upper(), ""]),
        "execution": st.sampled_from(EXECUTIONS),
        "chunk_index": st.integers(0, 2),
        "half": st.integers(0, 2),
        "audio": st.one_of(_TEXT, st.sampled_from(("audio/ann/one.flac", "\0", "../..", "/"))),
    }
    full = {name: _OF_ARROW[str(SCHEMA.field(name).type)] for name in any_row} | {
        name: st.lists(st.integers(0, 9), max_size=4) for name in ("prefix", "tokens")
    }
    row = st.one_of(
        st.fixed_dictionaries({**full, **likely}),
        st.fixed_dictionaries({**full, **likely}),
        st.fixed_dictionaries({**any_row, **likely}),
        st.fixed_dictionaries(any_row),
    )
    return st.builds(segment_file, st.lists(row, max_size=5))


_COLUMN = st.one_of(
    st.lists(_TEXT, min_size=4, max_size=4).map(pa.array),
    st.lists(_LONG, min_size=4, max_size=4).map(pa.array),
    st.lists(_LONG, min_size=4, max_size=4).map(lambda texts: pa.array(texts).dictionary_encode()),
    st.lists(st.one_of(_TEXT, st.none()), min_size=4, max_size=4).map(
        lambda texts: pa.array(texts, pa.string())
    ),
    st.lists(st.binary(max_size=4), min_size=4, max_size=4).map(
        lambda raw: pa.array(raw, pa.binary()).view(pa.string())
    ),
    st.lists(st.lists(_TEXT, max_size=2), min_size=4, max_size=4).map(
        lambda lists: pa.array(lists, pa.list_(pa.string()))
    ),
    st.lists(st.integers(0, 9), min_size=4, max_size=4).map(pa.array),
    st.just(pa.nulls(4)),
)
_OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(("none", "snappy", "zstd", "lz4", "gzip", "brotli")),
        "data_page_version": st.sampled_from(("1.0", "2.0")),
        "use_dictionary": st.booleans(),
        "row_group_size": st.integers(1, 5),
        "store_schema": st.booleans(),
    }
)


def _parquet(columns: dict[str, Any], options: dict[str, Any], metadata: dict[str, str]) -> bytes:
    # Nothing is missing in tokens; of a corpus that is found out.
    fields = [
        pa.field(name, column.type, nullable=not metadata or column.null_count > 0)
        for name, column in columns.items()
    ]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def corpora() -> Shapes:
    """Parquet with the two columns, of any kind and content."""
    ids = st.lists(_GOOD_NAME, min_size=4, max_size=4, unique=True).map(pa.array)
    texts = st.lists(_LONG, min_size=4, max_size=4).map(pa.array)
    columns = st.fixed_dictionaries(
        {"id": st.one_of(ids, ids, ids, _COLUMN), "text": st.one_of(texts, texts, _COLUMN)},
        optional={"id.x": _COLUMN, "ID": _COLUMN, "notes": _COLUMN},
    )
    return st.builds(_parquet, columns, _OPTIONS, st.just({}))


_IDS = pa.list_(pa.field("element", pa.int32(), nullable=False))


def token_parts() -> Shapes:
    """Parquet that says it is a part of the tokens."""
    numbers = st.lists(st.integers(0, 2**31 - 1), min_size=4, max_size=4)
    ids = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), min_size=4, max_size=4)
    right: dict[str, st.SearchStrategy[Any]] = {
        **{
            name: st.lists(_TEXT, min_size=4, max_size=4).map(pa.array)
            for name in ("voice", "passage")
        },
        "chunk_index": numbers.map(lambda found: pa.array(found, pa.int32())),
        "half": st.just(pa.array([0, 1, 2, 0], pa.int8())),
        "seed": numbers.map(lambda found: pa.array(found, pa.uint64())),
        "text": st.lists(_LONG, min_size=4, max_size=4).map(pa.array),
        "tokens": ids.map(lambda found: pa.array(found, _IDS)),
    }
    wrong = st.dictionaries(st.sampled_from(sorted(right)), _COLUMN, max_size=1)
    metadata = st.fixed_dictionaries(
        {
            "format": st.just("loudkit-batch-tokens-1"),
            "token_contract_fingerprint": st.sampled_from((CONTRACT, CONTRACT, CONTRACT, "")),
        },
        optional={"x": _TEXT},
    )
    columns = st.builds(
        lambda made, wrong, which: {**{n: made[n] for n in right}, **(wrong if which else {})},
        st.fixed_dictionaries(right),
        wrong,
        st.booleans(),
    )
    options = st.builds(lambda found: {**found, "store_schema": True}, _OPTIONS)
    return st.builds(_parquet, columns, options, metadata)


def provenance() -> Shapes:
    """Entries of provenance.json, whole or with values of any shape."""
    sample = {
        "algorithm_fingerprint": "a" * 16,
        "audio": "audio/ann/short.flac",
        "backend": "b",
        "checkpoint_sha256": "c" * 64,
        "edge_fade_seconds": 0.02,
        "model": "m",
        "seed": 7,
        "sha256": "d" * 64,
        "text": "A.",
    }
    entry = {"name": "ann", "language": "English", "language_id": "en"}
    keys = [*sample, *entry, "passage", "windows", "turns", "execution", "sample_turbo", "source"]
    change = st.dictionaries(st.sampled_from(keys), _values(keys), max_size=2)

    def made(name: str, passage: str, inner: dict[str, Any], outer: dict[str, Any]) -> Any:
        return {**entry, "name": name, "passage": passage, "sample": {**sample, **inner}, **outer}

    none: st.SearchStrategy[dict[str, Any]] = st.just({})
    clip = st.builds(made, _NAME, _NAME, st.one_of(none, change), st.one_of(none, none, change))
    indents = st.sampled_from((None, 0, 1, 2, 4))
    return st.builds(
        lambda clips, indent: json.dumps(clips, indent=indent).encode(),
        st.lists(clip, max_size=4),
        indents,
    )


SHAPES = {
    "catalog": catalogs,
    "manifest": manifests,
    "segments": segments,
    "ledger": segments,
    "corpus": corpora,
    "tokens": token_parts,
    "roster": provenance,
}
