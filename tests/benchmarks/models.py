"""The two models that are timed, and the windows they write: the embedded pack and 100 M at random.

A workload is a list of windows of mixed length, each with its prompt and the frames it must have,
so that whoever runs it computes the same number of tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.algorithm import SamplingConfig
from engine.contracts.contract import Conditioning, TokenContract
from engine.decode import DecodeJob, Decoder
from engine.llama import Llama, load_llama
from engine.llama_config import LlamaConfig, read_llama_config
from engine.manifest import read_manifest
from engine.pack import open_pack
from engine.speech_chunks import speech_chunks
from tests.benchmarks.prose import passages
from tests.fakes import random_llama_state


@dataclass(frozen=True)
class Window:
    """A prompt and how many frames follow it."""

    prompt: tuple[int, ...]
    frames: int
    seed: int


@dataclass(frozen=True)
class Subject:
    """A model with its contract, its sampling and its windows."""

    name: str
    config: LlamaConfig
    state: dict[str, Tensor]
    contract: TokenContract
    sampling: SamplingConfig
    windows: Callable[[int], list[Window]]

    @property
    def capacity(self) -> int:
        """Positions of a slot that hold any window of the workload."""
        return 1024

    def load(self, dtype: torch.dtype = torch.float32, **options: bool) -> Llama:
        """The model as our engine runs it."""
        return load_llama(
            self.config, self.state, device="cpu", dtype=dtype, **{"packed": True, **options}
        )

    def decoder(self, model: Llama, slots: int) -> Decoder:
        """A decode batch over the model."""
        return Decoder(
            model,
            self.contract,
            self.sampling,
            slots=slots,
            capacity=self.capacity,
            row_padding=4,
        )

    def reference(self) -> Any:
        """The same weights in `transformers`, with the attention it chooses by itself."""
        from transformers import LlamaConfig as ReferenceConfig
        from transformers import LlamaForCausalLM

        sizes = asdict(self.config)
        sizes.pop("rope_scaling")
        rope = {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}
        model = LlamaForCausalLM(ReferenceConfig(**sizes, rope_parameters=rope))
        model.load_state_dict(self.state, strict=False)
        if self.config.tie_word_embeddings:
            model.tie_weights()
        return model.eval()


def starter() -> Subject:
    """The embedded pack; its windows are as long as its frame ratio says, with some spread."""
    pack = open_pack("starter")
    weights = pack.manifest.weights
    side = pack.text_side

    def windows(count: int) -> list[Window]:
        draw, made = random.Random(5), []
        for number, text in enumerate(passages(count, seed=11)):
            speaker = side.speakers[number % len(side.speakers)]
            for chunk in speech_chunks(pack, text, "en"):
                tokens = side.text_tokens(chunk)
                prompt = (*side.prompt(tokens, Conditioning(speaker)), *side.opening)
                frames = min(80, max(4, round(len(tokens) * draw.uniform(0.6, 1.0))))
                made.append(Window(prompt, frames, number))
        return made[:count]

    return Subject(
        name="starter",
        config=read_llama_config(read_manifest(pack.path(weights.model_config_file))),
        state={name: t.float() for name, t in load_file(pack.path(weights.model)).items()},
        contract=side.contract,
        sampling=pack.algorithm.sampling,
        windows=windows,
    )


def random_100m() -> Subject:
    """A Llama of 107 million random weights over a whole SNAC vocabulary."""
    audio_base, codebook = 64, 4096
    vocabulary = audio_base + 7 * codebook
    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=64,
        vocab_size=vocabulary,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        rope_scaling=None,
        tie_word_embeddings=True,
    )
    contract = TokenContract(
        name="random",
        vocabulary_size=vocabulary,
        added_tokens={"<stop>": 1},
        audio_base=audio_base,
        codebook_size=codebook,
        start_of_speech=0,
        end_of_speech=1,
        prompt_layout=("text",),
    )

    def windows(count: int) -> list[Window]:
        draw = random.Random(5)
        return [
            Window(
                tuple(draw.randrange(2, audio_base) for _ in range(draw.randint(20, 100))),
                draw.randint(4, 40),
                number,
            )
            for number in range(count)
        ]

    sampling = SamplingConfig(temperature=0.7, min_p=0.05, repetition_penalty=1.1)
    return Subject(
        "random-100m", config, random_llama_state(config, seed=1), contract, sampling, windows
    )


def admit(decoder: Decoder, window: Window, *, ticket: int) -> None:
    """Give a window to a free slot; it may not stop before its length."""
    decoder.admit(
        DecodeJob(
            ticket=ticket,
            prompt=window.prompt,
            seen=(),
            seed=window.seed,
            max_frames=window.frames,
            floor_frames=window.frames,
        )
    )


def decode_all(decoder: Decoder, windows: list[Window]) -> int:
    """Every window through the decode batch, each to its own length; the tokens it wrote."""
    waiting, tokens = list(reversed(windows)), 0
    while waiting or decoder.active_slots:
        while waiting and decoder.free_slots:
            admit(decoder, waiting.pop(), ticket=len(waiting))
        for ended in decoder.run_frame():
            if isinstance(ended.outcome, Exception):
                raise ended.outcome
            tokens += len(ended.outcome.tokens)
    return tokens
