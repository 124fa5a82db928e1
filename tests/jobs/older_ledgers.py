"""Ledgers as earlier versions wrote them, by what they wrote and not by what reads them now."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pyarrow as pa

from jobs.segments import segment_files

_TEXT, _IDS = pa.string(), pa.list_(pa.int32())
_COLUMNS_2 = {
    **dict.fromkeys(("kind", "content_key", "render_key", "worker", "execution", "at"), _TEXT),
    "crc32": pa.uint32(),
    "chunk_index": pa.int32(),
    **dict.fromkeys(("half", "attempt", "attempts"), pa.int8()),
    "seed": pa.uint64(),
    "text": _TEXT,
    **dict.fromkeys(("prefix", "tokens"), _IDS),
    "keep": pa.int32(),
    "reason": _TEXT,
    "suspect": pa.bool_(),
    "n_generated": pa.int32(),
    **dict.fromkeys(("hit_cap", "hit_window", "ended"), pa.bool_()),
    **dict.fromkeys(("audio", "audio_sha256"), _TEXT),
    "audio_bytes": pa.int64(),
    "pcm_sha256": _TEXT,
    "samples": pa.int64(),
    **dict.fromkeys(("peak_dbfs", "clipped_share"), pa.float64()),
    **dict.fromkeys(("execution_facts", "code", "message"), _TEXT),
    "retryable": pa.bool_(),
}


def rewrite_as_format_2(ledger: Path) -> int:
    """Every segment of a ledger as loudkit-batch-ledger-2, and no index; how many there are."""
    files = segment_files(ledger)
    for _, path in files:
        with pa.ipc.open_file(str(path)) as reader:
            metadata = {**reader.schema.metadata, b"format": b"loudkit-batch-ledger-2"}
            rows = reader.read_all().to_pylist()
        for row in rows:
            said = [row[name] for name in _COLUMNS_2 if name != "crc32"]
            row["crc32"] = zlib.crc32(json.dumps(said, separators=(",", ":")).encode())
            del row["waveform"]
        schema = pa.schema(list(_COLUMNS_2.items())).with_metadata(metadata)
        table = pa.Table.from_pylist(rows, schema=schema)
        path.unlink()
        with pa.ipc.new_file(str(path), schema) as writer:
            writer.write_table(table)
    (ledger / "index.sqlite").unlink(missing_ok=True)
    return len(files)
