"""Output folders without a render: clips of any bytes with their records, and their publishing."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog.publish import Published, Publisher
from catalog.publish_folder import FolderChoice, facts_of_voices, newest_algorithm, open_source
from catalog.store import Store

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def write_output(folder: Path, clips: dict[str, bytes], *, tag: str = "") -> Path:
    """A folder as render leaves it: these clips, by `voice/passage`."""
    voices: dict[str, dict[str, Any]] = {}
    provenance = []
    for key, audio in sorted(clips.items()):
        voice, _, passage = key.partition("/")
        path = folder / "audio" / f"{key}.flac"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(audio)
        sample = {
            "algorithm_fingerprint": "a" * 16,
            "audio": f"audio/{key}.flac",
            "backend": "loudkit-batch torch",
            "checkpoint_sha256": "c" * 64,
            "duration_seconds": 1.5,
            "edge_fade_seconds": 0.02,
            "model": "m",
            "rendered_at": f"2030-01-01T00:00:00Z{tag}",
            "seed": 7,
            "sha256": hashlib.sha256(audio).hexdigest(),
            "text": f"The text of {key}.",
        }
        about = {"language": "English", "language_id": "en", "name": voice}
        provenance.append({**about, "passage": passage, "sample": sample})
        voices.setdefault(voice, {**about, "display_name": voice.title(), "sample": {}})
        voices[voice]["sample"][passage] = sample
    for name, value in (("provenance.json", provenance), ("catalog.json", list(voices.values()))):
        text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def publish(store: Store, folder: Path, **options: Any) -> Published:
    """What the command does."""
    source = open_source(folder)
    remove_orphans = options.pop("remove_orphans", False)
    choose = FolderChoice(store, source, remove_orphans, facts_of_voices(source.records))
    publisher = Publisher(
        store,
        source,
        catalog="roster",
        algorithm_fingerprint=newest_algorithm(source.records),
        now=lambda: NOW,
        **options,
    )
    return publisher.publish(choose)
