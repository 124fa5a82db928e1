"""SIGINT and SIGTERM: the first one asks to stop, the second one ends the process.

A signal only sets a flag. Whoever waits looks at it: the fleet while workers start, the job at its
next safe point. Raising from the handler would raise inside Ray's compiled code, which turns it
into another error or loses it.

Python runs a handler when its main thread comes back from compiled code, which may take seconds,
and runs it once for all signals of a kind that came meanwhile. So signals are counted by a thread
that hears of each at once, through the wakeup file descriptor.
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
        self._descriptors: tuple[int, int] | None = None
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.getsignal(each) for each in _SIGNALS}
            heard, told = os.pipe()
            os.set_blocking(told, False)
            self._descriptors = (heard, told)
            self._wakeup_before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
            threading.Thread(target=self._listen, args=(heard,), daemon=True).start()
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
        if self._descriptors is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._descriptors[1])  # ends the thread

    def install(self) -> None:
        """Take the signals; again after `ray.init`, which puts handlers of its own in place."""
        if self._before:
            for each in _SIGNALS:
                signal.signal(each, _leave_to_the_thread)

    def _listen(self, heard: int) -> None:
        """One byte a signal, until the other end is closed."""
        while number := os.read(heard, 1):
            if number[0] not in _SIGNALS:
                continue
            if self.requested:
                os._exit(INTERRUPTED)
            self.requested = True
        os.close(heard)


def _leave_to_the_thread(number: int, frame: FrameType | None) -> None:
    """A handler has to be there for the signal not to end the process."""
