"""Text before it is tokens: what is read aloud, and the chunks it is spoken in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit.frontend.speechtext import speech_text

from engine.algorithm import VERBATIM_TEXT, TextConfig, funnel_identity
from engine.errors import NothingToSpeakError, UnsupportedLanguageError, UnsupportedTextError
from engine.pack import Pack
from engine.speech_chunks import speech_chunks
from engine.speech_text import has_words, prepare_text
from tests.benchmarks.prose import passages

FUNNEL = funnel_identity()
BUDGET = 110
"""Characters of a chunk of the starter: 80 frames at 1.375 characters a frame."""


# -- prepare_text ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (
            "On 3 May 2026 the ticket cost $12.50.",
            "On the third of May twenty twenty-six the ticket cost twelve point five zero dollars.",
        ),
        ("It was 10:30 on the 1st.", "It was ten thirty on the first."),
        ("1,000,000 people", "one million people"),
        ("20% of 3 km", "twenty percent of three km"),
        ("Dr. Smith met Mr. Jones at 5", "Dr. Smith met Mr. Jones at five"),
        ("  spaced   out  ", "spaced out"),
        ("R&D at me@x.com", "R and D at me at x.com"),
        ("H\u2082O, x\u00b2 and \u0663", "H two O, x two and three"),
    ],
)
def test_the_funnel_reads_numbers_dates_and_signs(text: str, spoken: str) -> None:
    assert prepare_text(text, "en", FUNNEL) == spoken


def test_the_funnel_is_the_published_one_in_every_language_it_reads() -> None:
    text = "Am 3. 5. 2026: 12,50 \u20ac, 20 % & 1st."
    for language in ("da", "de", "en", "es", "fi", "fr", "it", "nl", "no", "pl", "pt", "sv"):
        assert prepare_text(text, language, FUNNEL) == speech_text(text, language)
    assert prepare_text("5", "en", FUNNEL) != prepare_text("5", "de", FUNNEL)


@given(st.text(max_size=60))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_verbatim_text_stands_as_it_is(text: str) -> None:
    if not has_words(text):
        with pytest.raises(NothingToSpeakError):
            prepare_text(text, "en", VERBATIM_TEXT)
    else:
        assert prepare_text(text, "en", VERBATIM_TEXT) == text.strip()


def test_verbatim_text_has_no_language() -> None:
    assert prepare_text("5 \u20ac", "tlh", VERBATIM_TEXT) == "5 \u20ac"


@pytest.mark.parametrize("language", ["xx", "", "EN", "en-US", "english", "e\nn"])
def test_a_language_without_a_grammar_is_refused_with_what_there_is(language: str) -> None:
    with pytest.raises(UnsupportedLanguageError) as refusal:
        prepare_text("Good morning.", language, FUNNEL)
    told = str(refusal.value)
    assert f"cannot read {language!r}" in told
    assert "da, de, en, es, fi, fr, it, nl, no, pl, pt, sv" in told
    assert "\n" not in told


@pytest.mark.parametrize("config", [FUNNEL, VERBATIM_TEXT], ids=["funnel", "verbatim"])
@pytest.mark.parametrize("text", ["half \ud800 pair", "\udfff", "a\udc00b", "\ude00\ud83d"])
def test_half_of_a_surrogate_pair_is_refused(text: str, config: TextConfig) -> None:
    with pytest.raises(UnsupportedTextError, match="surrogate pair"):
        prepare_text(text, "en", config)


def test_a_whole_pair_is_a_character_like_any_other() -> None:
    assert prepare_text("\U0001d400 rocket \U0001f680", "en", VERBATIM_TEXT).endswith("\U0001f680")


@pytest.mark.parametrize("config", [FUNNEL, VERBATIM_TEXT], ids=["funnel", "verbatim"])
@pytest.mark.parametrize(
    "text", ["", " \n\t ", "... !? --", "\u2014\u2026", "\U0001f600", "\u200b", "\u0301"]
)
def test_no_word_is_refused_in_one_line(text: str, config: TextConfig) -> None:
    with pytest.raises(NothingToSpeakError, match="nothing to speak") as refusal:
        prepare_text(text, "en", config)
    assert "\n" not in str(refusal.value)


def test_words_that_the_funnel_removes_are_no_words() -> None:
    assert has_words("[12]")
    with pytest.raises(NothingToSpeakError, match=r"no word is left once it is read aloud"):
        prepare_text("[12]", "en", FUNNEL)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", True),
        ("5", True),
        ("\u0663", True),
        ("\u65e5", True),
        ("\u2163", True),
        ("\u00bd", True),
    ]
    + [(mark, False) for mark in (".", "\u2026", " ", "", "\u0301", "\U0001f600", "$", "\u200d")],
)
def test_a_word_is_a_letter_or_a_digit_of_any_script(text: str, words: bool) -> None:
    assert has_words(text) is words


# -- speech_chunks --------------------------------------------------------------------------------


def letters_of(text: str) -> str:
    """All that is not white space: nothing else may be lost between chunks."""
    return "".join(text.split())


def verbatim(pack: Pack) -> Pack:
    return replace(pack, algorithm=replace(pack.algorithm, text=VERBATIM_TEXT))


def test_the_starters_chunks_fit_their_window(starter: Pack) -> None:
    chunking = starter.algorithm.chunking
    assert int(chunking.max_tokens * chunking.chars) == BUDGET
    chunks = [
        chunk for text in passages(200, seed=3) for chunk in speech_chunks(starter, text, "en")
    ]
    assert len(chunks) > 400
    assert max(map(len, chunks)) <= BUDGET
    assert max(map(len, chunks)) > BUDGET - 10
    # Sentences that fit are not torn.
    assert all(chunk.endswith((".", "!", "?", ",")) for chunk in chunks)


def test_the_funnel_comes_before_the_cuts(starter: Pack) -> None:
    """A number may be one character in the text and fifty when it is spoken."""
    text = "He paid $1,234,567.89 on 29 February 2024. " * 4
    chunks = speech_chunks(starter, text, "en")
    assert not any(c.isdigit() for chunk in chunks for c in chunk)
    assert max(map(len, chunks)) <= BUDGET
    assert letters_of("".join(chunks)) == letters_of(speech_text(text, "en"))


def test_a_verbatim_pack_keeps_what_it_is_given(starter: Pack) -> None:
    assert speech_chunks(verbatim(starter), " 5 km,  2 h ", "en") == ["5 km,  2 h"]


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            "the lamp, harbour. window; Mara! a b c cold cup? of tea: so (well) x".split()
        ),
        st.sampled_from(["...", "!?", "--", "\u2026", "\u201c", "\n\n", "- - -", "....." * 30]),
        st.text("abcdefgh", min_size=1, max_size=250),
    ),
    max_size=60,
)


@given(PIECES)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_no_text_is_lost_and_every_chunk_has_a_word(starter: Pack, pieces: list[str]) -> None:
    text = " ".join(pieces)
    pack = verbatim(starter)
    if not has_words(text):
        with pytest.raises(NothingToSpeakError):
            speech_chunks(pack, text, "en")
        return
    chunks = speech_chunks(pack, text, "en")
    assert letters_of("".join(chunks)) == letters_of(text)
    for chunk in chunks:
        assert has_words(chunk)
        assert chunk == chunk.strip()
        spoken = [at for at, character in enumerate(chunk) if has_words(character)]
        assert spoken[-1] - spoken[0] < BUDGET


@given(PIECES)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_through_the_funnel_no_prepared_text_is_lost(starter: Pack, pieces: list[str]) -> None:
    text = " ".join(pieces)
    try:
        prepared = prepare_text(text, "en", FUNNEL)
    except NothingToSpeakError:
        with pytest.raises(NothingToSpeakError):
            speech_chunks(starter, text, "en")
        return
    chunks = speech_chunks(starter, text, "en")
    assert letters_of("".join(chunks)) == letters_of(prepared)
    assert all(has_words(chunk) for chunk in chunks)


def test_marks_alone_close_the_chunk_before_them(starter: Pack) -> None:
    words = "Word " * 21 + "end."  # 109 characters: nothing more fits
    marks = "?!" * 40
    chunks = speech_chunks(verbatim(starter), f"{words} {marks} {words}", "en")
    assert chunks == [f"{words} {marks}", words]


def test_marks_alone_at_the_beginning_open_the_first_chunk(starter: Pack) -> None:
    marks = "?!" * 50
    words = "Word " * 21 + "end."
    chunks = speech_chunks(verbatim(starter), f"{marks} {words} {words}", "en")
    assert chunks == [f"{marks} {words}", words]
    longer = "?!" * 120
    chunks = speech_chunks(verbatim(starter), f"{longer} {words} {words}", "en")
    assert letters_of(chunks[0]) == letters_of(longer + words)
    assert chunks[1:] == [words]


@pytest.mark.parametrize("language", ["de", "", "EN", "xx"])
def test_a_language_the_pack_does_not_speak_is_refused(starter: Pack, language: str) -> None:
    with pytest.raises(UnsupportedLanguageError, match=f"pack starter speaks en, not {language!r}"):
        speech_chunks(starter, "Good morning.", language)
    with pytest.raises(UnsupportedLanguageError):
        speech_chunks(verbatim(starter), "Good morning.", language)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", NothingToSpeakError),
        ("?! ...", NothingToSpeakError),
        ("[12]", NothingToSpeakError),
        ("half \ud800 pair", UnsupportedTextError),
    ],
)
def test_what_cannot_be_spoken_is_refused(starter: Pack, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        speech_chunks(starter, text, "en")
