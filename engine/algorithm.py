"""AlgorithmConfig: everything that decides what is computed, and the fingerprint over it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final, Literal

from engine.algorithm_blocks import (
    UNSET,
    VERBATIM_TEXT,
    ChunkConfig,
    CodecConfig,
    FrameConfig,
    SamplingConfig,
    TextConfig,
    Unset,
    WindowConfig,
    funnel_identity,
    require,
    require_at_least,
    require_choice,
    require_finite,
)
from engine.postprocess_config import PostprocessConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "DEFAULT_EDGE_FADE_S",
    "LEGACY_EDGE_FADE_S",
    "RECIPE_VERSION",
    "UNSET",
    "VERBATIM_TEXT",
    "AlgorithmConfig",
    "ChunkConfig",
    "CodecConfig",
    "DecodeMode",
    "FrameConfig",
    "GuidanceMode",
    "PostprocessConfig",
    "SamplingConfig",
    "TextConfig",
    "Unset",
    "WindowConfig",
    "funnel_identity",
]

RECIPE_VERSION: Final = "loudkit-1"
DEFAULT_EDGE_FADE_S: Final = 0.02
LEGACY_EDGE_FADE_S: Final = 0.005

DecodeMode = Literal["single", "fusion_mtp2"]
GuidanceMode = Literal["single_path", "cfg_dual_path"]

_CANONICAL_SCHEMA: Final = 1
_GRID_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class AlgorithmConfig:
    """What is computed, whatever computes it. Two engines that agree here owe each other the same
    tokens.

    Raises `ManifestError` for a value that no engine could run; its key is the field, dotted where
    the rule is about a block.
    """

    recipe_version: str = RECIPE_VERSION
    guidance: GuidanceMode = "single_path"
    guidance_rate: float = 0.0  # read under cfg_dual_path only
    euler_steps: int = 2
    euler_grid: tuple[float, ...] | None = None  # None: the cosine schedule
    decode_mode: DecodeMode | Unset = UNSET
    edge_fade_seconds: float | Unset = UNSET
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    window: WindowConfig = field(default_factory=WindowConfig)
    chunking: ChunkConfig = field(default_factory=ChunkConfig)
    postprocess: PostprocessConfig = field(default_factory=PostprocessConfig)
    text: TextConfig = field(default_factory=funnel_identity)
    sample_rate: int = 24_000
    token_rate_hz: float = 25.0  # of the stream, not of the row
    speech_vocab_size: int = 8194
    start_speech_token: int = 6561
    stop_speech_token: int = 6562
    # Only SNAC packs set these.
    frame: FrameConfig | Unset = UNSET
    codec: CodecConfig | Unset = UNSET
    token_contract: str | Unset = UNSET  # the contract's fingerprint

    @property
    def decode(self) -> DecodeMode:
        """Speech tokens per forward: one, or a fused pair."""
        return "single" if isinstance(self.decode_mode, Unset) else self.decode_mode

    @property
    def edge_fade(self) -> float:
        """Length of the edge ramp in seconds."""
        value = self.edge_fade_seconds
        return DEFAULT_EDGE_FADE_S if isinstance(value, Unset) else float(value)

    @property
    def tokens_per_row_entry(self) -> int:
        """Stream tokens behind one entry of the row that detectors read."""
        return 1 if isinstance(self.frame, Unset) else self.frame.tokens_per_frame

    @property
    def row_rate_hz(self) -> float:
        """Row entries in a second of audio."""
        return self.token_rate_hz / self.tokens_per_row_entry

    def canonical_form(self) -> str:
        """The exact string that is hashed.

        Floats stand as `repr` strings, keys are sorted, unset fields are absent. One decision has
        one form: `single` is written as unset, the fade by its effective length, and the 5 ms of
        releases that knew no other length not at all.
        """
        body = {name: _canonical(value) for name, value in _set_fields(self)}
        if self.decode == "single":
            body.pop("decode_mode", None)
        body["edge_fade_seconds"] = repr(self.edge_fade)
        if self.edge_fade == LEGACY_EDGE_FADE_S:
            del body["edge_fade_seconds"]
        return json.dumps(
            {"algorithm": body, "schema": _CANONICAL_SCHEMA}, sort_keys=True, separators=(",", ":")
        )

    def fingerprint(self) -> str:
        """Sixteen hex digits of the sha256 over the canonical form."""
        return hashlib.sha256(self.canonical_form().encode()).hexdigest()[:16]

    def __post_init__(self) -> None:
        self._check_guidance()
        self._check_grid()
        self._check_rates()
        self._check_token_ids()
        self._check_budgets()
        self._check_frame()

    def _check_guidance(self) -> None:
        require_choice(self.guidance, ("single_path", "cfg_dual_path"), "guidance")
        require_choice(self.decode, ("single", "fusion_mtp2"), "decode_mode")
        require_finite(self.guidance_rate, "guidance_rate")
        single = self.guidance == "single_path"
        require(
            self.guidance_rate == 0.0 if single else self.guidance_rate > 0.0,
            "guidance_rate",
            f"must be {'0.0' if single else 'above 0'} under {self.guidance},"
            f" got {self.guidance_rate!r}",
        )

    def _check_grid(self) -> None:
        require_at_least(self.euler_steps, 1, "euler_steps")
        grid = self.euler_grid
        if grid is None:
            return
        points = self.euler_steps + 1
        require(
            len(grid) == points,
            "euler_grid",
            f"must have {points} points for {self.euler_steps} steps, got {len(grid)}",
        )
        require(
            all(math.isfinite(at) for at in grid) and all(a < b for a, b in pairwise(grid)),
            "euler_grid",
            f"must rise from point to point, got {list(grid)}",
        )
        require(
            abs(grid[0]) <= _GRID_TOLERANCE and abs(grid[-1] - 1.0) <= _GRID_TOLERANCE,
            "euler_grid",
            f"must run from 0 to 1, got {grid[0]!r} to {grid[-1]!r}",
        )

    def _check_rates(self) -> None:
        require(
            0.001 <= self.edge_fade <= 0.05,
            "edge_fade_seconds",
            f"must be between 0.001 and 0.05, got {self.edge_fade!r}",
        )
        require_at_least(self.sample_rate, 1, "sample_rate")
        require_finite(self.token_rate_hz, "token_rate_hz")
        require(
            self.token_rate_hz > 0, "token_rate_hz", f"must be above 0, got {self.token_rate_hz!r}"
        )

    def _check_token_ids(self) -> None:
        size = self.speech_vocab_size
        require_at_least(size, 1, "speech_vocab_size")
        start, stop = self.start_speech_token, self.stop_speech_token
        for key, token in (("start_speech_token", start), ("stop_speech_token", stop)):
            require(
                0 <= token < size, key, f"must be below speech_vocab_size ({size}), got {token}"
            )
        require(start != stop, "stop_speech_token", f"must differ from the start token, got {stop}")

    def _check_budgets(self) -> None:
        # A budget past the window would be found out in the middle of a passage.
        window = self.window.max_speech_tokens
        require(
            not self.chunking.enabled or self.chunking.max_tokens <= window,
            "chunking.max_tokens",
            f"must fit the window ({window}), got {self.chunking.max_tokens}",
        )
        require(
            self.sampling.max_new_tokens <= window,
            "sampling.max_new_tokens",
            f"must fit the window ({window}), got {self.sampling.max_new_tokens}",
        )

    def _check_frame(self) -> None:
        require(self.token_contract != "", "token_contract", "must not be empty")
        if isinstance(self.frame, Unset) or isinstance(self.codec, Unset):
            return
        require(
            self.frame.tokens_per_frame == self.codec.tokens_per_frame,
            "frame.tokens_per_frame",
            f"must be {self.codec.tokens_per_frame}, as codec.vq_strides"
            f" {list(self.codec.vq_strides)} give, got {self.frame.tokens_per_frame}",
        )


def _set_fields(block: DataclassInstance) -> list[tuple[str, object]]:
    """Name and value of every field that somebody set."""
    pairs = [(f.name, getattr(block, f.name)) for f in fields(block)]
    return [(name, value) for name, value in pairs if value is not UNSET]


def _canonical(value: object) -> object:
    """A value as the canonical JSON writes it. numpy's numbers count as numbers."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, tuple | list):
        return [_canonical(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _canonical(item) for name, item in _set_fields(value)}
    raise TypeError(f"no canonical form for {type(value).__name__}")
