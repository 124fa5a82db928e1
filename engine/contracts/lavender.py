"""The lavender contract: tiktoken's o200k_base with four specials, in ChatML.

A turn is `<|im_start|>role<|im_sep|>text<|im_end|>`, the role is plain text, and nothing stands
between turns. There are two ways to the same ids: a string that is then encoded, and ids that are
put together. Prompts are made the second way, where the spelling of a special inside somebody's
text stays plain text; the first cannot tell the two apart, so it refuses such a text.

A speech pack has an audio band above the text. Its prompt is a user's turn of `speaker: text`
and an open turn of the assistant, which is the audio: it begins behind the `<|im_sep|>` that ends
the prompt (`start_of_speech`; the model writes no opening of its own) and ends as any turn does,
with `<|im_end|>` (`end_of_speech`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.contracts.contract import FRAME_ORDER, Conditioning, TokenContract, require_plain_voice
from engine.contracts.tiktoken_adapter import TiktokenAdapter
from engine.contracts.tiktoken_base import O200K_BASE, load_base
from engine.errors import (
    ManifestError,
    NothingToSpeakError,
    PackMismatchError,
    PackNotFoundError,
    UnsupportedTextError,
)
from engine.speech_text import has_words
from engine.strict_json import read_object

NAME: Final = "lavender"
ENCODING: Final = "o200k_base_lavender_chat"
IM_START, IM_SEP, IM_END, PAD = "<|im_start|>", "<|im_sep|>", "<|im_end|>", "<|pad|>"
SPECIALS: Final = {IM_START: 200_019, IM_SEP: 200_020, IM_END: 200_021, PAD: 200_022}
TEXT_VOCABULARY: Final = 200_023

TOKENIZER_FILE: Final = "tiktoken.json"
VOICES_FILE: Final = "lavender.json"

PROMPT_LAYOUT: Final = (
    IM_START,
    "user",
    IM_SEP,
    "{speaker}:",
    " {text}",
    IM_END,
    IM_START,
    "assistant",
    IM_SEP,
)


def lavender_contract(codebook_size: int = 0) -> TokenContract:
    """The contract of a text model, or of a speech pack with an audio band right above the text."""
    return TokenContract(
        name=NAME,
        vocabulary_size=TEXT_VOCABULARY + len(FRAME_ORDER) * codebook_size,
        added_tokens=dict(SPECIALS),
        audio_base=TEXT_VOCABULARY,
        codebook_size=codebook_size,
        start_of_speech=SPECIALS[IM_SEP],
        end_of_speech=SPECIALS[IM_END],
        prompt_layout=PROMPT_LAYOUT,
    )


def lavender_adapter(folder: Path | None = None) -> TiktokenAdapter:
    """`o200k_base_lavender_chat`, with ranks from `folder` or as they are installed."""
    return TiktokenAdapter(load_base(O200K_BASE, folder), SPECIALS)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one role says."""

    role: str
    text: str


def chat_text(turns: Sequence[Turn], *, reply_by: str = "assistant") -> str:
    """A conversation as one string; `reply_by` names the role of an open last turn, "" for none.

    Raises `UnsupportedTextError` for a role or text that spells a special: encoded, it would be
    one.
    """
    parts = [f"{IM_START}{_plain(turn.role)}{IM_SEP}{_plain(turn.text)}{IM_END}" for turn in turns]
    opened = f"{IM_START}{_plain(reply_by)}{IM_SEP}" if reply_by else ""
    return "".join(parts) + opened


def chat_ids(
    adapter: TiktokenAdapter, turns: Sequence[Turn], *, reply_by: str = "assistant"
) -> tuple[int, ...]:
    """A conversation as ids, with any text in it; the same as those of `chat_text`, encoded."""
    start, sep, end = (adapter.specials[name] for name in (IM_START, IM_SEP, IM_END))
    ids: list[int] = []
    for turn in turns:
        ids += [start, *adapter.encode_plain(turn.role), sep]
        ids += [*adapter.encode_plain(turn.text), end]
    if reply_by:
        ids += [start, *adapter.encode_plain(reply_by), sep]
    return tuple(ids)


def _plain(text: str) -> str:
    spelled = next((name for name in SPECIALS if name in text), None)
    if spelled:
        raise UnsupportedTextError(
            f"the text spells {spelled}, which a string of ChatML cannot carry; build its ids"
        )
    return text


class LavenderTextSide:
    """The text side of a lavender pack with an audio band."""

    def __init__(
        self, contract: TokenContract, speakers: Sequence[str], adapter: TiktokenAdapter
    ) -> None:
        self.contract = contract
        self.speakers = tuple(speakers)
        self.opening: tuple[int, ...] = ()  # the prompt ends where audio begins
        self.adapter = adapter

    def text_tokens(self, text: str) -> tuple[int, ...]:
        """The ids of the text as it stands behind `speaker:`, its space included.

        A piece of the pattern ends at the colon, so these are the ids that the whole turn has
        there. Raises `NothingToSpeakError` when there is no letter or digit.
        """
        if not has_words(text):
            raise NothingToSpeakError(f"no word to speak in {text[:40]!r}")
        return tuple(self.adapter.encode_plain(f" {text}"))

    def prompt(self, text_tokens: Sequence[int], conditioning: Conditioning) -> tuple[int, ...]:
        """`PROMPT_LAYOUT` filled in."""
        require_plain_voice(conditioning, self.speakers, contract=NAME)
        prompt: list[int] = []
        for part in self.contract.prompt_layout:
            if part in SPECIALS:
                prompt.append(SPECIALS[part])
            elif part == " {text}":
                prompt += text_tokens
            else:
                filled = part.replace("{speaker}", conditioning.speaker)
                prompt += self.adapter.encode_plain(filled)
        return tuple(prompt)


def load(root: Path) -> LavenderTextSide:
    """Read `tiktoken.json` (the adapter's sidecar) and `lavender.json` of a pack folder.

    `lavender.json` is `{"speakers": [...], "codebook_size": 4096}`. The ranks come from the folder
    or from what is installed. Raises `ManifestError` naming what is not this contract's, and
    `PackMismatchError` for a file that is missing.
    """
    try:
        speakers, codebook_size = _read_voices(root / VOICES_FILE)
        adapter = TiktokenAdapter.from_file(root / TOKENIZER_FILE)
    except PackNotFoundError as error:
        raise PackMismatchError(str(error)) from None
    for name in [*SPECIALS, *adapter.specials]:
        if adapter.specials.get(name) != SPECIALS.get(name):
            raise ManifestError(
                f"specials.{name}",
                f"is {adapter.specials.get(name)} in {TOKENIZER_FILE}, "
                f"{SPECIALS.get(name)} in {ENCODING}",
            )
    return LavenderTextSide(lavender_contract(codebook_size), speakers, adapter)


def _read_voices(path: Path) -> tuple[list[str], int]:
    found = read_object(path)
    if unknown := sorted(found.keys() - {"speakers", "codebook_size"}):
        raise ManifestError(unknown[0], f"is unknown (in {path})")
    speakers, codebook_size = found.get("speakers"), found.get("codebook_size")
    if (
        not isinstance(speakers, list)
        or not speakers
        or not all(isinstance(name, str) and name.strip() for name in speakers)
        or len(set(speakers)) != len(speakers)
    ):
        raise ManifestError("speakers", f"must be a list of different names (in {path})")
    if type(codebook_size) is not int or codebook_size < 1:
        raise ManifestError("codebook_size", f"must be a count, got {codebook_size!r} (in {path})")
    return speakers, codebook_size
