"""The orpheus contract: orpheus-3b and its fine-tunes, Llama-3.2 BPE and SNAC codes.

Every audio and control id is llama-3-audio's, under other spellings, and there is no conditioning
block: the voice is a name before the text, as plain text. So are this family's tags, `<laugh>` and
its like: nothing here maps them, a pack lists them only to bring them through the text funnel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from engine.contracts.contract import FRAME_ORDER, Conditioning, TokenContract, require_plain_voice
from engine.contracts.llama3_tokenizer import (
    PlainTextEncoder,
    llama_specials,
    read_speakers,
    read_tokenizer,
    require_same_ids,
)
from engine.contracts.tags import OPEN_CLASS, TagSet, tags_of_folder
from engine.errors import (
    ManifestError,
    NothingToSpeakError,
)

NAME: Final = "orpheus"
VOCABULARY_SIZE: Final = 156_940
CUSTOM_BASE: Final = 128_256
"""`<custom_token_N>` is this and N."""
AUDIO_BASE: Final = CUSTOM_BASE + 10
CODEBOOK_SIZE: Final = 4096

START_OF_SPEECH: Final = 128_257
END_OF_SPEECH: Final = 128_258
START_OF_AI: Final = 128_261

LAST_ID: Final = VOCABULARY_SIZE - 1
AUDIO_SPELLING: Final = "<|audio|>"
"""What tokenizers of this family that were saved with an audio special call their last id. No
prompt and no stream has that id; both spellings are orpheus, each with a fingerprint of its own."""

SUPPORTED_TAGS: Final = tuple("laugh chuckle sigh cough sniffle groan yawn gasp".split())
"""The family's own; a fine-tune's pack may list others, for they are text."""

PROMPT_LAYOUT: Final = (
    "<custom_token_3>",
    "<|begin_of_text|>",
    "{speaker}: {text}",
    "<|eot_id|>",
    "<custom_token_4>",
)


@cache
def contract(*, audio_spelling: bool = False) -> TokenContract:
    """The whole id map, written out; with `<|audio|>` or a custom token at its last id."""
    custom = {f"<custom_token_{id_ - CUSTOM_BASE}>": id_ for id_ in range(CUSTOM_BASE, LAST_ID)}
    last = AUDIO_SPELLING if audio_spelling else f"<custom_token_{LAST_ID - CUSTOM_BASE}>"
    return TokenContract(
        name=NAME,
        vocabulary_size=VOCABULARY_SIZE,
        added_tokens=llama_specials() | custom | {last: LAST_ID},
        audio_base=AUDIO_BASE,
        codebook_size=CODEBOOK_SIZE,
        start_of_speech=START_OF_SPEECH,
        end_of_speech=END_OF_SPEECH,
        prompt_layout=PROMPT_LAYOUT,
        tokens_per_frame=len(FRAME_ORDER),
    )


class OrpheusTextSide:
    """The text side of an orpheus pack. `speakers` is empty where any name is taken."""

    def __init__(
        self,
        contract: TokenContract,
        encoder: PlainTextEncoder,
        speakers: Sequence[str],
        supported_tags: Sequence[str] = SUPPORTED_TAGS,
    ) -> None:
        self.contract = contract
        self.speakers = tuple(speakers)
        self.opening = (START_OF_AI, START_OF_SPEECH)
        self.supported_tags = tuple(supported_tags)
        self._encoder = encoder

    def text_tokens(self, text: str) -> tuple[int, ...]:
        """The ids of a text as they stand after `voice:`. Raises `NothingToSpeakError`.

        The space after the colon is the first of them. Llama-3 cuts between a mark and a space
        before it merges anything, so the prompt's two parts are the ids of the whole.
        """
        if not text.strip():
            raise NothingToSpeakError("nothing to speak: the text is empty")
        return tuple(self._encoder.encode(f" {text.strip()}"))

    def prompt(self, text_tokens: Sequence[int], conditioning: Conditioning) -> tuple[int, ...]:
        """`PROMPT_LAYOUT` filled in. Raises `UnknownSpeakerError`, `UnsupportedPromptError`."""
        speaker = conditioning.speaker
        require_plain_voice(conditioning, self.speakers, contract=NAME)
        ids = self.contract.added_tokens
        prompt: list[int] = []
        for part in self.contract.prompt_layout:
            if part == "{speaker}: {text}":
                prompt += (*self._encoder.encode(f"{speaker}:"), *text_tokens)
            else:
                prompt.append(ids[part])
        return tuple(prompt)


def load(root: Path) -> OrpheusTextSide:
    """Read a pack's or a Hugging Face folder's tokenizer.

    Raises `ContractMismatchError` naming the first id that means something else, `ManifestError`
    for a tag that cannot be one here, and `PackMismatchError` for files that cannot be read.
    """
    tokenizer = read_tokenizer(root)
    expected = contract(audio_spelling=_says_audio(tokenizer.added_tokens))
    require_same_ids(tokenizer, expected)
    encoder = PlainTextEncoder(tokenizer.build())
    return OrpheusTextSide(expected, encoder, read_speakers(root), _tags_of(root).names)


def _says_audio(added_tokens: Mapping[str, int]) -> bool:
    return added_tokens.get(AUDIO_SPELLING) == LAST_ID


def _tags_of(root: Path) -> TagSet:
    listed = tags_of_folder(root)
    if listed is None:
        return TagSet.of(SUPPORTED_TAGS)
    if listed.open:
        at = listed.names.index(OPEN_CLASS)
        raise ManifestError(
            f"supported_tags[{at}]", f"{NAME} has no open class {OPEN_CLASS}; it has names only"
        )
    return listed
