"""Measure a pack's own detector numbers on real generations, with the detectors off.

    python -m tests.benchmarks.measure_pack starter

What it prints goes into the pack's manifest under `measured`; the thresholds under `postprocess`
are chosen from it, and the choice is written beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine import decode
from engine.contracts.contract import Conditioning
from engine.decode import DecodeJob, Decoder
from engine.engine import load_engine
from engine.execution import ExecutionConfig
from engine.pack import open_pack
from engine.passage import RawWindow
from engine.speech_chunks import speech_chunks
from tests.benchmarks.prose import passages

_WINDOWS = 400
_SLOTS = 24


def measure(reference: str) -> dict[str, Any]:
    """Generate windows from chunks of prose, without carry, and describe their rows in frames."""
    pack = open_pack(reference)
    engine = load_engine(pack, ExecutionConfig(), slots=_SLOTS)
    algorithm = pack.algorithm
    longest = algorithm.window.max_speech_tokens
    peaks: dict[tuple[int, int], float] = {}
    listened: Any = decode
    drawn = listened.sample_rows

    def record(*args: Any, **kwargs: Any) -> Any:
        sampled = drawn(*args, **kwargs)
        if kwargs["stop_column"] is not None:
            for seed, step, chance in zip(
                kwargs["seeds"], kwargs["steps"], sampled.stop_probability, strict=True
            ):
                peaks[int(seed), int(step) // 7] = float(chance)
        return sampled

    listened.sample_rows = record
    # A contract that takes any name lists none; then one name stands for all.
    speakers = engine.text_side.speakers or ("speaker",)
    jobs, texts = [], {}
    spoken = (
        chunk
        for passage in passages(_WINDOWS, seed=11)
        for chunk in speech_chunks(pack, passage, pack.manifest.languages[0])
    )
    for ticket in range(_WINDOWS):
        text = next(spoken)
        speaker = speakers[ticket % len(speakers)]
        ids = engine.text_side.text_tokens(text)
        texts[ticket] = (len(text), len(ids), speaker)
        prompt = engine.text_side.prompt(ids, Conditioning(speaker))
        jobs.append(DecodeJob(ticket, prompt, (), 1000 + ticket, longest, 0))
    sampling = replace(algorithm.sampling, min_tokens_floor=0, min_tokens_text_ratio=0.0)
    decoder = Decoder(
        engine.model,
        engine.text_side.contract,
        sampling,
        slots=_SLOTS,
        capacity=engine.slot_capacity,
        row_padding=4,
    )
    rows: dict[int, RawWindow] = {}
    todo = list(reversed(jobs))
    while todo or decoder.active_slots:
        while todo and decoder.free_slots:
            decoder.admit(todo.pop())
        for decoded in decoder.run_frame():
            if isinstance(decoded.outcome, RawWindow):
                rows[decoded.ticket] = decoded.outcome
    listened.sample_rows = drawn
    strict = frozenset(algorithm.postprocess.silence_render_ids)
    quiet = strict | frozenset(algorithm.sampling.silence_token_ids)
    return _describe(rows, texts, peaks, strict, quiet)


def _describe(
    rows: dict[int, RawWindow],
    texts: dict[int, tuple[int, int, str]],
    peaks: dict[tuple[int, int], float],
    strict: frozenset[int],
    quiet: frozenset[int],
) -> dict[str, Any]:
    ended = {t: raw for t, raw in rows.items() if raw.ended}
    frames = {t: len(raw.tokens) // 7 for t, raw in ended.items()}
    inner: list[int] = []
    tails: list[int] = []
    heads: list[int] = []
    false_peaks: list[float] = []
    true_peaks: list[float] = []
    spans: list[int] = []
    for ticket, raw in ended.items():
        row = raw.tokens[::7]
        runs = _runs([token in quiet for token in row])
        tails.append(runs[-1][1] if runs and runs[-1][0] + runs[-1][1] == len(row) else 0)
        heads.append(runs[0][1] if runs and runs[0][0] == 0 else 0)
        inner.append(max((n for at, n in runs if at and at + n < len(row)), default=0))
        seed = 1000 + ticket
        true_peaks.append(peaks[seed, len(row)])
        false_peaks.append(max((peaks[seed, at] for at in range(1, len(row))), default=0.0))
        spans.append(_longest_loop(row))
    return {
        "windows": len(rows),
        "ended": len(ended),
        "filled": sum(not raw.ended for raw in rows.values()),
        "frames_per_text_token": _spread([frames[t] / texts[t][1] for t in ended]),
        "characters_per_frame": _spread([texts[t][0] / frames[t] for t in ended]),
        "frames_per_text_token_by_speaker": {
            speaker: round(
                float(np.mean([frames[t] / texts[t][1] for t in ended if texts[t][2] == speaker])),
                3,
            )
            for speaker in sorted({texts[t][2] for t in ended})
        },
        "quiet_run_inside_frames": _spread(inner),
        "quiet_run_at_end_frames": _spread(tails),
        "quiet_run_at_start_frames": _spread(heads),
        "strict_silence_share": round(
            sum(token in strict for raw in rows.values() for token in raw.tokens[::7])
            / max(1, sum(len(raw.tokens) // 7 for raw in rows.values())),
            4,
        ),
        "stop_probability_where_it_ended": _spread(true_peaks),
        "highest_stop_probability_before_the_end": _spread(false_peaks),
        "longest_repeated_span_frames": _spread(spans),
    }


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """(start, length) of the runs of True."""
    found: list[tuple[int, int]] = []
    for at, flag in enumerate(flags):
        if flag and found and found[-1][0] + found[-1][1] == at:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        elif flag:
            found.append((at, 1))
    return found


def _longest_loop(row: Sequence[int]) -> int:
    """Frames covered by the longest run of three or more copies of a block of up to 6 frames."""
    best = 0
    for period in range(1, 7):
        same = 0
        for at in range(period, len(row)):
            same = same + 1 if row[at] == row[at - period] else 0
            if same >= 2 * period:
                best = max(best, same + period)
    return best


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and quantiles."""
    data = np.asarray(values, dtype=np.float64)
    marks = {"min": 0, "p1": 1, "p50": 50, "p90": 90, "p99": 99, "max": 100}
    told = {name: round(float(np.percentile(data, at)), 4) for name, at in marks.items()}
    return {"mean": round(float(data.mean()), 4), **told}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1] if len(sys.argv) > 1 else "starter"), indent=1))
