"""The commands about published rosters: `rebuild`, `publish`, `verify`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from catalog.errors import one_line
from jobs.cli_options import (
    DEFAULT_SLOTS,
    Place,
    as_json_option,
    catalog_argument,
    endpoint_option,
    only_option,
    placed,
    refusals,
    rendering_options,
    unconditional_option,
)
from jobs.errors import DONE, MISMATCH, SOME_FAILED

if TYPE_CHECKING:
    from catalog.store import Store


class _Days(click.ParamType[float]):
    """A number of days above 0; one that is none or has no end is refused."""

    name = "days"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        days: float = click.FLOAT.convert(value, param, ctx)
        if not 0 < days <= _MOST_DAYS:
            self.fail(f"{value} is not above 0 and at most {_MOST_DAYS:,}", param, ctx)
        return days


_MOST_DAYS = 100_000
_FILE = click.Path(dir_okay=False, path_type=Path)

published_option = click.option(
    "--published",
    type=Place(),
    metavar="DIR|s3://BUCKET/PREFIX",
    required=True,
    help="Where the roster is published, or will be.",
)
execution_option = click.option(
    "--execution",
    default="voice",
    show_default=True,
    metavar="any|voice|DIGEST",
    help="Whether clips of several execution identities may stand side by side: any; not within "
    "a voice; or only those of this DIGEST are current.",
)
rehash_option = click.option(
    "--rehash", is_flag=True, help="Read every published byte; else objects are only looked for."
)
copies_option = click.option(
    "--copies", is_flag=True, help="Put every clip into the release under its own name, too."
)
orphans_option = click.option(
    "--remove-orphans", is_flag=True, help="Take away clips that nobody plans any more."
)


work_option = click.option(
    "--out",
    type=Place(),
    metavar="DIR",
    help="A folder for the work, to go on from. Default: out/<catalog name>.",
)


@click.command()
@catalog_argument
@published_option
@work_option
@only_option
@rendering_options
@execution_option
@rehash_option
@click.option(
    "--partial", is_flag=True, help="Publish although some clips failed; they are named and kept."
)
@orphans_option
@copies_option
@click.option(
    "--summary",
    type=_FILE,
    metavar="FILE",
    help="JSON for schedulers; a run that is refused leaves none, not even the last one.",
)
@click.option("--markdown", type=_FILE, metavar="FILE", help="Likewise, a page for people.")
@endpoint_option
@unconditional_option
@as_json_option
@refusals
def rebuild(
    catalog: Path,
    published: str,
    out: str | None,
    only: str | None,
    workers: int | None,
    slots: int,
    device: str,
    address: str | None,
    max_failures: int | None,
    fail_fast: bool,
    allow_mixed: bool,
    execution: str,
    rehash: bool,
    partial: bool,
    remove_orphans: bool,
    copies: bool,
    summary: Path | None,
    markdown: Path | None,
    endpoint_url: str | None,
    unconditional_writes: bool,
    as_json: bool,
) -> int:
    """Render what is stale in a published roster, and publish it as a new release.

    Nothing is started when nothing is stale. What is rendered lies in OUT, where a rebuild that was
    interrupted goes on. Readers get the old release until the new one is whole.
    """
    from catalog.files import write_atomic
    from engine.execution import ExecutionConfig
    from jobs.progress import progress_for
    from jobs.rebuild import RebuildOptions, run_rebuild
    from jobs.rebuild_summary import headline, summary_json, summary_markdown
    from jobs.render import RenderOptions
    from jobs.roster_plan import StalenessPolicy

    _forget_last_run(summary, markdown)
    kind, count = placed(device, workers)
    options = RebuildOptions(
        RenderOptions(
            catalog=catalog,
            out=out,
            workers=count,
            slots=slots,
            execution=ExecutionConfig(device=kind),
            address=address,
            endpoint_url=endpoint_url,
            unconditional_writes=unconditional_writes,
            max_failures=0 if fail_fast else max_failures,
            allow_mixed=allow_mixed,
        ),
        published,
        StalenessPolicy(execution=execution, rehash=rehash, only=only),
        partial=partial,
        remove_orphans=remove_orphans,
        copies=copies,
    )
    with progress_for(as_json=as_json) as progress:
        result = run_rebuild(options, progress)
    told = summary_json(options, result)
    for path, text in ((summary, json.dumps(told, indent=1)), (markdown, summary_markdown(told))):
        if path is not None:
            write_atomic(path, text.encode())
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo(headline(told))
        for each in told["failed"][:20]:
            told_failure = f"failed {each['render']}: {each['code']}: {each['message']}"
            click.echo(one_line(told_failure), err=True)
        for key, why in list(told["not_renewed"].items())[:20]:
            click.echo(one_line(f"not renewed {key}: {why}"), err=True)
    return result.exit_code


def _forget_last_run(*written: Path | None) -> None:
    """Take away what the last run told: nobody is to read it as the outcome of one that is refused
    or killed."""
    for path in written:
        try:
            if path is not None:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise click.UsageError(f"{path}: cannot be replaced: {error.strerror}") from None


@click.command()
@click.argument("places", nargs=-1, required=True, type=Place(), metavar="[DIR] URI")
@copies_option
@orphans_option
@click.option("--rollback", metavar="ID", help="Point readers of URI to an older release.")
@click.option("--gc", is_flag=True, help="Tell which old releases and objects of URI may go.")
@click.option(
    "--older-than",
    type=_Days(),
    metavar="DAYS",
    help="Of --gc: keep what readers may have got within so many days.",
)
@click.option("--yes", is_flag=True, help="Of --gc: take it away.")
@endpoint_option
@unconditional_option
@as_json_option
@refusals
def publish(
    places: tuple[str, ...],
    copies: bool,
    remove_orphans: bool,
    rollback: str | None,
    gc: bool,
    older_than: float | None,
    yes: bool,
    endpoint_url: str | None,
    unconditional_writes: bool,
    as_json: bool,
) -> int:
    """Publish what render left in DIR as a new release at URI; or look after the releases there.

    Objects first, read back; the release next; last the pointer, if nobody else moved it.
    """
    from catalog.store import open_store

    _require_publish_usage(places, rollback, gc, older_than, yes)
    store = open_store(places[-1], endpoint_url=endpoint_url, unconditional=unconditional_writes)
    if rollback is not None:
        from catalog.releases import roll_back

        pointer = roll_back(store, rollback, now=datetime.now(UTC))
        told = {"event": "rollback", "published": store.address, "release": pointer.release}
        click.echo(
            json.dumps(told)
            if as_json
            else f"{store.address}: readers get release {pointer.release}, until the next rebuild "
            "publishes what its catalog says"
        )
        return DONE
    if older_than is not None:
        return _collect(store, older_than, yes, as_json)
    from catalog.publish import Publisher
    from catalog.publish_folder import (
        FolderChoice,
        facts_of_voices,
        newest_algorithm,
        open_source,
    )

    folder = Path(places[0])
    source = open_source(folder)
    choose = FolderChoice(store, source, remove_orphans, facts_of_voices(source.records))
    publisher = Publisher(
        store,
        source,
        catalog=folder.resolve().name,
        algorithm_fingerprint=newest_algorithm(source.records),
        copies=copies,
    )
    done = publisher.publish(choose)
    fresh, removed = sorted(done.choice.fresh), sorted(done.choice.removed)
    if as_json:
        told_done = {
            "event": "publish",
            "published": store.address,
            "release": done.release.id,
            "is_new_release": done.is_new,
            "clips": done.release.clips,
            "recorded_anew": fresh,
            "removed": removed,
            "races_lost": done.races_lost,
        }
        click.echo(json.dumps(told_done))
    elif done.is_new:
        click.echo(
            f"{store.address}: published release {done.release.id} with {done.release.clips} "
            f"clips, {len(fresh)} of them new, {len(removed)} removed"
        )
    else:
        click.echo(f"{store.address}: nothing to publish, release {done.release.id} says it all")
    return DONE


def _require_publish_usage(
    places: tuple[str, ...], rollback: str | None, gc: bool, older_than: float | None, yes: bool
) -> None:
    asked = [name for name, given in (("--rollback", rollback), ("--gc", gc)) if given]
    if len(asked) > 1:
        raise click.UsageError("--rollback and --gc are two different things; give one of them")
    expected = 1 if asked else 2
    if len(places) != expected:
        form = f"publish URI {asked[0]}" if asked else "publish DIR URI"
        raise click.UsageError(f"expected {form}, got {len(places)} places")
    if not asked:
        _require_folder_first(places[0])
    if gc != (older_than is not None):
        raise click.UsageError("--gc and --older-than DAYS go together")
    if yes and not gc:
        raise click.UsageError("--yes belongs to --gc")


def _require_folder_first(source: str) -> None:
    if "://" in source:
        raise click.UsageError(f"{source}: give the folder that render left first, then the URI")
    folder = Path(source)
    if (folder / "current.json").is_file() and not (folder / "catalog.json").is_file():
        raise click.UsageError(
            f"{source}: is a published roster; give the folder that render left first, then the URI"
        )


def _collect(store: Store, older_than_days: float, yes: bool, as_json: bool) -> int:
    from catalog.collect import Collector

    collector = Collector(store, timedelta(days=older_than_days))
    found = collector.collect() if yes else collector.find()
    if as_json:
        told = {
            "event": "gc",
            "published": store.address,
            "removed": yes,
            "releases": found.releases,
            "kept_releases": found.kept_releases,
            "objects": found.objects,
            "size_bytes": found.size_bytes,
        }
        click.echo(json.dumps(told))
        return DONE
    for release in found.releases:
        click.echo(one_line(f"release {release}"))
    for key in found.objects:
        click.echo(one_line(key))
    what = "removed" if yes else "could be removed, with --yes"
    click.echo(
        f"{store.address}: {len(found.releases)} releases and {len(found.objects)} objects, "
        f"{found.size_bytes / 1e6:.1f} MB, {what}; {len(found.kept_releases)} releases are kept"
    )
    return DONE


@click.command()
@click.argument("place", type=Place(), metavar="DIR|s3://BUCKET/PREFIX")
@click.option(
    "--rerender",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Render N of the clips again, and compare.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Another seed, other clips of --rerender.",
)
@click.option(
    "--pack",
    "packs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A folder with a pack that clips were rendered with; repeatable. Bundled ones are known.",
)
@click.option(
    "--address",
    metavar="ADDR",
    envvar="RAY_ADDRESS",
    help="Of --rerender: a Ray cluster; default: one on this machine.",
)
@endpoint_option
@as_json_option
@refusals
def verify(
    place: str,
    rerender: int,
    seed: int,
    packs: tuple[Path, ...],
    address: str | None,
    endpoint_url: str | None,
    as_json: bool,
) -> int:
    """Hash everything in PLACE against its records; --rerender compares bits as well.

    Exit code 3 when something is not as recorded, 4 when a clip that was rendered again is another
    one under the same execution identity.
    """
    from catalog.roster import records_by_key
    from jobs.roster_plan import open_for_reading
    from jobs.verify import verify_store

    store = open_for_reading(place, endpoint_url=endpoint_url)
    folder = None if "://" in place else Path(place)
    found, roster = verify_store(store, folder=folder)
    if not found.clips:
        raise click.UsageError(f"{place}: there are no records; give what render left, or a roster")
    again = []
    if rerender:
        from jobs.rerender import choose_clips
        from jobs.rerender import rerender as render_again

        records = records_by_key(roster.records)
        chosen = choose_clips(records, rerender, seed=seed)
        again = render_again(
            {key: records[key] for key in chosen},
            packs=packs,
            address=address,
            slots=DEFAULT_SLOTS,
        )
    if as_json:
        rerendered = [
            {"render": each.key, "outcome": str(each.outcome), "told": each.told} for each in again
        ]
        click.echo(json.dumps({**found.as_json(), "rerendered": rerendered}))
    else:
        for finding in found.findings:
            click.echo(one_line(f"{finding.where}: {finding.code}: {finding.told}"))
        for note in found.notes:
            click.echo(one_line(f"note: {note}"))
        for each in again:
            click.echo(one_line(f"{each.key}: {each.outcome}: {each.told}"))
        what = f"release {found.release}, " if found.release else ""
        count = len(found.findings)
        ended = f"{count} finding{'s' if count > 1 else ''}" if count else "all as recorded"
        click.echo(f"{found.place}: {what}{found.clips} clips, {ended}")
        if any(finding.code.startswith("audio_") for finding in found.findings):
            cure = "rebuild --rehash" if found.release else "render --all --only VOICE/PASSAGE"
            click.echo(f"audio that is not as recorded is made again by {cure}", err=True)
    if any(each.outcome == "different" for each in again):
        return MISMATCH
    return SOME_FAILED if found.findings else DONE
