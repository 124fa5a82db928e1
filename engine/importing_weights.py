"""Weights into a pack: every tensor checked against its config, then written one at a time.

The file that is written is a function of the tensors alone. It does not depend on how the source
was sharded or whether it was a pickle, so the checkpoint's sha256 in every record does not either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor

from engine.checkpoints import FLOAT_BYTES, Checkpoint, open_checkpoint, require_tensors
from engine.codec_config import SnacConfig
from engine.codec_weights import load_snac, snac_shapes
from engine.contracts.contract import TokenContract
from engine.errors import ContractMismatchError, ManifestError
from engine.importing_errors import PackImportError, about
from engine.llama_config import LlamaConfig, read_llama_config
from engine.strict_json import read_object

_HEAD: Final = "lm_head.weight"
_EMBEDDING: Final = "model.embed_tokens.weight"
_ENCODER: Final = "encoder."


def llama_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a Llama model and its shape, by the names that `load_llama` places."""
    hidden, wide = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    block = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
    }
    shapes: dict[str, tuple[int, ...]] = {
        _EMBEDDING: (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes[_HEAD] = (config.vocab_size, hidden)
    for index in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in block.items()}
    return shapes


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A language model whose tensors are all there and fit its config."""

    checkpoint: Checkpoint
    config: LlamaConfig


def open_model(folder: Path, contract: TokenContract) -> ModelSource:
    """Check a Llama folder by its headers, before any weights are copied.

    Raises `PackImportError` listing what is missing, could not be placed or is misshapen, and
    `ContractMismatchError` for a model with fewer ids than its contract.
    """
    with about(folder / "config.json"):
        raw_config = read_object(folder / "config.json")
        if raw_config.get("quantization_config") is not None:
            raise ManifestError("quantization_config", "quantised weights are not read here")
        config = read_llama_config(raw_config)
    if config.vocab_size < contract.vocabulary_size:
        raise ContractMismatchError(
            f"{folder}: the model has {config.vocab_size} ids, contract {contract.name} "
            f"{contract.vocabulary_size}"
        )
    checkpoint = open_checkpoint(folder)
    if config.num_hidden_layers > len(checkpoint.kinds):
        raise PackImportError(
            f"{folder}: {len(checkpoint.kinds)} tensors cannot be the "
            f"{config.num_hidden_layers} layers that the config gives"
        )
    tied = config.tie_word_embeddings
    require_tensors(
        checkpoint,
        llama_shapes(config),
        optional=lambda name: config.is_rotary_buffer(name) or (tied and name == _HEAD),
    )
    # Some exporters write the tied copy out; it must then be the same matrix.
    if tied and _HEAD in checkpoint.kinds and not _is_same(checkpoint, _HEAD, _EMBEDDING):
        raise PackImportError(
            f"{folder}: {_HEAD} differs from the embedding that the config ties it to"
        )
    return ModelSource(checkpoint, config)


def _is_same(checkpoint: Checkpoint, name: str, other: str) -> bool:
    return torch.equal(checkpoint.read(name), checkpoint.read(other))


def write_model(source: ModelSource, target: Path) -> None:
    """Write the model's tensors, their types kept; memory is bounded by the largest tensor."""
    write_safetensors(source.checkpoint, llama_shapes(source.config), target)


@dataclass(frozen=True, slots=True)
class CodecSource:
    """A codec whose tensors the strict loader takes; `names` are those that a pack needs."""

    checkpoint: Checkpoint
    names: tuple[str, ...]
    encoder: Literal["trained", "absent"]


def open_codec(folder: Path, config: SnacConfig, *, decode_only: bool) -> CodecSource:
    """Check a SNAC folder by its headers, then by loading it strictly. Raises `PackImportError`.

    With `decode_only` an encoder that is there is left out: it is said to be no use.
    """
    checkpoint = open_checkpoint(folder)
    trained = not decode_only and any(name.startswith(_ENCODER) for name in checkpoint.kinds)
    names = tuple(n for n in checkpoint.kinds if trained or not n.startswith(_ENCODER))
    checkpoint.require_floats(names)
    with about(folder / "config.json"):
        wanted = snac_shapes(config, names, decode_only=not trained)
    require_tensors(
        checkpoint, wanted, optional=lambda name: not trained and name.startswith(_ENCODER)
    )
    with about(folder):
        tensors = {name: checkpoint.read(name) for name in names}
        load_snac(config, tensors, decode_only=not trained)
    return CodecSource(checkpoint, names, "trained" if trained else "absent")


def write_codec(source: CodecSource, target: Path) -> None:
    """Write the codec's tensors as they are, weight norms unfolded."""
    write_safetensors(source.checkpoint, source.names, target)


def write_safetensors(checkpoint: Checkpoint, names: Iterable[str], target: Path) -> None:
    """Write tensors as the safetensors library lays them out, holding one at a time.

    The library's own writer takes all tensors at once. The layout is its published format: the
    header's length, the header, the bytes; the widest types first, so that all are aligned.
    """
    kinds = {name: checkpoint.kinds[name] for name in names}
    checkpoint.require_floats(kinds)
    ranks = {dtype: rank for rank, dtype in enumerate(FLOAT_BYTES)}
    ordered = sorted(kinds, key=lambda name: (ranks[kinds[name].dtype], name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in ordered:
        dtype, shape = kinds[name]
        begin, end = end, end + math.prod(shape) * FLOAT_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)
    with target.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in ordered:
            file.write(_bytes_of(checkpoint.read(name)))


def _bytes_of(tensor: Tensor) -> Any:
    """The tensor's values as they lie in memory; the format is little-endian, as torch's CPUs."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
