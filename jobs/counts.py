"""How a job stands, render by render: what a report and its exit code are made of."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Failure:
    """A render that was planned and not made."""

    render: str
    code: str
    message: str
    retryable: bool
    chunk_index: int | None = None
    half: int | None = None
    attempt: int | None = None
    worker: str | None = None


@dataclass(slots=True)
class Counts:
    """How a job stands. `planned = rendered + reused + failed` once it is over."""

    planned: int = 0
    rendered: int = 0
    reused: int = 0
    failures: list[Failure] = field(default_factory=list)
    windows: int = 0
    audio_s: float = 0.0
    worker_deaths: int = 0
    remade: int = 0
    """Clips made again because their voice had another execution identity."""

    @property
    def failed(self) -> int:
        """How many renders failed, each of them in `failures`."""
        return len(self.failures)

    @property
    def settled(self) -> int:
        """How many renders are over."""
        return self.rendered + self.reused + self.failed
