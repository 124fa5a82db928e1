"""What every token id of a pack means: one small type, the same for all contracts.

A contract is data. Its fingerprint is over the meaning of ids and over nothing else: the added
tokens with their ids, the vocabulary size, where audio begins and how a frame is laid out. Two
packs whose ids mean the same have the same fingerprint whatever file their tokenizer came from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.contracts.difference import first_difference
from engine.errors import ContractMismatchError, UnknownSpeakerError, UnsupportedPromptError

FRAME_ORDER = ("c0[i]", "c1[2i]", "c2[4i]", "c2[4i+1]", "c1[2i+1]", "c2[4i+2]", "c2[4i+3]")
"""Which code stands at which position of a SNAC frame."""


@dataclass(frozen=True, slots=True)
class TokenContract:
    """The meaning of a pack's token ids.

    `added_tokens` maps a special's spelling to its id. Audio ids are
    `audio_base + position * codebook_size + code` for the positions of `FRAME_ORDER`; with one
    token a frame the stream is a plain row of codes.
    """

    name: str
    vocabulary_size: int
    added_tokens: Mapping[str, int]
    audio_base: int
    codebook_size: int
    start_of_speech: int
    end_of_speech: int
    prompt_layout: tuple[str, ...]
    tokens_per_frame: int = len(FRAME_ORDER)
    pairs_under: tuple[str, ...] = ()
    """Decode modes under which tokens stand in pairs, so that a carry must be whole pairs."""

    def __post_init__(self) -> None:
        past = self.audio_base + self.tokens_per_frame * self.codebook_size
        if past > self.vocabulary_size:
            raise ContractMismatchError(
                f"{self.name}: audio ids end at {past}, past the vocabulary of "
                f"{self.vocabulary_size}"
            )
        if self.audio_base <= self.end_of_speech < past and self.tokens_per_frame > 1:
            raise ContractMismatchError(
                f"{self.name}: end_of_speech {self.end_of_speech} lies in a band of audio ids"
            )

    @property
    def frame_order(self) -> tuple[str, ...]:
        """Which code stands at which position; empty where a frame is one token."""
        return FRAME_ORDER if self.tokens_per_frame > 1 else ()

    def band(self, position: int) -> tuple[int, int]:
        """The ids `[first, past)` that may stand at a position of a frame."""
        first = self.audio_base + position * self.codebook_size
        return first, first + self.codebook_size

    def meaning(self) -> dict[str, object]:
        """What the fingerprint is taken over; a property that a contract lacks is not in it."""
        meaning: dict[str, object] = {
            "added_tokens": dict(sorted(self.added_tokens.items())),
            "audio_base": self.audio_base,
            "codebook_size": self.codebook_size,
            "end_of_speech": self.end_of_speech,
            "frame_order": list(self.frame_order),
            "prompt_layout": list(self.prompt_layout),
            "start_of_speech": self.start_of_speech,
            "tokens_per_frame": self.tokens_per_frame,
            "vocabulary_size": self.vocabulary_size,
        }
        if self.pairs_under:
            meaning["pairs_under"] = list(self.pairs_under)
        return meaning

    def canonical_form(self) -> str:
        """`meaning` as the JSON that is hashed; what a file of ids keeps beside the fingerprint."""
        return json.dumps(self.meaning(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def fingerprint(self) -> str:
        """The first sixteen hex digits of the sha256 over the canonical form."""
        return hashlib.sha256(self.canonical_form().encode()).hexdigest()[:16]

    def require(
        self, fingerprint: str, where: str, meaning: Mapping[str, object] | None = None
    ) -> None:
        """Refuse ids minted under another contract, naming what differs first if it is known.

        Raises `ContractMismatchError`.
        """
        if fingerprint != self.fingerprint():
            told = first_difference(meaning, self.meaning()) if meaning is not None else ""
            raise ContractMismatchError(
                f"{where} was made under token contract {fingerprint}, "
                f"this is {self.name} {self.fingerprint()}: its ids mean something else here"
                + (f"; first, {told}" if told else "")
            )


@dataclass(frozen=True, slots=True)
class Conditioning:
    """What a voice adds to the prompt; empty values add nothing at all."""

    speaker: str
    style: str = ""
    accent: str = ""
    env: str = ""


def require_plain_voice(
    conditioning: Conditioning, speakers: Sequence[str], *, contract: str
) -> None:
    """For contracts whose prompt names a speaker and nothing else of a voice.

    No `speakers` stand for any name. Raises `UnknownSpeakerError` and `UnsupportedPromptError`.
    """
    speaker = conditioning.speaker
    if not speaker or (speakers and speaker not in speakers):
        known = ", ".join(speakers) or "the names its checkpoint was trained on"
        raise UnknownSpeakerError(f"no speaker {speaker!r} in this pack; it has {known}")
    for kind in ("style", "accent", "env"):
        value = getattr(conditioning, kind)
        if value:
            raise UnsupportedPromptError(
                f"the prompt of {contract} has no {kind}; leave {kind} out (got {value!r})"
            )


class TextSide(Protocol):
    """How one contract turns text into the prompt that audio follows."""

    @property
    def contract(self) -> TokenContract:
        """The ids this text side writes."""
        ...

    @property
    def speakers(self) -> tuple[str, ...]:
        """The speakers this pack was trained on."""
        ...

    @property
    def opening(self) -> tuple[int, ...]:
        """What the model itself writes between the prompt and the first audio token.

        It is always the same, so it is fed rather than sampled.
        """
        ...

    def text_tokens(self, text: str) -> tuple[int, ...]:
        """The ids of the text alone, which is what the law counts as its text tokens.

        Raises `NothingToSpeakError` when nothing of the text can be spoken.
        """
        ...

    def prompt(self, text_tokens: Sequence[int], conditioning: Conditioning) -> tuple[int, ...]:
        """The whole prompt, up to where the model takes over."""
        ...
