"""A folder in which the placeholders of the files are real, to run their commands in."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

from jobs.cli import main
from tests.infra import commands as found_in
from tests.infra.commands import Command
from tests.infra.files import KUBERAY

COMMANDS = found_in.commands()
OURS = [command for command in COMMANDS if command.program == found_in.TOOL]
OF_RAY = [command for command in COMMANDS if command.program == "ray"]


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
        return self.invoke(*arguments)

    def invoke(self, *arguments: str) -> str:
        """What the command line says to these arguments. Fails if it does not end with 0."""
        with chdir(self.folder):
            result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, f"{arguments}: {result.output}"
        return result.output
