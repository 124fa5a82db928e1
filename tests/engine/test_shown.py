"""What error lines show of files: one printable line, never at length."""

from __future__ import annotations

import pytest

from engine.shown import is_one_line, shown, shown_key, shown_name

HOSTILE: list[object] = [
    "a\nb", "\x1b[2J", "\ud800", "\u202e", "\u2028", "x" * 10**6, 10**300, 10**9999, (-(10**9999),),
    ["\n"] * 10**5, {"\x1b" * 500: ["x" * 500] * 500}, [[[["x" * 500] * 50] * 50] * 50],
    None, True, 1.5, float("nan"), b"\xff" * 1000, {"a", "b"}, object(),
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_is_shown_is_one_short_line(value: object) -> None:
    for told in (shown(value), shown_name(value), shown_key(shown_name(value))):
        assert told.isprintable()
        assert 0 < len(told) <= 210


@pytest.mark.parametrize("name", ["model.norm.weight", "x" * 120, "été", "[0].a"])
def test_a_plain_name_is_shown_as_it_stands(name: str) -> None:
    assert shown_name(name) == shown_key(name) == name


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("CC BY 4.0", True),
        ("a\u00a0b \u65e5\u672c \u0915\u094d\u200d\u0937", True),
        ("a\nb", False),
        ("a\tb", False),
        ("\x1b[31m", False),
        ("\x85", False),
        ("a\u2028b", False),
        ("\udcff", False),
    ],
)
def test_a_line_of_text_has_no_control_characters(text: str, holds: bool) -> None:
    assert is_one_line(text) is holds
