"""The whole render of one session with the embedded pack, by slots, and where its seconds go.

    python -m tests.benchmarks.slots

Beside it, in turns, the same windows through the decode batch alone: what codec, joining and
encoding cost on top. `codec` and `encode` run on a thread of their own, so the shares add up to
more than one where a second core is free.
"""

from __future__ import annotations

import statistics
import time

from engine.contracts.contract import Conditioning
from engine.engine import Engine, load_engine
from engine.events import PassageEvent, PassageJob, WindowEvent
from engine.execution import ExecutionConfig
from engine.pack import open_pack
from engine.session import Session
from tests.benchmarks.models import Window, decode_all, starter
from tests.benchmarks.prose import passages
from tests.benchmarks.table import print_table, write_result

_SLOTS = (4, 8, 16, 32, 64)
_ROUNDS = 5
_PASSAGES_PER_SLOT = 1.5


def whole_render(engine: Engine, slots: int) -> tuple[dict[str, float], list[Window]]:
    """One run over as many passages as keep the slots full: rates and shares; its windows."""
    session = Session(engine, slots=slots)
    speakers = engine.text_side.speakers
    voices = {}
    for index, text in enumerate(passages(round(_PASSAGES_PER_SLOT * slots), seed=2, longest=2)):
        voices[str(index)] = Conditioning(speakers[index % len(speakers)])
        session.submit(PassageJob(str(index), text, voices[str(index)], index, "en", "flac"))
    samples, windows = 0, []
    began = time.perf_counter()
    while session.in_flight:
        for event in session.advance():
            if isinstance(event, PassageEvent):
                samples += event.samples
            elif isinstance(event, WindowEvent):
                windows.append(event)
    elapsed_s = time.perf_counter() - began
    session.close()
    decode, rest = session.decode_times, session.times
    parts_s = {
        "prefill": decode.prefill_s,
        "step": decode.step_s,
        "head": decode.head_s,
        "sampler": decode.sampler_s,
        "codec": rest.codec_s,
        "encode": rest.encode_s,
    }
    figures = {
        "tokens_per_s": decode.tokens / elapsed_s,
        "audio_s_per_s": samples / engine.pack.algorithm.sample_rate / elapsed_s,
        "rows_per_step": decode.tokens / decode.steps,
        **{f"{name}_share": spent_s / elapsed_s for name, spent_s in parts_s.items()},
    }
    replayed = [
        Window(
            engine.prompt_ids(event.window.text, voices[event.key], event.window.prefix),
            max(1, event.window.n_generated),
            event.window.seed,
        )
        for event in windows
    ]
    return figures, replayed


def decode_only(engine: Engine, slots: int, windows: list[Window]) -> float:
    """Tokens a second of the same windows through the decode batch alone."""
    decoder = starter().decoder(engine.model, slots)
    began = time.perf_counter()
    tokens = decode_all(decoder, windows)
    return tokens / (time.perf_counter() - began)


def main() -> None:
    """Medians of `_ROUNDS` runs over the same passages, for each number of slots."""
    engine = load_engine(open_pack("starter"), ExecutionConfig(), slots=max(_SLOTS))
    whole_render(engine, 4)  # warms the kernels
    table: dict[str, dict[str, float]] = {}
    for slots in _SLOTS:
        runs = []
        for _ in range(_ROUNDS):
            figures, windows = whole_render(engine, slots)
            alone = decode_only(engine, slots, windows)
            runs.append({**figures, "of_decode_only": figures["tokens_per_s"] / alone})
        table[str(slots)] = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
    keys = list(table[str(_SLOTS[0])])
    rows = [(slots, *(_shown(key, each[key]) for key in keys)) for slots, each in table.items()]
    print_table("whole render, starter, one worker", ("slots", *keys), rows)
    write_result("slots", table)


def _shown(key: str, value: float) -> str:
    if key.endswith(("share", "only")):
        return f"{value:.0%}"
    return f"{value:.0f}" if value > 100 else f"{value:.1f}"


if __name__ == "__main__":
    main()
