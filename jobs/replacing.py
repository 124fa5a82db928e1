"""Clips that are written over others, and a kill between the two.

When a job is resumed, only a clip's size is looked at. One that was put over another of equal size,
before the ledger told of it, would be taken for the older one. So the ledger takes that one back
first.
"""

from __future__ import annotations

from datetime import datetime

from engine.events import PassageEvent
from jobs.history import Finished, History
from jobs.segments import REPLACED, Row


def could_be_taken_for(history: History, path: str, event: PassageEvent) -> Finished | None:
    """The clip at `path`, if one that is put over it now could be taken for it."""
    there = history.finished(event.key)
    if there is None or (there.audio, there.audio_bytes) != (path, len(event.audio)):
        return None
    return there if there.row["audio_sha256"] != event.audio_sha256 else None


def taken_back(clip: Finished, render_key: str, at: datetime) -> Row:
    """The ledger row after which a render counts as not made."""
    return {
        "kind": "failed",
        "content_key": clip.content_key,
        "render_key": render_key,
        "worker": "",
        "execution": clip.execution,
        "at": at.isoformat(timespec="seconds"),
        "code": REPLACED,
        "message": "its clip was to be replaced when the job ended; render again",
        "retryable": True,
    }
