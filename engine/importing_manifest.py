"""The manifest of an imported pack: what its files say, and numbers known to be unmeasured.

Detector numbers belong to the checkpoint they were measured on. An imported pack has none yet, so
it gets the recipe's, turned from speech tokens of 25 Hz into frames, with every limit that could
cut speech set out of reach, and detectors that report and cut nothing. `measured.how` says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from engine.algorithm import RECIPE_VERSION, ChunkConfig, PostprocessConfig
from engine.codec_config import VQ_STRIDES, SnacConfig, context_frames_needed
from engine.contracts.contract import TokenContract
from engine.errors import ManifestError
from engine.manifest import PACK_FORMAT
from engine.philox import CODEC_NOISE
from engine.shown import is_one_line, shown, shown_name

PROMPT_ROOM_TOKENS: Final = 512
"""Positions kept for prompt and carry, as the engine keeps them in a slot."""

MODEL_FILE: Final = "model.safetensors"
CODEC_FILE: Final = "codec.safetensors"

_WINDOW_S: Final = 20.0
_RECIPE_RATE_HZ: Final = 25.0
"""The token rate that the recipe's defaults were measured at."""

_CODEC_WINDOW_FRAMES: Final = 512
_CODEC_CONTEXT_FRAMES: Final = 4
_EDGE_FADE_S: Final = 0.02

# What clients of orpheus-3b and its fine-tunes send by default. They bound the tail of the
# distribution by top_p 0.9; the recipe's sampler has min_p, at the recipe's own value.
_SAMPLING: Final = {"temperature": 0.6, "repetition_penalty": 1.1, "min_p": 0.05}

# Seconds a text token, and seconds besides, that no speech is expected to take. What a text token
# sounds like differs from tokenizer to tokenizer: a phone, a word of seven letters, a laugh.
_LONGEST_TEXT_TOKEN_S: Final = 1.0
_LONGEST_BESIDES_S: Final = 4.0

_COUNTS_OF_ROWS: Final = (
    *("trailing_silence_run_tokens", "filler_max_speech_after_run", "desperation_band_floor"),
    *("ended_tail_silence_run", "ended_tail_blip_max", "ended_tail_word_max", "ended_tail_keep"),
    *("echo_strong_max_tail", "echo_weak_max_tail", "repetition_max_period", "repetition_min_span"),
    *("dropout_min_tokens", "stall_run_tokens"),
)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_HOW: Final = (
    "Not measured for this pack: it was imported. The numbers are the recipe's defaults, turned "
    "from tokens of 25 Hz into frames; ceilings are out of reach of speech, the silence censuses "
    "are empty, and detectors are in mode 'report': they cut nothing. Run python -m "
    "tests.benchmarks.measure_pack on it, choose its own numbers, and only then set mode 'trim'."
)


@dataclass(frozen=True, slots=True)
class PackLabel:
    """What a pack says of itself that no file of it can tell. Raises `ManifestError`."""

    name: str
    languages: tuple[str, ...]
    licence: str
    source: str
    text_recipe: Literal["funnel", "verbatim"] = "funnel"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ManifestError(
                "name", f"must be 1 to 64 of a-z, 0-9, '.', '_' and '-', got {shown(self.name)}"
            )
        if not self.languages:
            raise ManifestError("languages", "must name at least one")
        told = {f"languages[{index}]": each for index, each in enumerate(self.languages)}
        for key, text in {"licence": self.licence, "source": self.source, **told}.items():
            if not text.strip():
                raise ManifestError(key, "must not be empty")
            if not is_one_line(text):
                raise ManifestError(key, f"must be a line of UTF-8 text, got {shown(text)}")
        if self.text_recipe == "funnel":
            self._check_funnel()

    def _check_funnel(self) -> None:
        from loudkit.frontend.numbers import supported_languages

        unread = [language for language in self.languages if language not in supported_languages()]
        if unread:
            raise ManifestError(
                "languages",
                f"the text funnel cannot read {', '.join(map(shown_name, unread))}; it reads "
                f"{', '.join(sorted(supported_languages()))}; any other needs verbatim text",
            )


@dataclass(frozen=True, slots=True)
class PackContents:
    """What the files of a pack say."""

    contract: TokenContract
    supported_tags: Sequence[str]
    codec: SnacConfig
    encoder: Literal["trained", "absent"]
    positions: int  # of the language model
    files: Sequence[str]
    provenance: dict[str, str]


def manifest_for(label: PackLabel, contents: PackContents) -> dict[str, Any]:
    """A manifest whose files are listed and not sealed yet. Raises `ManifestError`."""
    contract, codec = contents.contract, contents.codec
    frame_rate_hz = codec.sampling_rate / codec.samples_per_frame
    window = _window_frames(contents, frame_rate_hz)
    return {
        "format": PACK_FORMAT,
        "format_version": 1,
        "name": label.name,
        "description": "Imported from a Hugging Face Llama folder and a SNAC folder. Its detector "
        "numbers are not measured yet; see measured.",
        "languages": list(label.languages),
        "supported_tags": list(contents.supported_tags),
        "token_contract": {"name": contract.name, "fingerprint": contract.fingerprint()},
        "weights": {
            "model": MODEL_FILE,
            "model_config_file": "config.json",
            "codec": CODEC_FILE,
            "codec_config_file": "codec_config.json",
            "encoder": contents.encoder,
        },
        "recipe_version": RECIPE_VERSION,
        "text": {"recipe": label.text_recipe},
        **_codec_blocks(contract, codec, frame_rate_hz),
        "speech_vocab_size": contract.vocabulary_size,
        "speech_tokens": {"start": contract.start_of_speech, "stop": contract.end_of_speech},
        "edge_fade_seconds": _EDGE_FADE_S,
        "sampling_defaults": {**_SAMPLING, "max_new_tokens": window},
        "eos_floor": {"min_tokens_floor": 1, "min_tokens_text_ratio": 0.0},
        "window": {"max_speech_tokens": window},
        "chunking": {
            "max_tokens": window,
            "chars_per_token": round(ChunkConfig().chars * _RECIPE_RATE_HZ / frame_rate_hz, 3),
            "prefix_tokens": ChunkConfig().prefix_tokens,
        },
        "silence_token_ids": [],
        "silence_render_ids": [],
        "quiet_render_ids": [],
        "postprocess": _detectors(frame_rate_hz),
        "files": {name: {"bytes": 0, "sha256": "0" * 64} for name in sorted(contents.files)},
        "licence": {"weights": label.licence},
        "provenance": {"source": label.source, **contents.provenance},
        "measured": {"how": _HOW},
    }


def _codec_blocks(
    contract: TokenContract, codec: SnacConfig, frame_rate_hz: float
) -> dict[str, Any]:
    return {
        "sample_rate": codec.sampling_rate,
        "token_rate_hz": frame_rate_hz * contract.tokens_per_frame,
        "frame": {
            "tokens_per_frame": contract.tokens_per_frame,
            "samples_per_frame": codec.samples_per_frame,
        },
        "codec": {
            "kind": "snac",
            "codebook_size": codec.codebook_size,
            "vq_strides": list(VQ_STRIDES),
            "noise_stream": CODEC_NOISE,
            "window_frames": _CODEC_WINDOW_FRAMES,
            "context_frames": max(_CODEC_CONTEXT_FRAMES, context_frames_needed(codec)),
        },
    }


def _window_frames(contents: PackContents, frame_rate_hz: float) -> int:
    """Frames of 20 seconds, or as many as the model has positions for beside a prompt."""
    room = (contents.positions - PROMPT_ROOM_TOKENS) // contents.contract.tokens_per_frame
    if room < frame_rate_hz:
        raise ManifestError(
            "max_position_embeddings",
            f"{contents.positions} positions leave no room for a second of speech beside a prompt "
            f"of {PROMPT_ROOM_TOKENS}",
        )
    return min(round(_WINDOW_S * frame_rate_hz), room)


def _detectors(frame_rate_hz: float) -> dict[str, Any]:
    """The recipe's preset in frames, in mode report."""
    preset = asdict(PostprocessConfig(mode="report"))
    for key in ("silence_render_ids", "quiet_render_ids", "earliest_cut_tokens"):
        del preset[key]
    shorter = frame_rate_hz / _RECIPE_RATE_HZ
    for key in _COUNTS_OF_ROWS:
        preset[key] = math.ceil(preset[key] * shorter)
    # Shares of the ceiling stay what they are in the recipe.
    ceiling = round(_LONGEST_TEXT_TOKEN_S * frame_rate_hz, 3)
    looser = ceiling / preset["ceiling_speech_per_text_token"]
    for key in (
        "desperation_band_ratio",
        "desperation_speech_per_text_token",
        "desperation_min_keep_per_text_token",
    ):
        preset[key] = round(preset[key] * looser, 3)
    preset["ceiling_speech_per_text_token"] = ceiling
    preset["ceiling_slack_tokens"] = math.ceil(_LONGEST_BESIDES_S * frame_rate_hz)
    preset["earliest_cut_tokens"] = math.ceil(PostprocessConfig().earliest_cut * shorter)
    return preset
