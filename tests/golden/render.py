"""The golden set: which passages, how they are rendered, and under what their bits were made.

A golden waveform is a statement about one machine and its libraries; `Golden.machine` says which.
Where another machine reads it, the tokens are compared and the waveforms are not.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.contracts.contract import Conditioning
from engine.engine import Engine
from engine.events import PassageEvent, PassageJob, WindowEvent
from engine.passage import FinishedWindow
from engine.session import Session

GOLDENS: Final = Path(__file__).parent / "goldens.json"

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GoldenPassage:
    """One render of the set."""

    id: str
    speaker: str
    seed: int
    text: str


SET: Final = (
    GoldenPassage("short", "slt", 7, "Good morning."),
    # Windows that each begin on a frame of the one before, and a date for the funnel.
    GoldenPassage(
        "carry",
        "kal",
        8,
        "On 3 May 1926 the lamp in the harbour went out before dawn, and the captain climbed the "
        "stairs with a box of matches. Nobody had asked her to come. She lit the wick and sat down "
        "by the window; all nine of the boats were home.",
    ),
    # Fills its window: two halves, and the second has a seed of its own.
    GoldenPassage(
        "resplit",
        "rms",
        12,
        "Six slim swallows swiftly swept south since spring, circling seven silent steeples while "
        "wise, weary whales",
    ),
    # The detectors condemn two of three attempts, and the second ships.
    GoldenPassage("ladder", "awb", 5, "No, no, no, no, no, no, no."),
)


@dataclass(frozen=True, slots=True)
class Golden:
    """What the set sounds like, and all that it was made under."""

    contract_version: int
    """Counted up by every re-base that moves tokens."""
    machine: Facts
    made_of: Facts
    """The sha256 of the pack, and the fingerprints of the algorithm and the token contract."""
    passages: dict[str, Facts]


def render_goldens(engine: Engine, *, contract_version: int) -> Golden:
    """The set rendered here and now."""
    return Golden(
        contract_version=contract_version,
        machine=machine_of(engine),
        made_of=made_of(engine),
        passages=render_set(engine),
    )


def render_set(engine: Engine) -> dict[str, Facts]:
    """Every passage of the set, all in one session: company changes nothing, and costs less."""
    session = Session(engine, slots=len(SET))
    found: dict[str, Facts] = {}
    for passage in SET:
        found[passage.id] = {"asked": asdict(passage), "windows": []}
        session.submit(
            PassageJob(
                key=passage.id,
                text=passage.text,
                conditioning=Conditioning(passage.speaker),
                seed=passage.seed,
                language="en",
                format="wav",
            )
        )
    while session.in_flight:
        for event in session.advance():
            if isinstance(event, WindowEvent):
                found[event.key]["windows"].append(_window_facts(event.window))
            elif isinstance(event, PassageEvent):
                found[event.key] |= {"pcm_sha256": event.pcm_sha256, "samples": event.samples}
            else:
                raise RuntimeError(f"{event.key} failed: {event.code}: {event.message}")
    return found


def _window_facts(window: FinishedWindow) -> Facts:
    """A window as JSON; ids stand in one string, so that the file has a line a window."""
    facts = asdict(window)
    facts["prefix"] = " ".join(map(str, window.prefix))
    facts["tokens"] = " ".join(map(str, window.tokens))
    return facts


def made_of(engine: Engine) -> Facts:
    """What may move tokens on purpose."""
    return {
        "pack_sha256": engine.pack.sha256,
        "algorithm_fingerprint": engine.pack.algorithm.fingerprint(),
        "token_contract_fingerprint": engine.text_side.contract.fingerprint(),
    }


def machine_of(engine: Engine) -> Facts:
    """What decides the last bits here, by nothing that our own code computes.

    The identity's probe is left out: it is a result of this engine's mathematics, and a change of
    that is what goldens are there to catch.
    """
    facts = asdict(engine.identity)
    del facts["probe"]
    return facts | {"arithmetic": arithmetic()}


def arithmetic() -> str:
    """Sixteen hex digits over sums and functions that torch and the processor alone decide.

    Two processors of one CPU capability may still add in another order.
    """

    def waves(*shape: int) -> Tensor:
        return torch.sin(torch.arange(1, 1 + math.prod(shape), dtype=torch.float32)).view(shape)

    signal, heads = waves(1, 64, 256), waves(1, 4, 23, 64)
    sounds = (
        *(F.linear(waves(rows, 256), waves(512, 256)) for rows in (1, 4, 23)),
        F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        F.scaled_dot_product_attention(heads[:, :, :1], heads, heads),
        torch.softmax(waves(64, 256), dim=-1),
        torch.exp(waves(4096)) * torch.rsqrt(waves(4096).square() + 1.0),
        F.conv1d(signal, waves(32, 64, 7), dilation=3),
        F.conv_transpose1d(signal, waves(64, 32, 8), stride=4),
    )
    digest = hashlib.sha256()
    for sound in sounds:
        digest.update(sound.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def read_goldens(path: Path = GOLDENS) -> Golden:
    """The goldens in the repository."""
    return Golden(**json.loads(path.read_text(encoding="utf-8")))


def write_goldens(golden: Golden, path: Path = GOLDENS) -> None:
    """Put goldens where `read_goldens` finds them."""
    text = json.dumps(asdict(golden), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
