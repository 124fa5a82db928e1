"""SIGINT and SIGTERM: the first one asks to stop, the second one ends the process.

While workers start there is nothing to lose, and the signal interrupts at once. While a job runs
it only sets a flag: the job stops admitting work at its next safe point, so that no file, row or
record is left half written.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
        self._deferred = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within, a signal is a request that the code looks at when it can."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(INTERRUPTED)
        self.requested = True
        if not self._deferred:
            raise Interrupted(signal.Signals(number).name)
