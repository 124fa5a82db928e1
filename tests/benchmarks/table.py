"""How every benchmark tells its result: a table on the terminal, JSON below out/bench."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_OUT = Path("out/bench")


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table under its title, so that it can be pasted as it stands."""
    print(f"\n{title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def write_result(name: str, result: dict[str, Any]) -> None:
    """`out/bench/NAME.json`."""
    _OUT.mkdir(parents=True, exist_ok=True)
    (_OUT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
