"""The commands that the files hold, run against the real command line: they cannot rot."""

from __future__ import annotations

import re
from collections import Counter

import click
import pytest

from jobs.cli import main
from tests.infra import commands as found_in
from tests.infra.commands import Command, UnknownCommandError
from tests.infra.files import INFRA
from tests.infra.place import OF_RAY, OURS, Place


def test_commands_are_found_in_every_file() -> None:
    files = Counter(command.where.partition(":")[0].split()[0] for command in OURS)
    assert set(files) == {
        "Dockerfile",
        "README.md",
        "loudkit-rebuild.service",
        "ray-cluster-aws.yaml",
        "raycronjob-alpha.yaml",
        "rayjob.yaml",
        "rebuild.yml",
    }
    assert files["README.md"] >= 11
    names = {found_in.first_word(command) for command in OURS}
    assert names == {"", "plan", "publish", "rebuild", "render", "status", "verify"}
    assert len(OF_RAY) >= 12


def test_no_file_mentions_a_command_that_is_not_looked_into() -> None:
    """Every line with `loudkit-batch NAME` of a known name is one of the commands above."""
    names = "|".join(sorted(main.commands))
    for path in INFRA.rglob("*"):
        if not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_text(encoding="utf-8")
        mentioned = len(re.findall(rf"(?<![\w:]){found_in.TOOL} (?:{names})\b", text))
        counted = sum(command.where.startswith(path.name) for command in OURS)
        assert mentioned <= counted, path.name


@pytest.mark.parametrize("command", OURS, ids=str)
def test_the_real_command_line_takes_it(command: Command) -> None:
    name = found_in.first_word(command)
    assert found_in.parsed(main, command) == ([name] if name else [])


@pytest.mark.parametrize("command", OF_RAY, ids=str)
def test_rays_own_command_line_takes_it(command: Command) -> None:
    from ray.scripts.scripts import cli

    assert found_in.parsed(cli, command)


@pytest.mark.parametrize(
    "line",
    [
        "render infra/kuberay/catalog.yaml --worker 4",
        "render infra/kuberay/catalog.yaml --workers four",
        "render infra/kuberay/catalog.yaml --device gpu",
        "render",
        "render one.yaml two.yaml",
        "no-such-command",
        "status out extra",
    ],
)
def test_a_command_that_rots_is_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        found_in.parsed(main, Command(found_in.TOOL, tuple(line.split()), "here"))


def test_a_line_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(UnknownCommandError):
        list(found_in._of_line("sudo loudkit-batch render catalog.yaml", "here"))
    with pytest.raises(KeyError):
        found_in.expanded(["$NOT_SET"], {})


# -- what they do ----------------------------------------------------------------------------------


@pytest.mark.ray
@pytest.mark.parametrize("command", [each for each in OURS if found_in.first_word(each)], ids=str)
def test_the_command_does_its_work(place: Place, command: Command) -> None:
    place.run(command)


@pytest.mark.ray
def test_the_nightly_command_of_a_run_is_done_when_nothing_is_stale(place: Place) -> None:
    [nightly] = [command for command in OURS if command.where == "rayjob.yaml"]
    before = sorted(path for path in place.published.rglob("*") if path.is_file())
    place.run(nightly)
    assert sorted(path for path in place.published.rglob("*") if path.is_file()) == before
    assert (place.folder / "summary.json").is_file()
