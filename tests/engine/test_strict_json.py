"""JSON that is almost JSON: refused by its place in the file or by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ManifestError, PackNotFoundError
from engine.strict_json import read_object


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": 1, "a": 1}', "a"),
        ('{"w": {"b": [0, {"c": 1, "c": 2}]}}', "w.b[1].c"),
        ('{"a": NaN}', "a"),
        ('{"a": [1, -Infinity]}', "a[1]"),
        ('{"a": 1e999}', "a"),
        ("[1]", "{path}"),
        ("{", "{path}:1:2"),
        ('{\n "a": 01}', "{path}:2:8"),
        ("", "{path}:1:1"),
        ("[" * 100_000, "{path}"),
        ('{"a": ' + "9" * 5000 + "}", "{path}"),
        ('{"a": "\\ud800"}', "a"),
        ('{"a": ["x", "\\udcff\\ud83d"]}', "a[1]"),
        ('{"a": {"\\ud800": 1}}', "a.'\\ud800'"),
        ('{"\\ud800": {"b": 1}}', "'\\ud800'"),
        ('{"\\u001b[2J": NaN}', "'\\x1b[2J'"),
        ('{"' + "k" * 130 + '": NaN}', f"'{'k' * 37}...{'k' * 38}'"),
    ],
)
def test_a_file_that_is_not_strict_json_is_refused_by_place_or_key(
    text: str, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(ManifestError) as refusal:
        read_object(path)
    assert refusal.value.key == key.replace("{path}", str(path))
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ManifestError, match="byte 7"):
        read_object(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackNotFoundError, match=r"manifest\.json: cannot be read: No such file"):
        read_object(tmp_path / "manifest.json")


def test_an_object_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text('{"b": [1, 2.5, null, {"a": "\\u015bw"}], "a": true}')
    read = read_object(path)
    assert read == {"b": [1, 2.5, None, {"a": "św"}], "a": True}
    assert list(read) == ["b", "a"]
