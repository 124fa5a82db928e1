"""`status`: how a job stands, from its ledger alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from jobs.errors import JobError
from jobs.ledger import read_rows, segment_files

_COLUMNS = ("kind", "render_key", "samples", "at", "code", "worker")


class NoJobError(JobError):
    """The folder holds no job."""

    code = "no_job"


def job_status(out: Path) -> dict[str, Any]:
    """What is finished and failed, and when something was last committed.

    Raises `NoJobError` for a folder without a ledger and `LedgerError` for a torn segment.
    """
    segments = segment_files(out / "ledger")
    if not segments:
        raise NoJobError(f"{out}: holds no ledger; render a catalog with --out {out} first")
    last: dict[str, str] = {}
    failures: dict[str, str] = {}
    windows, samples, at = 0, 0, ""
    workers: Counter[str] = Counter()
    for row in read_rows(out / "ledger", columns=_COLUMNS):
        at = max(at, row["at"])
        if row["kind"] == "window":
            windows += 1
            workers[row["worker"]] += 1
            continue
        last[row["render_key"]] = row["kind"]
        if row["kind"] == "finished":
            samples += row["samples"]
            failures.pop(row["render_key"], None)
        else:
            failures[row["render_key"]] = row["code"]
    kinds = Counter(last.values())
    return {
        "out": str(out),
        "finished": kinds["finished"],
        "failed": kinds["failed"],
        "failures": dict(sorted(failures.items())),
        "windows": windows,
        "samples": samples,
        "segments": len(segments),
        "last_commit_at": at,
        "windows_by_worker": dict(sorted(workers.items())),
    }
