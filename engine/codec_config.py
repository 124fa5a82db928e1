"""The shape of a SNAC codec, read from its config file, and what follows from it in frames.

SNAC: Siuzdak, Gruenstaeudl and Lanzendoerfer, "SNAC: Multi-Scale Neural Audio Codec" (2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from operator import mul
from typing import Any, Final

from engine.errors import ManifestError
from engine.shown import shown, shown_name

VQ_STRIDES: Final = (4, 2, 1)

_KERNEL: Final = 7
_DILATIONS: Final = (1, 3, 9)

# No codec comes near these. They keep every product of sizes a size that torch can count with, so
# that a config is refused by its key and not by what an allocation makes of it.
_WIDEST: Final = 1 << 16
_FASTEST: Final = 1 << 10
_MOST_STAGES: Final = 16
_LARGEST: Final[Mapping[str, int]] = {
    "sampling_rate": 1 << 20,
    "codebook_size": 1 << 20,
    "encoder_rates": _FASTEST,
    "decoder_rates": _FASTEST,
}
"""By key; whatever is not named is a width."""


@dataclass(frozen=True, slots=True)
class SnacConfig:
    """The fields of a SNAC `config.json`, checked. Raises `ManifestError` naming the field.

    Only three levels at strides 4, 2, 1 make the seven-token frame. Attention is refused: its
    windows count from the start of a call, so no window could be decoded by itself.
    """

    sampling_rate: int
    encoder_dim: int
    encoder_rates: tuple[int, ...]
    latent_dim: int
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    codebook_size: int
    codebook_dim: int
    vq_strides: tuple[int, ...]
    attn_window_size: None = None
    noise: bool = True
    depthwise: bool = True

    def __post_init__(self) -> None:
        _require("vq_strides", self.vq_strides == VQ_STRIDES, f"must be {list(VQ_STRIDES)}")
        _require(
            "attn_window_size",
            self.attn_window_size is None,
            "must be null: a codec with attention cannot be decoded window by window",
        )
        # A transposed convolution of SNAC pads its output by stride % 2, which torch allows from 2.
        _require("decoder_rates", min(self.decoder_rates) >= 2, "must be at least 2 each")
        _require(
            "decoder_rates",
            math.prod(self.decoder_rates) == math.prod(self.encoder_rates),
            f"must multiply to the hop of the encoder, {math.prod(self.encoder_rates)}",
        )
        _require(
            "decoder_dim",
            self.decoder_dim % 2 ** len(self.decoder_rates) == 0,
            f"must be a multiple of {2 ** len(self.decoder_rates)}, a half for each rate",
        )
        doubled = self.encoder_dim * 2 ** len(self.encoder_rates)
        _require(
            "encoder_dim",
            doubled <= _WIDEST,
            f"must be at most {_WIDEST} when each rate has doubled it, is {doubled} then",
        )
        _require(
            "sampling_rate",
            self.sampling_rate >= self.samples_per_frame,
            f"must give a frame a second; a frame is {self.samples_per_frame} samples",
        )

    @classmethod
    def from_mapping(cls, config: Mapping[str, object]) -> SnacConfig:
        """Read the parsed file. Unknown keys and wrong types are refused; `latent_dim`, `noise` and
        `depthwise` may be absent, as in published configs."""
        known = {field.name for field in fields(cls)}
        for key in config:
            _require(shown_name(key), key in known, "is not a field of a SNAC config")
        sizes = {k: _count(config, k) for k in _SIZES}
        lists = {k: _counts(config, k) for k in ("encoder_rates", "decoder_rates", "vq_strides")}
        latent_dim = sizes["encoder_dim"] * 2 ** len(lists["encoder_rates"])
        if config.get("latent_dim") is not None:
            latent_dim = _count(config, "latent_dim")
        _require("attn_window_size", "attn_window_size" in config, "is missing")
        values: dict[str, Any] = {**sizes, **lists, "latent_dim": latent_dim}
        values["attn_window_size"] = config["attn_window_size"]
        for key in ("noise", "depthwise"):
            values[key] = config.get(key, True)
            _require(key, isinstance(values[key], bool), "must be true or false")
        return cls(**values)

    @property
    def hop(self) -> int:
        """Samples of one latent step."""
        return math.prod(self.decoder_rates)

    @property
    def samples_per_frame(self) -> int:
        """Samples of one frame, exactly: each stage of the decoder gives its rate times its input,
        odd rates included."""
        return self.hop * self.vq_strides[0]

    @property
    def stage_samples_per_frame(self) -> tuple[int, ...]:
        """Samples a frame at the rate of each decoder stage, hence of each noise layer."""
        return tuple(accumulate(self.decoder_rates, mul, initial=self.vq_strides[0]))[1:]

    def arguments(self) -> dict[str, object]:
        """The arguments of `snac.SNAC`."""
        return asdict(self)


_SIZES: Final = (
    "sampling_rate",
    "encoder_dim",
    "decoder_dim",
    "codebook_size",
    "codebook_dim",
)


def context_frames_needed(config: SnacConfig) -> int:
    """How many frames on each side can reach into a frame's samples: the receptive field.

    Decoded with that many on both sides, a window's samples see the very same inputs as in a
    decode of the whole.
    """
    reach = _KERNEL // 2
    block_reach = reach * sum(_DILATIONS)
    first, last = 0, config.samples_per_frame - 1  # the samples of frame 0
    first, last = first - reach, last + reach
    for rate in reversed(config.decoder_rates):
        first, last = first - block_reach, last + block_reach
        # Sample j of a transposed convolution of kernel 2 * rate hears the inputs i for which
        # 0 <= j + padding - i * rate < 2 * rate.
        padding = math.ceil(rate / 2)
        first = -((2 * rate - 1 - padding - first) // rate)
        last = (last + padding) // rate
    first, last = first - reach, last + reach
    latents = config.vq_strides[0]
    return max(-(first // latents), last // latents)


def _require(key: str, holds: bool, message: str) -> None:
    if not holds:
        raise ManifestError(key, message)


def _count(config: Mapping[str, object], key: str) -> int:
    _require(key, key in config, "is missing")
    return _positive(config[key], key, most=_LARGEST.get(key, _WIDEST))


def _counts(config: Mapping[str, object], key: str) -> tuple[int, ...]:
    _require(key, key in config, "is missing")
    values = config[key]
    if not isinstance(values, list | tuple) or not 0 < len(values) <= _MOST_STAGES:
        raise ManifestError(
            key, f"must be a list of 1 to {_MOST_STAGES} whole numbers, got {shown(values)}"
        )
    most = _LARGEST.get(key, _WIDEST)
    return tuple(_positive(value, f"{key}[{i}]", most=most) for i, value in enumerate(values))


def _positive(value: object, key: str, *, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ManifestError(key, f"must be a whole number from 1 to {most}, got {shown(value)}")
    return value
