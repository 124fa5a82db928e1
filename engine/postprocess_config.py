"""The detectors' preset: numbers measured on one checkpoint, that travel in its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from engine.algorithm_blocks import (
    UNSET,
    Unset,
    require,
    require_at_least,
    require_choice,
    require_finite,
    require_ids,
)

DEFAULT_EARLIEST_CUT: Final = 10

# Attempt n of a window draws stream 8 + n and chunk k draws 16 + k: an eighth retry would replay
# a chunk's seed.
MOST_RETRIES: Final = 7

_COUNTS: Final = (  # at least 0
    "ceiling_slack_tokens",
    "trailing_silence_run_tokens",
    "desperation_band_floor",
    "desperation_min_text_tokens",
    "ended_tail_silence_run",
    "ended_tail_blip_max",
    "ended_tail_word_max",
    "filler_max_speech_after_run",
    "ended_tail_keep",
    "echo_strong_max_tail",
    "echo_weak_max_tail",
    "dropout_min_tokens",
)
_FINITE: Final = (  # any finite number
    "desperation_band_ratio",
    "echo_strong_eos_probability",
    "echo_weak_eos_probability",
    "pacing_tolerance",
)
_PERCENTAGES: Final = ("echo_strong_min_position_pct", "echo_weak_min_position_pct")


@dataclass(frozen=True, slots=True)
class PostprocessConfig:
    """What the detectors compare with. Every `*_tokens` counts row entries, except in
    `*_text_tokens`."""

    mode: Literal["off", "report", "trim"] = "trim"

    # The ceiling of a window: text tokens * ratio + slack.
    ceiling_speech_per_text_token: float = 4.0
    ceiling_slack_tokens: int = 40

    # Trailing filler: a tail that is mostly silence behind a stop the model nearly took.
    trailing_filler_threshold: float = 0.7
    trailing_silence_run_tokens: int = 12
    filler_min_eos_probability: float = 0.05
    filler_max_speech_after_run: int = 10

    # Desperation: a row so long for its text that part of it must be babble.
    desperation_band_ratio: float = 2.6
    desperation_band_floor: int = 12
    desperation_speech_per_text_token: float = 4.5
    desperation_min_text_tokens: int = 10
    desperation_min_keep_per_text_token: float = 1.7

    # Ended tail: silence, or a click, after a row that stopped by itself.
    ended_tail_silence_run: int = 6
    ended_tail_blip_max: int = 2
    ended_tail_word_max: int = 10
    ended_tail_keep: int = 5

    # Terminal echo: a word more after the last sentence.
    echo_strong_eos_probability: float = 0.10
    echo_strong_max_tail: int = 30
    echo_strong_min_position_pct: int = 68
    echo_weak_eos_probability: float = 0.003
    echo_weak_max_tail: int = 16
    echo_weak_min_position_pct: int = 85

    retry_max_attempts: int = 2
    pacing_tolerance: float = 1.6

    # Repetition: a decoder that feeds on its own output.
    repetition_max_period: int = 12
    repetition_min_cycles: int = 3
    repetition_min_span: int = 24
    repetition_resume: Literal["condemn", "cut"] = "condemn"
    repetition_silence: Literal["acoustic", "sampling"] = "acoustic"

    dropout_min_tokens: int = 25
    stall_run_tokens: int = 25

    silence_render_ids: tuple[int, ...] = ()  # rendered as digital silence
    quiet_render_ids: tuple[int, ...] = ()  # breath and decay

    earliest_cut_tokens: int | Unset = UNSET

    @property
    def earliest_cut(self) -> int:
        """No tail rule cuts before this row index."""
        value = self.earliest_cut_tokens
        return DEFAULT_EARLIEST_CUT if isinstance(value, Unset) else value

    def __post_init__(self) -> None:
        require_choice(self.mode, ("off", "report", "trim"), "mode")
        require_choice(self.repetition_resume, ("condemn", "cut"), "repetition_resume")
        require_choice(self.repetition_silence, ("acoustic", "sampling"), "repetition_silence")
        for name in _FINITE:
            require_finite(getattr(self, name), name)
        for name in _COUNTS:
            require_at_least(getattr(self, name), 0, name)
        for name in _PERCENTAGES:
            value = getattr(self, name)
            require(0 <= value <= 100, name, f"must be between 0 and 100, got {value!r}")
        require_at_least(self.earliest_cut, 0, "earliest_cut_tokens")
        require_ids(self.silence_render_ids, "silence_render_ids")
        require_ids(self.quiet_render_ids, "quiet_render_ids")
        self._check_shares()
        self._check_ratios()
        self._check_loops()

    def _check_shares(self) -> None:
        require(
            0.0 < self.trailing_filler_threshold <= 1.0,
            "trailing_filler_threshold",
            f"must be above 0 and at most 1, got {self.trailing_filler_threshold!r}",
        )
        require(
            0.0 <= self.filler_min_eos_probability < 1.0,
            "filler_min_eos_probability",
            f"must be at least 0 and below 1, got {self.filler_min_eos_probability!r}",
        )

    def _check_ratios(self) -> None:
        ceiling = self.ceiling_speech_per_text_token
        require_finite(ceiling, "ceiling_speech_per_text_token")
        require(ceiling > 0.0, "ceiling_speech_per_text_token", f"must be above 0, got {ceiling!r}")
        desperate = self.desperation_speech_per_text_token
        require_finite(desperate, "desperation_speech_per_text_token")
        # At or under the ceiling, every row that the ceiling rightly stopped would be desperate.
        require(
            desperate > ceiling,
            "desperation_speech_per_text_token",
            f"must be above ceiling_speech_per_text_token ({ceiling!r}), got {desperate!r}",
        )
        kept = self.desperation_min_keep_per_text_token
        require_at_least(kept, 0.0, "desperation_min_keep_per_text_token")
        require(
            kept <= self.desperation_band_ratio,
            "desperation_min_keep_per_text_token",
            f"must be at most desperation_band_ratio ({self.desperation_band_ratio!r}),"
            f" got {kept!r}",
        )

    def _check_loops(self) -> None:
        require(
            0 <= self.retry_max_attempts <= MOST_RETRIES,
            "retry_max_attempts",
            f"must be between 0 and {MOST_RETRIES}, got {self.retry_max_attempts}",
        )
        require_at_least(self.repetition_max_period, 1, "repetition_max_period")
        require_at_least(self.repetition_min_cycles, 2, "repetition_min_cycles")
        require(
            self.repetition_min_span >= self.repetition_min_cycles,
            "repetition_min_span",
            f"must be at least repetition_min_cycles ({self.repetition_min_cycles}),"
            f" got {self.repetition_min_span}",
        )
        require_at_least(self.stall_run_tokens, 1, "stall_run_tokens")
