"""loudkit's own token generator, for orientation: a random loudr model as large as the starter's.

    python -m tests.benchmarks.loudkit_peer

Built from loudkit's classes (its engine has no batch, so it goes window by window). The two write
different streams, so the figure to compare is what a token costs, not what a second of audio does:
loudr has 25 tokens a second, the starter 70.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.benchmarks.models import Subject, decode_all, starter
from tests.benchmarks.table import print_table, write_result

_SLOTS = 16
_ROUNDS = 5
_WINDOWS, _TOKENS, _TEXT_TOKENS = 6, 150, 60


def random_generator(subject: Subject) -> tuple[Any, Any, Any]:
    """loudkit's generator with the starter's sizes, its algorithm and a voice of noise."""
    from loudkit.config import AlgorithmConfig
    from loudkit.models.generator import TorchTokenGenerator
    from loudkit.voice import VoiceProfile

    algorithm = AlgorithmConfig()
    config = subject.config
    torch.manual_seed(1)
    generator: Any = TorchTokenGenerator(
        algorithm,
        {
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
        },
    )
    generator.eval()
    draw = np.random.default_rng(1)
    voice = VoiceProfile(
        name="noise",
        speaker_embedding=draw.standard_normal(256).astype(np.float32),
        flow_embedding=draw.standard_normal(192).astype(np.float32),
        prompt_tokens=draw.integers(0, 6561, 50),
        prompt_mel=draw.standard_normal((80, 100)).astype(np.float32),
        cond_prompt_tokens=draw.integers(0, 6561, 150),
    )
    return generator, algorithm, voice


def write_windows(generator: Any, algorithm: Any, voice: Any) -> int:
    """Some windows, one by one, as loudkit's engine asks for them; the tokens written."""
    from loudkit.sampler import LRSamplerV1

    draw = np.random.default_rng(2)
    written = 0
    for seed in range(_WINDOWS):
        sampler = LRSamplerV1(
            algorithm.sampling,
            seed=seed,
            stop_token=algorithm.stop_speech_token,
            eos_floor=_TOKENS + 1,
        )
        with torch.inference_mode():
            tokens = generator.generate(
                draw.integers(10, 2000, _TEXT_TOKENS),
                voice,
                sampler=sampler,
                max_new_tokens=_TOKENS,
            )
        written += len(tokens)
    return written


def main() -> None:
    """Medians of `_ROUNDS`, in turns."""
    torch.set_num_threads(1)
    subject = starter()
    made = random_generator(subject)
    ours = subject.load()
    windows = subject.windows(48)
    rates: dict[str, list[float]] = {"loudkit, window by window": [], f"ours, {_SLOTS} slots": []}
    runs: list[Callable[[], int]] = [
        lambda: write_windows(*made),
        lambda: decode_all(subject.decoder(ours, _SLOTS), windows),
    ]
    for round_number in range(_ROUNDS + 1):
        for name, run in zip(rates, runs, strict=True):
            began = time.perf_counter()
            tokens = run()
            if round_number:
                rates[name].append(tokens / (time.perf_counter() - began))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    rows = [(name, f"{rate:.0f}") for name, rate in medians.items()]
    print_table("loudkit's generator, same sizes", ("who", "tokens/s"), rows)
    write_result("loudkit_peer", {"tokens_per_s": medians, "runs": rates})


if __name__ == "__main__":
    main()
