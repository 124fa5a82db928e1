"""The llama-3-audio contract: Llama-3.2 BPE, SNAC codes, and a conditioning block above them.

The ids do not lie together: control tokens stand below the audio band, conditioning above it.
Tokenizers with the same audio band and another block above it exist, so nothing here asks whether
an id is in a range: the whole map is compared, and the fingerprint decides.

What a text or a voice says is always plain text. Specials are written by their ids, from the
layout, so a `<|eot_id|>` inside a passage is spoken, or not, like any other word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from engine.contracts.contract import FRAME_ORDER, Conditioning, TokenContract
from engine.contracts.llama3_tokenizer import (
    PlainTextEncoder,
    llama_specials,
    read_speakers,
    read_tokenizer,
    require_same_ids,
)
from engine.contracts.tags import OPEN_CLASS, TagSet, find_tags, tags_of_folder
from engine.errors import ManifestError, NothingToSpeakError, UnknownSpeakerError
from engine.speech_text import require_unicode

NAME: Final = "llama-3-audio"
VOCABULARY_SIZE: Final = 156_960
AUDIO_BASE: Final = 128_266
CODEBOOK_SIZE: Final = 4096

CONTROL: Final = {
    "<|reserved_0|>": 128_256,
    "<|start_of_speech|>": 128_257,
    "<|end_of_speech|>": 128_258,
    "<|start_of_human|>": 128_259,
    "<|end_of_human|>": 128_260,
    "<|start_of_ai|>": 128_261,
    "<|end_of_ai|>": 128_262,
    "<|pad|>": 128_263,
    "<|reserved_8|>": 128_264,
    "<|reserved_9|>": 128_265,
}
WRAPPERS: Final = {
    "<|speaker>": 156_938,
    "<speaker|>": 156_939,
    "<|style>": 156_940,
    "<style|>": 156_941,
    "<|env>": 156_942,
    "<env|>": 156_943,
}
NON_VERBALS: Final = {
    "breath": 156_944,
    "stammer": 156_945,
    "throat": 156_946,
    "laugh": 156_947,
    "swallow": 156_948,
    "sniff": 156_949,
    "sigh": 156_950,
    "cough": 156_951,
    "hum": 156_952,
    "gasp": 156_953,
    "wheeze": 156_954,
    "sneeze": 156_955,
    "snort": 156_956,
    "yawn": 156_957,
    "groan": 156_958,
    "burp": 156_959,
}
SUPPORTED_TAGS: Final = (*NON_VERBALS, OPEN_CLASS)
"""What a pack of this contract may list; `env` is the open class, its label free text."""

BLOCKS: Final = {
    f"<|{wrapper}>{{{kind}}}<{wrapper}|>\n": (kind, f"<|{wrapper}>", f"<{wrapper}|>")
    for kind, wrapper in (
        ("speaker", "speaker"),
        ("style", "style"),
        ("accent", "style"),
        ("env", "env"),
    )
}
"""A voice's properties in the layout's order, each in its wrapper and a newline after it; an empty
one is not there. An accent shares the style's wrapper: the string itself tells which it is."""

PROMPT_LAYOUT: Final = (
    "<|start_of_human|>",
    "<|begin_of_text|>",
    *BLOCKS,
    "{text}",
    "<|eot_id|>",
    "<|end_of_human|>",
    "<|start_of_ai|>",
)
_TURN_BREAK: Final = "\n\n"


@cache
def contract() -> TokenContract:
    """The whole id map, written out."""
    audio = {f"<|snac_{n}|>": AUDIO_BASE + n for n in range(len(FRAME_ORDER) * CODEBOOK_SIZE)}
    non_verbals = {f"<|nv_{name}|>": token for name, token in NON_VERBALS.items()}
    return TokenContract(
        name=NAME,
        vocabulary_size=VOCABULARY_SIZE,
        added_tokens=llama_specials() | CONTROL | audio | WRAPPERS | non_verbals,
        audio_base=AUDIO_BASE,
        codebook_size=CODEBOOK_SIZE,
        start_of_speech=CONTROL["<|start_of_speech|>"],
        end_of_speech=CONTROL["<|end_of_speech|>"],
        prompt_layout=PROMPT_LAYOUT,
    )


class Llama3AudioTextSide:
    """The text side of a llama-3-audio pack. `speakers` is empty where any name is taken."""

    def __init__(self, encoder: PlainTextEncoder, speakers: Sequence[str], tags: TagSet) -> None:
        self.contract = contract()
        self.speakers = tuple(speakers)
        self.opening = (self.contract.start_of_speech,)
        self._encoder, self._tags = encoder, tags

    @property
    def supported_tags(self) -> tuple[str, ...]:
        """What the manifest of a pack with this text side may list."""
        return self._tags.names

    def text_tokens(self, text: str) -> tuple[int, ...]:
        """The ids of a text and its tags.

        Raises `NothingToSpeakError`, `UnsupportedTagError` and `UnsupportedTextError`.
        """
        require_unicode(text)
        if not text.strip():
            raise NothingToSpeakError("nothing to speak: the text is empty")
        return self._encoder.encode_pieces(self._pieces(text.strip()))

    def prompt(self, text_tokens: Sequence[int], conditioning: Conditioning) -> tuple[int, ...]:
        """`PROMPT_LAYOUT` filled in.

        Raises `UnknownSpeakerError` where speakers are listed, and `UnsupportedTextError`.
        """
        ids = self.contract.added_tokens
        prompt: list[int] = []
        for part in self.contract.prompt_layout:
            if part == "{text}":
                prompt += text_tokens
            elif part in BLOCKS:
                kind, opened, closed = BLOCKS[part]
                value: str = getattr(conditioning, kind)
                require_unicode(value, f"the {kind}")
                if kind == "speaker" and value:
                    self._require_speaker(value)
                if value:
                    block = (ids[opened], value, ids[closed], "\n")
                    prompt += self._encoder.encode_pieces(block)
            else:
                prompt.append(ids[part])
        return tuple(prompt)

    def dialogue_prompt(self, turns: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """The prompt of (speaker, text) turns: the speakers stand in the text, nothing before it.

        A blank line parts the turns. White space around a turn is not part of it, newlines inside
        are kept as they are. Raises `NothingToSpeakError`, `UnknownSpeakerError` and
        `UnsupportedTextError`, naming the turn, and `UnsupportedTagError`.
        """
        ids = self.contract.added_tokens
        start, stop = self.contract.prompt_layout.index("{text}"), len(self.contract.prompt_layout)
        before = [part for part in self.contract.prompt_layout[:start] if part not in BLOCKS]
        after = self.contract.prompt_layout[start + 1 : stop]
        pieces: list[str | int] = [ids[part] for part in before]
        if not turns:
            raise NothingToSpeakError("nothing to speak: the dialogue has no turn")
        for index, (speaker, text) in enumerate(turns):
            require_unicode(text, f"turns[{index}]: the text")
            require_unicode(speaker, f"turns[{index}]: the speaker")
            if not text.strip():
                raise NothingToSpeakError(f"turns[{index}]: the text is empty")
            self._require_speaker(speaker, f"turns[{index}]: ")
            pieces += [_TURN_BREAK] if index else []
            pieces += [ids["<|speaker>"], speaker, ids["<speaker|>"], "\n"]
            pieces += self._pieces(text.strip())
        return self._encoder.encode_pieces([*pieces, *(ids[part] for part in after)])

    def _pieces(self, text: str) -> Iterator[str | int]:
        """The text, its tags as ids. A label's underscores are its spaces."""
        ids = self.contract.added_tokens
        at = 0
        for tag in find_tags(text, self._tags):
            yield text[at : tag.start]
            if tag.kind == "closed":
                yield NON_VERBALS[tag.name]
            else:
                yield from (ids["<|env>"], tag.name.replace("_", " "), ids["<env|>"])
            at = tag.end
        yield text[at:]

    def _require_speaker(self, speaker: str, where: str = "") -> None:
        if not speaker:
            raise UnknownSpeakerError(f"{where}a turn needs a speaker")
        if self.speakers and speaker not in self.speakers:
            raise UnknownSpeakerError(
                f"{where}no speaker {speaker!r} in this pack; it has {', '.join(self.speakers)}"
            )


def load(root: Path) -> Llama3AudioTextSide:
    """Read a pack's or a Hugging Face folder's tokenizer.

    Raises `ContractMismatchError` naming the first id that means something else, `ManifestError`
    for a tag that the contract lacks, and `PackMismatchError` for files that cannot be read.
    """
    tokenizer = read_tokenizer(root)
    require_same_ids(tokenizer, contract())
    encoder = PlainTextEncoder(tokenizer.build())
    return Llama3AudioTextSide(encoder, read_speakers(root), _tags_of(root))


def _tags_of(root: Path) -> TagSet:
    """The tags that a pack lists, or all of the contract's where there is no manifest yet."""
    listed = tags_of_folder(root)
    if listed is None:
        return TagSet.of(SUPPORTED_TAGS)
    for index, name in enumerate(listed.names):
        if name not in SUPPORTED_TAGS:
            raise ManifestError(
                f"supported_tags[{index}]",
                f"{name!r} is no tag of {NAME}; it has {', '.join(SUPPORTED_TAGS)}",
            )
    return listed
