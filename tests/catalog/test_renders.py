"""Which renders a catalog asks for, in which order, from which seeds."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import CatalogError, NothingSelectedError
from catalog.loader import LoadedCatalog, load_catalog
from catalog.names import name_fault
from catalog.renders import iter_renders
from catalog.selection import PassageRules, Rule, name_matcher

BASE = """\
catalog: c
pack: starter
defaults: {seed: 1, language: en, format: opus, style: plain}
voices:
  - {name: slt}
  - {name: rms, seed: 2, language: pl, style: warm}
  - {name: awb, language: Scots, language_id: sco}
passages:
  - {id: short, text: Hi.}
  - {id: alice, text: Alice., seed: 3, language: de, style: loud}
  - {id: story, text: Once.}
"""


def load(folder: Path, text: str = BASE) -> LoadedCatalog:
    (folder / "catalog.yaml").write_text(text)
    return load_catalog(folder / "catalog.yaml")


def keys(loaded: LoadedCatalog, only: str | None = None) -> list[str]:
    return [render.key for render in iter_renders(loaded, only)]


def test_passage_by_passage_and_voice_by_voice(tmp_path: Path) -> None:
    assert keys(load(tmp_path)) == [
        *("slt/short", "rms/short", "awb/short"),
        *("slt/alice", "rms/alice", "awb/alice"),
        *("slt/story", "rms/story", "awb/story"),
    ]


def test_a_render_says_all_that_is_needed(tmp_path: Path) -> None:
    renders = {render.key: render for render in iter_renders(load(tmp_path))}
    found = {key: (render.seed, render.language, render.style) for key, render in renders.items()}
    assert found["slt/short"] == (1, "en", "plain")
    assert found["rms/short"] == (2, "pl", "warm")
    assert found["awb/short"] == (1, "sco", "plain")
    assert found["slt/alice"] == found["rms/alice"] == (3, "de", "loud")
    render = renders["rms/alice"]
    assert (render.voice.name, render.passage_id, render.text) == ("rms", "alice", "Alice.")
    assert render.audio_path == "audio/rms/alice.opus"


def test_rules_select_and_seed(tmp_path: Path) -> None:
    rules = "renders:\n  - {voice: '*', passage: alice}\n  - {voice: rms, passage: s*, seed: 0}\n"
    renders = list(iter_renders(load(tmp_path, BASE + rules)))
    assert [(render.key, render.seed) for render in renders] == [
        ("rms/short", 0),
        ("slt/alice", 3),
        ("rms/alice", 3),
        ("awb/alice", 3),
        ("rms/story", 0),
    ]


def test_the_last_rule_with_a_seed_gives_it(tmp_path: Path) -> None:
    rules = "renders:\n  - {voice: '*', passage: alice, seed: 10}\n"
    rules += "  - {voice: slt, passage: alice, seed: 11}\n  - {voice: '[sr]*', passage: '*'}\n"
    seeds = {render.key: render.seed for render in iter_renders(load(tmp_path, BASE + rules))}
    assert seeds == {
        "slt/short": 1,
        "rms/short": 2,
        "slt/alice": 11,
        "rms/alice": 10,
        "awb/alice": 10,
        "slt/story": 1,
        "rms/story": 2,
    }


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("*/alice", ["slt/alice", "rms/alice", "awb/alice"]),
        ("slt/*", ["slt/short", "slt/alice", "slt/story"]),
        ("slt/alice", ["slt/alice"]),
        ("[sr]*/s*", ["slt/short", "rms/short", "slt/story", "rms/story"]),
        ("?lt/[!s]*", ["slt/alice"]),
    ],
)
def test_only(tmp_path: Path, only: str, expected: list[str]) -> None:
    assert keys(load(tmp_path), only) == expected


@pytest.mark.parametrize("only", ["", "slt", "*", "/", "slt/", "/alice", "a/b/c", "x" * 500])
def test_only_of_another_form_is_refused_at_once(tmp_path: Path, only: str) -> None:
    loaded = load(tmp_path)
    with pytest.raises(NothingSelectedError, match='expected VOICE/PASSAGE, such as "slt/\\*"'):
        iter_renders(loaded, only)


@pytest.mark.parametrize("only", ["SLT/*", "slt/none", "nobody/alice", "[/alice"])
def test_only_that_matches_nothing_is_an_error(tmp_path: Path, only: str) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        keys(load(tmp_path), only)
    told = f'--only "{only}": matches none of the renders; the voices are: slt, rms, awb'
    assert str(caught.value) == told


def test_only_does_not_widen_the_rules(tmp_path: Path) -> None:
    loaded = load(tmp_path, BASE + "renders: [{voice: slt, passage: short}]\n")
    assert keys(loaded, "*/short") == ["slt/short"]
    with pytest.raises(NothingSelectedError):
        keys(loaded, "*/alice")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("[{voice: stl, passage: '*'}]", '12:19: renders[0].voice: no voice matches "stl"; did'),
        (
            "[{voice: '*', passage: '*'}, {voice: x*, passage: '*'}]",
            '12:47: renders[1].voice: no voice matches "x*"; there are: slt, rms, awb',
        ),
        (
            "[{voice: '*', passage: alcie}]",
            '12:33: renders[0].passage: no passage matches "alcie"; did you mean "alice"?',
        ),
        ("[{voice: '*', passage: '[z-a]'}]", '12:33: renders[0].passage: no passage matches "[z-'),
    ],
)
def test_a_rule_that_matches_nothing_is_named(tmp_path: Path, rules: str, expected: str) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        load(tmp_path, BASE + f"renders: {rules}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'catalog.yaml'}:{expected}")


def test_every_dead_rule_is_told(tmp_path: Path) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        load(tmp_path, BASE + "renders: [{voice: x, passage: y}, {voice: slt, passage: z}]\n")
    assert len(caught.value.problems) == 3


def test_a_glob_in_another_normal_form_matches(tmp_path: Path) -> None:
    text = BASE.replace("{id: short", "{id: caf\u00e9")
    assert keys(load(tmp_path, text), "slt/cafe\u0301") == ["slt/caf\u00e9"]
    assert keys(load(tmp_path, text), "slt/caf?") == ["slt/caf\u00e9"]


def test_rules_and_only_reach_into_a_corpus(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(2000)]
    table = pa.table({"id": names, "text": [f"Text {name}." for name in names]})
    pq.write_table(table, tmp_path / "c.parquet")
    text = BASE + "  - {from: c.parquet, id: id, text: text}\n"
    text += "renders: [{voice: slt, passage: short}, {voice: rms, passage: 'p19??', seed: 8}]\n"
    loaded = load(tmp_path, text)
    renders = list(iter_renders(loaded))
    assert [render.key for render in renders] == [
        "slt/short",
        *(f"rms/p19{n:02}" for n in range(100)),
    ]
    assert renders[-1].text == "Text p1999."
    assert renders[-1].seed == 8
    assert keys(loaded, "*/p1950") == ["rms/p1950"]
    with pytest.raises(NothingSelectedError, match='no passage matches "q\\*"'):
        load(tmp_path, text.replace("p19??", "q*"))


def test_a_corpus_that_vanished_is_a_typed_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "text": ["x"]}), tmp_path / "c.parquet")
    loaded = load(tmp_path, BASE + "  - {from: c.parquet, id: id, text: text}\n")
    (tmp_path / "c.parquet").unlink()
    with pytest.raises(CatalogError, match="no such file; expected a Parquet file"):
        keys(loaded)


NAME = st.text("ab[]*?!-.é", min_size=1, max_size=6)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(name=NAME, pattern=NAME)
def test_names_match_as_fnmatchcase_does(name: str, pattern: str) -> None:
    assert name_matcher(pattern)(name) == fnmatchcase(name, pattern)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(name=NAME, patterns=st.lists(NAME, min_size=1, max_size=6))
def test_rules_that_lie_by_their_ends_are_found_as_if_all_were_tried(
    name: str, patterns: list[str]
) -> None:
    rules = [_rule(index, pattern) for index, pattern in enumerate(patterns)]
    found = sorted(rule.index for rule in PassageRules(rules).asking_for(name))
    assert found == [rule.index for rule in rules if rule.passage(name)]


def _rule(index: int, pattern: str) -> Rule:
    return Rule(index, name_matcher("*"), name_matcher(pattern), None, pattern)


@pytest.mark.parametrize("pattern", ["ch{:03}-*", "ch{:03}", "*-{:03}", "*{:03}", "ch{:03}?"])
def test_a_name_is_held_against_few_of_many_rules(pattern: str) -> None:
    """A thousand rules times a book of passages would be tried for seconds."""
    tried: list[str] = []

    def never(name: str) -> bool:
        tried.append(name)
        return False

    rules = [replace(_rule(n, pattern.format(n)), passage=never) for n in range(1000)]
    lying = PassageRules(rules)
    for n in range(1000):
        lying.asking_for(f"ch{n:03}-{n:03}")
    assert len(tried) <= 1000


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    names=st.lists(
        NAME.filter(lambda name: name_fault(name) is None), min_size=1, max_size=5, unique=True
    ),
    pattern=st.text("ab*?é", min_size=1, max_size=3),
)
def test_only_is_the_filter_of_all(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], pattern: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    listed = "".join(f"  - {{id: '{name}', text: x}}\n" for name in names)
    head = re.sub(r"(?s)passages:.*", "passages:\n", BASE)
    loaded = load(folder, head + listed)
    everything = list(iter_renders(loaded))
    assert len({render.audio_path for render in everything}) == 3 * len(names)
    chosen = [render for render in everything if fnmatchcase(render.passage_id, pattern)]
    if chosen:
        assert list(iter_renders(loaded, f"*/{pattern}")) == chosen
    else:
        with pytest.raises(NothingSelectedError):
            keys(loaded, f"*/{pattern}")
