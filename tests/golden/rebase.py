"""Re-base the goldens: `make rebase-goldens CLASS=bit-exact|equivalent|changes-maths`.

Goldens move by this script alone, from a clean tree, under the class that the commit claims. It
prints what moved, and refuses what the class does not allow. Without a class it only tells.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.engine import load_engine
from engine.execution import ExecutionConfig
from engine.pack import open_pack
from tests.golden.render import (
    GOLDENS,
    Facts,
    Golden,
    read_goldens,
    render_goldens,
    write_goldens,
)

ROOT: Final = Path(__file__).parent.parent.parent
CLASSES: Final = ("bit-exact", "equivalent", "changes-maths")

DONE, REFUSED, NO_CLASS = 0, 1, 2


class RebaseRefusedError(Exception):
    """The goldens stay as they are."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What two sets of goldens differ in; passages by id, facts by name."""

    tokens: tuple[str, ...]
    pcm: tuple[str, ...]
    records: tuple[str, ...]
    """Same tokens and samples, but another seed, verdict or count beside them."""
    asked: tuple[str, ...]
    """Passages that the set gained, lost, or asks for in other words."""
    made_of: tuple[str, ...]
    machine: tuple[str, ...]

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def describe(self) -> str:
        """A line for each kind of move."""
        lines = (
            f"{name.replace('_', ' ')}: {', '.join(getattr(self, name)) or 'nothing moved'}"
            for name in self.__slots__
        )
        return "\n".join(lines)


def compare(before: Golden, now: Golden) -> Moves:
    """What moved between two sets of goldens."""
    kept = [
        name
        for name, facts in now.passages.items()
        if name in before.passages and before.passages[name]["asked"] == facts["asked"]
    ]
    tokens = [n for n in kept if _tokens(before.passages[n]) != _tokens(now.passages[n])]
    pcm = [n for n in kept if _pcm(before.passages[n]) != _pcm(now.passages[n])]
    return Moves(
        tokens=tuple(tokens),
        pcm=tuple(pcm),
        records=tuple(
            name
            for name in kept
            if name not in (*tokens, *pcm) and before.passages[name] != now.passages[name]
        ),
        asked=tuple(sorted({*before.passages, *now.passages} - set(kept))),
        made_of=_differing(before.made_of, now.made_of),
        machine=_differing(before.machine, now.machine),
    )


def _tokens(passage: Facts) -> list[str]:
    return [window["tokens"] for window in passage["windows"]]


def _pcm(passage: Facts) -> tuple[str, int]:
    return passage["pcm_sha256"], passage["samples"]


def _differing(before: Facts, now: Facts) -> tuple[str, ...]:
    """Facts by name, with what they were and what they are."""
    return tuple(
        f"{name} {before.get(name)} -> {now.get(name)}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )


def judge(moves: Moves, claim: str) -> None:
    """Raises `RebaseRefusedError` where more moved than the claimed class allows."""
    if moves.tokens and claim != "changes-maths":
        raise RebaseRefusedError(
            f"tokens of {', '.join(moves.tokens)} moved; class {claim} keeps every token. "
            "Find out why, or claim changes-maths"
        )
    if moves.tokens and not moves.made_of:
        raise RebaseRefusedError(
            f"tokens of {', '.join(moves.tokens)} moved under the old fingerprints: no published "
            "record would be seen as stale. The algorithm fingerprint must move with the maths"
        )
    if moves.pcm and claim == "bit-exact":
        elsewhere = f"; so did the machine ({'; '.join(moves.machine)})" if moves.machine else ""
        raise RebaseRefusedError(
            f"samples of {', '.join(moves.pcm)} moved{elsewhere}; class bit-exact keeps every bit. "
            "Find out why, or claim equivalent"
        )


def rebased(before: Golden, now: Golden, claim: str) -> Golden:
    """What is to be written: tokens that moved are a new contract version."""
    moves = compare(before, now)
    judge(moves, claim)
    version = before.contract_version + bool(moves.tokens)
    return replace(now, contract_version=version)


def require_clean_tree(root: Path) -> None:
    """Raises `RebaseRefusedError` unless every change is committed: what moved must have a cause
    that git can name."""
    told = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False
    )
    if told.returncode:
        raise RebaseRefusedError(f"not a git work tree: {told.stderr.strip()}")
    if told.stdout:
        raise RebaseRefusedError(
            "the tree has changes that are not committed:\n" + _first(told.stdout.splitlines())
        )


def _first(lines: Iterable[str], most: int = 10) -> str:
    shown = list(lines)
    rest = [f"... and {len(shown) - most} more"] if len(shown) > most else []
    return "\n".join(shown[:most] + rest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 for goldens that stand or were re-based, 1 for a refusal, 2 without a class."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.rebase", description=__doc__)
    parser.add_argument(
        "--class", dest="claim", choices=CLASSES, help="or CLASS in the environment"
    )
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    claim = asked.claim or os.environ.get("CLASS") or None
    if claim not in (None, *CLASSES):
        parser.error(f"CLASS must be one of {', '.join(CLASSES)}, got {claim!r}")
    try:
        if asked.first:
            return _first_goldens()
        require_clean_tree(ROOT)
        return _rebase(claim)
    except RebaseRefusedError as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return REFUSED


def _first_goldens() -> int:
    if GOLDENS.exists():
        raise RebaseRefusedError(f"{GOLDENS.name} exists: goldens are re-based, not made twice")
    write_goldens(_render(contract_version=1))
    print(f"wrote {GOLDENS.name}, contract version 1")
    return DONE


def _rebase(claim: str | None) -> int:
    before = read_goldens()
    now = _render(contract_version=before.contract_version)
    moves = compare(before, now)
    print(moves.describe())
    if not moves:
        print("the goldens stand as they are")
        return DONE
    if claim is None:
        print(f"say which class this is: CLASS={'|'.join(CLASSES)}", file=sys.stderr)
        return NO_CLASS
    made = rebased(before, now, claim)
    write_goldens(made)
    print(f"re-based {GOLDENS.name}, contract version {made.contract_version}\nClass: {claim}")
    return DONE


def _render(*, contract_version: int) -> Golden:
    engine = load_engine(open_pack("starter"), ExecutionConfig(), slots=4)
    return render_goldens(engine, contract_version=contract_version)


if __name__ == "__main__":
    sys.exit(main())
