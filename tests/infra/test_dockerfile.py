"""The image, as far as it can be read without building it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable

import pytest

from tests.infra import rules
from tests.infra.commands import dockerfile
from tests.infra.files import INFRA, ROOT, kubernetes_objects

TEXT = (INFRA / "Dockerfile").read_text(encoding="utf-8")
PINNED = re.compile(r"[\w./-]+:[\w.-]*\d+\.\d+\.\d+[\w.-]*(?:@sha256:[0-9a-f]{64})?")
COPIED_TOP_LEVEL = {"engine", "catalog", "workers", "jobs"}


def arguments_of(text: str, instruction: str) -> list[str]:
    """The arguments of every instruction of a kind."""
    return [arguments for name, arguments in dockerfile(text) if name == instruction]


def problems(text: str) -> list[str]:
    """What is wrong with a Dockerfile."""
    return [problem for check in CHECKS for problem in check(text)]


def pinned_bases(text: str) -> list[str]:
    """Every stage starts from an exact version, or from another stage."""
    defaults = dict(each.split("=", 1) for each in arguments_of(text, "ARG") if "=" in each)
    stages: set[str] = set()
    found = []
    for line in arguments_of(text, "FROM"):
        base, *rest = line.split()
        base = re.sub(r"\$\{(\w+)\}", lambda name: defaults.get(name[1], ""), base)
        if base not in stages and not PINNED.fullmatch(base):
            found.append(f"FROM {base or line} is not pinned")
        stages |= set(rest[1:])
    for base in re.findall(r"--build-arg BASE=(\S+)", text):
        if not PINNED.fullmatch(base):
            found.append(f"the base {base} is not pinned")
    return found


def last_user(text: str) -> list[str]:
    """The last stage ends as somebody, by number: Kubernetes knows no names."""
    last_stage = text[text.rindex("\nFROM ") :]
    users = arguments_of(last_stage, "USER")
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        return [f"ends as {users[-1:] or 'root'}"]
    return []


def sources_exist(text: str) -> list[str]:
    """What is copied is in the repository, and let through to the build."""
    ignored = (INFRA / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    found = []
    for line in arguments_of(text, "COPY"):
        words = shlex.split(line)
        if words[0].startswith("--from="):
            continue
        for source in words[:-1]:
            if not (ROOT / source).exists():
                found.append(f"COPY {source}: not in the repository")
            if f"!{source}" not in ignored:
                found.append(f"COPY {source}: left out by Dockerfile.dockerignore")
    return found


def constrained(text: str) -> list[str]:
    """Every install is held to the versions of constraints.txt, and of Ray."""
    found = []
    for line in arguments_of(text, "RUN"):
        for command in re.findall(r"pip install [^&]*", line):
            names = re.findall(r"--constraint (\S+)", command)
            if not names or not all((ROOT / name).is_file() for name in names):
                found.append(f"unconstrained: {command}")
    if "torch==" not in (ROOT / "constraints.txt").read_text(encoding="utf-8"):
        found.append("constraints.txt does not pin torch")
    return found


def known_entrypoint(text: str) -> list[str]:
    """What it starts is one of the project's scripts."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [entrypoint] = [json.loads(each) for each in arguments_of(text, "ENTRYPOINT")] or [[""]]
    if entrypoint[0] not in scripts["scripts"]:
        return [f"ENTRYPOINT {entrypoint}: no script of the project"]
    return []


def every_room(text: str) -> list[str]:
    """All packages of the project are in the image."""
    copied = {word for line in arguments_of(text, "COPY") for word in line.split()[:-1]}
    return [f"{name} is not copied" for name in sorted(COPIED_TOP_LEVEL - copied)]


def fetches_nothing_else(text: str) -> list[str]:
    """No model, no script from the net, no archive that ADD would unpack."""
    found = arguments_of(text, "ADD")
    runs = " ".join(arguments_of(text, "RUN"))
    found += re.findall(r"\b(?:curl|git clone|huggingface-cli|hf download|wget -)\b", runs)
    return [f"fetches: {each}" for each in found]


def environment(text: str) -> list[str]:
    """UTC, no usage report, one thread a process."""
    last_stage = text[text.rindex("\nFROM ") :]
    values = {
        name: value
        for line in arguments_of(last_stage, "ENV")
        for name, _, value in (word.partition("=") for word in shlex.split(line))
    }
    wanted = {"TZ": "UTC", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    return [f"{name} is not {value}" for name, value in wanted.items() if values.get(name) != value]


CHECKS: tuple[Callable[[str], list[str]], ...] = (
    pinned_bases,
    last_user,
    sources_exist,
    constrained,
    known_entrypoint,
    every_room,
    fetches_nothing_else,
    environment,
)


def test_the_dockerfile_has_no_problems() -> None:
    assert problems(TEXT) == []


def test_it_has_a_base_for_cpus_and_one_for_gpus() -> None:
    [default] = [each for each in arguments_of(TEXT, "ARG") if each.startswith("BASE=")]
    assert default.startswith("BASE=python:3.")
    assert re.search(r"--build-arg BASE=nvidia/cuda:", TEXT)
    readme = (INFRA / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"BASE=nvidia/\S+", readme)) == set(re.findall(r"BASE=nvidia/\S+", TEXT))


def test_ray_is_the_version_of_the_manifests() -> None:
    [version] = {each for each in arguments_of(TEXT, "ARG") if each.startswith("RAY_VERSION=")}
    wanted = {
        spec["rayClusterSpec"]["rayVersion"] for _, spec in rules.rayjob_specs(kubernetes_objects())
    }
    assert wanted == {version.partition("=")[2]}


def test_the_user_of_the_manifests_is_that_of_the_image() -> None:
    uid, _, gid = arguments_of(TEXT, "USER")[-1].partition(":")
    for where, template in rules.pod_templates(kubernetes_objects()):
        security = template["spec"]["securityContext"]
        assert (str(security["runAsUser"]), str(security["runAsGroup"])) == (uid, gid), where


def test_every_package_of_the_project_is_built() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["setuptools"]["packages"]
    assert {name.partition(".")[0] for name in packages} == COPIED_TOP_LEVEL


def test_a_login_shell_finds_the_commands() -> None:
    assert "/opt/venv/bin:$PATH' > /etc/profile.d/" in TEXT


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ARG BASE=python:3.11.14-slim-bookworm", "ARG BASE=python:latest", "not pinned"),
        ("ARG BASE=python:3.11.14-slim-bookworm", "ARG BASE", "not pinned"),
        ("cuda:12.8.1-base-ubuntu24.04", "cuda:latest", "not pinned"),
        ("FROM base AS build", "FROM ubuntu AS build", "not pinned"),
        ("USER 1000:1000", "USER root", "ends as"),
        ("USER 1000:1000", "USER 0:0", "ends as"),
        ("USER 1000:1000", "", "ends as"),
        ("COPY jobs ./jobs", "COPY job ./jobs", "not in the repository"),
        ("COPY jobs ./jobs", "", "jobs is not copied"),
        ("COPY jobs ./jobs", "COPY tests ./tests", "left out"),
        ("--constraint constraints.txt \\\n", "\\\n", "unconstrained"),
        ("--constraint constraints.txt", "--constraint versions.txt", "unconstrained"),
        ('ENTRYPOINT ["loudkit-batch"]', 'ENTRYPOINT ["loudkit"]', "no script"),
        ("TZ=UTC", "TZ=CET", "TZ is not UTC"),
        ("RAY_USAGE_STATS_ENABLED=0", "RAY_USAGE_STATS_ENABLED=1", "is not 0"),
        ("WORKDIR /work", "ADD model.tar /work", "fetches"),
        ("WORKDIR /src", "RUN curl -O model", "fetches"),
    ],
)
def test_a_broken_dockerfile_is_found(old: str, new: str, said: str) -> None:
    assert old in TEXT
    assert any(said in problem for problem in problems(TEXT.replace(old, new)))
