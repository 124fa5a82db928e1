"""A catalog on disk, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.cli import main

HEAD = "catalog: small\npack: starter\ndefaults: {seed: 7, language: en, format: flac}\n"
VOICES = "voices:\n  - {name: ann, speaker: slt}\n  - {name: bob, speaker: rms}\n"
PASSAGES = "passages:\n  - {id: one, text: Good morning.}\n  - {id: two, text: Nobody answered.}\n"


@dataclass(frozen=True)
class Outcome:
    """What a command said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def last_json(self) -> dict[str, Any]:
        """The last line of stdout, parsed."""
        parsed: dict[str, Any] = json.loads(self.stdout.strip().splitlines()[-1])
        return parsed


@pytest.fixture
def loudkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """`loudkit-batch` with these arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


def write_catalog(
    folder: Path,
    *,
    head: str = HEAD,
    voices: str = VOICES,
    passages: str = PASSAGES,
    more: str = "",
) -> Path:
    """A catalog.yaml in `folder`."""
    path = folder / "catalog.yaml"
    path.write_text(head + voices + passages + more, encoding="utf-8")
    return path
