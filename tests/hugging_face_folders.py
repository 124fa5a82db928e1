"""Folders as Hugging Face serves them: the starter taken apart, and tiny random models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from snac import SNAC
from torch import Tensor

from engine.importing_weights import llama_shapes
from engine.llama_config import read_llama_config
from engine.pack import open_pack

Layout = Literal["single", "sharded", "pickle", "sharded pickle"]

STARTER = open_pack("starter").root
TINY_SNAC: Mapping[str, Any] = {
    "sampling_rate": 24000,
    "encoder_dim": 4,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 32,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 4096,
    "codebook_dim": 8,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}


def starter_model(folder: Path, layout: Layout = "sharded") -> Path:
    """The starter's language model in a Hugging Face folder."""
    folder.mkdir(parents=True)
    shutil.copyfile(STARTER / "config.json", folder / "config.json")
    write_weights(folder, load_file(STARTER / "model.safetensors"), layout)
    return folder


def starter_codec(folder: Path, layout: Layout = "pickle") -> Path:
    """The starter's codec as snac's own repositories hold one."""
    folder.mkdir(parents=True)
    shutil.copyfile(STARTER / "codec_config.json", folder / "config.json")
    write_weights(folder, load_file(STARTER / "codec.safetensors"), layout)
    return folder


def starter_tokenizer(folder: Path) -> Path:
    """The files of the starter's arpabet contract."""
    folder.mkdir(parents=True)
    for name in ("tokens.json", "lexicon.tsv.gz", "lts.tsv.gz"):
        shutil.copyfile(STARTER / name, folder / name)
    return folder


def write_weights(folder: Path, tensors: Mapping[str, Tensor], layout: Layout) -> None:
    """Tensors in one file or in three shards with an index."""
    suffix = "bin" if layout.endswith("pickle") else "safetensors"
    stem = "pytorch_model" if suffix == "bin" else "model"
    if not layout.startswith("sharded"):
        _write(folder / f"{stem}.{suffix}", tensors)
        return
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number in range(3):
        file = f"{stem}-{number + 1:05}-of-00003.{suffix}"
        mine = names[number::3]
        _write(folder / file, {name: tensors[name] for name in mine})
        weight_map |= dict.fromkeys(mine, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if path.suffix == ".bin":
        torch.save(dict(tensors), path)
    else:
        save_file(dict(tensors), path, metadata={"format": "pt"})


def tiny_llama(
    folder: Path, *, vocabulary: int, positions: int = 2048, layout: Layout = "sharded"
) -> Path:
    """A Llama of two layers and random weights, with grouped queries and Llama-3's scaling."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1024,
        },
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_weights(folder, random_weights(llama_shapes(read_llama_config(config))), layout)
    return folder


def tiny_snac(folder: Path, layout: Layout = "pickle") -> Path:
    """A SNAC of the 24 kHz frame, with few channels and random weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(TINY_SNAC))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = SNAC(**TINY_SNAC)
    write_weights(folder, model.state_dict(), layout)
    return folder


def random_weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Seeded bfloat16 weights; norms are ones."""
    draw = torch.Generator().manual_seed(3)
    return {
        name: torch.ones(*shape, dtype=torch.bfloat16)
        if "norm" in name
        else (torch.randn(*shape, generator=draw) * 0.2).to(torch.bfloat16)
        for name, shape in shapes.items()
    }
