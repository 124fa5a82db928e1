"""The embedded pack against its goldens, and the rules by which goldens may move."""

from __future__ import annotations

import copy
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from tests.golden import rebase
from tests.golden.rebase import RebaseRefusedError, compare, judge, main, rebased
from tests.golden.render import (
    GOLDENS,
    SET,
    Facts,
    Golden,
    machine_of,
    made_of,
    read_goldens,
    render_set,
    write_goldens,
)

IDS = [passage.id for passage in SET]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_goldens()


@pytest.fixture(scope="module")
def rendered(engine: Engine) -> dict[str, Facts]:
    """The set, rendered here."""
    return render_set(engine)


# -- the goldens ----------------------------------------------------------------------------------


def test_the_goldens_are_of_this_pack_algorithm_and_contract(
    engine: Engine, golden: Golden
) -> None:
    assert made_of(engine) == golden.made_of, "re-base: make rebase-goldens CLASS=..."


@pytest.mark.parametrize("name", IDS)
def test_the_tokens_are_golden(golden: Golden, rendered: dict[str, Facts], name: str) -> None:
    was, now = golden.passages[name], rendered[name]
    assert now["asked"] == was["asked"]
    for number, (window, kept) in enumerate(zip(now["windows"], was["windows"], strict=True)):
        assert window == kept, f"window {number}"
    assert now["samples"] == was["samples"]


@pytest.mark.parametrize("name", IDS)
def test_the_waveform_is_golden_where_it_was_made(
    engine: Engine, golden: Golden, rendered: dict[str, Facts], name: str
) -> None:
    here = machine_of(engine)
    other = [f"{key} {golden.machine.get(key)} -> {here[key]}" for key in here
             if here[key] != golden.machine.get(key)]  # fmt: skip
    if other:
        pytest.skip(f"the waveforms were made under another execution: {'; '.join(other)}")
    assert rendered[name]["pcm_sha256"] == golden.passages[name]["pcm_sha256"]


def test_the_set_covers_what_it_is_for(golden: Golden) -> None:
    assert set(golden.passages) == set(IDS)
    windows = {name: facts["windows"] for name, facts in golden.passages.items()}
    assert {facts["asked"]["speaker"] for facts in golden.passages.values()} == {
        "slt",
        "rms",
        "awb",
        "kal",
    }
    assert len(windows["short"]) == 1
    assert len(windows["carry"]) >= 3
    assert all(len(window["prefix"].split()) == 7 for window in windows["carry"][1:])
    assert [window["half"] for window in windows["resplit"]] == [1, 2]
    assert [(w["attempt"], w["attempts"]) for w in windows["ladder"]] == [(1, 3)]
    assert GOLDENS.stat().st_size < 200_000


def test_the_manifest_says_what_the_bits_were_made_under(engine: Engine, golden: Golden) -> None:
    said = {"torch", "device", "capability", "dtype", "threads", "matmul_tf32", "cudnn_tf32"}
    assert said | {"numpy", "row_padding", "arithmetic"} <= set(golden.machine)
    assert "probe" not in golden.machine  # a result of our own mathematics cannot excuse it
    assert (golden.machine["matmul_tf32"], golden.machine["cudnn_tf32"]) == (False, False)
    assert machine_of(engine) == machine_of(engine)
    assert golden.contract_version >= 1


# -- re-basing ------------------------------------------------------------------------------------


def made(**changes: Any) -> Golden:
    """A set of two passages; `changes` are of the fields of `Golden`."""
    window = {"seed": 7, "tokens": "76 588 1100", "prefix": "", "verdict": {"reason": "clean"}}
    passage = {"pcm_sha256": "aa", "samples": 2400, "windows": [window]}
    base = Golden(
        contract_version=3,
        machine={"torch": "2.13.0", "capability": "AVX512"},
        made_of={"pack_sha256": "p", "algorithm_fingerprint": "a"},
        passages={
            name: copy.deepcopy(passage) | {"asked": {"id": name, "text": "Yes."}}
            for name in ("one", "two")
        },
    )
    return replace(base, **changes)


def moved(name: str, *path: str | int, to: object, made_of: Facts | None = None) -> Golden:
    """`made()` with one fact of one passage changed."""
    base = made()
    inside: Any = base.passages[name]
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = to
    return replace(base, made_of=made_of or base.made_of)


MOVED_MATHS = {"pack_sha256": "p", "algorithm_fingerprint": "b"}
TOKENS = moved("two", "windows", 0, "tokens", to="76 588 1101", made_of=MOVED_MATHS)
UNTOLD_TOKENS = moved("two", "windows", 0, "tokens", to="76 588 1101")
SAMPLES = moved("one", "pcm_sha256", to="bb")
LENGTH = moved("one", "samples", to=2401)
VERDICT = moved("one", "windows", 0, "verdict", to={"reason": "stall"})


def test_nothing_moved_is_nothing() -> None:
    moves = compare(made(), made())
    assert not moves
    assert moves.describe().count("nothing moved") == 6
    assert rebased(made(), made(), "changes-maths") == made()


@pytest.mark.parametrize(
    ("now", "kind", "told"),
    [
        (TOKENS, "tokens", ("two",)),
        (SAMPLES, "pcm", ("one",)),
        (LENGTH, "pcm", ("one",)),
        (VERDICT, "records", ("one",)),
        (moved("one", "asked", to={"id": "one", "text": "No."}), "asked", ("one",)),
        (made(passages={"one": made().passages["one"]}), "asked", ("two",)),
        (made(machine={"torch": "2.14", "capability": "AVX512"}), "machine",
         ("torch 2.13.0 -> 2.14",)),
        (made(made_of={"pack_sha256": "q", "algorithm_fingerprint": "a"}), "made_of",
         ("pack_sha256 p -> q",)),
    ],
)  # fmt: skip
def test_what_moved_is_named(now: Golden, kind: str, told: tuple[str, ...]) -> None:
    moves = compare(made(), now)
    assert moves
    assert getattr(moves, kind) == told
    assert f"{kind.replace('_', ' ')}: {', '.join(told)}" in moves.describe()


@pytest.mark.parametrize(
    ("now", "claim", "told"),
    [
        (TOKENS, "bit-exact", "tokens of two moved; class bit-exact keeps every token"),
        (TOKENS, "equivalent", "tokens of two moved; class equivalent keeps every token"),
        (UNTOLD_TOKENS, "changes-maths", "tokens of two moved under the old fingerprints"),
        (SAMPLES, "bit-exact", "samples of one moved; class bit-exact keeps every bit"),
        (LENGTH, "bit-exact", "samples of one moved; class bit-exact keeps every bit"),
        (
            replace(SAMPLES, machine={"torch": "2.14", "capability": "AVX512"}),
            "bit-exact",
            r"so did the machine \(torch 2\.13\.0 -> 2\.14\)",
        ),
    ],
)
def test_more_than_the_class_allows_is_refused(now: Golden, claim: str, told: str) -> None:
    with pytest.raises(RebaseRefusedError, match=told):
        judge(compare(made(), now), claim)
    with pytest.raises(RebaseRefusedError):
        rebased(made(), now, claim)


@pytest.mark.parametrize(
    ("now", "claim", "version"),
    [
        (TOKENS, "changes-maths", 4),
        (SAMPLES, "equivalent", 3),
        (SAMPLES, "changes-maths", 3),
        (VERDICT, "bit-exact", 3),
        (made(machine={"torch": "2.14"}), "bit-exact", 3),
        (moved("one", "asked", to={"id": "one", "text": "No."}), "bit-exact", 3),
    ],
)
def test_what_the_class_allows_is_written_under_its_version(
    now: Golden, claim: str, version: int
) -> None:
    assert rebased(made(), now, claim) == replace(now, contract_version=version)


def test_goldens_survive_their_file(golden: Golden, tmp_path: Path) -> None:
    write_goldens(golden, tmp_path / "goldens.json")
    assert read_goldens(tmp_path / "goldens.json") == golden
    assert (tmp_path / "goldens.json").read_bytes() == GOLDENS.read_bytes()


def git(root: Path, *arguments: str) -> None:
    named = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", *named, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean repository whose goldens are `made()` and whose engine still renders that."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    goldens = tmp_path / "goldens.json"
    write_goldens(made(), goldens)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "goldens")
    monkeypatch.delenv("CLASS", raising=False)
    monkeypatch.setattr(rebase, "ROOT", tmp_path)
    monkeypatch.setattr(rebase, "GOLDENS", goldens)
    monkeypatch.setattr(rebase, "read_goldens", lambda: read_goldens(goldens))
    monkeypatch.setattr(rebase, "write_goldens", lambda golden: write_goldens(golden, goldens))
    renders(monkeypatch, made())
    return tmp_path


def renders(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(
        rebase,
        "_render",
        lambda contract_version: replace(golden, contract_version=contract_version),
    )


@pytest.mark.parametrize("state", ["changed", "staged", "untracked", "no repository"])
def test_a_tree_that_is_not_clean_is_refused_before_anything_is_rendered(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
) -> None:
    def never(contract_version: int) -> Golden:
        raise AssertionError("rendered from a tree that is not clean")

    monkeypatch.setattr(rebase, "_render", never)
    told = "not committed"
    if state == "untracked":
        (repository / "new.py").write_text("", encoding="utf-8")
    elif state == "no repository":
        shutil.rmtree(repository / ".git")
        told = "not a git work tree"
    else:
        (repository / "goldens.json").write_text("{}", encoding="utf-8")
        if state == "staged":
            git(repository, "add", ".")
    assert main(["--class", "changes-maths"]) == rebase.REFUSED
    assert told in capsys.readouterr().err


def test_goldens_that_stand_are_left_alone(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (repository / "goldens.json").read_bytes()
    assert main([]) == rebase.DONE
    assert "the goldens stand as they are" in capsys.readouterr().out
    assert (repository / "goldens.json").read_bytes() == before


def test_without_a_class_a_move_is_told_and_not_written(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    renders(monkeypatch, TOKENS)
    assert main([]) == rebase.NO_CLASS
    told = capsys.readouterr()
    assert "tokens: two\n" in told.out
    assert "CLASS=bit-exact|equivalent|changes-maths" in told.err
    assert read_goldens(repository / "goldens.json") == made()


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_claimed_class_is_printed_and_written(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by: str,
) -> None:
    renders(monkeypatch, TOKENS)
    if by == "environment":
        monkeypatch.setenv("CLASS", "changes-maths")
    assert main(["--class", "changes-maths"] if by == "argument" else []) == rebase.DONE
    told = capsys.readouterr().out
    assert "tokens: two\n" in told
    assert "contract version 4" in told
    assert told.endswith("Class: changes-maths\n")
    assert read_goldens(repository / "goldens.json") == replace(TOKENS, contract_version=4)


def test_a_false_claim_leaves_the_file_as_it_is(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    renders(monkeypatch, TOKENS)
    assert main(["--class", "equivalent"]) == rebase.REFUSED
    assert "refused: tokens of two moved" in capsys.readouterr().err
    assert read_goldens(repository / "goldens.json") == made()


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_an_unknown_class_is_bad_usage(
    repository: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("CLASS", "harmless")
    with pytest.raises(SystemExit) as ended:
        main(["--class", "harmless"] if by == "argument" else [])
    assert ended.value.code == 2


def test_goldens_are_made_only_once(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first"]) == rebase.REFUSED
    assert "not made twice" in capsys.readouterr().err
    (repository / "goldens.json").unlink()
    assert main(["--first"]) == rebase.DONE
    assert read_goldens(repository / "goldens.json") == made(contract_version=1)
