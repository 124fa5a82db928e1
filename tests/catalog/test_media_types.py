"""What a bucket says that an object is: pages by their name, audio by its name or its beginning."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.media_types import HEAD_BYTES, media_type
from engine.audio import FORMATS, encode


@pytest.mark.parametrize("name", list(FORMATS))
def test_audio_of_every_format_is_known_by_name_and_by_its_beginning(name: str) -> None:
    known = FORMATS[name]
    pcm = (np.sin(np.arange(24_000) / 20) * 9_000).astype(np.int16)
    head = encode(pcm, sample_rate_hz=24_000, format=name)[:HEAD_BYTES]
    assert media_type(f"out/audio/slt/short{known.extension}", b"") == known.media_type
    assert media_type("objects/0123456789abcdef", head) == known.media_type


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("runs.html/site/index.html", b"", "text/html; charset=utf-8"),
        ("INDEX.HTML", b"", "text/html; charset=utf-8"),
        ("catalog.json", b"[", "application/json"),
        ("tokens/part-00000.parquet", b"PAR1", "application/octet-stream"),
        ("objects/0123456789abcdef", b"<!DOCTYPE html>", "application/octet-stream"),
        ("objects/0123456789abcdef", b"ID3\x04", "audio/mpeg"),
        ("objects/0123456789abcdef", b"\xff", "application/octet-stream"),
        ("objects/0123456789abcdef", b"\xff\xf1", "application/octet-stream"),  # AAC
        ("objects/0123456789abcdef", b"RIFF\0\0\0\0AVI ", "application/octet-stream"),
        ("", b"", "application/octet-stream"),
    ],
)
def test_what_else_there_is(name: str, head: bytes, expected: str) -> None:
    assert media_type(name, head) == expected
