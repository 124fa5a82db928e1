"""SIGINT and SIGTERM: the first one asks to stop, the second one ends the process.

A signal only sets a flag. Whoever waits looks at it: the fleet while workers start, the job at its
next safe point. Raising from the handler would raise inside Ray's compiled code, which turns it
into another error or loses it.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from jobs.errors import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A signal asked to stop. What was committed stays; the same command goes on from there."""


class Interruption:
    """Handles the two signals between `with` and its end; a no-op outside the main thread."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.getsignal(each) for each in _SIGNALS}
            self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def install(self) -> None:
        """Take the signals; again after `ray.init`, which puts handlers of its own in place."""
        if self._before:
            for each in _SIGNALS:
                signal.signal(each, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(INTERRUPTED)
        self.requested = True
