"""The commands that the files of the room hold, found where each kind of file keeps them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tests.infra.files import INFRA, KUBERAY, Document, kustomization, read_yaml, settings

TOOL = "loudkit-batch"
IMAGE = re.compile(r"(?:[\w.-]+/)*loudkit-batch:[\w.-]+")
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


@dataclass(frozen=True)
class Command:
    """One command line, without the program's name."""

    program: str
    arguments: tuple[str, ...]
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {shlex.join([self.program, *self.arguments])}"


class UnknownCommandError(ValueError):
    """A line that mentions the tool in a way that is not looked into."""


def commands() -> list[Command]:
    """Every `loudkit-batch` and `ray` command of the room."""
    return [
        *_of_rayjobs(),
        *_of_the_service(),
        *_of_the_workflow(),
        *_of_the_dockerfile(),
        *_of_the_cluster_file(),
        *_of_text(INFRA / "README.md"),
        *_of_text(INFRA / "ray-cluster-aws.yaml"),
    ]


def expanded(words: list[str], variables: dict[str, str]) -> list[str]:
    """Words with their variables put in; an unknown one is an error, as it is under `set -u`."""

    def value(found: re.Match[str]) -> str:
        return variables[found[1] or found[2]]

    return [_VARIABLE.sub(value, word) for word in words]


def _command(words: list[str], where: str) -> Command:
    program = Path(words[0]).name
    if program not in {TOOL, "ray"}:
        raise UnknownCommandError(f"{where}: {shlex.join(words)}")
    return Command(program, tuple(words[1:]), where)


def _of_rayjobs() -> Iterator[Command]:
    variables = settings(kustomization())
    for name in ("rayjob.yaml", "raycronjob-alpha.yaml"):
        [document] = read_yaml(KUBERAY / name)
        spec = document["spec"].get("jobTemplate", document["spec"])
        yield _command(expanded(shlex.split(spec["entrypoint"]), variables), name)


def unit(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The sections of a systemd unit; keys may come several times."""
    sections: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            current.append((key, value))
    return sections


def _of_the_service() -> Iterator[Command]:
    path = INFRA / "systemd" / "loudkit-rebuild.service"
    service = unit(path)["Service"]
    variables = dict(
        assignment.split("=", 1)
        for key, value in service
        if key == "Environment"
        for assignment in shlex.split(value)
    )
    for key, value in service:
        if key == "ExecStart":
            yield _command(expanded(shlex.split(value), variables), path.name)


def _of_the_workflow() -> Iterator[Command]:
    path = INFRA / "github-actions" / "rebuild.yml"
    [workflow] = read_yaml(path)
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                if line.startswith(TOOL):
                    yield _command(expanded(shlex.split(line), job["env"]), path.name)


def dockerfile(text: str) -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = []
    for line in joined.splitlines():
        if line.strip():
            instruction, _, arguments = line.strip().partition(" ")
            found.append((instruction.upper(), arguments.strip()))
    return found


def _of_the_dockerfile() -> Iterator[Command]:
    instructions = dockerfile((INFRA / "Dockerfile").read_text(encoding="utf-8"))
    words = [
        word
        for name in ("ENTRYPOINT", "CMD")
        for instruction, arguments in instructions
        if instruction == name
        for word in json.loads(arguments)
    ]
    yield _command(words, "Dockerfile")


def _of_the_cluster_file() -> Iterator[Command]:
    path = INFRA / "ray-cluster-aws.yaml"
    [cluster] = read_yaml(path)
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        for line in cluster[key]:
            for part in line.split(";"):
                words = shlex.split(part.replace("$RAY_HEAD_IP", "127.0.0.1"))
                if words[0] != "ulimit":
                    yield _command(words, f"{path.name} {key}")


def _of_text(path: Path) -> Iterator[Command]:
    """Of indented code in prose, or of the comments of a file."""
    begun, continued = 0, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        begun = begun if continued else number
        if line.endswith("\\"):
            continued += line[:-1] if not continued else line[:-1].strip() + " "
            continue
        whole, continued = continued + (line.strip() if continued else line), ""
        code = re.match(r"(?:#   | {4,})(\S.*)", whole)
        if code is None or "  " in code[1].split("#")[0].strip():
            continue  # prose, or a table
        yield from _of_line(code[1], f"{path.name}:{begun}")


def _of_line(line: str, where: str) -> Iterator[Command]:
    if not re.match(rf"(?:{TOOL}|ray|docker run)\s", line):
        if re.search(rf"(?<![\w/.-]){TOOL}\s", line):
            raise UnknownCommandError(f"{where}: {line}")
        return
    words = shlex.split(line, comments=True)
    if words[:2] == ["docker", "run"]:
        [image] = [index for index, word in enumerate(words) if IMAGE.fullmatch(word)]
        yield _command([TOOL, *words[image + 1 :]], where)
        return
    yield _command(words, where)
    if words[:2] == ["ray", "exec"]:
        yield _command(shlex.split(words[-1]), where)


def parsed(root: click.Command, command: Command) -> list[str]:
    """The names of the commands that a command line goes through, as click reads it.

    Raises what click raises. Nothing is run.
    """
    name, arguments, parent = command.program, list(command.arguments), None
    path: list[str] = []
    current: click.Command | None = root
    while current is not None:
        try:
            context = current.make_context(name, arguments, parent=parent)
        except click.exceptions.Exit as exit_:
            if exit_.exit_code != 0:
                raise
            return path  # --help and the like
        if not isinstance(current, click.Group):
            return path
        left = [*context._protected_args, *context.args]
        found, current, arguments = current.resolve_command(context, left)
        name, parent = str(found), context
        path.append(name)
    return path


def first_word(command: Command) -> str:
    """The subcommand."""
    return next((word for word in command.arguments if not word.startswith("-")), "")


def document_of(name: str) -> Document:
    """The only document of a file of the room."""
    [document] = read_yaml(INFRA / name)
    return document
