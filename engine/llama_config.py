"""The sizes of a Llama model from a Hugging Face `config.json`, or what of it is not computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ManifestError


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


def read_llama_config(raw: Mapping[str, Any]) -> LlamaConfig:
    """The model's sizes from a Hugging Face config; what this code does not compute is refused.

    Raises `ManifestError` naming the key.
    """
    if raw.get("model_type") != "llama":
        raise ManifestError("model_type", f"must be 'llama', got {raw.get('model_type')!r}")
    for key, wanted in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        if raw.get(key, wanted) != wanted:
            raise ManifestError(key, f"only {wanted!r} is computed here, got {raw[key]!r}")
    heads = _count(raw, "num_attention_heads")
    # Newer configs hold the rotary settings in one block, older ones beside the sizes.
    rope = raw.get("rope_parameters") or {}
    scaling = raw.get("rope_scaling") or rope
    return LlamaConfig(
        hidden_size=_count(raw, "hidden_size"),
        intermediate_size=_count(raw, "intermediate_size"),
        num_hidden_layers=_count(raw, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=_count(raw, "num_key_value_heads", heads),
        head_dim=_count(raw, "head_dim", _count(raw, "hidden_size") // heads),
        vocab_size=_count(raw, "vocab_size"),
        max_position_embeddings=_count(raw, "max_position_embeddings"),
        rms_norm_eps=_positive(raw, "rms_norm_eps"),
        rope_theta=_positive(rope if "rope_theta" in rope else raw, "rope_theta"),
        rope_scaling=_read_rope_scaling(scaling),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
    )


def _count(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ManifestError(key, f"must be a whole number of at least 1, got {value!r}")
    return value


def _positive(raw: Mapping[str, Any], key: str) -> float:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ManifestError(key, f"must be a number above 0, got {value!r}")
    return float(value)


def _read_rope_scaling(raw: Mapping[str, Any]) -> RopeScaling | None:
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ManifestError(
            "rope_scaling.rope_type", f"{kind!r} is not computed here; 'default' and 'llama3' are"
        )
    return RopeScaling(
        factor=_positive(raw, "factor"),
        low_freq_factor=_positive(raw, "low_freq_factor"),
        high_freq_factor=_positive(raw, "high_freq_factor"),
        original_max_position_embeddings=_count(raw, "original_max_position_embeddings"),
    )
