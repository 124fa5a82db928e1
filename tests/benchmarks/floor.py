"""The decode step against its floor: the same matrix products alone, on the same rows.

    python -m tests.benchmarks.floor [starter|random-100m]

Also what the sampler and the bookkeeping of slots cost, as a share of a step.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch.nn import functional as F

from engine.llama import Llama
from tests.benchmarks.models import Subject, admit, random_100m, starter
from tests.benchmarks.table import print_table, write_result

_SLOTS = 32
_ROUNDS = 5
_WINDOWS = {"starter": 64, "random-100m": 48}
_PRODUCTS = 20


def products_s(model: Llama, subject: Subject, rows: int) -> float:
    """Seconds of one step's matrix products: four a layer, and one position of the head."""
    config = model.config
    first, past = subject.contract.band(1)
    head = model.head[first:past]
    wide = torch.randn(rows, config.hidden_size)
    merged = torch.randn(rows, config.num_attention_heads * config.head_dim)
    inner = torch.randn(rows, config.intermediate_size)
    spent = []
    with torch.inference_mode():
        for _ in range(_PRODUCTS):
            began = time.perf_counter()
            for layer in model.layers:
                layer.qkv(wide)
                layer.out(merged)
                layer.gate_up(wide)
                layer.down(inner)
            F.linear(wide, head)
            spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def full_frames(subject: Subject, model: Llama) -> tuple[float, float, int]:
    """Seconds, seconds in the model, and steps of the frames that began with every slot busy."""
    decoder = subject.decoder(model, _SLOTS)
    waiting = list(reversed(subject.windows(_WINDOWS[subject.name])))
    spent_s, model_s, steps = 0.0, 0.0, 0
    while True:
        while waiting and decoder.free_slots:
            admit(decoder, waiting.pop(), ticket=len(waiting))
        if decoder.free_slots:
            return spent_s, model_s, steps
        before = decoder.times.step_s + decoder.times.head_s
        steps_before = decoder.times.steps
        began = time.perf_counter()
        decoder.run_frame()
        spent_s += time.perf_counter() - began
        model_s += decoder.times.step_s + decoder.times.head_s - before
        steps += decoder.times.steps - steps_before


def measure(subject: Subject) -> dict[str, float]:
    """Medians of `_ROUNDS`: milliseconds a step, the floor's share of it, the sampler's share."""
    torch.set_num_threads(1)
    model = subject.load()
    full_frames(subject, model)
    runs = []
    for _ in range(_ROUNDS):
        spent_s, model_s, steps = full_frames(subject, model)
        floor_s = products_s(model, subject, _SLOTS)
        runs.append(
            {
                "step_ms": spent_s / steps * 1e3,
                "floor_ms": floor_s * 1e3,
                "floor_share": floor_s * steps / spent_s,
                "sampler_and_bookkeeping_share": 1 - model_s / spent_s,
            }
        )
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main(names: list[str]) -> None:
    """The table for each named subject."""
    found = {
        subject.name: measure(subject)
        for subject in (starter(), random_100m())
        if not names or subject.name in names
    }
    keys = list(next(iter(found.values())))
    rows = [
        (name, *(f"{each[k]:.0%}" if k.endswith("share") else f"{each[k]:.1f}" for k in keys))
        for name, each in found.items()
    ]
    print_table(f"decode step at {_SLOTS} slots", ("model", *keys), rows)
    write_result("floor", found)


if __name__ == "__main__":
    main(sys.argv[1:])
