"""One job at a time in an output folder: two would number the same ledger segments."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catalog.errors import WriteFailedError
from jobs.errors import OutputBusyError

_LOCK = ".lock"


@contextmanager
def output_lock(out: Path) -> Iterator[None]:
    """Hold the folder. The system lets go of the lock with the process, however that ends.

    Raises `OutputBusyError` while another job holds it, `WriteFailedError` where nothing can be
    written.
    """
    path = out / "ledger" / _LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise WriteFailedError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputBusyError(
                f"{out}: another job is rendering into it; wait for that one, or use another --out"
            ) from error
        yield
    finally:
        os.close(descriptor)
