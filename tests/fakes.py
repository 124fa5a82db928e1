"""Stand-ins for tests: small models, quiet progress, and engines that need no weights."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.detectors import Inspection
from engine.llama_config import LlamaConfig, RopeScaling
from engine.passage import FinishedWindow, Half


def tiny_llama_config(
    *,
    kv_heads: int = 2,
    tied: bool = True,
    scaling: RopeScaling | None = None,
    vocab_size: int = 97,
) -> LlamaConfig:
    """A Llama of a few thousand weights."""
    return LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        vocab_size=vocab_size,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=scaling,
        tie_word_embeddings=tied,
    )


def random_llama_state(config: LlamaConfig, *, seed: int, scale: float = 0.3) -> dict[str, Tensor]:
    """Hugging Face tensors of random weights."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * scale

    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    state = {
        "model.embed_tokens.weight": draw(config.vocab_size, hidden),
        "model.norm.weight": 1 + draw(hidden),
    }
    for index in range(config.num_hidden_layers):
        at = f"model.layers.{index}."
        state |= {
            at + "input_layernorm.weight": 1 + draw(hidden),
            at + "post_attention_layernorm.weight": 1 + draw(hidden),
            at + "self_attn.q_proj.weight": draw(queries, hidden),
            at + "self_attn.k_proj.weight": draw(keys, hidden),
            at + "self_attn.v_proj.weight": draw(keys, hidden),
            at + "self_attn.o_proj.weight": draw(hidden, queries),
            at + "mlp.gate_proj.weight": draw(inner, hidden),
            at + "mlp.up_proj.weight": draw(inner, hidden),
            at + "mlp.down_proj.weight": draw(hidden, inner),
        }
    if not config.tie_word_embeddings:
        state["lm_head.weight"] = draw(config.vocab_size, hidden)
    return state


def finished_window_of(
    *, chunk_index: int = 0, half: Half = 0, seed: int = 7, frames: int = 3
) -> FinishedWindow:
    """A settled window of the starter's ids."""
    tokens = tuple(76 + 512 * position + 5 for _ in range(frames) for position in range(7))
    return FinishedWindow(
        chunk_index=chunk_index,
        half=half,
        attempt=0,
        attempts=1,
        seed=seed,
        text="Good morning.",
        prefix=(),
        tokens=tokens,
        verdict=Inspection(keep=frames, reason="clean", suspect=False),
        n_generated=frames,
        hit_cap=False,
        hit_window=False,
        ended=True,
    )
