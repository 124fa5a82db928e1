"""Execution flags against the default: decode tokens a second, in turns within one run.

    python -m tests.benchmarks.options

`compile_model` needs a C++ compiler on this machine; without one it is left out and said so.
"""

from __future__ import annotations

import shutil
import statistics
import time

import torch

from tests.benchmarks.models import decode_all, starter
from tests.benchmarks.table import print_table, write_result

_SLOTS = 16
_ROUNDS = 5
_WINDOWS = 20


def main() -> None:
    """Medians of `_ROUNDS` for each option."""
    torch.set_num_threads(1)
    subject = starter()
    windows = subject.windows(_WINDOWS)
    models = {
        "float32, packed (default)": subject.load(),
        "float32, plain": subject.load(packed=False),
        "bfloat16, packed": subject.load(torch.bfloat16),
        "bfloat16, plain": subject.load(torch.bfloat16, packed=False),
    }
    if shutil.which("g++") or shutil.which("clang++"):
        models["float32, compiled"] = subject.load(packed=False, compile_model=True)
    else:
        print("compile_model: left out, no C++ compiler here")
    rates: dict[str, list[float]] = {name: [] for name in models}
    for round_number in range(_ROUNDS + 1):
        for name, model in models.items():
            began = time.perf_counter()
            tokens = decode_all(subject.decoder(model, _SLOTS), windows)
            if round_number:  # the first one compiles and warms
                rates[name].append(tokens / (time.perf_counter() - began))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    default = next(iter(medians.values()))
    rows = [(name, f"{rate:.0f}", f"{rate / default:.2f}") for name, rate in medians.items()]
    print_table(f"execution flags, starter, {_SLOTS} slots", ("flags", "tokens/s", "x"), rows)
    write_result("options", {"tokens_per_s": medians, "spread": rates})


if __name__ == "__main__":
    main()
