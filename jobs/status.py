"""`status`: how a job stands, from its ledger alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.errors import JobError
from jobs.ledger_index import LedgerIndex
from jobs.segments import SegmentReader, segment_files

_FAILURES_AT_MOST = 1000


class NoJobError(JobError):
    """The folder holds no job."""

    code = "no_job"


def job_status(out: Path, place: str) -> dict[str, Any]:
    """What is finished and failed, and when something was last committed.

    Raises `NoJobError` for a folder without a ledger and `LedgerError` for a torn segment.
    """
    folder = out / "ledger"
    segments = segment_files(folder)
    if not segments:
        raise NoJobError(f"{place}: holds no ledger; render a catalog with --out {place} first")
    index, rows = LedgerIndex(folder, write=False), SegmentReader(folder)
    try:
        # Who failed last and was not finished since has failed; the rest of `finished` stands.
        [(finished, samples)] = index.query(
            "SELECT count(*), total(samples) FROM finished "
            "WHERE render_key NOT IN (SELECT render_key FROM failed)"
        )
        [(failed,)] = index.query("SELECT count(*) FROM failed")
        workers = dict(index.query("SELECT worker, windows FROM workers ORDER BY worker"))
        [(last,)] = index.query("SELECT at FROM last_commit")
        failures = {}
        for render_key, segment, at in index.query(
            f"SELECT render_key, segment, at FROM failed ORDER BY render_key "
            f"LIMIT {_FAILURES_AT_MOST}"
        ):
            row = rows.row(segment, at)
            failures[render_key] = {"code": row["code"], "message": row["message"]}
    finally:
        index.close()
    return {
        "out": place,
        "finished": finished,
        "failed": failed,
        "failures": failures,
        "windows": sum(workers.values()),
        "samples": int(samples),
        "segments": len(segments),
        "last_commit_at": last,
        "windows_by_worker": workers,
    }
