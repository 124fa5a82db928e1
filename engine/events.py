"""What goes into a session and what comes out: plain values that may cross process borders."""

from __future__ import annotations

from dataclasses import dataclass

from engine.audio import AudioGates
from engine.contracts.contract import Conditioning
from engine.passage import FinishedWindow


@dataclass(frozen=True, slots=True)
class PassageJob:
    """One render: a text in a voice under a seed. `done` are its windows from a ledger."""

    key: str
    text: str
    conditioning: Conditioning
    seed: int
    language: str
    format: str
    turns: tuple[tuple[str, str], ...] = ()
    """(speaker, text) of a dialogue; `text` is then only what records say."""
    done: tuple[FinishedWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowEvent:
    """A window is settled."""

    key: str
    window: FinishedWindow


@dataclass(frozen=True, slots=True)
class PassageEvent:
    """A passage is rendered. `audio` is the encoded file."""

    key: str
    audio: bytes
    audio_sha256: str
    pcm_sha256: str
    samples: int
    gates: AudioGates
    picture: bytes = b""
    """As `engine.audio.picture` takes it; empty where nobody took one."""


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """A passage cannot be rendered, and where it stopped."""

    key: str
    code: str
    message: str
    retryable: bool
    chunk_index: int | None = None
    half: int | None = None
    attempt: int | None = None


Event = WindowEvent | PassageEvent | FailureEvent
