"""The rooms' law: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("engine", "catalog", "workers", "jobs")
ALLOWED = {
    "engine": {"engine"},
    "catalog": {"catalog"},
    "workers": {"workers", "engine", "catalog"},
    "jobs": {"jobs", "workers", "engine", "catalog"},
}
FORBIDDEN = {"engine": {"ray", "boto3"}, "catalog": {"ray", "torch"}}


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            yield node.lineno, (node.module or "").split(".")[0]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in files
        for line, name in _imports(path)
        if (name in ROOMS and name not in ALLOWED[room])
        or name == "tests"
        or name in FORBIDDEN.get(room, set())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    ["engine.passage", "engine.detectors", "engine.chunking", "engine.philox"],
)
def test_the_law_is_pure(module: str) -> None:
    path = ROOT / (module.replace(".", "/") + ".py")
    impure = {"torch", "time", "random", "os", "pathlib", "datetime", "socket", "subprocess"}
    assert [name for _, name in _imports(path) if name in impure] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["render", "--help"],
        ["plan", "no-such.yaml"],
        ["render", "no-such.yaml"],
        ["fingerprint", "no-such.json"],
        ["pack", "inspect", "no-such-pack"],
    ],
)
def test_refusals_and_help_need_neither_torch_nor_ray(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from jobs.cli import main\n"
        f"sys.argv = ['loudkit-batch', *{arguments!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'torch', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
