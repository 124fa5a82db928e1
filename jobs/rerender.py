"""Rendering some published clips again, to see whether the bytes are what the records promise.

A clip is rendered under its recorded pack, seed, conditioning and execution. Equal samples under
them are the promise kept. Where this machine cannot have the recorded execution identity, equal
tokens are equivalent, and unequal ones say nothing: they cannot be compared here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from catalog.records import ClipRecord, tokens_sha256
from engine.contracts.contract import Conditioning
from engine.errors import EngineError, ExecutionRefusedError
from engine.events import FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.execution import ExecutionConfig, ExecutionIdentity
from engine.pack import Pack, bundled_packs, open_pack, verify_pack
from workers.fleet import Fleet, WorkerDied
from workers.renderer import WorkerSpec

_POLL_S = 1.0


class Outcome(StrEnum):
    """What a clip that was rendered again turned out to be."""

    BIT_IDENTICAL = "bit-identical"
    EQUIVALENT = "equivalent"
    """The same tokens, under another execution identity."""
    DIFFERENT = "different"
    INCOMPARABLE = "cannot be compared here"


@dataclass(frozen=True, slots=True)
class Rerendered:
    """A clip and its outcome."""

    key: str
    outcome: Outcome
    told: str


def choose_clips(keys: Iterable[str], count: int, *, seed: int) -> list[str]:
    """`count` of the clips, the same ones for the same seed, whatever else is published."""

    def rank(key: str) -> bytes:
        return hashlib.sha256(f"{seed}:{key}".encode()).digest()

    return sorted(sorted(keys, key=rank)[:count])


def rerender(
    clips: Mapping[str, ClipRecord],
    *,
    packs: Iterable[Path] = (),
    address: str | None = None,
    slots: int,
    fleet: Callable[..., Any] = Fleet,
) -> list[Rerendered]:
    """Every clip again, with the packs among `packs` and the bundled ones.

    Raises the typed errors of opening a pack that was given, and of starting workers.
    """
    known = _by_sha256(packs)
    done: list[Rerendered] = []
    groups: dict[tuple[str, ExecutionConfig], list[str]] = {}
    for key, clip in clips.items():
        pack = known.get(clip.pack.sha256) if clip.pack else None
        if why := _incomparable(clip, pack):
            done.append(Rerendered(key, Outcome.INCOMPARABLE, why))
        elif pack is not None:
            groups.setdefault((pack.sha256, _config(clip)), []).append(key)
    for (sha256, config), keys in groups.items():
        spec = WorkerSpec(str(known[sha256].root), sha256, config, slots)
        try:
            with fleet(spec, workers=1, address=address) as workers:
                (identity,) = workers.cohorts.values()
                done += _run(workers, identity, {key: clips[key] for key in keys})
        except EngineError as error:
            why = f"{error.code}: {error}"
            done += [Rerendered(key, Outcome.INCOMPARABLE, why) for key in keys]
    return sorted(done, key=lambda each: each.key)


def _by_sha256(packs: Iterable[Path]) -> dict[str, Pack]:
    opened = [open_pack(name) for name in bundled_packs()] + [open_pack(path) for path in packs]
    for pack in opened:
        verify_pack(pack)
    return {pack.sha256: pack for pack in opened}


def _incomparable(clip: ClipRecord, pack: Pack | None) -> str:
    """Why a clip cannot even be rendered here; nothing if it can."""
    if clip.pack is None or clip.conditioning is None:
        return "its record does not say of which pack and conditioning it was made"
    if pack is None:
        return f"pack {clip.pack.name} with sha256 {clip.pack.sha256[:12]} is not here; give --pack"
    if clip.pcm_sha256 is None:
        return "its record has no pcm_sha256 that samples could be held against"
    try:
        _config(clip)
    except (ExecutionRefusedError, TypeError) as error:
        return f"its recorded execution cannot be asked for: {error}"
    if clip.algorithm_fingerprint != pack.algorithm_fingerprint:
        return (
            f"made under algorithm {clip.algorithm_fingerprint}, this version renders its pack "
            f"under {pack.algorithm_fingerprint}"
        )
    return ""


def _config(clip: ClipRecord) -> ExecutionConfig:
    """The recorded execution, as far as it can be asked for."""
    told = dict(clip.execution or {})
    asked: dict[str, Any] = {
        each.name: told[each.name] for each in fields(ExecutionConfig) if each.name in told
    }
    if "matmul_tf32" in told:
        asked["allow_tf32"] = told["matmul_tf32"]
    config = ExecutionConfig(**asked)
    hash(config)  # TypeError for a list where a word or a number belongs
    return config


def _run(
    fleet: Fleet, identity: ExecutionIdentity, clips: Mapping[str, ClipRecord]
) -> list[Rerendered]:
    (worker,) = fleet.workers
    fleet.submit(worker, [_job(key, clip) for key, clip in clips.items()])
    tokens: dict[str, list[str]] = {key: [] for key in clips}
    done: dict[str, Rerendered] = {}
    while len(done) < len(clips):
        for arrival in fleet.wait(_POLL_S):
            if isinstance(arrival, WorkerDied):
                told = f"the worker died: {arrival.reason}"
                lost = [key for key in clips if key not in done]
                return [
                    *done.values(),
                    *(Rerendered(key, Outcome.INCOMPARABLE, told) for key in lost),
                ]
            for event in arrival[1]:
                if isinstance(event, WindowEvent):
                    tokens[event.key].append(tokens_sha256(event.window.tokens))
                elif isinstance(event, PassageEvent):
                    clip = clips[event.key]
                    outcome, told = compare(clip, event.pcm_sha256, tokens[event.key], identity)
                    done[event.key] = Rerendered(event.key, outcome, told)
                elif isinstance(event, FailureEvent):
                    done[event.key] = _failed(event, clips[event.key], identity)
    return list(done.values())


def _failed(event: FailureEvent, clip: ClipRecord, here: ExecutionIdentity) -> Rerendered:
    """A clip that cannot be made is another one only where it had to be made the same, and would
    fail again."""
    told = f"it failed: {event.code}: {event.message}"
    recorded = dict(clip.execution or {})
    if event.retryable:
        return Rerendered(event.key, Outcome.INCOMPARABLE, told)
    if recorded.get("digest") != here.digest():
        told += f"; another execution identity: {_differing(recorded, asdict(here))}"
        return Rerendered(event.key, Outcome.INCOMPARABLE, told)
    return Rerendered(event.key, Outcome.DIFFERENT, told)


def _job(key: str, clip: ClipRecord) -> PassageJob:
    told = clip.conditioning
    if told is None:
        raise RuntimeError(f"{key} has no conditioning")
    turns = tuple((turn.speaker, turn.text) for turn in clip.turns)
    if turns:
        conditioning = Conditioning(turns[0][0])
    else:
        conditioning = Conditioning(
            speaker=told.speaker or "",
            style=told.style or "",
            accent=told.accent or "",
            env=told.env or "",
        )
    language = told.language_id or clip.language_id
    # The samples are compared, so the format does not matter; this one needs no encoder.
    return PassageJob(key, clip.text, conditioning, clip.seed, language, "wav", turns=turns)


def compare(
    clip: ClipRecord, pcm_sha256: str, tokens: list[str], here: ExecutionIdentity
) -> tuple[Outcome, str]:
    """The outcome for a clip that came out as these samples and windows."""
    recorded = dict(clip.execution or {})
    same_identity = recorded.get("digest") == here.digest()
    if pcm_sha256 == clip.pcm_sha256:
        return Outcome.BIT_IDENTICAL, f"pcm_sha256 {pcm_sha256[:12]} under exec[{here.digest()}]"
    if not clip.windows and not same_identity:
        return Outcome.INCOMPARABLE, (
            "other samples, and the record has no windows whose tokens could be compared; "
            f"another execution identity: {_differing(recorded, asdict(here))}"
        )
    same_tokens = tokens == [window.tokens_sha256 for window in clip.windows]
    if same_identity:
        told = "the same tokens, other samples" if same_tokens else "other tokens"
        return Outcome.DIFFERENT, f"{told} under the same execution identity"
    differing = _differing(recorded, asdict(here))
    if same_tokens:
        return Outcome.EQUIVALENT, f"all {len(tokens)} windows have the same tokens; {differing}"
    return Outcome.INCOMPARABLE, f"other tokens, and another execution identity: {differing}"


def _differing(recorded: Mapping[str, object], here: Mapping[str, object]) -> str:
    if not recorded:
        return "the record has no execution identity"
    told = [
        f"{name} {recorded.get(name, 'not recorded')} there, {value} here"
        for name, value in here.items()
        if recorded.get(name) != value
    ]
    return ", ".join(told)
