"""Tokens a second against `transformers`: its `generate` one by one, and its padded batch of 16.

    python -m tests.benchmarks.peers [starter|random-100m]

Same weights, same prompts, same number of tokens a window, one thread each, in turns within one
run, so that a busy machine slows all of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.benchmarks.models import Subject, Window, decode_all, random_100m, starter
from tests.benchmarks.table import print_table, write_result

_SLOTS = 32
"""The default of `render`."""
_BATCH = 16
_ROUNDS = 5
_WINDOWS = {"starter": (96, 6), "random-100m": (32, 2)}
"""Windows for the batches, and how many of them one by one, which takes too long for all."""


def one_by_one(model: Any, subject: Subject, windows: list[Window]) -> int:
    """A loop over `generate`, as a user writes it; the tokens it wrote."""
    for window in windows:
        generate(model, subject, [window])
    return sum(7 * window.frames for window in windows)


def padded(model: Any, subject: Subject, windows: list[Window]) -> int:
    """Left-padded batches in the order given; each runs until its longest window is done."""
    for at in range(0, len(windows), _BATCH):
        generate(model, subject, windows[at : at + _BATCH])
    return sum(7 * window.frames for window in windows)


def generate(model: Any, subject: Subject, windows: list[Window]) -> None:
    """One call of `transformers`, with the pack's own sampling and no early end."""
    longest = max(len(window.prompt) for window in windows)
    rows = [(0,) * (longest - len(window.prompt)) + window.prompt for window in windows]
    shown = [[0] * (longest - len(w.prompt)) + [1] * len(w.prompt) for w in windows]
    tokens = 7 * max(window.frames for window in windows)
    sampling = subject.sampling
    with torch.inference_mode():
        written = model.generate(
            torch.tensor(rows),
            attention_mask=torch.tensor(shown),
            do_sample=True,
            temperature=sampling.temperature,
            min_p=sampling.min_p,
            top_k=0,
            repetition_penalty=sampling.repetition_penalty,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            eos_token_id=subject.contract.end_of_speech,
            pad_token_id=0,
        )
    if written.shape[1] != longest + tokens:
        raise RuntimeError(f"generate wrote {written.shape[1] - longest} tokens, not {tokens}")


def compare(subject: Subject, *, slots: int = _SLOTS, rounds: int = _ROUNDS) -> dict[str, Any]:
    """Medians of tokens a second, and ours as a multiple of each."""
    torch.set_num_threads(1)
    whole, few = _WINDOWS[subject.name]
    windows = subject.windows(whole)
    alone = windows[:: whole // few][:few]
    reference, ours = subject.reference(), subject.load()
    runs: dict[str, Callable[[], int]] = {
        "transformers one by one": lambda: one_by_one(reference, subject, alone),
        f"transformers padded {_BATCH}": lambda: padded(reference, subject, windows),
        f"ours {slots} slots": lambda: decode_all(subject.decoder(ours, slots), windows),
        f"ours {slots // 2} slots": lambda: decode_all(subject.decoder(ours, slots // 2), windows),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    decode_all(subject.decoder(ours, slots), windows[:slots])  # warms the kernels
    generate(reference, subject, alone[:1])
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            tokens = run()
            rates[name].append(tokens / (time.perf_counter() - began))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    ours_rate = medians[f"ours {slots} slots"]
    return {
        "subject": subject.name,
        "windows": whole,
        "tokens_per_s": medians,
        "spread": {name: [min(each), max(each)] for name, each in rates.items()},
        "times": {name: ours_rate / rate for name, rate in medians.items()},
    }


def main(names: list[str]) -> None:
    """The comparison for each named subject."""
    for subject in (starter(), random_100m()):
        if names and subject.name not in names:
            continue
        result = compare(subject)
        rows = [
            (name, f"{rate:.0f}", f"{result['times'][name]:.2f}")
            for name, rate in result["tokens_per_s"].items()
        ]
        print_table(f"peers: {subject.name}", ("who", "tokens/s", "ours is x times"), rows)
        write_result(f"peers-{subject.name}", result)


if __name__ == "__main__":
    main(sys.argv[1:])
