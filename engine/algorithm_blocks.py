"""The blocks an algorithm is made of: sampling, chunking, window, text, and what a SNAC pack adds.

Field names are those of the published recipe `loudkit-1`: they are hashed as written. A value that
no engine could run is refused at construction with `ManifestError`, whose key is the field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, Literal

from engine.errors import ManifestError


class Unset(Enum):
    """The type of `UNSET`. An enum, because its members survive copy and pickle as themselves."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""An optional field that nobody set. Absent from the canonical form, so a field that is added
later leaves every older fingerprint where it was."""

DEFAULT_CHARS_PER_TOKEN: Final = 0.5


def require(holds: bool, key: str, message: str) -> None:
    """Refuse `key` with `message` unless the rule holds."""
    if not holds:
        raise ManifestError(key, message)


def require_finite(value: float, key: str) -> None:
    """Refuse NaN and the infinities, which pass most comparisons unnoticed."""
    require(math.isfinite(value), key, f"must be a finite number, got {value!r}")


def require_at_least(value: float, least: float, key: str) -> None:
    """Refuse a value under `least`, or one that is not finite."""
    require_finite(value, key)
    require(value >= least, key, f"must be at least {least}, got {value!r}")


def require_choice(value: str, choices: tuple[str, ...], key: str) -> None:
    """Refuse a word outside a closed set, and say what the set is."""
    names = " or ".join(repr(choice) for choice in choices)
    require(value in choices, key, f"must be {names}, got {value!r}")


def require_ids(ids: tuple[int, ...], key: str) -> None:
    """Refuse a negative token id, naming its place in the list."""
    for index, token in enumerate(ids):
        require(token >= 0, f"{key}[{index}]", f"a token id is never negative, got {token}")


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """The numbers of LR-SAMPLER-v1. Lengths count row entries."""

    temperature: float = 0.8
    repetition_penalty: float = 1.2
    min_p: float = 0.05
    max_new_tokens: int = 255
    silence_token_ids: tuple[int, ...] = ()  # exempt from the min_p floor, and from nothing else
    min_tokens_floor: int = 0  # the stop token is masked below max(floor, text tokens * ratio)
    min_tokens_text_ratio: float = 0.0

    def __post_init__(self) -> None:
        require(
            0.0 < self.temperature <= 4.0,
            "temperature",
            f"must be above 0 and at most 4, got {self.temperature!r}",
        )
        require_at_least(self.repetition_penalty, 1.0, "repetition_penalty")
        require(
            0.0 <= self.min_p < 1.0,
            "min_p",
            f"must be at least 0 and below 1, got {self.min_p!r}",
        )
        require_at_least(self.max_new_tokens, 1, "max_new_tokens")
        require_at_least(self.min_tokens_floor, 0, "min_tokens_floor")
        require_at_least(self.min_tokens_text_ratio, 0.0, "min_tokens_text_ratio")
        require_ids(self.silence_token_ids, "silence_token_ids")


_ABBREVIATIONS = (
    *("A", "B", "Cpn", "D", "Dr", "F", "H", "Hr", "I", "J", "K", "M", "Mr", "Mrs", "R", "S"),
    *("St", "T", "V", "Vors", "dr", "mrs", "prof", "św"),
)


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """How a passage is cut into chunks. `max_tokens` counts row entries, `prefix_tokens` stream
    tokens."""

    enabled: bool = True
    max_tokens: int = 255
    prefix_tokens: int = 6
    split_on: tuple[str, ...] = (". ", "! ", "? ", "; ", ", ")  # strongest first
    abbreviations: tuple[str, ...] = _ABBREVIATIONS  # hashed in the order given
    cap_resplit: Literal["word", "off"] = "word"
    mid_sentence_period: Literal["hold", "break"] = "hold"
    first_chunk_max_tokens: int | Unset | None = UNSET
    chars_per_token: float | Unset = UNSET  # of text; SNAC packs measure it

    @property
    def chars(self) -> float:
        """Characters of text that one row entry speaks."""
        value = self.chars_per_token
        return DEFAULT_CHARS_PER_TOKEN if isinstance(value, Unset) else value

    @property
    def first_budget(self) -> int | None:
        """The first chunk's own budget in row entries, `None` where it has none."""
        value = self.first_chunk_max_tokens
        return None if isinstance(value, Unset) else value

    def __post_init__(self) -> None:
        require_at_least(self.max_tokens, 1, "max_tokens")
        first = self.first_budget
        require(
            first is None or 0 < first <= self.max_tokens,
            "first_chunk_max_tokens",
            f"must be between 1 and max_tokens ({self.max_tokens}), got {first}",
        )
        require_finite(self.chars, "chars_per_token")
        require(self.chars > 0.0, "chars_per_token", f"must be above 0, got {self.chars!r}")
        # Without room for one character the splitter could never advance.
        require(
            int(self.max_tokens * self.chars) >= 1,
            "max_tokens",
            f"{self.max_tokens} tokens at {self.chars} characters a token hold no character;"
            f" at least {math.ceil(1 / self.chars)} are needed",
        )
        require(
            0 <= self.prefix_tokens < self.max_tokens,
            "prefix_tokens",
            f"must be at least 0 and below max_tokens ({self.max_tokens}),"
            f" got {self.prefix_tokens}",
        )
        require(bool(self.split_on), "split_on", "must name at least one separator")
        # An empty entry would match everywhere: every position a break, or none.
        for key, words in (("split_on", self.split_on), ("abbreviations", self.abbreviations)):
            for index, word in enumerate(words):
                require(bool(word), f"{key}[{index}]", "must not be empty")
        require_choice(self.cap_resplit, ("word", "off"), "cap_resplit")
        require_choice(self.mid_sentence_period, ("hold", "break"), "mid_sentence_period")


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """How tokens are framed for the renderer, in row entries. `None` leaves a length ragged."""

    max_speech_tokens: int = 255
    static_length: int | None = None
    pad_token_id: int | None = None
    static_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        require_at_least(self.max_speech_tokens, 1, "max_speech_tokens")
        require(
            self.static_length is None or self.static_length >= self.max_speech_tokens,
            "static_length",
            f"must be at least max_speech_tokens ({self.max_speech_tokens}),"
            f" got {self.static_length}",
        )
        require(
            self.static_prompt_tokens is None or self.static_prompt_tokens >= 1,
            "static_prompt_tokens",
            f"must be at least 1, got {self.static_prompt_tokens}",
        )


@dataclass(frozen=True, slots=True)
class TextConfig:
    """Which text side turns a passage into what the model reads."""

    recipe: str  # the funnel's version, or "verbatim" for text taken as it stands
    grammar: str  # digest of the funnel's data; empty for verbatim


VERBATIM_TEXT: Final = TextConfig(recipe="verbatim", grammar="")


@lru_cache(maxsize=1)
def funnel_identity() -> TextConfig:
    """The loudkit funnel that is installed here: its version and the digest of its data."""
    from loudkit.frontend import textconfig  # here: reading its tables takes a moment

    return TextConfig(recipe=textconfig.FUNNEL_PORTED, grammar=textconfig.grammar_digest())


@dataclass(frozen=True, slots=True)
class FrameConfig:
    """The unit of a SNAC stream: how many tokens, and how many samples they become."""

    tokens_per_frame: int
    samples_per_frame: int

    def __post_init__(self) -> None:
        require_at_least(self.tokens_per_frame, 1, "tokens_per_frame")
        require_at_least(self.samples_per_frame, 1, "samples_per_frame")


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """What of the codec decides samples: its shape, its noise stream, and how windows are cut."""

    kind: Literal["snac"]
    codebook_size: int
    vq_strides: tuple[int, ...]  # coarsest first; SNAC 24 kHz has 4, 2, 1
    noise_stream: int
    window_frames: int
    context_frames: int

    @property
    def tokens_per_frame(self) -> int:
        """Codes in one frame: each codebook gives `first stride / own stride`."""
        return sum(self.vq_strides[0] // stride for stride in self.vq_strides)

    def __post_init__(self) -> None:
        require_choice(self.kind, ("snac",), "kind")
        require_at_least(self.codebook_size, 1, "codebook_size")
        require(bool(self.vq_strides), "vq_strides", "must name at least one stride")
        for index, stride in enumerate(self.vq_strides):
            key = f"vq_strides[{index}]"
            require_at_least(stride, 1, key)
            require(
                self.vq_strides[0] % stride == 0,
                key,
                f"must divide the first stride ({self.vq_strides[0]}), got {stride}",
            )
        require(
            0 <= self.noise_stream < 2**32,
            "noise_stream",
            f"must fit 32 bits, got {self.noise_stream}",
        )
        require_at_least(self.window_frames, 1, "window_frames")
        require_at_least(self.context_frames, 0, "context_frames")
