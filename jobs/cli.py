"""`loudkit-batch`: arguments in, exit code out. The one place that reads the environment.

Nothing heavy is imported before a command needs it: `--help`, `plan` and every refusal answer
without torch and without Ray.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.cli_options import (
    Place,
    all_option,
    as_json_option,
    catalog_argument,
    endpoint_option,
    only_option,
    out_option,
    placed,
    refusals,
    rendering_options,
    unconditional_option,
)
from jobs.cli_packs import contract, fingerprint, pack
from jobs.cli_roster import execution_option, publish, rebuild, rehash_option, verify
from jobs.errors import DONE, INTERRUPTED, SOME_FAILED

if TYPE_CHECKING:
    from catalog.loader import LoadedCatalog
    from engine.pack import Pack
    from jobs.counts import Counts
    from jobs.roster_plan import StalenessPolicy


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("loudkit-batch"), prog_name="loudkit-batch")
def main() -> None:
    """Render a catalog of voices and passages, the same bytes on any cluster.

    Exit codes: 0 done, 2 bad usage or catalog, 3 some renders failed, 4 contract or identity
    mismatch, 130 interrupted and resumable.
    """


@main.command()
@catalog_argument
@out_option
@only_option
@all_option
@rendering_options
@endpoint_option
@unconditional_option
@as_json_option
@refusals
def render(
    catalog: Path,
    out: str | None,
    workers: int | None,
    slots: int,
    device: str,
    only: str | None,
    everything: bool,
    address: str | None,
    max_failures: int | None,
    fail_fast: bool,
    allow_mixed: bool,
    endpoint_url: str | None,
    unconditional_writes: bool,
    as_json: bool,
) -> int:
    """Render what CATALOG asks for and OUT does not have yet."""
    from engine.execution import ExecutionConfig
    from jobs.progress import progress_for
    from jobs.render import RenderOptions, first_failures, run_render

    kind, count = placed(device, workers)
    options = RenderOptions(
        catalog=catalog,
        out=out,
        workers=count,
        slots=slots,
        execution=ExecutionConfig(device=kind),
        only=only,
        everything=everything,
        address=address,
        endpoint_url=endpoint_url,
        unconditional_writes=unconditional_writes,
        max_failures=0 if fail_fast else max_failures,
        allow_mixed=allow_mixed,
    )
    with progress_for(as_json=as_json) as progress:
        result = run_render(options, progress)
    counts = result.counts
    if as_json:
        click.echo(json.dumps({"event": "finished", "out": result.out, **result.report}))
    else:
        _tell_render(result.out, counts)
        for line in first_failures(counts):
            click.echo(line, err=True)
        if counts.failed:
            click.echo(
                f"{counts.failed} of {counts.planned} renders failed; all are named in "
                f"{result.out}/report.json",
                err=True,
            )
            if lasting := sum(not each.retryable for each in counts.failures):
                click.echo(
                    f"{_counted(lasting, 'of them is', 'of them are')} not tried again until the "
                    "text, pack or seed changes, or --all --only VOICE/PASSAGE asks for it",
                    err=True,
                )
    left = _counted(counts.planned - counts.settled, "render is", "renders are")
    if result.interrupted:
        click.echo(f"interrupted; {left} left, and the same command goes on from here", err=True)
        return INTERRUPTED
    if result.stopped:
        click.echo(
            f"stopped: {result.stopped}; {left} left, and the same command goes on from here",
            err=True,
        )
        return SOME_FAILED
    return SOME_FAILED if counts.failed else DONE


def _tell_render(out: str, counts: Counts) -> None:
    if counts.rendered:
        click.echo(
            f"{out}: rendered {counts.rendered}, reused {counts.reused}, "
            f"{counts.audio_s:.1f} s of new audio; listen on {out}/site/index.html"
        )
    elif counts.reused == counts.planned:
        click.echo(f"{out}: nothing to render, all {counts.reused} renders are current")
    else:
        click.echo(f"{out}: rendered none, reused {counts.reused} of {counts.planned}")
    if counts.remade:
        click.echo(
            f"{counts.remade} of them were current under another execution identity and were made "
            "again: no voice mixes two"
        )


@main.command()
@catalog_argument
@out_option
@only_option
@all_option
@click.option(
    "--published",
    type=Place(),
    metavar="DIR|s3://BUCKET/PREFIX",
    help="Say how every clip stands against what is published there, instead of against OUT.",
)
@execution_option
@rehash_option
@endpoint_option
@click.option("--summary", is_flag=True, help="The totals alone, without a line a render.")
@as_json_option
@refusals
def plan(
    catalog: Path,
    out: str | None,
    only: str | None,
    everything: bool,
    published: str | None,
    execution: str,
    rehash: bool,
    endpoint_url: str | None,
    summary: bool,
    as_json: bool,
) -> int:
    """Say what would be rendered and why. Renders nothing."""
    from catalog.loader import load_catalog
    from jobs.plan import PlanTotals, open_catalog_pack, plan_renders
    from jobs.reading import read_output

    loaded = load_catalog(catalog)
    pack = open_catalog_pack(loaded)
    if published is not None:
        from jobs.roster_plan import StalenessPolicy

        policy = StalenessPolicy(execution=execution, rehash=rehash, only=only)
        return _plan_roster(loaded, pack, published, policy, endpoint_url, summary, as_json)
    out = out or f"out/{loaded.catalog.catalog}"
    totals = PlanTotals()
    with read_output(out, endpoint_url=endpoint_url) as output, output.history() as history:
        for each in plan_renders(loaded, pack, history, only=only, everything=everything):
            row = totals.count(pack, each)
            if not summary:
                click.echo(json.dumps(row) if as_json else _plan_line(row))
    if as_json:
        click.echo(json.dumps({"event": "plan", "out": str(out), **totals.as_json()}))
    else:
        click.echo(
            f"{totals.to_render} of {totals.planned} renders to make, "
            f"{_counted(totals.chunks, 'chunk')}, about {_duration(totals.audio_s)} of audio"
            + (f"; {totals.unspeakable} cannot be spoken" if totals.unspeakable else "")
        )
    return SOME_FAILED if totals.unspeakable else DONE


def _plan_roster(
    loaded: LoadedCatalog,
    pack: Pack,
    published: str,
    policy: StalenessPolicy,
    endpoint_url: str | None,
    summary: bool,
    as_json: bool,
) -> int:
    """The table of `plan --published`."""
    from jobs.rebuild_summary import verdict_line
    from jobs.roster_plan import open_for_reading, plan_roster

    store = open_for_reading(published, endpoint_url=endpoint_url)
    found = plan_roster(loaded, pack, store, policy)
    for verdict in () if summary else found.verdicts:
        click.echo(json.dumps(verdict.as_json()) if as_json else verdict_line(verdict))
    release = found.roster.release.id if found.roster.release else None
    if as_json:
        told = {"event": "plan", "published": published, "release": release}
        click.echo(json.dumps({**told, "clips": found.counts, "to_render": len(found.to_render)}))
    else:
        counted = ", ".join(f"{count} {state}" for state, count in found.counts.items() if count)
        where = f"release {release}" if release else "no release"
        if not found.roster.records.clips:
            where = "nothing is published there yet"
        to_render = _counted(len(found.to_render), "clip")
        click.echo(f"{published}: {where}, {counted}; {to_render} to render")
    return DONE


def _plan_line(row: dict[str, Any]) -> str:
    told = f"{row['render']}: {row['reason']}, "
    if row["error"]:
        return told + f"cannot be spoken: {row['error']}"
    return told + f"{_counted(row['chunks'], 'chunk')}, about {row['audio_s']} s"


def _counted(count: float, noun: str, many: str | None = None) -> str:
    return f"{count:.0f} {noun if count == 1 else many or noun + 's'}"


def _duration(seconds: float) -> str:
    """In the unit that a person would choose."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


@main.command()
@click.argument("place", type=Place(), metavar="DIR|s3://BUCKET/PREFIX")
@endpoint_option
@as_json_option
@refusals
def status(place: str, endpoint_url: str | None, as_json: bool) -> int:
    """Tell how a job stands, from the ledger in its output."""
    from jobs.reading import read_output
    from jobs.status import job_status

    with read_output(place, endpoint_url=endpoint_url) as output:
        found = job_status(output.folder, place)
    if as_json:
        click.echo(json.dumps(found))
        return DONE
    click.echo(
        f"{place}: {found['finished']} finished, {found['failed']} failed, "
        f"{_counted(found['windows'], 'window')} in {_counted(found['segments'], 'segment')}, "
        f"last commit {found['last_commit_at']}"
    )
    for render_key, why in found["failures"].items():
        click.echo(f"failed {render_key}: {why['code']}: {why['message']}")
    return DONE


for _command in (rebuild, publish, verify, pack, contract, fingerprint):
    main.add_command(_command)


if __name__ == "__main__":
    main()
