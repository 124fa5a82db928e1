"""The commands that the files hold, run against the real command line: they cannot rot."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jobs.cli import main
from tests.infra import commands as found_in
from tests.infra.commands import Command, UnknownCommandError
from tests.infra.files import INFRA, KUBERAY

COMMANDS = found_in.commands()
OURS = [command for command in COMMANDS if command.program == found_in.TOOL]
OF_RAY = [command for command in COMMANDS if command.program == "ray"]

NOT_YET = {"rebuild", "publish", "verify"}
"""Commands that the files may use before this build has them."""


def require_command(command: Command) -> None:
    """Skips what this build does not have yet, by its name."""
    name = found_in.first_word(command)
    if name in NOT_YET and name not in main.commands:
        pytest.skip(f"loudkit-batch {name} is not in this build")


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
    names = "|".join(sorted(NOT_YET | set(main.commands)))
    for path in INFRA.rglob("*"):
        if not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_text(encoding="utf-8")
        mentioned = len(re.findall(rf"(?<![\w:]){found_in.TOOL} (?:{names})\b", text))
        counted = sum(command.where.startswith(path.name) for command in OURS)
        assert mentioned <= counted, path.name


@pytest.mark.parametrize("command", OURS, ids=str)
def test_the_real_command_line_takes_it(command: Command) -> None:
    require_command(command)
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


class Place:
    """A folder in which the placeholders of the files are real."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = folder / "catalog.yaml"
        self.work, self.published = folder / "work", folder / "published"
        shutil.copy(KUBERAY / "catalog.yaml", self.catalog)

    def localised(self, command: Command) -> list[str]:
        """The command with this place's names, on one local worker."""
        words: list[str] = []
        arguments = iter(command.arguments)
        for word in arguments:
            if word == "--address":
                next(arguments)
            elif word in {"--workers", "--rerender"}:
                next(arguments)
                words += [word, "1"]
            else:
                words.append(self._word(word))
        return words

    def _word(self, word: str) -> str:
        if word.endswith("catalog.yaml"):
            return str(self.catalog)
        if word.startswith("s3://example-bucket/previews"):
            return str(self.published)
        if word.startswith("s3://example-bucket/work/") or word.endswith("/out"):
            return str(self.work)
        if word.startswith(("/work/", "out/")):
            return str(self.folder / Path(word).name)
        return word

    def run(self, command: Command) -> str:
        """What it says on its output. Fails if it does not end with 0."""
        arguments = self.localised(command)
        # --workers defaults to one a core, and this place is small.
        if arguments[0] in {"render", "rebuild"} and "--workers" not in arguments:
            arguments += ["--workers", "1"]
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, f"{arguments}: {result.output}"
        return result.output


@pytest.fixture(scope="module")
def place(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With the catalog rendered and, where this build can, published, by the files' commands."""
    here = Place(tmp_path_factory.mktemp("place"))
    before = Path.cwd()
    os.chdir(here.folder)
    by_name = {found_in.first_word(command): command for command in OURS}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "RAY_ADDRESS"))]:
            patch.delenv(name)
        here.run(by_name["render"])
        assert (here.work / "audio" / "slt" / "short.flac").is_file()
        if "rebuild" in main.commands:
            here.run(by_name["rebuild"])
        yield here
    os.chdir(before)


@pytest.mark.ray
@pytest.mark.parametrize("command", [each for each in OURS if found_in.first_word(each)], ids=str)
def test_the_command_does_its_work(place: Place, command: Command) -> None:
    require_command(command)
    place.run(command)


@pytest.mark.ray
def test_the_nightly_command_of_a_run_is_done_when_nothing_is_stale(place: Place) -> None:
    [nightly] = [command for command in OURS if command.where == "rayjob.yaml"]
    require_command(nightly)
    before = sorted(path for path in place.published.rglob("*") if path.is_file())
    place.run(nightly)
    assert sorted(path for path in place.published.rglob("*") if path.is_file()) == before
    assert (place.folder / "summary.json").is_file()
