"""catalog.yaml -> LoadedCatalog: what is read, and that every refusal is one line that helps."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errors import (
    CatalogCollisionError,
    CatalogEncodingError,
    CatalogError,
    CatalogInvalidError,
    CatalogNotFoundError,
    CatalogSyntaxError,
    CatalogUnreadableError,
    CorpusError,
    NothingSelectedError,
    TextFileError,
)
from catalog.loader import LoadedCatalog, load_catalog
from catalog.renders import iter_passages, iter_renders
from catalog.yaml_tree import MAX_DEPTH, read_tree

HEAD = "catalog: c\npack: starter\nvoices: [{name: slt}]\n"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the property tests: hypothesis runs a test many times over one fixture."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "b.txt").write_text("B.")
    (folder / "alice.txt").write_bytes((EXAMPLES / "alice.txt").read_bytes())
    return folder


def load(folder: Path, text: str | bytes) -> LoadedCatalog:
    path = folder / "catalog.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_catalog(path)


def refusal(folder: Path, text: str | bytes, kind: type[CatalogError] = CatalogError) -> str:
    """The single line of the refusal, with the folder cut off."""
    with pytest.raises(CatalogError) as caught:
        load(folder, text)
    assert type(caught.value) is kind or kind is CatalogError
    check_lines(caught.value)
    return str(caught.value).replace(f"{folder}{os.sep}", "")


def check_lines(error: CatalogError, where: str = "") -> None:
    assert 1 <= len(error.problems) <= 20
    assert not error.retryable
    assert re.fullmatch(r"[a-z_]+", error.code)
    for line in (str(error), *error.problems):
        assert line.strip()
        assert line.startswith(where)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", line)


# What a good catalog gives.


def test_the_example_loads() -> None:
    loaded = load_catalog(EXAMPLES / "catalog.yaml")
    assert [voice.name for voice in loaded.catalog.voices] == ["slt", "rms", "awb", "kal"]
    assert all(voice.source and voice.source.consent for voice in loaded.catalog.voices)
    assert [passage.id for passage in iter_passages(loaded)] == [
        "short",
        "numbers",
        "story",
        "alice",
    ]
    assert loaded.passage_count == 4
    assert sum(len(passage.text) for passage in iter_passages(loaded)) < 950  # a minute a voice


def test_words_are_read_by_yaml_1_2(tmp_path: Path) -> None:
    text = HEAD + "defaults: {language: no, seed: 0x10}\npassages:\n"
    text += "  - {id: yes, text: off}\n  - {id: n, text: 12:30:45}\n  - {id: d, text: 2026-11-30}\n"
    text += "  - {id: s, text: !!str 7}\n  - {id: z, text: '', seed: 0o17}\n"
    loaded = load(tmp_path, text)
    assert loaded.catalog.defaults.language == "no"
    assert loaded.catalog.defaults.seed == 16
    spoken = {passage.id: passage for passage in iter_passages(loaded)}
    assert {name: passage.text for name, passage in spoken.items()} == {
        "yes": "off",
        "n": "12:30:45",
        "d": "2026-11-30",
        "s": "7",
        "z": "",
    }
    assert spoken["z"].seed == 15


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("~", None),
        ("", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("True", True),
        ("on", "on"),
        ("012", 12),
        ("+3", 3),
        ("0o8", "0o8"),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1.", 1.0),
        ("-.5e3", -500.0),
        (".inf", float("inf")),
        ("-.Inf", float("-inf")),
        (".", "."),
        ("1e", "1e"),
        ("=", "="),
    ],
)
def test_core_schema(word: str, value: object) -> None:
    assert read_tree(f"k: {word}\n", "c").value == {"k": value}


def test_an_alias_repeats_its_anchor(tmp_path: Path) -> None:
    text = "catalog: c\npack: starter\nvoices:\n"
    text += "  - {name: a, source: &s {name: n, url: u, license: l, consent: c}}\n"
    text += "  - {name: b, source: *s}\npassages: [{id: p, text: hi}]\n"
    first, second = load(tmp_path, text).catalog.voices
    assert first.source == second.source


def test_crlf_bom_and_a_quoted_nul_are_fine(tmp_path: Path) -> None:
    text = "\ufeff" + HEAD + 'passages: [{id: p, text: "a\\0b"}]\n'
    loaded = load(tmp_path, text.replace("\n", "\r\n"))
    assert [passage.text for passage in iter_passages(loaded)] == ["a\0b"]


def test_ten_thousand_passages(tmp_path: Path) -> None:
    text = HEAD + "passages:\n"
    text += "".join(f"  - {{id: p{n}, text: Passage {n}.}}\n" for n in range(10_000))
    loaded = load(tmp_path, text)
    assert loaded.passage_count == 10_000
    assert sum(1 for _ in iter_renders(loaded)) == 10_000


def test_problem_names_a_place_for_what_only_shows_later(tmp_path: Path) -> None:
    loaded = load(tmp_path, HEAD + "passages: [{id: p, text: hi}]\n")
    line = loaded.problem(("voices", 0, "name"), "the pack has no such speaker")
    assert line.endswith("catalog.yaml:3:17: voices[0].name: the pack has no such speaker")


# The file itself.


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError, match=r"no such file; expected a catalog\.yaml"):
        load_catalog(tmp_path / "none.yaml")
    with pytest.raises(CatalogNotFoundError):
        load_catalog(tmp_path / "none" / "catalog.yaml")


def test_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogUnreadableError, match="is a folder, expected a file"):
        load_catalog(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CatalogUnreadableError, match="not a regular file"):
        load_catalog(tmp_path / "pipe")


def test_odd_paths_are_typed_errors() -> None:
    for path in ("a\0b", "x" * 5000, "line\nbreak"):
        with pytest.raises(CatalogError) as caught:
            load_catalog(path)
        check_lines(caught.value)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.loader.MAX_CATALOG_BYTES", 100)
    told = refusal(tmp_path, HEAD + "#" * 100, CatalogUnreadableError)
    assert told == "catalog.yaml: is larger than the 100 bytes allowed here"


def test_invalid_utf8_names_offset_and_line(tmp_path: Path) -> None:
    told = refusal(tmp_path, b"catalog: c\npack: caf\xe9\n", CatalogEncodingError)
    assert told.startswith("catalog.yaml: byte 0xe9 at offset 20 (line 2) is not UTF-8")
    assert "offset 23" in refusal(tmp_path, b"\xef\xbb\xbfcatalog: c\npack: caf\xe9\n")
    refusal(tmp_path, HEAD.encode("utf-16"), CatalogEncodingError)


# The YAML.

SYNTAX = [
    ("", "1:1: the file is empty; expected `catalog:`"),
    ("# only a comment\n", "1:1: the file is empty"),
    ("a: 1\nb: 2\na: 3\n", '3:1: key "a" is already given at 1:1; keep one'),
    ("v:\n  - x: {k: 1, k: 2}\n", '2:15: key "k" is already given at 2:9'),
    ("a: 1\n---\nb: 2\n", "2:1: a second document starts here"),
    ("a: !!python/object/apply:os.system [ls]\n", '1:4: tag "!!python/object/apply:os.system"'),
    ("a: !mine x\n", '1:4: tag "!mine" is not read here; write the plain value'),
    ("a: !!int x\n", '1:4: expected a value of !!int, got "x"'),
    ("<<: {a: 1}\n", "1:1: merge keys (<<) are not YAML 1.2; write the keys out"),
    ("a: *x\n", "1:4: alias *x has no anchor; write &x above it"),
    ("a: &x [*x]\n", "1:8: alias *x stands inside its own anchor"),
    ("? [a]\n: b\n", "1:3: expected a name before the colon, got a list"),
    ("1: b\n", "1:1: expected a name before the colon, got 1"),
    ("a:\n\tb: 1\n", "2:1: not valid YAML: a tab cannot start a value; indent with spaces"),
    ("a: 'x\n", "2:1: not valid YAML"),
    (
        "a: b: c\n",
        "1:5: not valid YAML: mapping values are not allowed in this context; put a text",
    ),
    ("a: @x\n", "1:4: not valid YAML"),
    ("a: \x07\n", "1:4: character U+0007 is not allowed in YAML"),
    ("ok: 1\na: \x00\n", "2:4: character U+0000 is not allowed in YAML"),
    ("a: " + "9" * 5000, "1:4: a number of 5000 characters; put it in quotes if it is text"),
    ("a: 0x" + "f" * 5000, "1:4: a number of 5002 characters"),
]


@pytest.mark.parametrize(("text", "expected"), SYNTAX)
def test_syntax_is_refused_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    told = refusal(tmp_path, text, CatalogSyntaxError)
    assert told.startswith(f"catalog.yaml:{expected}")
    assert len(told) < 300


@pytest.mark.parametrize("text", [text for text, _ in SYNTAX] + [HEAD])
def test_both_parsers_of_pyyaml_agree(text: str) -> None:
    def outcome(loader: Any) -> object:
        try:
            return read_tree(text, "c", loader=loader).value
        except CatalogSyntaxError as error:
            return re.match(r"c:\d+", str(error))

    fast, slow = outcome(yaml.CSafeLoader), outcome(yaml.SafeLoader)
    assert isinstance(fast, re.Match) == isinstance(slow, re.Match)
    assert fast == slow or isinstance(fast, re.Match)


def test_an_alias_bomb_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    bomb = 'a0: &a0 ["lol", "lol"]\n'
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    told = refusal(tmp_path, bomb, CatalogSyntaxError)
    assert "more than 200,000 values, aliases expanded" in told


@pytest.mark.parametrize("open_", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused(tmp_path: Path, open_: str) -> None:
    told = refusal(tmp_path, open_ * 200_000, CatalogSyntaxError)
    assert "nest" in told


def test_nesting_counts_levels() -> None:
    assert read_tree("[" * MAX_DEPTH + "]" * MAX_DEPTH, "c").size == MAX_DEPTH
    with pytest.raises(CatalogSyntaxError, match=f"nested more than {MAX_DEPTH} levels"):
        read_tree("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "c")


# Names that collide.


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("alice", "alice", '"alice" is already given at 5:10; expected a name of its own'),
        ("Alice", "alice", '"alice" and "Alice" at 5:10 differ only in case or Unicode normal'),
        ("caf\u00e9", "cafe\u0301", "differ only in case or Unicode normal form"),
        ("stra\u00dfe", "STRASSE", "differ only in case or Unicode normal form"),
        ("\u03a3", "\u03c2", "differ only in case or Unicode normal form"),
        ("\u212b", "\u00e5", "differ only in case or Unicode normal form"),
    ],
)
def test_colliding_passages(tmp_path: Path, one: str, other: str, expected: str) -> None:
    text = HEAD + f"passages:\n  - {{id: {one}, text: a}}\n  - {{id: {other}, text: b}}\n"
    told = refusal(tmp_path, text, CatalogCollisionError)
    assert told.startswith("catalog.yaml:6:10: passages[1].id: ")
    assert expected in told


def test_colliding_voices(tmp_path: Path) -> None:
    text = "catalog: c\npack: p\nvoices: [{name: a}, {name: b}, {name: A}]\n"
    told = refusal(tmp_path, text + "passages: [{id: p, text: x}]\n", CatalogCollisionError)
    assert told.startswith('catalog.yaml:3:39: voices[2].name: "A" and "a" at 3:17 differ')


# Text files.


def test_text_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\n")
    (tmp_path / "empty.txt").touch()
    text = HEAD + "passages: [{id: a, text_file: sub/a.txt}, {id: b, text_file: empty.txt}]\n"
    assert [passage.text for passage in iter_passages(load(tmp_path, text))] == ["One.\nTwo.", ""]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none.txt", "no such file"),
        ("../secret.txt", "expected a path below the folder of the catalog"),
        ("sub/../../secret.txt", "expected a path below the folder of the catalog"),
        ("/etc/hostname", "expected a path below the folder of the catalog"),
        ("sub\\\\a.txt", "expected a path below the folder of the catalog"),
        ("a\\0b", "expected one line without control characters"),
        ("link.txt", "a link leads outside the folder of the catalog"),
        ("out/secret.txt", "a link leads outside the folder of the catalog"),
        ("loop.txt", "cannot be read"),
        (".", "is a folder, expected a file"),
        ("latin.txt", "byte 0xe9 at offset 3 (line 1) is not UTF-8"),
        ("large.txt", "is larger than the 20 bytes allowed here"),
    ],
)
def test_text_files_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.setattr("catalog.text_files.MAX_TEXT_BYTES", 20)
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "large.txt").write_bytes(b"x" * 21)
    told = refusal(folder, HEAD + f'passages: [{{id: a, text_file: "{name}"}}]\n')
    assert told.startswith("catalog.yaml:4:31: passages[0].text_file: ")
    assert expected in told
    assert "secret" not in expected


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "a.txt").write_text("Hi.\n")
    (tmp_path / "a.txt").symlink_to(tmp_path / "v1" / "a.txt")
    loaded = load(tmp_path, HEAD + "passages: [{id: a, text_file: a.txt}]\n")
    assert [passage.text for passage in iter_passages(loaded)] == ["Hi."]


def test_every_missing_text_file_is_told(tmp_path: Path) -> None:
    text = HEAD + "passages:\n"
    text += "".join(f"  - {{id: p{n}, text_file: f{n}.txt}}\n" for n in range(30))
    with pytest.raises(TextFileError) as caught:
        load(tmp_path, text)
    assert len(caught.value.problems) == 20
    assert caught.value.total == 30
    assert str(caught.value).endswith("no such file (and 29 more)")
    assert "passages[19].text_file" in caught.value.problems[19]


# Corpora.

CORPUS = HEAD + "passages:\n  - {id: first, text: x}\n  - {from: c.parquet, id: name, text: body}\n"


def write_corpus(folder: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), folder / "c.parquet", row_group_size=1000)


def test_a_corpus_is_streamed_in_order(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(2500)]
    write_corpus(tmp_path, other=list(range(2500)), body=[f"Text {n}." for n in names], name=names)
    loaded = load(tmp_path, CORPUS)
    assert loaded.passage_count == 2501
    spoken = [(passage.id, passage.text) for passage in iter_passages(loaded)]
    assert spoken == [("first", "x"), *((name, f"Text {name}.") for name in names)]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_string_types_of_arrow(tmp_path: Path, kind: pa.DataType) -> None:
    write_corpus(tmp_path, name=pa.array(["a", "b"]).cast(kind), body=pa.array(["", "y"]))
    assert load(tmp_path, CORPUS).passage_count == 3


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"id": ["a"], "body": ["x"]},
            'no column "name"; expected one of that name among: id',
        ),
        ({"name": ["a"], "text": ["x"]}, 'no column "body"'),
        ({"name": [1], "body": ["x"]}, 'column "name" holds int64, expected string'),
        ({"name": [b"a"], "body": ["x"]}, 'column "name" holds binary, expected string'),
        ({"name": ["a", None], "body": ["x", "y"]}, "row 1: name is null; expected a string"),
        (
            {"name": ["a", "b/c"], "body": ["x", "y"]},
            "row 1: name: a name must not contain a sl",
        ),
        (
            {"name": ["a", ".."], "body": ["x", "y"]},
            "row 1: name: a name must not start with a",
        ),
        (
            {"name": ["a", "b", "a"], "body": ["x"] * 3},
            'row 2: name: "a" is already given in row',
        ),
        ({"name": ["a", "A"], "body": ["x"] * 2}, 'row 1: name: "A" and "a" in row 0 of c.parquet'),
        ({"name": ["b", "First"], "body": ["x"] * 2}, '"First" and "first" in the catalog differ'),
    ],
)
def test_a_corpus_that_is_refused(
    tmp_path: Path, columns: dict[str, list[object]], expected: str
) -> None:
    write_corpus(tmp_path, **columns)
    with pytest.raises(CorpusError) as caught:
        list(iter_passages(load(tmp_path, CORPUS)))
    check_lines(caught.value)
    assert 'catalog.yaml:6:12: passages[1].from: "c.parquet": ' in str(caught.value)
    assert expected in str(caught.value)


def test_a_null_text_is_refused_where_it_is_read(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(1500)]
    write_corpus(tmp_path, name=names, body=["x"] * 1400 + [None] * 100)
    loaded = load(tmp_path, CORPUS)
    with pytest.raises(CorpusError, match="row 1400: body is null; expected a string"):
        list(iter_passages(loaded))


def test_the_earliest_of_many_collisions_is_told(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(3000)]
    names[2000], names[1500], names[2999] = "p7", "p3", "p3"
    write_corpus(tmp_path, name=names, body=["x"] * 3000)
    told = refusal(tmp_path, CORPUS, CorpusError)
    assert 'row 1500: name: "p3" is already given in row 3 of c.parquet' in told


def test_a_listed_id_after_the_corpus_collides_too(tmp_path: Path) -> None:
    write_corpus(tmp_path, name=["a", "b"], body=["x", "y"])
    told = refusal(tmp_path, CORPUS + "  - {id: B, text: z}\n", CatalogCollisionError)
    assert '"B" and "b" in row 1 of c.parquet differ' in told


def test_corpus_files_that_are_refused(tmp_path: Path) -> None:
    assert "no such file; expected a Parquet file" in refusal(tmp_path, CORPUS, CorpusError)
    (tmp_path / "c.parquet").write_text("not parquet at all, only text")
    assert "not a readable Parquet file" in refusal(tmp_path, CORPUS, CorpusError)
    remote = CORPUS.replace("c.parquet", "s3://bucket/c.parquet")
    assert "expected a Parquet file on a local disk" in refusal(tmp_path, remote, CorpusError)


def test_an_empty_corpus_alone_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path, name=pa.array([], pa.string()), body=pa.array([], pa.string()))
    text = HEAD + "passages: [{from: c.parquet, id: name, text: body}]\n"
    assert "no passage: the sources have no rows" in refusal(tmp_path, text, NothingSelectedError)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(at=st.floats(0, 1, exclude_max=True), junk=st.binary(max_size=6), cut=st.integers(0, 40))
def test_a_damaged_corpus_is_a_typed_error(
    workshop: Path, at: float, junk: bytes, cut: int
) -> None:
    folder = workshop
    write_corpus(folder, name=[f"p{n}" for n in range(50)], body=["x"] * 50)
    data = (folder / "c.parquet").read_bytes()
    start = int(at * len(data))
    (folder / "c.parquet").write_bytes(data[:start] + junk + data[start + cut :])
    try:
        list(iter_passages(load(folder, CORPUS)))
    except CatalogError as error:
        check_lines(error)


# Anything at all.

NASTY = [
    *("\t", "\n", "- ", "? ", ": ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "!x ", "<<: *a"),
    *("|", ">-", "---\n", "...\n", "%YAML 1.2\n", "'", '"', "\\", "\0", "\x85", "\u2028", "\ufeff"),
    *("null", "~", "no", "0x", "1e999", ".nan", "-1", str(2**64), "9" * 500, "../", "/", ".."),
    *("é", "e\u0301", "ß", "\U0001f600", "{}", "[]", "{told}", "%s", "name: slt", "id: short"),
    *("renders: [{voice: '[', passage: '*'}]", "turns: []", "text_file: ../x", "seed: 7\n"),
]
BASES = [
    (EXAMPLES / "catalog.yaml").read_text(),
    HEAD + "defaults: {seed: 1, style: s}\npassages:\n  - {id: a, text: A., seed: 3}\n"
    "  - {id: b, text_file: b.txt, style: x, language: pl}\n"
    "renders:\n  - {voice: '*', passage: a}\n  - {voice: s*, passage: '[a-b]', seed: 9}\n",
    "catalog: c\npack: {path: ../packs/x, sha256: " + "0" * 64 + "}\n"
    "voices:\n- &v {name: a, language: English, language_id: en, seed: 5}\n"
    "passages:\n- {id: p, text: |\n   One.\n   Two.\n  }\n- {from: c.parquet, id: i, text: t}\n",
]
EDIT = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 30),
    st.one_of(st.sampled_from(NASTY), st.text(max_size=4)),
)


def attempt(folder: Path, data: bytes) -> None:
    """Loads and renders, or refuses in lines that name the file; nothing else may happen."""
    path = folder / "catalog.yaml"
    path.write_bytes(data)
    try:
        renders = list(iter_renders(load_catalog(path)))
    except CatalogError as error:
        check_lines(error, str(path))
    else:
        assert len({render.key for render in renders}) == len(renders) > 0


@settings(max_examples=400, deadline=None, derandomize=True)
@given(base=st.sampled_from(BASES), edits=st.lists(EDIT, min_size=1, max_size=4))
def test_mutated_catalogs(workshop: Path, base: str, edits: list[tuple[float, int, str]]) -> None:
    text = base
    for at, cut, insert in edits:
        start = int(at * len(text))
        text = text[:start] + insert + text[start + cut :]
    attempt(workshop, text.encode("utf-8", "surrogatepass"))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.binary(max_size=60))
def test_arbitrary_bytes(workshop: Path, data: bytes) -> None:
    attempt(workshop, data)


SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("*")
)
KEYS = [
    "catalog",
    "pack",
    "voices",
    "passages",
    "renders",
    "defaults",
    "name",
    "id",
    "text",
    "from",
]
KEYS += ["seed", "source", "voice", "passage", "format", "language", "language_id", "text_file"]
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
GOOD: dict[str, Any] = {
    "catalog": "c",
    "pack": "starter",
    "voices": [{"name": "a"}],
    "passages": [{"id": "p", "text": "x"}],
}


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(changes=st.dictionaries(st.sampled_from(KEYS[:6]), VALUE, max_size=3))
def test_catalogs_of_any_shape(workshop: Path, changes: dict[str, Any]) -> None:
    attempt(workshop, yaml.safe_dump({**GOOD, **changes}, allow_unicode=True).encode())


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, derandomize=True)
@given(base=st.sampled_from(BASES), edits=st.lists(EDIT, min_size=1, max_size=6))
def test_mutated_catalogs_at_length(
    workshop: Path, base: str, edits: list[tuple[float, int, str]]
) -> None:
    text = base
    for at, cut, insert in edits:
        start = int(at * len(text))
        text = text[:start] + insert + text[start + cut :]
    attempt(workshop, text.encode("utf-8", "surrogatepass"))


def test_loading_needs_neither_pyarrow_nor_numpy() -> None:
    code = (
        "import sys; from catalog.loader import load_catalog; import catalog.renders, "
        "catalog.records, catalog.record_reading\n"
        "load_catalog('examples/catalog.yaml')\n"
        "print(sorted({'pyarrow', 'numpy', 'torch', 'ray', 'engine'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"


def test_errors_survive_pickling() -> None:
    error = CatalogInvalidError(*(f"line {n}\nbroken" for n in range(25)))
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(twin) == str(error) == "line 0\\nbroken (and 24 more)"
        assert twin.problems == error.problems
