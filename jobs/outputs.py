"""What a run leaves besides audio: the records, the tokens and the report, all from the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from catalog.canonical import canonical_json
from catalog.export import TokenRow, write_token_parts
from catalog.files import write_atomic, write_atomic_stream
from catalog.loader import LoadedCatalog
from catalog.record_spool import RecordSpool, open_spool
from catalog.records import (
    ClipRecord,
    ConditioningRecord,
    PackRecord,
    SourceRecord,
    TurnRecord,
    WindowRecord,
    language_name,
    text_sha256,
    tokens_sha256,
)
from catalog.renders import Render
from catalog.site import build_page
from catalog.site_listing import Listing, VoiceClips
from engine.dialogue import readable
from engine.pack import Pack
from jobs.content import profile_sha256
from jobs.contracts import meaning_for_file
from jobs.counts import Counts
from jobs.history import Finished, History
from jobs.plan import PlannedRender, plan_renders
from jobs.segments import Row


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a report says besides the counts."""

    command: str
    started_at: datetime
    elapsed_s: float
    workers: int
    slots: int
    executions: list[dict[str, object]]
    turned_away: list[dict[str, object]]
    interrupted: bool = False
    stopped: str | None = None
    records_written: bool = True


def write_outputs(
    out: Path,
    loaded: LoadedCatalog,
    pack: Pack,
    history: History,
    *,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Write `catalog.json`, `provenance.json`, the token Parquet and the page; how many clips.

    They hold every clip of the catalog whose record is of the catalog's own content, whatever
    part of it the last run was asked for. Of all clips only a batch is held at a time: they are
    read once, their tokens written and their records put aside on disk, to be sorted for the rest.
    `check` is called before each and may raise to give up; then the files are the old ones.
    """
    clips = _Clips(loaded, pack, history, check)
    with open_spool(out / ".records", loaded) as spool:
        write_token_parts(
            out / "tokens",
            clips.taken(spool),
            algorithm_fingerprint=pack.algorithm_fingerprint,
            token_contract_fingerprint=pack.manifest.token_contract.fingerprint,
            pack_sha256=pack.sha256,
            token_contract=meaning_for_file(pack.text_side.contract),
        )
        page = build_page(_listing(loaded.catalog.catalog, pack.algorithm_fingerprint, spool))
        write_atomic_stream(out / "site" / "index.html", page)
        write_atomic_stream(out / "provenance.json", spool.provenance_json())
        write_atomic_stream(out / "catalog.json", spool.catalog_json())
        return len(spool)


@dataclass(frozen=True, slots=True)
class _Clips:
    """The clips of a catalog that the output has, read from its ledger."""

    loaded: LoadedCatalog
    pack: Pack
    history: History
    check: Callable[[], None]

    def taken(self, spool: RecordSpool) -> Iterator[TokenRow]:
        """The token rows of every clip; before the first of them its record is in the spool."""
        for planned in plan_renders(self.loaded, self.pack, self.history):
            self.check()
            done = self.history.on_disk(planned.render, planned.content_key)
            if done is None:
                continue
            windows = self.history.window_rows(done.content_key, done.execution)
            spool.add(self._record(planned, done, windows))
            for row in windows:
                yield _token_row(planned.render, row)

    def _record(self, planned: PlannedRender, done: Finished, windows: list[Row]) -> ClipRecord:
        pack, render, voice, row = self.pack, planned.render, planned.render.voice, done.row
        return ClipRecord(
            voice=voice.name,
            passage=render.passage_id,
            language=language_name(self.loaded.catalog, voice, render.language),
            language_id=render.language,
            audio=done.audio,
            sha256=row["audio_sha256"],
            text=render.text,
            seed=render.seed,
            model=pack.manifest.name,
            checkpoint_sha256=pack.checkpoint_sha256,
            edge_fade_seconds=pack.algorithm.edge_fade,
            algorithm_fingerprint=pack.algorithm_fingerprint,
            backend="loudkit-batch torch",
            duration_seconds=row["samples"] / pack.algorithm.sample_rate,
            profile_sha256=profile_sha256(pack, planned.conditioning),
            token_contract_fingerprint=pack.manifest.token_contract.fingerprint,
            execution={**json.loads(row["execution_facts"]), "digest": done.execution},
            pcm_sha256=row["pcm_sha256"],
            waveform=row["waveform"],
            rendered_at=row["at"],
            pack=PackRecord(pack.manifest.name, pack.sha256),
            conditioning=ConditioningRecord.of(render),
            turns=tuple(TurnRecord(*turn) for turn in render.turns),
            source=SourceRecord.of(voice.source) if voice.source else None,
            windows=tuple(_window(window) for window in windows),
        )


def _window(row: Row) -> WindowRecord:
    return WindowRecord(
        index=row["chunk_index"],
        half=row["half"],
        attempt=row["attempt"],
        attempts=row["attempts"],
        seed=row["seed"],
        text_sha256=text_sha256(row["text"]),
        tokens=len(row["tokens"]),
        tokens_sha256=tokens_sha256(row["tokens"]),
        prefix_tokens=len(row["prefix"]),
        verdict=row["reason"],
        keep=row["keep"],
        generated=row["n_generated"],
        suspect=row["suspect"],
        ended=row["ended"],
    )


def _token_row(render: Render, row: Row) -> TokenRow:
    return TokenRow(
        voice=render.voice.name,
        passage=render.passage_id,
        chunk_index=row["chunk_index"],
        half=row["half"],
        seed=row["seed"],
        text=readable(row["text"]),
        tokens=row["tokens"],
    )


def _listing(name: str, algorithm_fingerprint: str, spool: RecordSpool) -> Listing:
    return Listing(
        name=name,
        algorithm_fingerprint=algorithm_fingerprint,
        voices=[
            VoiceClips(about, spool.counts[about["name"]], spool.samples(about["name"]))
            for about in spool.voices()
        ],
        seconds=spool.seconds(),
        others=len(spool) - spool.by_algorithm[algorithm_fingerprint],
        language_ids=spool.language_ids,
    )


def write_report(out: Path, pack: Pack, counts: Counts, facts: RunFacts) -> dict[str, Any]:
    """Write `report.json`: what was planned, what became of it, and how fast."""
    report: dict[str, Any] = {
        "tool": f"loudkit-batch {version('loudkit-batch')}",
        "command": facts.command,
        "started_at": facts.started_at.astimezone(UTC).isoformat(timespec="seconds"),
        "elapsed_s": round(facts.elapsed_s, 3),
        "interrupted": facts.interrupted,
        "stopped": facts.stopped,
        "records_written": facts.records_written,
        "planned": counts.planned,
        "rendered": counts.rendered,
        "reused": counts.reused,
        "failed": counts.failed,
        "remade_for_identity": counts.remade,
        "remaining": counts.planned - counts.settled,
        "failures": [asdict(failure) for failure in counts.failures],
        "windows": counts.windows,
        "audio_s": round(counts.audio_s, 3),
        "times_real_time": round(counts.audio_s / facts.elapsed_s, 3) if counts.rendered else None,
        "workers": facts.workers,
        "slots": facts.slots,
        "worker_deaths": counts.worker_deaths,
        "execution": facts.executions[0] if facts.executions else None,
        "executions": facts.executions,
        "turned_away": facts.turned_away,
        "algorithm_fingerprint": pack.algorithm_fingerprint,
        "token_contract_fingerprint": pack.manifest.token_contract.fingerprint,
        "pack": {"name": pack.manifest.name, "sha256": pack.sha256},
    }
    write_atomic(out / "report.json", canonical_json(report))
    return report
