"""Tags: what is one, what only looks like one, and their way through funnel and chunks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loudkit.frontend.numbers import supported_languages

from engine.algorithm import VERBATIM_TEXT, ChunkConfig
from engine.contracts.tags import TagSet, find_tags
from engine.dialogue import halve
from engine.errors import (
    ManifestError,
    NothingToSpeakError,
    UnsupportedTagError,
    UnsupportedTextError,
)
from engine.pack import Pack
from engine.speech_chunks import speech_chunks
from engine.tagged_text import protect_tags

NON_VERBALS = (
    "breath stammer throat laugh swallow sniff sigh cough hum gasp wheeze sneeze snort yawn groan "
    "burp"
).split()
ALL = TagSet.of([*NON_VERBALS, "env"])
CLOSED = TagSet.of(NON_VERBALS)
LANGUAGES = sorted(supported_languages())

repeatable = settings(deadline=None, derandomize=True, max_examples=150)


def spelled(text: str, tags: TagSet = ALL) -> list[str]:
    return [text[tag.start : tag.end] for tag in find_tags(text, tags)]


def pack_with(
    starter: Pack,
    tags: Sequence[str],
    *,
    chars: int = 400,
    verbatim: bool = False,
    languages: Sequence[str] = ("en",),
) -> Pack:
    """The starter pack as if it had been trained on tags, its chunks at most `chars` long."""
    manifest = starter.manifest.model_copy(
        update={"supported_tags": list(tags), "languages": list(languages)}
    )
    algorithm = replace(
        starter.algorithm,
        chunking=ChunkConfig(max_tokens=1, prefix_tokens=0, chars_per_token=chars),
        text=VERBATIM_TEXT if verbatim else starter.algorithm.text,
    )
    return replace(starter, manifest=manifest, algorithm=algorithm)


# What is a tag


@pytest.mark.parametrize("name", NON_VERBALS)
def test_each_of_the_closed_set_is_found(name: str) -> None:
    text = f"Well <{name}> yes<{name}>, <{name}><{name}>no"
    assert spelled(text, CLOSED) == [f"<{name}>"] * 4


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("[bird_squawk] Hello", ["[bird_squawk]"]),
        ("Stop.[rain] Go", ["[rain]"]),
        ("[rain][wind_gust] Go", ["[rain]", "[wind_gust]"]),
        ("(<laugh>[Rain])", ["<laugh>", "[Rain]"]),
        ("go [rain], now <sigh>.", ["[rain]", "<sigh>"]),
    ],
)
def test_labels_are_an_open_class(text: str, tags: list[str]) -> None:
    assert spelled(text) == tags
    assert spelled(text, CLOSED) == [tag for tag in tags if tag.startswith("<")]


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "a < b", "a<b and c>d", "x[1]", "[12]", "[1, 2]", "x[i]", "m[i][j]", "f(x)[k]"),
        *("[T]he", "[here](http://x.y)", "[a][b](c)", "[ rain ]", "[bird squawk]", "[rain_]"),
        *("List<int>", "vector<Map>", "1 <2> 3", "<3", "< laugh >", "</laugh>", "<br/>", "<a b>"),
        *("<|eot_id|>", "<|nv_laugh|>", "<|env>rain<env|>", "<custom_token_7>", "<laugh", "laugh>"),
        *("[r\u00e4in]", "<\u043b\u0430>", "[[1]]", "<!-- x -->", "<_>", "[_rain]", "<laugh\n>"),
        *("<laugh >", "<laugh1>", "<laugh-x>", "<laugh/>", "[rain ]", "[rain1]"),
    ],
)  # fmt: skip
def test_text_that_merely_contains_brackets_is_untouched(starter: Pack, text: str) -> None:
    assert find_tags(text, ALL) == []
    text = f"He said {text} today."
    assert find_tags(text, ALL) == []
    with_tags = pack_with(starter, ALL.names)
    without = pack_with(starter, [])
    assert speech_chunks(with_tags, text, "en") == speech_chunks(without, text, "en")
    as_it_stands = pack_with(starter, ALL.names, verbatim=True)
    assert speech_chunks(as_it_stands, text, "en") == [text]


@pytest.mark.parametrize("tag", ["<giggle>", "<Laugh>", "<b>", "<nv_laugh>", "<env>", "<laughs>"])
def test_an_unknown_closed_tag_is_an_error_that_lists_the_set(starter: Pack, tag: str) -> None:
    for text in (tag, f"Well {tag} yes", f"({tag})", f"<laugh>{tag}"):
        with pytest.raises(UnsupportedTagError) as refusal:
            speech_chunks(pack_with(starter, ALL.names), text, "en")
        told = str(refusal.value)
        assert told.startswith(f"{tag} is no tag of this pack; it has <breath> <stammer>")
        assert all(f"<{name}>" in told for name in NON_VERBALS)
        assert told.endswith("<burp> [any_label]")
    with pytest.raises(UnsupportedTagError, match=r"^<laugh> is no tag .* has <sigh> <cough>$"):
        speech_chunks(pack_with(starter, ["sigh", "cough"]), "Ha <laugh> ha", "en")


def test_a_pack_that_lists_no_tags_parses_none(starter: Pack) -> None:
    text = "Ha <laugh> ha <giggle> [rain] no."
    assert starter.manifest.supported_tags == []
    assert speech_chunks(starter, text, "en") == ["Ha ha rain no."]
    as_it_stands = pack_with(starter, [], verbatim=True)
    assert speech_chunks(as_it_stands, text, "en") == [text]


@pytest.mark.parametrize(
    ("names", "key"),
    [(["<laugh>"], 0), (["laugh", ""], 1), (["a b"], 0), (["laugh", "sigh", "[env]"], 2)],
)
def test_what_can_be_no_name_is_refused_by_its_key(names: list[str], key: int) -> None:
    with pytest.raises(ManifestError, match=rf"^supported_tags\[{key}\]: .*bare name"):
        TagSet.of(names)


def test_markup_is_not_guessed_at() -> None:
    for text in ("<b>bold</b>", "a <b>bold</b>"):
        with pytest.raises(UnsupportedTagError, match=r"^<b> is no tag of this pack; it has <br"):
            find_tags(text, ALL)
    assert spelled("<sigh>bold</sigh>") == ["<sigh>"]


@pytest.mark.parametrize(
    "word",
    [
        "\u00e9",
        "x\u0304",  # no precomposed letter
        "x\u0304\u0323\u0301",
        "\u0939\u0948",  # Hindi, ending in a vowel sign (Mn)
        "\u0915\u093e",  # Hindi (Mc)
        "\u0e17\u0e35\u0e48",  # Thai, a vowel and a tone mark
        "\u0915\u094d\u200d",  # a joiner after the virama
        "1\ufe0f\u20e3",  # a keycap
    ],
)
def test_marks_belong_to_the_word_before_a_look_alike(word: str) -> None:
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, word)
        assert spelled(f"{text}[rain] {text}<foo> {text}[a][b] {text}<laugh>") == ["<laugh>"]
        assert spelled(f"{text} [rain] {text}.[rain]") == ["[rain]"] * 2


@pytest.mark.parametrize("before", ["", " ", ". ", "!", "\u2764"])
def test_marks_without_a_letter_are_no_word(before: str) -> None:
    for marks in ("\u0304", "\ufe0f", "\u200d\u0301"):
        assert spelled(f"{before}{marks}[rain]") == ["[rain]"]
        with pytest.raises(UnsupportedTagError, match="<foo>"):
            find_tags(f"{before}{marks}<foo>", ALL)


# Through the funnel


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Well, <laugh> I paid $5.", "Well, <laugh> I paid five dollars."),
        ("Yes<laugh>no", "Yes<laugh>no"),
        ("<sigh> Go.", "<sigh> Go."),
        ("It is over <sigh>.", "It is over <sigh>."),
        ("It is over.<sigh>", "It is over.<sigh>"),
        ('"<laugh> Stop," he said.', '"<laugh> Stop," he said.'),
        ('"Stop (<sigh>) now <laugh>" he said.', '"Stop (<sigh>) now <laugh>" he said.'),
        ("Wait [bird_squawk], look at 3 birds", "Wait [bird_squawk], look at three birds"),
        ("[rain]<cough>[wind_gust] Go", "[rain]<cough>[wind_gust] Go"),
        ("50%<sigh>5", "fifty percent<sigh>five"),
        # after a word it would be text
        ("50%[rain] 5", "fifty percent [rain] five"),
        ("See [rain]& 5", "See [rain] and five"),
        ("a < b <laugh> x[1]", "a less than b <laugh> x"),
        ("<laugh>", "<laugh>"),
        ("<laugh>!", "<laugh>!"),
    ],
)
def test_a_tag_comes_through_the_funnel_as_it_was_written(
    starter: Pack, text: str, read: str
) -> None:
    assert speech_chunks(pack_with(starter, ALL.names), text, "en") == [read]


def test_a_verbatim_text_gets_no_space(starter: Pack) -> None:
    text = "Yes<laugh>no<sigh><sigh>5  x"
    assert speech_chunks(pack_with(starter, ALL.names, verbatim=True), text, "en") == [text]


def test_tags_of_a_family_without_tokens_come_through_as_text(starter: Pack) -> None:
    pack = pack_with(starter, ["chuckle", "sniffle"])
    text = "Oh <chuckle> I <sniffle> see [rain]."
    assert speech_chunks(pack, text, "en") == ["Oh <chuckle> I <sniffle> see rain."]


@pytest.mark.parametrize("verbatim", [False, True])
def test_a_text_that_holds_cuneiform_keeps_it(starter: Pack, verbatim: bool) -> None:
    text = "The sign \U00012000 <laugh> and \U00012001\U00012002 [rain] mean much."
    assert speech_chunks(pack_with(starter, ALL.names, verbatim=verbatim), text, "en") == [text]


def test_marks_alone_are_still_nothing_to_speak(starter: Pack) -> None:
    with pytest.raises(NothingToSpeakError):
        speech_chunks(pack_with(starter, ALL.names), "... </laugh>", "en")


TAGS = ["<laugh>", "<sigh>", "[rain]", "[bird_squawk]"]
PIECES = st.sampled_from(
    [
        *("Hello", "world", "Dr", "U.S.", "IV", "NASA", "3", "1,250.75", "$5", "50%", "10:30"),
        *("May 5, 2020", "1st", "\u00e9t\u00e9", "well-known", "a", "x[1]", "a < b", "\n\n"),
        *(". ", "! ", "? ", ", ", "; ", " ", " ", " ", "\n", '"', "\u201c", "(", ")", "'", "..."),
        *("<laugh>", "<sigh>", " <laugh>", "<sigh> ", ".[rain]\n", " [bird_squawk], ") * 2,
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@given(TEXTS, st.sampled_from(LANGUAGES), st.integers(8, 60), st.booleans())
@repeatable
def test_every_tag_of_any_text_survives_whole_in_order_and_beside_words(
    starter: Pack, text: str, language: str, chars: int, verbatim: bool
) -> None:
    pack = pack_with(starter, ALL.names, chars=chars, verbatim=verbatim, languages=LANGUAGES)
    written = spelled(text)
    bare = pack_with(starter, [], verbatim=verbatim, languages=LANGUAGES)
    try:
        chunks = speech_chunks(pack, text, language)
    except NothingToSpeakError:
        assert not written
        return
    marks = re.compile("|".join(map(re.escape, TAGS)))
    assert [tag for chunk in chunks for tag in marks.findall(chunk)] == written
    words = [re.search(r"\w", marks.sub("", chunk)) for chunk in chunks]
    assert all(words) or len(chunks) == 1
    if not written:
        assert (
            "".join(chunks).split()
            == "".join(
                speech_chunks(replace(bare, algorithm=pack.algorithm), text, language)
            ).split()
        )


# Beside its text, over the cut between two chunks


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        # free on both sides: with what follows, as the cut falls
        ("It was late. <sigh> We left.", ["It was late.", "<sigh> We left."]),
        # written to one side
        ("It was late.<sigh> We left.", ["It was late.<sigh>", "We left."]),
        ("It was late. <sigh>We left.", ["It was late.", "<sigh>We left."]),
        ("It was late!<laugh><sigh> We left.", ["It was late!<laugh><sigh>", "We left."]),
        ("It was late oh <sigh>We left so", ["It was late oh", "<sigh>We left so"]),
        # written to both sides: the words on both sides stay too
        ("It was late <hum> <sigh> <laugh>we left", ["It was late", "<hum> <sigh> <laugh>we left"]),
        ("It was late so<sigh>We left", ["It was late", "so<sigh>We left"]),
        ("Antediluvian<sigh>so it was.", ["Antediluvian<sigh>so", "it was."]),
        # on the line of its text
        ("It was late. <sigh>\nWe all left.", ["It was late. <sigh>", "We all left."]),
        ("It was so late\n[rain] We left", ["It was so late", "[rain] We left"]),
        ("It was late. [rain]", ["It was late. [rain]"]),
        ("It was all late<sigh>\n<laugh> We left", ["It was all late<sigh>", "<laugh> We left"]),
        # before the mark that ends its sentence
        ("It was late <sigh>. We left.", ["It was late <sigh>.", "We left."]),
        # a tag alone goes with a neighbour, however long that gets
        ("<laugh>. It was very late.", ["<laugh>. It was very late."]),
        ("It was very late. <laugh>.", ["It was very late. <laugh>."]),
        ("<laugh> <sigh> [rain] <hum>", ["<laugh> <sigh> [rain] <hum>"]),
    ],
)
def test_a_tag_stays_with_its_text(starter: Pack, text: str, chunks: list[str]) -> None:
    assert speech_chunks(pack_with(starter, ALL.names, chars=18), text, "en") == chunks


def test_a_long_label_counts_as_one_character_and_is_not_cut(starter: Pack) -> None:
    label = "[" + "_".join(["bird"] * 40) + "]"
    text = f"Good morning {label} to all of you, my friends."
    found = speech_chunks(pack_with(starter, ALL.names, chars=24), text, "en")
    assert found == [f"Good morning {label} to all of", "you, my friends."]
    for chars in range(1, 40):
        chunks = speech_chunks(pack_with(starter, ALL.names, chars=chars), text, "en")
        assert " ".join(chunks).count(label) == 1


def test_protecting_is_undone_exactly() -> None:
    text = "a <laugh> b [rain] c<sigh>"
    protected = protect_tags(text, ALL, spaced=False)
    assert len(protected.text) == len(text) - len("<laugh>[rain]<sigh>") + 3
    assert protected.recut(protected.text, [protected.text]) == [protected.text]
    assert protected.restore([protected.text]) == [text]
    with pytest.raises(UnsupportedTextError, match="lost one of its tags"):
        protected.recut("a b c", ["a b c"])
    plain = protect_tags("a < b", ALL, spaced=True)
    assert plain.text == "a < b"
    assert plain.restore(["a < b"]) == ["a < b"]
    assert plain.is_kept_by(["a < b"])
    assert not plain.is_kept_by(["a", "<b>"])


# Decided once, on the whole text: any cut and any half keeps to it


def test_a_cut_does_not_make_a_tag_of_a_text(starter: Pack) -> None:
    pack = pack_with(starter, ALL.names, chars=233, verbatim=True)
    for filler, rest in (
        ("\u65e5" * 232, "\u4f8b[rain] end"),
        ("x" * 232, "x<int> end"),
        ("x" * 230, "x\u0304\u0323<int> end"),
        (")" * 230 + "a", "))[rain] hello"),
    ):
        chunks = speech_chunks(pack, filler + rest, "en")
        assert "".join(chunks) == filler + rest
        assert [spelled(chunk) for chunk in chunks] == [[], []]
    text = "x" * 229 + ",[T]he end"
    assert speech_chunks(pack, text, "en") == ["x" * 229 + ",", "[T]he end"]
    # where nothing is taken for another thing, the law's own cut stays
    closed = pack_with(starter, CLOSED.names, chars=233, verbatim=True)
    text = "\u65e5" * 233 + "[rain] end"
    assert speech_chunks(closed, text, "en") == ["\u65e5" * 233, "[rain] end"]
    text = "x" * 230 + "[i]y end"
    assert speech_chunks(pack, text, "en") == ["x" * 230 + "[i]", "y end"]


def test_a_run_of_labels_that_is_text_is_cut_within_labels(starter: Pack) -> None:
    pack = pack_with(starter, ALL.names, chars=50, verbatim=True)
    for text in ("[a]" * 200 + "(x)", "x" + "[a]" * 200, "[a]b" * 150, "[T]he" * 120):
        chunks = speech_chunks(pack, text, "en")
        assert "".join(chunks).replace(" ", "") == text
        assert not any(map(spelled, chunks))
        assert max(map(len, chunks)) <= 100  # what a moved cut leaves over goes with the next


def test_a_half_keeps_a_tag_with_the_text_it_touches(starter: Pack) -> None:
    pack = pack_with(starter, ALL.names)
    for text, halves in (
        ("aa bb cc<laugh> dd ee", ("aa bb cc<laugh>", "dd ee")),
        ("aaa bbb <laugh>ccc ddd", ("aaa bbb", "<laugh>ccc ddd")),
        ("hi<laugh>there", None),
    ):
        assert speech_chunks(pack, text, "en") == [text]
        assert halve(text) == halves


SCRAPS = st.lists(
    st.sampled_from(
        [
            *("x", "\u65e5", "a\u0304", "\u0304", "\u0939\u0948", "hello", "the ", "1", "_"),
            *("[", "]", "(", ")", "<", ">", "[T]", "<int>", "[a][b]", "x[i]", "x<int>"),
            *("[T]he", "[a](", "\u0304[rain]", "\u200d"),
            *(" ", " ", "\n", "\u00a0", ". ", "...", "!", ","),
            *("<laugh>", "<sigh>", "[rain]", "[bird_squawk]", " <laugh> ", " [rain] "),
        ]
    ),
    max_size=40,
).map("".join)  # fmt: skip
CLOSE = st.lists(
    st.sampled_from(
        [*("x", "\u0304", "(", "[a]", "[b]", "[a]", "<int>", "[rain]", "<laugh>", " ")]
    ),
    max_size=12,
).map("".join)
PLAIN = st.lists(
    st.sampled_from(
        [
            *("aa", "bbb", " the", "hello ", " ", "  ", "\n", "the, ", "sea. "),
            *("<laugh>", "<sigh>", " [rain] ", "sea.[bird_squawk] ", " <laugh>", "<sigh> "),
        ]
    ),
    max_size=40,
).map("".join)
SETS = st.sampled_from([ALL, CLOSED, TagSet.of(["env"]), TagSet.of(["laugh", "sigh", "env"])])


def said_between(text: str) -> list[int]:
    """Where the visible characters are."""
    return [at for at, character in enumerate(text) if not character.isspace()]


def assert_nothing_is_parted(text: str, pieces: Sequence[str], tags: TagSet) -> None:
    """The pieces have the tags of the text, and no cut is between a tag and what it touches."""
    assert [tag for piece in pieces for tag in spelled(piece, tags)] == spelled(text, tags)
    visible, passed = said_between(text), 0
    assert len(visible) == sum(len(said_between(piece)) for piece in pieces)
    edges = {edge for tag in find_tags(text, tags) for edge in (tag.start, tag.end)}
    for piece in pieces[:-1]:
        passed += len(said_between(piece))
        before, after = visible[passed - 1 : passed + 1]
        assert after > before + 1 or after not in edges


@given(st.data(), SETS, st.integers(1, 6) | st.integers(1, 60), st.booleans())
@settings(deadline=None, derandomize=True, max_examples=1500)
def test_chunks_and_halves_of_any_text_have_its_tags(
    starter: Pack, data: st.DataObject, tags: TagSet, chars: int, verbatim: bool
) -> None:
    text = data.draw(SCRAPS | CLOSE if verbatim else PLAIN)
    pack = pack_with(starter, tags.names, chars=chars, verbatim=verbatim)
    try:
        find_tags(text, tags)
    except UnsupportedTagError:
        with pytest.raises(UnsupportedTagError):
            speech_chunks(pack, text, "en")
        return
    assume(verbatim or (tags.open and tags.closed))  # the funnel drops brackets that are text
    try:
        chunks = speech_chunks(pack, text, "en")
    except NothingToSpeakError:
        return
    assert_nothing_is_parted(text, chunks, tags)
    pieces: list[str] = []
    for chunk in chunks:
        halves = halve(chunk)
        pieces += halves or [chunk]
        for half in halves or ():
            bare = half
            for tag in spelled(half, tags):
                bare = bare.replace(tag, " ", 1)
            assert re.search(r"\w", bare)
    assert_nothing_is_parted(text, pieces, tags)


@given(SCRAPS | CLOSE, SETS, st.integers(1, 6) | st.integers(1, 60))
@settings(deadline=None, derandomize=True, max_examples=400)
def test_a_text_without_tags_is_cut_by_the_law_alone(
    starter: Pack, text: str, tags: TagSet, chars: int
) -> None:
    """Unless the law's own cuts would make tags of it."""
    for tag in ("<laugh>", "<sigh>"):
        text = text.replace(tag, "")
    without = pack_with(starter, [], chars=chars, verbatim=True)
    pack = pack_with(starter, tags.names, chars=chars, verbatim=True)
    try:
        assume(not find_tags(text, tags))
        chunks = speech_chunks(without, text, "en")
        assume(not any(find_tags(chunk, tags) for chunk in chunks))
    except (NothingToSpeakError, UnsupportedTagError):
        assume(False)
    assert speech_chunks(pack, text, "en") == chunks


@pytest.mark.parametrize(
    "text",
    [
        *("[a]" * 30_000 + "(x", "x" + "[a]" * 30_000, "[a]b" * 20_000, "x[i]" * 20_000),
        *("x" + "\u0304" * 90_000 + "[rain] x", "a\u0304[rain]" * 15_000, "[a" * 40_000),
        *("a<laugh>" * 12_000, "a <laugh>b " * 9_000, " <laugh>" * 12_000 + " hi", "<a_" * 30_000),
    ],
    ids=lambda text: f"{text[:12]}...{text[-4:]}",
)
def test_no_text_takes_long(starter: Pack, text: str) -> None:
    began = perf_counter()
    speech_chunks(pack_with(starter, ALL.names, chars=233, verbatim=True), text, "en")
    assert perf_counter() - began < 5
