"""Dialogues: several speakers in one passage, chunked by turns and halved between words.

A chunk of the law is a string. A dialogue's chunk is one too: each turn opens with a record
separator, its speaker and a unit separator, which no text that is read aloud can contain. So the
law, the ledger and the seeds treat a dialogue as any other passage.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from engine.chunking import split_in_half
from engine.errors import (
    EngineError,
    NothingToSpeakError,
    UnknownSpeakerError,
    UnsupportedPromptError,
)
from engine.pack import Pack
from engine.speech_chunks import speech_chunks
from engine.speech_text import has_words

_TURN, _TEXT = "\x1e", "\x1f"
_TAG = re.compile(r"<[A-Za-z_]+>|\[[A-Za-z_ ]+\]")
_SPACES = " \t\n\r\u00a0\u2007\u202f"

Turns = Sequence[tuple[str, str]]
"""(speaker, text), in order."""


@runtime_checkable
class SpeaksDialogue(Protocol):
    """A text side with a prompt for several speakers."""

    def dialogue_prompt(self, turns: Turns) -> tuple[int, ...]:
        """The whole prompt of some turns."""
        ...


def require_dialogue(pack: Pack) -> SpeaksDialogue:
    """The pack's text side as one that speaks dialogue. Raises `UnsupportedPromptError`."""
    side = pack.text_side
    if isinstance(side, SpeaksDialogue):
        return side
    raise UnsupportedPromptError(
        f"pack {pack.manifest.name} was trained on no dialogue; give text instead of turns"
    )


def dialogue_chunks(pack: Pack, turns: Turns, language: str) -> list[str]:
    """The chunks of a dialogue: as many whole pieces of turns as a chunk's budget holds.

    Raises what `speech_chunks` raises, naming the turn, `UnknownSpeakerError` for what can be no
    speaker's name, and `UnsupportedPromptError` where the pack speaks no dialogue.
    """
    require_dialogue(pack)
    if not turns:
        raise NothingToSpeakError("nothing to speak: the dialogue has no turn")
    chunking = pack.algorithm.chunking
    budget = int(chunking.max_tokens * chunking.chars)
    chunks: list[list[tuple[str, str]]] = []
    held = 0
    for number, (speaker, text) in enumerate(turns):
        # A control character would end the name inside the chunk, or the line it is shown in.
        if any(unicodedata.category(c) in ("Cc", "Cs") for c in speaker):
            raise UnknownSpeakerError(
                f"turns[{number}]: {speaker!r} holds control characters; no speaker is called so"
            )
        try:
            pieces = speech_chunks(pack, text.replace(_TURN, " ").replace(_TEXT, " "), language)
        except EngineError as error:
            error.args = (f"turns[{number}]: {error}",)
            raise
        for piece in pieces:
            if not chunks or held + len(piece) > budget:
                chunks.append([])
                held = 0
            chunks[-1].append((speaker, piece))
            held += len(piece)
    return [_joined(chunk) for chunk in chunks]


def turns_of(chunk: str) -> list[tuple[str, str]] | None:
    """The turns of a dialogue's chunk; None for a plain text."""
    if not chunk.startswith(_TURN):
        return None
    parts = (turn.partition(_TEXT) for turn in chunk[1:].split(_TURN))
    return [(speaker, text) for speaker, _, text in parts]


def readable(chunk: str) -> str:
    """A chunk as people write it: a plain text as it is, turns as `speaker: text` lines."""
    turns = turns_of(chunk)
    return chunk if turns is None else "\n".join(f"{speaker}: {text}" for speaker, text in turns)


def halve(chunk: str) -> tuple[str, str] | None:
    """A chunk cut near its middle; a turn that is cut goes on under its speaker in both halves.

    The cut is at white space, so a tag is never parted from the text that it touches, and both
    sides have something to say; None where there is no such place.
    """
    turns = turns_of(chunk)
    return _halve_text(chunk) if turns is None else _halve_turns(turns)


def _halve_turns(turns: Turns) -> tuple[str, str] | None:
    """The turns cut between two of them, or within one that says something on both sides."""
    middle = sum(len(text) for _, text in turns) / 2
    places: list[tuple[float, int, int]] = []  # distance, turn, position in it
    before = 0
    for number, (_, text) in enumerate(turns):
        cuts = [
            at + 1 for at, char in enumerate(text) if char in _SPACES and 0 < at < len(text) - 1
        ]
        if number + 1 < len(turns):
            cuts.append(len(text))
        places += [(abs(before + at - middle), number, at) for at in cuts]
        before += len(text)
    for _, number, at in sorted(places):
        speaker, text = turns[number]
        said, rest = text[:at].strip(), text[at:].strip()
        first = [*turns[:number], (speaker, said)]
        second = [*([(speaker, rest)] if rest else []), *turns[number + 1 :]]
        parted = (
            [said, rest] if rest else [" ".join(t for _, t in half) for half in (first, second)]
        )
        if all(map(_says_something, parted)):
            return _joined(first), _joined(second)
    return None


def _halve_text(text: str) -> tuple[str, str] | None:
    """The law's halves, unless one of them would hold nothing but marks and tags.

    Then the nearest other word break that leaves something to say on both sides.
    """
    halves = split_in_half(text)
    if halves is None or all(map(_says_something, halves)):
        return halves
    breaks = (at + 1 for at, char in enumerate(text) if char in _SPACES)
    for at in sorted(breaks, key=lambda at: (abs(2 * at - 2 - len(text)), at)):
        halves = text[:at].strip(), text[at:].strip()
        if all(map(_says_something, halves)):
            return halves
    return None


def _says_something(text: str) -> bool:
    return has_words(_TAG.sub(" ", text))


def _joined(turns: Turns) -> str:
    return "".join(f"{_TURN}{speaker}{_TEXT}{text}" for speaker, text in turns)
