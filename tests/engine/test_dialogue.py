"""Dialogues: turns become chunks that the law can treat as any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contracts.contract import Conditioning
from engine.contracts.tags import TagSet, find_tags
from engine.dialogue import dialogue_chunks, halve, readable, turns_of
from engine.engine import load_engine
from engine.errors import (
    EngineError,
    NothingToSpeakError,
    UnknownSpeakerError,
    UnsupportedPromptError,
    UnsupportedTextError,
)
from engine.events import FailureEvent, PassageEvent, PassageJob, WindowEvent
from engine.execution import ExecutionConfig
from engine.importing import import_pack
from engine.importing_manifest import PackLabel
from engine.pack import Pack, open_pack
from engine.session import Session
from tests.hugging_face_folders import tiny_llama, tiny_snac
from tests.tokenizers_small import write_tokenizer

TURNS = (("tara", "Good morning. Did you sleep?"), ("leo", "Not at all <sigh>."), ("tara", "Oh."))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """A llama-3-audio pack of tiny random weights."""
    folder = tmp_path_factory.mktemp("dialogue")
    model = tiny_llama(folder / "model", vocabulary=156_960)
    tiny_snac(folder / "codec")
    write_tokenizer(model, "llama-3-audio")
    label = PackLabel("tiny", ("en",), licence="none", source="random")
    import_pack(model, folder / "codec", out=folder / "pack", label=label)
    return open_pack(folder / "pack")


def test_short_turns_share_a_chunk_and_keep_their_speakers(pack: Pack) -> None:
    [chunk] = dialogue_chunks(pack, TURNS, "en")
    assert turns_of(chunk) == [
        ("tara", "Good morning. Did you sleep?"),
        ("leo", "Not at all <sigh>."),
        ("tara", "Oh."),
    ]


def test_long_dialogues_are_cut_at_turns_or_within_long_ones(pack: Pack) -> None:
    long = " ".join(["The boats were home."] * 40)
    chunks = dialogue_chunks(pack, (("tara", "Well?"), ("leo", long), ("tara", "Good.")), "en")
    budget = int(pack.algorithm.chunking.max_tokens * pack.algorithm.chunking.chars)
    assert len(chunks) > 1
    spoken: list[tuple[str, str]] = []
    for chunk in chunks:
        turns = turns_of(chunk)
        assert turns
        assert sum(len(text) for _, text in turns) <= budget
        spoken += turns
    assert " ".join(text for who, text in spoken if who == "leo") == long
    assert spoken[0] == ("tara", "Well?")
    assert spoken[-1] == ("tara", "Good.")


def test_a_turn_with_nothing_to_speak_is_named(pack: Pack) -> None:
    with pytest.raises(NothingToSpeakError, match=r"turns\[1\]"):
        dialogue_chunks(pack, (("tara", "Yes."), ("leo", "...")), "en")
    with pytest.raises(NothingToSpeakError):
        dialogue_chunks(pack, (), "en")


def test_a_pack_that_speaks_no_dialogue_says_so(starter: Pack) -> None:
    with pytest.raises(UnsupportedPromptError, match="starter"):
        dialogue_chunks(starter, (("slt", "Yes."),), "en")


WORDS = st.text(alphabet="ab ", min_size=1, max_size=40).filter(lambda text: text.strip())


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(["tara", "leo"]), WORDS), min_size=1, max_size=5))
def test_halves_lose_no_word_and_no_speaker(turns: list[tuple[str, str]]) -> None:
    chunk = "".join(f"\x1e{speaker}\x1f{text.strip()}" for speaker, text in turns)
    halves = halve(chunk)
    words = [(speaker, word) for speaker, text in turns for word in text.split()]
    if halves is None:
        assert len(turns) == 1
        assert len(words) == 1
        return
    found: list[tuple[str, str]] = []
    for half in halves:
        parts = turns_of(half)
        assert parts
        assert all(text.strip() for _, text in parts)
        found += [(speaker, word) for speaker, text in parts for word in text.split()]
    assert found == words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("one two", ("one", "two")),
        ("Hi <laugh>", None),
        ("Hi <Deep_Sigh>", None),
        ("Hi there <laugh> [door]", ("Hi", "there <laugh> [door]")),
        ("words and words -- -- -- -- --", ("words and", "words -- -- -- -- --")),
        ("word", None),
    ],
)
def test_a_half_always_has_something_to_say(text: str, wanted: tuple[str, str] | None) -> None:
    assert halve(text) == wanted


TAGS = TagSet.of(["laugh", "sigh", "env"])
SAID = st.lists(
    st.sampled_from(
        [
            *("a", "hello", "the sea ", "...", " -- ", ". ", "! ", " ", " "),
            *("<laugh>", " <sigh>", "<laugh> ", "[rain] ", "<laugh> <sigh> [rain] "),
        ]
    ),
    min_size=1,
    max_size=20,
).map("".join)


def says_something(text: str) -> bool:
    for tag in reversed(find_tags(text, TAGS)):
        text = f"{text[: tag.start]} {text[tag.end :]}"
    return any(character.isalnum() for character in text)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    st.lists(
        st.tuples(st.sampled_from(["tara", "leo"]), SAID.filter(says_something)),
        min_size=1,
        max_size=4,
    )
)
def test_every_part_of_a_half_says_something_and_no_tag_is_lost(
    turns: list[tuple[str, str]],
) -> None:
    turns = [(speaker, text.strip()) for speaker, text in turns]
    halves = halve("".join(f"\x1e{speaker}\x1f{text}" for speaker, text in turns))
    words = sum(len(text.split()) for _, text in turns)
    if halves is None:
        assert len(turns) == 1
        assert words == 1 or sum(map(says_something, turns[0][1].split())) < 2
        return
    parts = [part for half in halves for part in turns_of(half) or []]
    assert all(says_something(text) for _, text in parts)
    assert [tag.name for _, text in parts for tag in find_tags(text, TAGS)] == [
        tag.name for _, text in turns for tag in find_tags(text, TAGS)
    ]


@pytest.mark.parametrize(
    ("turns", "wanted"),
    [
        ([("A", "<laugh> <sigh> hello")], None),
        ([("A", "hi <laugh> <laugh> <laugh>")], None),
        ([("A", "... hello")], None),
        ([("A", "... hello you")], ([("A", "... hello")], [("A", "you")])),
        (
            [("A", "so <laugh> <laugh> <laugh> <laugh> it"), ("B", "is")],
            ([("A", "so <laugh> <laugh>")], [("A", "<laugh> <laugh> it"), ("B", "is")]),
        ),
        ([("A", "hi"), ("B", "<laugh> so")], ([("A", "hi")], [("B", "<laugh> so")])),
    ],
)
def test_a_half_of_turns_always_has_something_to_say(
    turns: list[tuple[str, str]],
    wanted: tuple[list[tuple[str, str]], list[tuple[str, str]]] | None,
) -> None:
    halves = halve("".join(f"\x1e{speaker}\x1f{text}" for speaker, text in turns))
    assert (halves and tuple(map(turns_of, halves))) == wanted


@pytest.mark.parametrize("control", ["\x1e", "\x1f", "\x00", "\n", "\t", "\x7f", "\x85", "\ud800"])
def test_a_speaker_with_control_characters_is_refused(pack: Pack, control: str) -> None:
    for speaker in (f"ta{control}ra", control):
        with pytest.raises(UnknownSpeakerError, match=r"^turns\[1\]: '.*control characters"):
            dialogue_chunks(pack, (("tara", "Yes."), (speaker, "No.")), "en")
    # in a text they are white space
    for separator in "\x1e\x1f":
        [chunk] = dialogue_chunks(pack, (("tara", f"Yes{separator}leo."),), "en")
        assert turns_of(chunk) == [("tara", "Yes leo.")]


def test_half_of_a_surrogate_pair_is_refused_by_turn(pack: Pack) -> None:
    with pytest.raises(UnsupportedTextError, match=r"^turns\[1\]: the text .*surrogate") as told:
        dialogue_chunks(pack, (("tara", "Yes."), ("leo", "No \ud800")), "en")
    assert isinstance(told.value, EngineError)


def test_a_dialogue_is_rendered_with_the_contracts_dialogue_prompt(pack: Pack) -> None:
    engine = load_engine(pack, ExecutionConfig(), slots=4)
    [chunk] = dialogue_chunks(pack, TURNS, "en")
    prompt = engine.prompt_ids(chunk, Conditioning("tara"), ())
    specials = engine.text_side.contract.added_tokens
    assert prompt.count(specials["<|speaker>"]) == len(TURNS)
    assert specials["<|nv_sigh|>"] in prompt
    assert prompt[-1] == specials["<|start_of_speech|>"]
    session, events = Session(engine, slots=4), []
    session.submit(PassageJob("d", "", Conditioning("tara"), 7, "en", "wav", turns=TURNS))
    while session.in_flight:
        events += session.advance()
    assert not [event for event in events if isinstance(event, FailureEvent)]
    assert [event.key for event in events if isinstance(event, PassageEvent)] == ["d"]
    assert [event for event in events if isinstance(event, WindowEvent)]


def test_a_catalog_holds_dialogues(tmp_path: Path) -> None:
    from catalog.errors import CatalogError
    from catalog.loader import load_catalog
    from catalog.renders import iter_renders

    head = "catalog: talk\npack: starter\nvoices: [{name: ann, speaker: slt}, {name: bob}]\n"
    path = tmp_path / "catalog.yaml"
    path.write_text(
        head + "passages:\n  - id: chat\n    turns:\n      - {voice: bob, text: Hello.}\n"
        "      - {voice: ann, text: Hi.}\n"
    )
    [render] = iter_renders(load_catalog(path))
    assert render.key == "bob/chat"
    assert render.turns == (("bob", "Hello."), ("slt", "Hi."))
    assert render.text == "bob: Hello.\nann: Hi."
    path.write_text(path.read_text().replace("voice: ann", "voice: eve"))
    with pytest.raises(CatalogError, match=r"passages\[0\]\.turns\[1\]\.voice.*eve"):
        load_catalog(path)
    path.write_text(head + "passages: [{id: a, text: A., turns: [{voice: ann, text: A.}]}]\n")
    with pytest.raises(CatalogError, match="text and turns"):
        load_catalog(path)
    path.write_text(head + "passages: [{id: a, turns: []}]\n")
    with pytest.raises(CatalogError):
        load_catalog(path)


def test_a_dialogue_is_readable_and_a_text_stays_as_it_is(pack: Pack) -> None:
    [chunk] = dialogue_chunks(pack, TURNS, "en")
    assert readable(chunk).splitlines()[0].startswith(f"{TURNS[0][0]}: ")
    assert len(readable(chunk).splitlines()) == len(TURNS)
    assert readable("Plain.") == "Plain."
