"""What a catalog may say, and how each thing that it may not say is refused."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from catalog.errors import CatalogInvalidError, one_line, show
from catalog.loader import LoadedCatalog, load_catalog
from catalog.names import MAX_NAME_BYTES, folded, name_fault
from catalog.schema import Catalog, PackPath, Passage, RenderRule

HEAD = "catalog: c\npack: starter\n"
VOICES = "voices: [{name: slt}]\n"
PASSAGES = "passages: [{id: p, text: hi}]\n"


def load(folder: Path, text: str) -> LoadedCatalog:
    (folder / "catalog.yaml").write_text(text)
    return load_catalog(folder / "catalog.yaml")


def problems(folder: Path, text: str) -> list[str]:
    """`line:column: what` for every problem."""
    with pytest.raises(CatalogInvalidError) as caught:
        load(folder, text)
    start = f"{folder / 'catalog.yaml'}:"
    assert all(problem.startswith(start) for problem in caught.value.problems)
    return [problem.removeprefix(start) for problem in caught.value.problems]


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("From a file.")
    text = f"""\
catalog: all
pack: {{path: ../packs/p, sha256: {"0a" * 32}}}
defaults: {{seed: 18446744073709551615, language: pt-BR, format: opus, style: calm}}
voices:
  - {{name: a, display_name: A b, speaker: x, style: s, accent: scottish, env: room,
     language: Polish, language_id: pl, description: "Two\\nlines", seed: 0, status: bundled,
     source: {{name: n, url: "https://x", license: CC0-1.0, consent: yes}}}}
passages:
  - {{id: p, text: hi, style: loud, language: de, seed: 3}}
  - {{id: q, text_file: t.txt}}
renders:
  - {{voice: "*", passage: "[pq]", seed: 4}}
"""
    catalog = load(tmp_path, text).catalog
    assert isinstance(catalog.pack, PackPath)
    assert (catalog.pack_name, catalog.pack_sha256) == ("../packs/p", "0a" * 32)
    assert catalog.defaults.seed == 2**64 - 1
    voice = catalog.voices[0]
    assert (voice.title, voice.conditioned_as, voice.description) == ("A b", "x", "Two\nlines")
    assert catalog.language_id(voice) == "pl"
    assert voice.source
    assert voice.source.consent == "yes"
    assert isinstance(catalog.passages[0], Passage)
    assert isinstance(catalog.renders[0], RenderRule)


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    catalog = load(tmp_path, HEAD + VOICES + PASSAGES).catalog
    assert (catalog.defaults.seed, catalog.defaults.language) == (0, "en")
    assert (catalog.defaults.format, catalog.renders) == ("flac", "all")
    assert (catalog.pack_name, catalog.pack_sha256) == ("starter", None)
    voice = catalog.voices[0]
    assert (voice.title, voice.conditioned_as, catalog.language_id(voice)) == ("slt", "slt", "en")


@pytest.mark.parametrize(
    ("pack", "folder"),
    [
        ("starter", None),
        ("./starter", "starter"),
        ("packs/a", "packs/a"),
        ("..", ".."),
        ("/data/p", "/data/p"),
        ("{path: starter, sha256: " + "0a" * 32 + "}", "starter"),
    ],
)
def test_a_pack_is_a_bundled_name_or_a_folder(
    tmp_path: Path, pack: str, folder: str | None
) -> None:
    loaded = load(tmp_path, f"catalog: c\npack: {pack}\n" + VOICES + PASSAGES)
    assert loaded.pack_folder == (tmp_path / folder if folder else None)


def test_models_are_frozen(tmp_path: Path) -> None:
    catalog = load(tmp_path, HEAD + VOICES + PASSAGES).catalog
    with pytest.raises(ValidationError):
        setattr(catalog, "catalog", "other")  # noqa: B010 - mypy knows that it is frozen
    assert hash(catalog) == hash(load(tmp_path, HEAD + VOICES + PASSAGES).catalog)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "- a\n",
            "1:1: expected a mapping with catalog, pack, voices and passages, got a list",
        ),
        ("hello\n", "1:1: expected a mapping with catalog, pack, voices and passages, got"),
        (HEAD + VOICES, '1:1: missing key "passages"'),
        (
            HEAD + VOICES + PASSAGES + "voice: x\n",
            '5:1: voice: unknown key; did you mean "voices"?',
        ),
        (HEAD + VOICES + PASSAGES + "zzz: x\n", "5:1: zzz: unknown key; expected one of catalog, "),
        (HEAD + "voices: slt\n" + PASSAGES, '3:9: voices: expected a list, got "slt"'),
        (HEAD + "voices: {name: slt}\n" + PASSAGES, "3:9: voices: expected a list, got a mapping"),
        (HEAD + "voices:\n" + PASSAGES, "3:8: voices: expected a list, got null"),
        (
            HEAD + "voices: []\n" + PASSAGES,
            "3:9: voices: expected at least one item, got a list",
        ),
        (HEAD + "voices: [slt]\n" + PASSAGES, '3:10: voices[0]: expected a mapping, got "slt"'),
        (
            HEAD + "voices: [{name: 7}]\n" + PASSAGES,
            "3:17: voices[0].name: expected string, got 7; put it in quotes",
        ),
        (
            HEAD + "voices: [{name: true}]\n" + PASSAGES,
            "3:17: voices[0].name: expected string, got true; put it in quotes",
        ),
        (
            HEAD + "voices: [{name: a}, {name: b}, {name: c, seed: x}]\n" + PASSAGES,
            '3:48: voices[2].seed: expected integer, got "x"',
        ),
        (
            HEAD + "voices: [{name: a, seed: 7.0}]\n" + PASSAGES,
            "3:26: voices[0].seed: expected integer, got 7.0",
        ),
        (
            HEAD + "voices: [{name: a, seed: true}]\n" + PASSAGES,
            "3:26: voices[0].seed: expected integer, got true",
        ),
        (
            HEAD + "voices: [{name: a, seed: -1}]\n" + PASSAGES,
            "3:26: voices[0].seed: expected an integer from 0 to 18446744073709551615, got -1",
        ),
        (
            HEAD + "voices: [{name: a, seed: 18446744073709551616}]\n" + PASSAGES,
            "3:26: voices[0].seed: expected an integer from 0 to 18446744073709551615, got 184467",
        ),
        (
            HEAD + "voices: [{name: a, language: Polish}]\n" + PASSAGES,
            '3:30: voices[0].language: expected a language tag such as "en" or "pt-BR", got "Pol',
        ),
        (
            HEAD + "voices: [{name: a, source: {name: n}}]\n" + PASSAGES,
            '3:28: voices[0].source: missing key "url"',
        ),
        (
            HEAD + 'voices: [{name: a, speaker: "a\\nb"}]\n' + PASSAGES,
            '3:29: voices[0].speaker: expected one line without control characters, got "a\\nb"',
        ),
        (
            HEAD + "voices: [{name: a, style: ' '}]\n" + PASSAGES,
            "3:27: voices[0].style: expected a text that is not empty",
        ),
        (
            HEAD + VOICES + "passages: [{id: p, text: 1984}]\n",
            "4:26: passages[0].text: expected string, got 1984; put it in quotes",
        ),
        (
            HEAD + VOICES + "passages: [{id: p}]\n",
            '4:12: passages[0]: expected one of text, text_file or turns, passage "p" has none',
        ),
        (
            HEAD + VOICES + "passages: [{id: p, text: a, text_file: b}]\n",
            "4:12: passages[0]: expected one of text, text_file or turns, "
            'passage "p" has text and text_file',
        ),
        (
            HEAD + VOICES + "passages: [{id: p, turns: [{voice: a, text: b}]}]\n",
            '4:36: passages[0].turns[0].voice: no voice "a"; there are: slt',
        ),
        (
            HEAD + VOICES + "passages: [{from: a.parquet, id: id, txt: t}]\n",
            '4:12: passages[0]: missing key "text"',
        ),
        (
            HEAD + VOICES + "passages: [{from: a.parquet, id: id, text: t, seed: 1}]\n",
            "4:47: passages[0].seed: unknown key; expected one of from, id, text",
        ),
        (HEAD + VOICES + "passages: [3]\n", "4:12: passages[0]: expected a mapping, got 3"),
        (
            HEAD + "defaults: {format: ogg}\n" + VOICES + PASSAGES,
            '3:20: defaults.format: expected one of flac, wav, opus, mp3, got "ogg"',
        ),
        (
            HEAD + "defaults: []\n" + VOICES + PASSAGES,
            "3:11: defaults: expected a mapping, got a list",
        ),
        (
            HEAD + VOICES + PASSAGES + "renders: some\n",
            '5:10: renders: expected all, or a list of rules, got "some"',
        ),
        (
            HEAD + VOICES + PASSAGES + "renders: []\n",
            "5:10: renders: expected at least one item",
        ),
        (
            HEAD + VOICES + PASSAGES + "renders: [{voice: '*'}]\n",
            '5:11: renders[0]: missing key "passage"',
        ),
        (
            HEAD + VOICES + PASSAGES + "renders: [{voice: a/b, passage: '*'}]\n",
            '5:19: renders[0].voice: expected a pattern of one name such as "*" or "s*", got "a/b"',
        ),
        (
            "catalog: c\npack: 3\n" + VOICES + PASSAGES,
            "2:7: pack: expected a bundled name, a folder, or {path, sha256}, got 3",
        ),
        (
            "catalog: c\npack: {path: x}\n" + VOICES + PASSAGES,
            '2:7: pack: missing key "sha256"',
        ),
        (
            "catalog: c\npack: {path: x, sha256: ABC}\n" + VOICES + PASSAGES,
            "2:25: pack.sha256: expected the 64 lower-case hex digits of a sha256",
        ),
        (
            "catalog: a/b\npack: p\n" + VOICES + PASSAGES,
            "1:10: catalog: a name must not contain a slash",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    told = problems(tmp_path, text)
    assert any(problem.startswith(expected) for problem in told), told


def test_all_problems_of_a_file_are_told_in_order(tmp_path: Path) -> None:
    text = HEAD + "voices:\n  - {name: slt, sed: 1}\n  - {nmae: b, seed: x}\n"
    text += "passages:\n  - {id: 1, text: 2}\nrenders: 7\n"
    assert problems(tmp_path, text) == [
        '4:17: voices[0].sed: unknown key; did you mean "seed"?',
        '5:5: voices[1]: missing key "name"',
        '5:6: voices[1].nmae: unknown key; did you mean "name"?',
        '5:21: voices[1].seed: expected integer, got "x"',
        "7:10: passages[0].id: expected string, got 1; put it in quotes",
        "7:19: passages[0].text: expected string, got 2; put it in quotes",
        "8:10: renders: expected all, or a list of rules, got 7",
    ]


def test_a_file_of_faults_is_told_to_a_bound(tmp_path: Path) -> None:
    text = HEAD + VOICES + "passages:\n" + "".join(f"  - {{id: {n}}}\n" for n in range(500))
    with pytest.raises(CatalogInvalidError, match=r"got 0; put it in quotes \(and 499 more\)$"):
        load(tmp_path, text)
    assert len(problems(tmp_path, text)) == 20


def test_a_problem_behind_an_alias_is_told_at_its_anchor(tmp_path: Path) -> None:
    text = HEAD + "voices:\n  - &v {name: a, seed: x}\n" + "passages: [{id: p, text: *v}]\n"
    assert problems(tmp_path, text) == [
        "4:5: passages[0].text: expected string, got a mapping",
        '4:24: voices[0].seed: expected integer, got "x"',
    ]


def test_braces_in_a_value_do_not_break_the_message(tmp_path: Path) -> None:
    text = HEAD + "voices: [{name: '{told}/{0}'}]\n" + PASSAGES
    assert problems(tmp_path, text) == [
        "3:17: voices[0].name: a name must not contain a slash, for it names a file of the "
        'output, got "{told}/{0}"'
    ]


# Names.


@pytest.mark.parametrize(
    "name",
    [
        *("slt", "a-b_c.d", "Zoë", "語り手", "a b", "no", "con", "a*b", "[x]", "audio", "-rf"),
        *("x" * MAX_NAME_BYTES, "é" * (MAX_NAME_BYTES // 2)),
    ],
)
def test_names_that_can_be_files(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "must not be empty"),
        (".", "must not start with a dot"),
        ("..", "must not start with a dot"),
        (".hidden", "must not start with a dot"),
        ("../x", "must not contain a slash"),
        ("a/b", "must not contain a slash"),
        ("/", "must not contain a slash"),
        ("a\\b", "must not contain a backslash"),
        ("a\0b", "control character U+0000"),
        ("a\nb", "control character U+000A"),
        ("a\x85b", "control character U+0085"),
        ("a\u2028b", "control character U+2028"),
        ("a\u202eb", "control character U+202E"),
        ("\ufeffa", "control character U+FEFF"),
        ("\ud800", "control character U+D800"),
        ("a ", "must not start or end with a space"),
        (" a", "must not start or end with a space"),
        ("a\u00a0", "must not start or end with a space"),
        ("a.", "nor end with a dot"),
        ("x" * (MAX_NAME_BYTES + 1), "at most 200 bytes of UTF-8, this one has 201"),
        ("é" * 101, "at most 200 bytes of UTF-8, this one has 202"),
    ],
)
def test_names_that_cannot(name: str, expected: str) -> None:
    assert expected in (name_fault(name) or "")


@settings(deadline=None, derandomize=True, max_examples=400)
@given(name=st.text(max_size=12))
def test_a_good_name_stays_one_step_of_a_path(name: str) -> None:
    if name_fault(name) is None:
        path = Path("audio") / "v" / f"{name}.flac"
        assert path.parent == Path("audio/v")
        assert path.name == f"{name}.flac"
        assert one_line(name) == name


@settings(deadline=None, derandomize=True, max_examples=400)
@given(name=st.text(max_size=12))
def test_folding_ignores_normal_form_and_case(name: str) -> None:
    assert folded(folded(name)) == folded(name)
    assert folded(normalize("NFD", name)) == folded(normalize("NFC", name))
    if name.isascii():
        assert folded(name.upper()) == folded(name)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(value=st.one_of(st.text(max_size=200), st.integers(), st.floats(), st.binary(), st.none()))
def test_shown_values_are_short_single_lines(value: object) -> None:
    shown = show(value)
    assert one_line(shown) == shown
    assert len(shown) < 500


def test_the_catalog_of_no_file_is_strict() -> None:
    with pytest.raises(ValidationError):
        Catalog.model_validate({"catalog": "c", "pack": "p", "voices": [{"name": "a"}]})
