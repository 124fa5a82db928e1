"""Speed of one session with the embedded pack, by slots, and where its seconds go.

    python -m tests.benchmarks.run

Prints a table and writes out/bench/session.json. It never passes or fails: speed is read, and
compared only with what ran beside it.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from engine.contracts.contract import Conditioning
from engine.engine import Engine, load_engine
from engine.events import PassageEvent, PassageJob
from engine.execution import ExecutionConfig
from engine.pack import open_pack
from engine.session import Session
from tests.benchmarks.prose import passages

_SLOTS = (4, 8, 16, 32)
_ROUNDS = 3
_PASSAGES_PER_SLOT = 3
_OUT = Path("out/bench/session.json")


def measure(engine: Engine, slots: int, *, seed: int) -> dict[str, float]:
    """One run over as many passages as keep the slots full: rates, and shares of its seconds."""
    session = Session(engine, slots=slots)
    speakers = engine.text_side.speakers
    for index, text in enumerate(passages(_PASSAGES_PER_SLOT * slots, seed=seed)):
        speaker = speakers[index % len(speakers)]
        session.submit(PassageJob(str(index), text, Conditioning(speaker), index, "en", "flac"))
    samples = 0
    began = time.perf_counter()
    while session.in_flight:
        samples += sum(e.samples for e in session.advance() if isinstance(e, PassageEvent))
    elapsed_s = time.perf_counter() - began
    decode, rest = session.decode_times, session.times
    parts_s = {
        "prefill": decode.prefill_s,
        "step": decode.step_s,
        "head": decode.head_s,
        "sampler": decode.sampler_s,
        "codec": rest.codec_s,
        "encode": rest.encode_s,
    }
    shares = {f"{name}_share": spent_s / elapsed_s for name, spent_s in parts_s.items()}
    return {
        "tokens_per_s": decode.tokens / elapsed_s,
        "audio_s_per_s": samples / engine.pack.algorithm.sample_rate / elapsed_s,
        "rows_per_step": decode.tokens / decode.steps,
        **shares,
        "rest_share": 1 - sum(shares.values()),
    }


def main() -> None:
    """Medians of `_ROUNDS` runs over the same passages, for each number of slots."""
    engine = load_engine(open_pack("starter"), ExecutionConfig(), slots=max(_SLOTS))
    measure(engine, 4, seed=1)  # warms the kernels
    table: dict[int, dict[str, float]] = {}
    for slots in _SLOTS:
        runs = [measure(engine, slots, seed=2) for _ in range(_ROUNDS)]
        table[slots] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        if len(table) == 1:
            print("slots " + " ".join(f"{key:>14}" for key in table[slots]))
        print(f"{slots:5} " + " ".join(f"{value:14.3f}" for value in table[slots].values()))
    _OUT.parent.mkdir(parents=True, exist_ok=True)
    described = {"identity": engine.identity.describe(), "rounds": _ROUNDS, "by_slots": table}
    _OUT.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    print(f"{engine.identity.describe()}; written to {_OUT}")


if __name__ == "__main__":
    main()
