"""What the commands share: their options, and how a refusal becomes a line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Literal, NoReturn, ParamSpec, TypeVar

import click

from catalog.errors import CatalogError, one_line
from engine.errors import EngineError
from jobs.errors import INTERRUPTED, CatalogRefusedError, JobError, exit_code_for
from workers.errors import WorkerError

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., object])

DEFAULT_SLOTS = 32
"""Measured (tests/benchmarks/README.md): a tenth to a sixth more tokens a second than 16 slots."""


def refusals(command: Callable[P, int]) -> Callable[P, NoReturn]:
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
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read has had enough; click ends without a word
            # What no room foresaw, such as a full disk under what is told.
            click.echo(one_line(f"system_error: {error}"), err=True)
            sys.exit(exit_code_for("system_error"))
        except KeyboardInterrupt:
            click.echo("interrupted; the same command goes on from here", err=True)
            sys.exit(INTERRUPTED)

    return run


class Place(click.ParamType[str]):
    """A folder, which may not be a file, or the address of a store."""

    name = "place"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The place as it was written."""
        if "://" not in value:
            click.Path(file_okay=False).convert(value, param, ctx)
        return value


catalog_argument = click.argument("catalog", type=click.Path(path_type=Path))
as_json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
only_option = click.option("--only", metavar="VOICE/PASSAGE", help="Globs: */alice, slt/*.")
all_option = click.option("--all", "everything", is_flag=True, help="Current renders as well.")
out_option = click.option(
    "--out",
    type=Place(),
    metavar="DIR|s3://BUCKET/PREFIX",
    help="Default: out/<catalog name>.",
)
endpoint_option = click.option(
    "--endpoint-url", metavar="URL", help="Of a server other than Amazon's that speaks S3."
)
unconditional_option = click.option(
    "--unconditional-writes",
    is_flag=True,
    help="Write to a server that ignores conditions; two jobs would not notice each other.",
)

_RENDERING = (
    click.option(
        "--workers", type=click.IntRange(1, 4096), help="Actors. Default: one a core or GPU."
    ),
    click.option(
        "--slots",
        type=click.IntRange(1, 1024),
        default=DEFAULT_SLOTS,
        show_default=True,
        help="Windows that decode together in each worker.",
    ),
    click.option(
        "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
    ),
    click.option(
        "--address",
        metavar="ADDR",
        envvar="RAY_ADDRESS",
        help="A Ray cluster; default: one on this machine.",
    ),
    click.option(
        "--max-failures",
        type=click.IntRange(0),
        metavar="N",
        help="Stop when more than N renders of this run have failed.",
    ),
    click.option("--fail-fast", is_flag=True, help="Stop at the first render that fails."),
    click.option(
        "--allow-mixed",
        is_flag=True,
        help="Use workers of several execution identities, each voice on one of them.",
    ),
)


def rendering_options(command: F) -> F:
    """The options of every command that renders."""
    for option in reversed(_RENDERING):
        command = option(command)
    return command


def placed(device: str, workers: int | None) -> tuple[Literal["cpu", "cuda"], int]:
    """The device that is meant, and how many workers it is for."""
    on_gpu = device == "cuda" or (device == "auto" and _has_gpu())
    return ("cuda", workers or 1) if on_gpu else ("cpu", workers or os.cpu_count() or 1)


def _has_gpu() -> bool:
    """Whether this machine has an NVIDIA device, without importing torch."""
    return Path("/proc/driver/nvidia/version").exists()
