"""`loudkit-batch`: arguments in, exit code out. The one place that reads the environment.

Nothing heavy is imported before a command needs it: `--help`, `plan` and every refusal answer
without torch and without Ray.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import click

from catalog.errors import CatalogError, one_line
from engine.errors import EngineError
from jobs.errors import (
    DONE,
    INTERRUPTED,
    SOME_FAILED,
    CatalogRefusedError,
    JobError,
    exit_code_for,
)
from workers.errors import WorkerError

if TYPE_CHECKING:
    from jobs.job import Counts

P = ParamSpec("P")

_DEFAULT_SLOTS = 32
"""Measured (tests/benchmarks/README.md): a tenth to a sixth more tokens a second than 16 slots."""


def _refusals(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """Turn what a command raises on purpose into one clear line and the documented exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        try:
            sys.exit(command(*args, **kwargs))
        except CatalogError as error:
            for problem in error.problems:
                click.echo(problem, err=True)
            sys.exit(exit_code_for(error.code))
        except CatalogRefusedError as error:
            click.echo(str(error), err=True)
            sys.exit(exit_code_for(error.code))
        except (EngineError, JobError, WorkerError) as error:
            click.echo(one_line(f"{error.code}: {error}"), err=True)
            sys.exit(exit_code_for(error.code))
        except KeyboardInterrupt:
            click.echo("interrupted; the same command goes on from here", err=True)
            sys.exit(INTERRUPTED)

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("loudkit-batch"), prog_name="loudkit-batch")
def main() -> None:
    """Render a catalog of voices and passages, the same bytes on any cluster.

    Exit codes: 0 done, 2 bad usage or catalog, 3 some renders failed, 4 contract or identity
    mismatch, 130 interrupted and resumable.
    """


_catalog = click.argument("catalog", type=click.Path(path_type=Path))
_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
_only = click.option("--only", metavar="VOICE/PASSAGE", help="Globs: */alice, slt/*.")
_all = click.option("--all", "everything", is_flag=True, help="Current renders as well.")


class _OutPlace(click.ParamType[str]):
    """A folder, which may not be a file, or the address of a store."""

    name = "place"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The place as it was written."""
        if "://" not in value:
            click.Path(file_okay=False).convert(value, param, ctx)
        return value


_out = click.option(
    "--out",
    type=_OutPlace(),
    metavar="DIR|s3://BUCKET/PREFIX",
    help="Default: out/<catalog name>.",
)
_endpoint = click.option(
    "--endpoint-url", metavar="URL", help="Of a server other than Amazon's that speaks S3."
)
_unconditional = click.option(
    "--unconditional-writes",
    is_flag=True,
    help="Write to a server that ignores conditions; two jobs would not notice each other.",
)


@main.command()
@_catalog
@_out
@click.option("--workers", type=click.IntRange(1, 4096), help="Actors. Default: one a core or GPU.")
@click.option(
    "--slots",
    type=click.IntRange(1, 1024),
    default=_DEFAULT_SLOTS,
    show_default=True,
    help="Windows that decode together in each worker.",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@_only
@_all
@click.option("--address", metavar="ADDR", help="A Ray cluster; default: one on this machine.")
@click.option(
    "--max-failures",
    type=click.IntRange(0),
    metavar="N",
    help="Stop when more than N renders of this run have failed.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first render that fails.")
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="Use workers of several execution identities, each voice on one of them.",
)
@_endpoint
@_unconditional
@_json
@_refusals
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
    from jobs.progress import TerminalLine, progress_for
    from jobs.render import RenderOptions, first_failures, run_render

    on_gpu = device == "cuda" or (device == "auto" and _has_gpu())
    options = RenderOptions(
        catalog=catalog,
        out=out,
        workers=workers or (1 if on_gpu else os.cpu_count() or 1),
        slots=slots,
        execution=ExecutionConfig(device="cuda" if on_gpu else "cpu"),
        only=only,
        everything=everything,
        address=address or os.environ.get("RAY_ADDRESS"),
        endpoint_url=endpoint_url,
        unconditional_writes=unconditional_writes,
        max_failures=0 if fail_fast else max_failures,
        allow_mixed=allow_mixed,
    )
    progress = progress_for(as_json=as_json)
    if isinstance(progress, TerminalLine):
        with progress:
            result = run_render(options, progress)
    else:
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
    if result.interrupted:
        click.echo("interrupted; the same command goes on from here", err=True)
        return INTERRUPTED
    if result.stopped:
        left = counts.planned - counts.settled
        click.echo(f"stopped: {result.stopped}; {left} renders are left", err=True)
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


def _has_gpu() -> bool:
    """Whether this machine has an NVIDIA device, without importing torch."""
    return Path("/proc/driver/nvidia/version").exists()


@main.command()
@_catalog
@_out
@_only
@_all
@_endpoint
@click.option("--summary", is_flag=True, help="The totals alone, without a line a render.")
@_json
@_refusals
def plan(
    catalog: Path,
    out: str | None,
    only: str | None,
    everything: bool,
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


def _plan_line(row: dict[str, Any]) -> str:
    told = f"{row['render']}: {row['reason']}, "
    if row["error"]:
        return told + f"cannot be spoken: {row['error']}"
    return told + f"{_counted(row['chunks'], 'chunk')}, about {row['audio_s']} s"


def _counted(count: float, noun: str) -> str:
    return f"{count:.0f} {noun}" if count == 1 else f"{count:.0f} {noun}s"


def _duration(seconds: float) -> str:
    """In the unit that a person would choose."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


@main.command()
@click.argument("place", type=_OutPlace(), metavar="DIR|s3://BUCKET/PREFIX")
@_endpoint
@_json
@_refusals
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
        f"{found['windows']} windows in {found['segments']} segments, "
        f"last commit {found['last_commit_at']}"
    )
    for render_key, why in found["failures"].items():
        click.echo(f"failed {render_key}: {why['code']}: {why['message']}")
    return DONE


@main.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--canonical", is_flag=True, help="The exact string that is hashed, too.")
@_refusals
def fingerprint(manifest: Path, canonical: bool) -> int:
    """Print the algorithm fingerprint of a MANIFEST, a pack folder or a bundled pack."""
    from engine.manifest import algorithm_from, read_manifest
    from engine.pack import MANIFEST, bundled_packs, open_pack

    if manifest.is_dir():
        manifest = manifest / MANIFEST
    elif str(manifest) in bundled_packs():
        manifest = open_pack(str(manifest)).root / MANIFEST
    algorithm = algorithm_from(read_manifest(manifest))
    click.echo(algorithm.fingerprint())
    if canonical:
        click.echo(algorithm.canonical_form())
    return DONE


@main.group()
def pack() -> None:
    """Look at packs, check them, make new ones and seal them."""


@pack.command()
@click.argument("reference", metavar="PACK")
@_json
@_refusals
def inspect(reference: str, as_json: bool) -> int:
    """Say what PACK (a bundled name or a folder) is."""
    from engine.dialogue import SpeaksDialogue
    from engine.pack import open_pack, verify_pack

    found = open_pack(reference)
    verify_pack(found)
    facts: dict[str, Any] = {
        "name": found.manifest.name,
        "sha256": found.sha256,
        "folder": str(found.root),
        "description": found.manifest.description,
        "algorithm_fingerprint": found.algorithm.fingerprint(),
        "token_contract": found.manifest.token_contract.model_dump(),
        "languages": found.manifest.languages,
        "speakers": list(found.text_side.speakers),
        "dialogue": isinstance(found.text_side, SpeaksDialogue),
        "supported_tags": found.manifest.supported_tags,
        "encoder": found.manifest.weights.encoder,
        "checkpoint_sha256": found.checkpoint_sha256,
        "codec_sha256": found.codec_sha256,
        "sample_rate_hz": found.algorithm.sample_rate,
        "licence": found.manifest.licence,
        "provenance": found.manifest.provenance,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return DONE
    unlisted = {"speakers": "any name", "supported_tags": "none"}
    for key, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        shown = unlisted.get(key, "none") if value == [] else shown
        shown = ("no", "yes")[value] if isinstance(value, bool) else shown
        if isinstance(shown, dict):
            shown = "; ".join(f"{name}: {text}" for name, text in shown.items())
        click.echo(one_line(f"{key}: {shown}"))
    return DONE


@pack.command()
@click.argument("reference", metavar="PACK")
@_refusals
def verify(reference: str) -> int:
    """Hash every file of PACK against its manifest."""
    from engine.pack import open_pack, verify_pack

    found = open_pack(reference)
    verify_pack(found)
    found.text_side.contract.require(found.manifest.token_contract.fingerprint, str(found.root))
    click.echo(
        f"{found.manifest.name}: {len(found.manifest.files)} files are as sealed, "
        f"sha256 {found.sha256}"
    )
    return DONE


_folder = click.Path(path_type=Path)


@pack.command("import")
@click.option("--model", type=_folder, required=True, help="Llama: config.json and weights.")
@click.option("--codec", type=_folder, required=True, help="SNAC: config.json and weights.")
@click.option("--tokenizer", type=_folder, help="Default: the model's folder.")
@click.option("--out", type=_folder, required=True, help="A new folder.")
@click.option("--contract", help="What the ids mean. Default: the one that the tokenizer fits.")
@click.option("--name", help="Default: the name of the OUT folder.")
@click.option(
    "--language", "languages", multiple=True, default=("en",), show_default=True, help="Repeatable."
)
@click.option("--speaker", "speakers", multiple=True, help="A trained speaker's name; repeatable.")
@click.option("--licence", "--license", required=True, help="What the weights may be used under.")
@click.option("--source", required=True, help="Where the weights are from.")
@click.option(
    "--decode-only", is_flag=True, help="Leave out the codec's encoder, where it was never trained."
)
@click.option("--verbatim", is_flag=True, help="Speak text as it stands, without the text funnel.")
@_json
@_refusals
def import_(
    model: Path,
    codec: Path,
    tokenizer: Path | None,
    out: Path,
    contract: str | None,
    name: str | None,
    languages: tuple[str, ...],
    speakers: tuple[str, ...],
    licence: str,
    source: str,
    decode_only: bool,
    verbatim: bool,
    as_json: bool,
) -> int:
    """Make a pack of a Hugging Face Llama folder and a SNAC folder. Fetches nothing."""
    from engine.importing import import_pack
    from engine.importing_manifest import PackLabel

    label = PackLabel(
        name=name or out.absolute().name.lower(),
        languages=languages,
        licence=licence,
        source=source,
        text_recipe="verbatim" if verbatim else "funnel",
    )
    digest = import_pack(
        model,
        codec,
        out=out,
        label=label,
        tokenizer=tokenizer,
        contract=contract,
        speakers=speakers,
        decode_only=decode_only,
    )
    click.echo(json.dumps({"out": str(out), "sha256": digest}) if as_json else digest)
    if not as_json:
        click.echo(
            f"{out}: detectors only report until their numbers are measured: "
            f"python -m tests.benchmarks.measure_pack {out}",
            err=True,
        )
    return DONE


@pack.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_refusals
def seal(folder: Path) -> int:
    """Write sizes and sha256 of the files that FOLDER/manifest.json lists into it."""
    from engine.pack import seal_pack

    click.echo(seal_pack(folder))
    return DONE


@main.group()
def contract() -> None:
    """Say what the token ids of a pack mean, and whether a file's ids mean the same."""


@contract.command("show")
@click.argument("reference", metavar="PACK")
@_json
@_refusals
def show_contract(reference: str, as_json: bool) -> int:
    """Name, fingerprint, bands and specials of PACK's token contract."""
    from jobs.contracts import contract_of_pack, describe, describe_lines

    found = contract_of_pack(reference).contract
    lines = [json.dumps(describe(found))] if as_json else describe_lines(found)
    click.echo("\n".join(lines))
    return DONE


@contract.command("check")
@click.argument("parquet", type=click.Path(path_type=Path))
@click.argument("reference", metavar="PACK")
@_refusals
def check_contract(parquet: Path, reference: str) -> int:
    """Hold token PARQUET (a part, or a folder of them) against PACK: contract and every id."""
    from jobs.contracts import check_tokens

    found = check_tokens(parquet, reference)
    click.echo(
        f"{parquet}: {found.rows} windows with {found.tokens} ids in {found.parts} parts, "
        "all under the contract of the pack and in its bands"
    )
    return DONE


if __name__ == "__main__":
    main()
