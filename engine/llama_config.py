"""The sizes of a Llama model from a Hugging Face `config.json`, or what of it is not computed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.errors import ManifestError
from engine.shown import shown

_LARGEST_COUNT: Final = 2**31 - 1
_MOST_POSITIONS: Final = 1 << 20
"""Eight times what Llama 3.1 has. Loading makes the rotary table of them all, a gigabyte here."""

# In these ranges every angle of the rotary table is a finite float32. The largest base that was
# published is 4.6e10, for four million positions.
_THETA: Final = (1.0, 1e12)
_FACTOR: Final = (1.0, 1e6)
_FREQUENCY_FACTOR: Final = (1e-3, 1e6)
_EPSILON: Final = (1e-12, 1.0)

_SCALES_NOTHING: Final = frozenset({"rope_theta", "partial_rotary_factor"})
"""What a block of rotary settings may hold without a type."""

_ROTARY_BUFFER: Final = re.compile(
    r"model\.(?:layers\.(?P<layer>0|[1-9][0-9]{0,8})\.self_attn\.)?rotary_emb\.inv_freq"
)


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama-3's frequency scaling: long wavelengths slowed by `factor`, a smooth band between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of a Llama model, read from a Hugging Face `config.json`."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tie_word_embeddings: bool

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ManifestError(
                "num_key_value_heads",
                f"{self.num_key_value_heads} does not divide the {self.num_attention_heads} "
                "attention heads",
            )
        if self.head_dim % 2:
            raise ManifestError("head_dim", f"must be even to be rotated, got {self.head_dim}")

    def is_rotary_buffer(self, name: str) -> bool:
        """Whether a tensor is one that old checkpoints hold although it follows from the config."""
        found = _ROTARY_BUFFER.fullmatch(name)
        return found is not None and int(found["layer"] or 0) < self.num_hidden_layers


def read_llama_config(raw: Mapping[str, Any]) -> LlamaConfig:
    """The model's sizes from a Hugging Face config; what this code does not compute is refused.

    Raises `ManifestError` naming the key.
    """
    if raw.get("model_type") != "llama":
        raise ManifestError("model_type", f"must be 'llama', got {shown(raw.get('model_type'))}")
    for key, wanted in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        if raw.get(key, wanted) != wanted:
            raise ManifestError(key, f"only {wanted!r} is computed here, got {shown(raw[key])}")
    heads = _count(raw, "num_attention_heads")
    theta, scaling = _read_rotary(raw)
    return LlamaConfig(
        hidden_size=_count(raw, "hidden_size"),
        intermediate_size=_count(raw, "intermediate_size"),
        num_hidden_layers=_count(raw, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=_count(raw, "num_key_value_heads", default=heads),
        head_dim=_head_dim(raw, heads),
        vocab_size=_count(raw, "vocab_size"),
        max_position_embeddings=_count(raw, "max_position_embeddings", most=_MOST_POSITIONS),
        rms_norm_eps=_number(raw, "rms_norm_eps", *_EPSILON),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=_flag(raw, "tie_word_embeddings"),
    )


def _head_dim(raw: Mapping[str, Any], heads: int) -> int:
    hidden = _count(raw, "hidden_size")
    if raw.get("head_dim") is None and hidden % heads:
        raise ManifestError(
            "head_dim", f"is missing, and {heads} heads do not divide the hidden size {hidden}"
        )
    return _count(raw, "head_dim", default=hidden // heads)


def _read_rotary(raw: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Base and scaling of the rotary embedding.

    Newer configs hold its settings in one block, older ones the base beside the sizes and the rest
    in another block. Where both say something they must say the same.
    """
    blocks: list[tuple[str, Mapping[str, Any]]] = []
    for key in ("rope_parameters", "rope_scaling"):
        block = raw.get(key)
        if block is not None and not isinstance(block, Mapping):
            raise ManifestError(key, f"must be an object or null, got {shown(block)}")
        blocks += [(f"{key}.", block)] if block else []
    thetas: dict[str, float] = {}
    for at, block in (("", raw), *blocks):
        if block.get("partial_rotary_factor", 1) not in (1, None):
            raise ManifestError(
                f"{at}partial_rotary_factor",
                f"only whole heads are rotated here, got {shown(block['partial_rotary_factor'])}",
            )
        if block.get("rope_theta") is not None:
            thetas[f"{at}rope_theta"] = _number(block, "rope_theta", *_THETA, at=at)
    _require_one(thetas)
    theta = next(iter(thetas.values()), None)
    scalings = {
        at: _read_rope_scaling(block, at) for at, block in blocks if block.keys() - _SCALES_NOTHING
    }
    _require_one({f"{at}rope_type": found for at, found in scalings.items()})
    return (
        _number(raw, "rope_theta", *_THETA) if theta is None else theta,
        next(iter(scalings.values()), None),
    )


def _require_one(told: Mapping[str, object]) -> None:
    """Refuse a config that says a thing twice and not alike."""
    for (first, value), (other, another) in zip(told.items(), list(told.items())[1:], strict=False):
        if value != another:
            raise ManifestError(other, f"says something else than {first}")


def _read_rope_scaling(block: Mapping[str, Any], at: str) -> RopeScaling | None:
    kind = block.get("rope_type", block.get("type"))
    if kind == "default":
        return None
    if kind != "llama3":
        told = "is missing" if kind is None else f"{shown(kind)} is not computed here"
        raise ManifestError(f"{at}rope_type", f"{told}; 'default' and 'llama3' are computed here")
    low, high = (
        _number(block, key, *_FREQUENCY_FACTOR, at=at)
        for key in ("low_freq_factor", "high_freq_factor")
    )
    if not low < high:
        raise ManifestError(
            f"{at}low_freq_factor", f"must be below high_freq_factor, {high}, got {low}"
        )
    return RopeScaling(
        factor=_number(block, "factor", *_FACTOR, at=at),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=_count(
            block, "original_max_position_embeddings", most=_MOST_POSITIONS, at=at
        ),
    )


def _count(
    raw: Mapping[str, Any],
    key: str,
    *,
    default: int | None = None,
    most: int = _LARGEST_COUNT,
    at: str = "",
) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ManifestError(
            f"{at}{key}", f"must be a whole number from 1 to {most}, got {shown(value)}"
        )
    return value


def _number(raw: Mapping[str, Any], key: str, least: float, most: float, *, at: str = "") -> float:
    value = raw.get(key)
    # Compared as it is: an integer may be too large for a float, and NaN is in no range.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ManifestError(
            f"{at}{key}", f"must be a number from {least:g} to {most:g}, got {shown(value)}"
        )
    return float(value)


def _flag(raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise ManifestError(key, f"must be true or false, got {shown(value)}")
    return value
