"""What a bucket says that an object is, for a browser to show a page and play a clip.

A server that is told nothing calls everything a stream of bytes, and a browser then saves the
page instead of showing it.
"""

from __future__ import annotations

from pathlib import PurePosixPath

HEAD_BYTES = 12
"""How many first bytes tell an audio file."""
BYTES = "application/octet-stream"

_BY_SUFFIX = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".flac": "audio/flac",
    ".wav": "audio/wav",
    ".opus": "audio/ogg",
    ".ogg": "audio/ogg",
    ".mp3": "audio/mpeg",
}


def media_type(name: str, head: bytes) -> str:
    """By the suffix of a name; one without a suffix, as of an object that is named by its hash, may
    still begin like an audio file. Nothing is taken for a page by its content."""
    known = _BY_SUFFIX.get(PurePosixPath(name).suffix.lower())
    return known or _audio_type(head) or BYTES


def _audio_type(head: bytes) -> str | None:
    if head.startswith(b"fLaC"):
        return "audio/flac"
    if head.startswith(b"OggS"):
        return "audio/ogg"
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    is_mpeg_frame = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2  # layer III
    return "audio/mpeg" if is_mpeg_frame or head.startswith(b"ID3") else None
