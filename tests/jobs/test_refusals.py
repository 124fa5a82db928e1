"""Bad catalogs and bad packs: one line, the documented exit code, nothing written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import engine.pack
from tests.jobs.conftest import HEAD, PASSAGES, VOICES, Outcome, write_catalog

ROOT = Path(__file__).parents[2]

ALIAS_BOMB = "".join(
    f"  x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(9)
)

BAD_CATALOGS = {
    "unknown key": HEAD + VOICES + PASSAGES + "voice_count: 2\n",
    "wrong type": HEAD + "voices: [{name: ann, speaker: slt, seed: many}]\n" + PASSAGES,
    "fraction for a seed": HEAD + "voices: [{name: ann, speaker: slt, seed: 1.5}]\n" + PASSAGES,
    "duplicate id": HEAD + VOICES + "passages: [{id: a, text: A.}, {id: a, text: B.}]\n",
    "case collision": HEAD + VOICES + "passages: [{id: a, text: A.}, {id: A, text: B.}]\n",
    "normal form collision": HEAD
    + VOICES
    + 'passages: [{id: "caf\u00e9", text: A.}, {id: "cafe\u0301", text: B.}]\n',
    "parent folder in a name": HEAD + VOICES + 'passages: [{id: "../a", text: A.}]\n',
    "slash in a name": HEAD + VOICES + "passages: [{id: a/b, text: A.}]\n",
    "NUL in a name": HEAD + VOICES + 'passages: [{id: "a\\0b", text: A.}]\n',
    "alias bomb": HEAD + VOICES + PASSAGES + "x:\n" + ALIAS_BOMB,
    "duplicate key": HEAD + "catalog: again\n" + VOICES + PASSAGES,
    "no such pack": HEAD.replace("starter", "no-such-pack") + VOICES + PASSAGES,
    "no such speaker": HEAD + "voices: [{name: ann, speaker: ann}]\n" + PASSAGES,
    "style the pack lacks": HEAD + "voices: [{name: slt, style: whisper}]\n" + PASSAGES,
    "env the pack lacks": HEAD + "voices: [{name: slt, env: rain}]\n" + PASSAGES,
    "language the pack lacks": HEAD + "voices: [{name: slt, language: de}]\n" + PASSAGES,
    "missing text file": HEAD + VOICES + "passages: [{id: a, text_file: none.txt}]\n",
    "style of a passage": HEAD + VOICES + "passages: [{id: a, text: A., style: calm}]\n",
    "dialogue": HEAD + VOICES + "passages: [{id: a, turns: [{voice: ann, text: A.}]}]\n",
    "style of a dialogue": HEAD
    + VOICES
    + "passages: [{id: a, style: calm, turns: [{voice: ann, text: A.}]}]\n",
    "key of a turn": HEAD + VOICES + "passages: [{id: a, turns: [{speaker: ann, text: A.}]}]\n",
    "turn without a word": HEAD
    + VOICES
    + "passages: [{id: a, turns: [{voice: ann, text: ' '}]}]\n",
    "empty file": "",
    "a list": "- a\n",
}


def _is_refused(outcome: Outcome, *, exit_code: int, folder: Path, kept: set[str]) -> None:
    assert outcome.exit_code == exit_code, outcome
    lines = outcome.stderr.strip().splitlines()
    assert lines
    assert "Traceback" not in outcome.stderr
    assert outcome.stdout == ""
    assert {path.name for path in folder.iterdir()} == kept


@pytest.mark.parametrize("command", ["render", "plan"])
@pytest.mark.parametrize("name", BAD_CATALOGS)
def test_a_bad_catalog_is_one_line_and_exit_2(
    loudkit: Callable[..., Outcome], tmp_path: Path, name: str, command: str
) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text(BAD_CATALOGS[name], encoding="utf-8")
    outcome = loudkit(command, str(path))
    _is_refused(outcome, exit_code=2, folder=tmp_path, kept={"catalog.yaml"})
    lines = outcome.stderr.strip().splitlines()
    assert len(lines) == 1 or all(line.startswith(f"{path}:") for line in lines)


def test_a_missing_catalog_is_refused(loudkit: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = loudkit("render", "none.yaml")
    _is_refused(outcome, exit_code=2, folder=tmp_path, kept=set())
    assert "none.yaml" in outcome.stderr


def test_bytes_that_are_not_utf8_are_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "catalog.yaml").write_bytes(HEAD.encode() + b"# \xff\xfe\n" + VOICES.encode())
    outcome = loudkit("render", "catalog.yaml")
    _is_refused(outcome, exit_code=2, folder=tmp_path, kept={"catalog.yaml"})
    assert "line 4" in outcome.stderr


@pytest.mark.parametrize("arguments", [["--only", "nobody/*"], ["--only", "no-slash"]])
def test_a_selection_of_nothing_is_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path, arguments: list[str]
) -> None:
    write_catalog(tmp_path)
    outcome = loudkit("render", "catalog.yaml", *arguments)
    _is_refused(outcome, exit_code=2, folder=tmp_path, kept={"catalog.yaml"})


@pytest.fixture
def own_pack(tmp_path: Path) -> Path:
    """A copy of the starter pack that may be broken."""
    return Path(shutil.copytree(engine.pack.open_pack("starter").root, tmp_path / "mine"))


def test_a_file_that_is_not_the_sealed_one_is_exit_4(
    loudkit: Callable[..., Outcome], tmp_path: Path, own_pack: Path
) -> None:
    weights = bytearray((own_pack / "model.safetensors").read_bytes())
    weights[-5] ^= 1
    (own_pack / "model.safetensors").write_bytes(weights)
    write_catalog(tmp_path, head=HEAD.replace("starter", "./mine"))
    outcome = loudkit("render", "catalog.yaml")
    _is_refused(outcome, exit_code=4, folder=tmp_path, kept={"catalog.yaml", "mine"})
    assert "model.safetensors" in outcome.stderr


def test_another_pack_than_the_pinned_one_is_exit_4(
    loudkit: Callable[..., Outcome], tmp_path: Path, own_pack: Path
) -> None:
    pinned = f"pack: {{path: ./mine, sha256: {'ab' * 32}}}"
    write_catalog(tmp_path, head=HEAD.replace("pack: starter", pinned))
    outcome = loudkit("render", "catalog.yaml")
    _is_refused(outcome, exit_code=4, folder=tmp_path, kept={"catalog.yaml", "mine"})


def test_usage_errors_are_exit_2(loudkit: Callable[..., Outcome], tmp_path: Path) -> None:
    write_catalog(tmp_path)
    for arguments in (
        ["render"],
        ["render", "catalog.yaml", "--slots", "0"],
        ["render", "catalog.yaml", "--workers", "none"],
        ["render", "catalog.yaml", "--device", "tpu"],
        ["no-such-command"],
    ):
        assert loudkit(*arguments).exit_code == 2


def test_status_of_a_folder_without_a_job_is_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    outcome = loudkit("status", str(tmp_path))
    assert outcome.exit_code == 2
    assert "no_job" in outcome.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_full_disk_under_what_is_told_is_a_line(tmp_path: Path, flags: list[str]) -> None:
    command = [sys.executable, "-m", "jobs.cli", "plan", str(write_catalog(tmp_path)), *flags]
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert "No space left" in told.stderr


def test_a_place_whose_name_is_too_long_is_refused(loudkit: Callable[..., Outcome]) -> None:
    outcome = loudkit("status", "x" * 300)
    assert outcome.exit_code == 2
    assert "File name too long" in outcome.stderr


def test_the_installed_command_refuses_as_quickly_as_it_starts(tmp_path: Path) -> None:
    """Through a real process: no torch, no Ray, no traceback."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "jobs.cli", "render", "none.yaml"],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"torch", "ray"}
