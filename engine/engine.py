"""The main path: a pack and an execution become an engine; an engine turns windows into sound.

    pack -> text -> chunks -> windows -> tokens -> audio

`Engine` is what does not change between passages. `session.py` runs many passages through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from engine.algorithm import CodecConfig, Unset
from engine.audio import fade_edges, join, quantise, require_finite
from engine.codec import SnacCodec
from engine.contracts.contract import Conditioning, TextSide
from engine.dialogue import require_dialogue, turns_of
from engine.errors import ManifestError, PackMismatchError
from engine.execution import (
    ExecutionConfig,
    ExecutionIdentity,
    apply_execution,
    measure_identity,
    packs_weights,
    torch_dtype,
)
from engine.invariance import probe_invariance
from engine.llama import Llama, load_llama
from engine.llama_config import read_llama_config
from engine.manifest import read_manifest
from engine.pack import Pack, verify_pack
from engine.passage import FinishedWindow

_PROMPT_ROOM_TOKENS = 512
"""Positions of a slot kept for the prompt and the carry; a longer prompt fails its render."""


@dataclass(frozen=True)
class Engine:
    """A loaded pack on one device: everything that turns text into sound."""

    pack: Pack
    execution: ExecutionConfig
    identity: ExecutionIdentity
    model: Llama
    codec: SnacCodec
    text_side: TextSide
    codec_block: CodecConfig

    @property
    def frame_tokens(self) -> int:
        """Tokens of one frame."""
        return self.text_side.contract.tokens_per_frame

    @property
    def samples_per_frame(self) -> int:
        """Samples of one frame."""
        return self.codec.samples_per_frame

    @property
    def slot_capacity(self) -> int:
        """Positions that a slot needs: the prompt, the carry and the longest window."""
        longest = self.pack.algorithm.window.max_speech_tokens * self.frame_tokens
        return min(_PROMPT_ROOM_TOKENS + longest, self.model.config.max_position_embeddings)

    def prompt_ids(
        self, text: str, conditioning: Conditioning, prefix: Sequence[int]
    ) -> tuple[int, ...]:
        """What a window is generated from: prompt, the model's own opening, then the carry."""
        side, turns = self.text_side, turns_of(text)
        if turns is None:
            prompt = side.prompt(side.text_tokens(text), conditioning)
        else:
            prompt = require_dialogue(self.pack).dialogue_prompt(turns)
        return (*prompt, *side.opening, *prefix)

    def count_text_tokens(self, text: str) -> int:
        """What the law counts of a chunk; of a dialogue's, the texts of its turns."""
        texts = [text] if (turns := turns_of(text)) is None else [said for _, said in turns]
        return sum(len(self.text_side.text_tokens(each)) for each in texts)

    def render_window(self, window: FinishedWindow) -> NDArray[np.float32]:
        """One window's sound `(samples,)`: the carry is left context only, both edges are faded."""
        algorithm = self.pack.algorithm
        audio = self.codec.decode_window(
            window.tokens,
            context=window.prefix,
            audio_base=self.text_side.contract.audio_base,
            seed=window.seed,
            window_frames=self.codec_block.window_frames,
            context_frames=self.codec_block.context_frames,
        )
        require_finite(audio, f"chunk {window.chunk_index}")
        return fade_edges(audio, sample_rate_hz=algorithm.sample_rate, seconds=algorithm.edge_fade)

    def join_windows(self, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.int16]:
        """A passage's samples `(samples,)`, quantised once, after the join."""
        return quantise(join(parts))


def load_engine(pack: Pack, execution: ExecutionConfig, *, slots: int) -> Engine:
    """Verify the pack, pin the process to the execution, load and probe.

    Raises `PackMismatchError`, `ManifestError`, `ContractMismatchError` or
    `ExecutionRefusedError`; no engine is left half made.
    """
    verify_pack(pack)
    apply_execution(execution)
    weights = pack.manifest.weights
    config = read_llama_config(read_manifest(pack.path(weights.model_config_file)))
    text_side = pack.text_side
    if config.vocab_size < text_side.contract.vocabulary_size:
        raise PackMismatchError(
            f"the model has {config.vocab_size} ids, its contract "
            f"{text_side.contract.vocabulary_size}"
        )
    model = load_llama(
        config,
        _tensors(pack, weights.model),
        device=execution.device,
        dtype=torch_dtype(execution),
        packed=packs_weights(execution),
        compile_model=execution.compile_model,
        cuda_graphs=execution.cuda_graphs,
    )
    block = pack.algorithm.codec
    if isinstance(block, Unset):
        raise ManifestError("codec", "a SNAC pack declares its codec block")
    codec = SnacCodec.load(
        read_manifest(pack.path(weights.codec_config_file)),
        _tensors(pack, weights.codec),
        decode_only=weights.encoder != "trained",
        device=execution.device,
        noise_stream=block.noise_stream,
    )
    _check_frame(pack, codec)
    probe = probe_invariance(model, execution, slots=slots)
    return Engine(
        pack=pack,
        execution=execution,
        identity=measure_identity(execution, probe=probe),
        model=model,
        codec=codec,
        text_side=text_side,
        codec_block=block,
    )


def _tensors(pack: Pack, name: str) -> dict[str, Tensor]:
    path = pack.path(name)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise PackMismatchError(f"{path}: not a safetensors file: {error}") from error


def _check_frame(pack: Pack, codec: SnacCodec) -> None:
    """The manifest's frame must be the codec's: durations are told by one, sounded by the other."""
    algorithm, frame = pack.algorithm, pack.algorithm.frame
    if isinstance(frame, Unset):
        raise ManifestError("frame", "a SNAC pack declares its frame block")
    facts: tuple[tuple[str, float, float], ...] = (
        ("frame.samples_per_frame", frame.samples_per_frame, codec.samples_per_frame),
        (
            "frame.tokens_per_frame",
            frame.tokens_per_frame,
            pack.text_side.contract.tokens_per_frame,
        ),
        ("codec.codebook_size", codec.config.codebook_size, pack.text_side.contract.codebook_size),
        ("sample_rate", algorithm.sample_rate, codec.sample_rate_hz),
        (
            "token_rate_hz",
            algorithm.token_rate_hz,
            codec.sample_rate_hz / codec.samples_per_frame * frame.tokens_per_frame,
        ),
        (
            "speech_tokens.start",
            algorithm.start_speech_token,
            pack.text_side.contract.start_of_speech,
        ),
        (
            "speech_tokens.stop",
            algorithm.stop_speech_token,
            pack.text_side.contract.end_of_speech,
        ),
    )
    for key, declared, actual in facts:
        if abs(declared - actual) > 1e-9:
            raise ManifestError(key, f"is {declared}, the pack's files say {actual}")
