"""The arpabet text side: words to phones to ids, and the prompt around them."""

from __future__ import annotations

import gzip
import itertools
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contracts import arpabet
from engine.contracts.arpabet import (
    PROMPT_LAYOUT,
    ArpabetTextSide,
    Pronunciations,
    read_symbols,
)
from engine.contracts.contract import Conditioning
from engine.errors import (
    NothingToSpeakError,
    PackMismatchError,
    UnknownSpeakerError,
    UnsupportedPromptError,
    UnsupportedTextError,
)
from engine.pack import Pack

KNOWN_ANSWERS: list[tuple[str, str]] = [
    (text, symbols)
    for text, symbols in json.loads(
        (Path(__file__).parent / "data" / "arpabet-known-answers.json").read_text("utf-8")
    )
]
"""What the front end that the starter pack was trained with said to these texts."""

MARKS = set(",;.?!")
FINAL = set(".?!")
VOWELS = {"aa", "ae", "ah", "ao", "aw", "ax", "ay", "eh", "er", "ey", "ih", "iy", "ow", "oy"} | {
    "uh",
    "uw",
}

# A word list small enough to read, for the rules that need no real lexicon.
SOUNDS = Pronunciations(
    lexicon={
        "the": "dh ax",
        "cat": "k ae t",
        "apple": "ae p ax l",
        "bus": "b ah s",
        "dog": "d ao g",
        "judge": "jh ah jh",
        "cafe": "k ax f ey",
        "f": "eh f",
        "q": "k y uw",
        "x": "eh k s",
        "z": "z iy",
    },
    letters={
        **{f"[{letter}]": letter for letter in "bdfgklmnprstvwz"},
        "[a]": "ae",
        "[i]": "ih",
        "[o]": "aa",
        "[u]": "ah",
        "[e]": "",
        "[h]": "",
        "[s]h": "sh",
        "#[e]b": "eh",
        # Of the contexts that fit the first e of "been" the longest is to win.
        "[e]e": "ax",
        "b[e]e": "eh",
        "b[e]en": "iy",
    },
)


@pytest.fixture(scope="module")
def side(starter: Pack) -> ArpabetTextSide:
    found = starter.text_side
    assert isinstance(found, ArpabetTextSide)
    return found


@pytest.fixture(scope="module")
def sounds(side: ArpabetTextSide) -> Pronunciations:
    return side._sounds


def test_the_table_of_known_answers_is_whole() -> None:
    assert len(KNOWN_ANSWERS) >= 200
    assert len(dict(KNOWN_ANSWERS)) == len(KNOWN_ANSWERS)


@pytest.mark.parametrize(("text", "symbols"), KNOWN_ANSWERS)
def test_a_text_reads_as_it_did_in_training(
    sounds: Pronunciations, text: str, symbols: str
) -> None:
    assert " ".join(read_symbols(text, sounds)) == symbols


def test_every_pronunciation_of_the_pack_is_in_its_id_map(
    side: ArpabetTextSide, sounds: Pronunciations
) -> None:
    spoken = {
        phone
        for table in (sounds.lexicon, sounds.letters)
        for phones in table.values()
        for phone in phones.split()
    }
    assert spoken <= set(side.contract.added_tokens)
    assert not spoken & (MARKS | {"_", "\n"} | set(side.speakers))


WORDS = st.one_of(
    st.sampled_from(
        "the The THE a apple hour owl user NASA dogs' it's XQZ ue hh \u00e9t\u00e9".split()
    ),
    st.text("abcdefghijklmnopqrstuvwxyzABEZ", min_size=1, max_size=9),
    st.text("'etsx", min_size=1, max_size=5),
)
BETWEEN = st.sampled_from(
    [
        " ",
        ", ",
        ". ",
        "? ",
        "! ",
        "; ",
        ": ",
        " (",
        ") ",
        " -- ",
        "\u2014",
        "\u2026",
        "\n",
        "-",
        "\u2019",
        " 7 ",
    ]
)
TEXTS = st.lists(st.tuples(WORDS, BETWEEN), max_size=8).flatmap(
    lambda parts: st.sampled_from(
        ["".join(word + mark for word, mark in parts), "".join(mark + word for word, mark in parts)]
    )
)


@given(st.one_of(TEXTS, st.text("abtThe'.,?!;:()-\u2026\u2013\u2014\n \u2019", max_size=30)))
@settings(deadline=None, derandomize=True, max_examples=400)
def test_any_text_reads_as_words_and_single_marks(starter: Pack, text: str) -> None:
    side = starter.text_side
    assert isinstance(side, ArpabetTextSide)
    symbols = read_symbols(text, side._sounds)
    if not symbols:
        with pytest.raises(NothingToSpeakError):
            side.text_tokens(text)
        return
    assert set(symbols) <= set(side.contract.added_tokens) - set(side.speakers) - {"\n"}
    assert symbols[0] not in MARKS | {"_"}
    assert symbols[-1] in FINAL
    breaks = MARKS | {"_"}
    assert not [pair for pair in itertools.pairwise(symbols) if breaks.issuperset(pair)]
    assert len(side.text_tokens(text)) == len(symbols)


@given(TEXTS)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_reading_is_blind_to_case_beyond_capitals_and_to_white_space(
    starter: Pack, text: str
) -> None:
    side = starter.text_side
    assert isinstance(side, ArpabetTextSide)
    lower = text.lower()
    assert read_symbols(lower.replace(" ", "  \t"), side._sounds) == read_symbols(
        lower, side._sounds
    )
    titled = " ".join(word.capitalize() for word in lower.split(" "))
    assert read_symbols(titled, side._sounds) == read_symbols(lower, side._sounds)


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        # `the` before a vowel sound, a consonant, a mark, and nothing
        ("the apple", "dh iy _ ae p ax l ."),
        ("the cat", "dh ax _ k ae t ."),
        ("the, apple", "dh ax , ae p ax l ."),
        ("the", "dh ax ."),
        ("THE Apple the CAT", "dh iy _ ae p ax l _ dh ax _ k ae t ."),
        # possessives take the sound of what they follow, in the lexicon or not
        ("cat's", "k ae t s ."),
        ("dog's", "d ao g z ."),
        ("bus's judge's", "b ah s ax z _ jh ah jh ax z ."),
        ("fop's", "f aa p s ."),
        ("CAT\u2019S", "k ae t s ."),
        ("x'z", "eh k s z iy ."),
        # capitals that are no word are spelled, long ones and small ones are read
        ("FQZ", "eh f k y uw z iy ."),
        ("fqz", "f z ."),
        ("CAT", "k ae t ."),
        ("BBDDGG", "b d g ."),
        # letters in context: the longest context wins, a doubled consonant is one sound
        ("sh", "sh ."),
        ("been", "b iy n ."),
        ("bell", "b l ."),
        ("ebb", "eh b ."),
        ("baab", "b ae ae b ."),
        # accents folded, a word without a sound leaves no gap
        ("caf\u00e9", "k ax f ey ."),
        ("cafe\u0301 CAFE\u0301", "k ax f ey _ k ax f ey ."),
        ("\ufb01b", "f ih b ."),
        ("cat h cat", "k ae t _ k ae t ."),
        ("h. cat h.", "k ae t ."),
        # one mark a pause: the stronger stays, of two strong ones the first
        ("cat,.", "k ae t ."),
        ("cat?! cat", "k ae t ? k ae t ."),
        ("cat.? cat", "k ae t . k ae t ."),
        ("cat,;, cat", "k ae t , k ae t ."),
        ("cat: cat", "k ae t ; k ae t ."),
        ("cat\ncat", "k ae t . k ae t ."),
        ("cat \u2014 (cat) -- cat", "k ae t , k ae t , k ae t ."),
        ("cat\u2026", "k ae t ."),
        ("... (cat;", "k ae t ."),
        ("cat - cat-cat", "k ae t _ k ae t _ k ae t ."),
    ],
)
def test_the_rules_of_reading(text: str, symbols: str) -> None:
    assert " ".join(read_symbols(text, SOUNDS)) == symbols


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("\u65e5\u672c", "\u65e5, \u672c"),
        ("a \u03c0 day", "\u03c0"),
        ("stra\u00dfe", "\u00df"),
        ("\u043f\u0440\u0438\u0432\u0435\u0442", "\u0432, \u0435, \u0438, \u043f, \u0440, \u0442"),
        ("\u05d0", "\u05d0"),
        ("\u0b85 cat", "\u0b85"),
        ("".join(chr(0x3041 + n) for n in range(40)), None),
    ],
)
def test_letters_of_other_scripts_are_refused_by_name(
    sounds: Pronunciations, text: str, named: str | None
) -> None:
    with pytest.raises(UnsupportedTextError) as refusal:
        read_symbols(text, sounds)
    told = str(refusal.value)
    if named is None:
        assert len(told) < 200
    else:
        assert told.endswith(f"cannot read {named}")


@pytest.mark.parametrize("letter", "\u00e9\u00fc\u00e7\u0144\u0151\u1e69\u01d6\u0130\uff21")
def test_an_accented_letter_reads_as_the_letter(sounds: Pronunciations, letter: str) -> None:
    plain = unicodedata.normalize("NFKD", letter)[0]
    assert read_symbols(f"b{letter}d", sounds) == read_symbols(f"b{plain}d", sounds)


@pytest.mark.parametrize("text", ["", " \n", "... !? --", "h", "(\u2014)", "\U0001f600"])
def test_nothing_to_speak_is_refused(side: ArpabetTextSide, text: str) -> None:
    silent = ArpabetTextSide(side.contract, side.speakers, SOUNDS)
    with pytest.raises(NothingToSpeakError, match="no word to speak in"):
        silent.text_tokens(text)


def test_text_tokens_are_the_ids_of_the_symbols(side: ArpabetTextSide) -> None:
    ids = side.contract.added_tokens
    symbols = "y eh s . g uh d _ m ao r n ih ng !".split()
    assert side.text_tokens("Yes. Good morning!") == tuple(ids[symbol] for symbol in symbols)


@pytest.mark.parametrize("speaker", ["slt", "rms", "awb", "kal"])
def test_a_prompt_is_laid_out_as_the_contract_says(side: ArpabetTextSide, speaker: str) -> None:
    ids = side.contract.added_tokens
    text = side.text_tokens("Yes.")
    before = ["<|start_of_human|>", "<|begin_of_text|>", "<|speaker>", speaker, "<speaker|>", "\n"]
    after = ["<|eot_id|>", "<|end_of_human|>", "<|start_of_ai|>", "<|start_of_speech|>"]
    wanted = [ids[name] for name in before] + list(text) + [ids[name] for name in after]
    assert side.prompt(text, Conditioning(speaker)) == tuple(wanted)
    assert side.speakers == ("slt", "rms", "awb", "kal")


def test_the_starters_control_tokens_stand_where_its_model_was_trained_on_them(
    side: ArpabetTextSide,
) -> None:
    # Numbers, not names: a table and a layout that move together must not go unseen.
    prompt = side.prompt((37, 11, 29, 42), Conditioning("rms"))
    assert prompt[1] == 64
    assert prompt[3] == 48
    assert prompt[5:11] == (46, 37, 11, 29, 42, 65)
    assert side.contract.end_of_speech == 68
    assert (side.contract.audio_base, side.contract.codebook_size) == (76, 512)
    assert side.contract.vocabulary_size == 3682
    assert side.contract.prompt_layout == PROMPT_LAYOUT


def test_what_the_pack_was_not_trained_on_is_refused(side: ArpabetTextSide) -> None:
    with pytest.raises(UnknownSpeakerError, match=r"'joe'.*slt, rms, awb, kal"):
        side.prompt((1,), Conditioning("joe"))
    # A name of the id map is no speaker.
    with pytest.raises(UnknownSpeakerError):
        side.prompt((1,), Conditioning("<|eot_id|>"))
    with pytest.raises(UnsupportedPromptError, match=r"no style.*'calm'"):
        side.prompt((1,), Conditioning("slt", style="calm"))
    with pytest.raises(UnsupportedPromptError, match=r"no accent.*'welsh'"):
        side.prompt((1,), Conditioning("slt", accent="welsh"))


def test_an_empty_table_is_no_lexicon(starter: Pack, tmp_path: Path) -> None:
    for name in ("tokens.json", "lexicon.tsv.gz"):
        (tmp_path / name).write_bytes((starter.root / name).read_bytes())
    with gzip.open(tmp_path / "lts.tsv.gz", "wt", encoding="utf-8") as table:
        table.write("no tab in this line\n")
    with pytest.raises(PackMismatchError, match=r"lts\.tsv\.gz holds no pronunciations"):
        arpabet.load(tmp_path)


Change = Callable[[Path], object]


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def _table(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_bytes(gzip.compress(text.encode()))


def _tokens(**changes: object) -> Change:
    def change(content: bytes) -> bytes:
        return json.dumps(json.loads(content) | changes).encode()

    return _bytes("tokens.json", change)


def _ids(**changes: object) -> Change:
    def change(content: bytes) -> bytes:
        table = json.loads(content)
        table["ids"] |= changes
        return json.dumps(table).encode()

    return _bytes("tokens.json", change)


BROKEN: dict[str, tuple[Change, str]] = {
    **{
        f"{name} {kind}": (_bytes(name, change), name)
        for name in ("lexicon.tsv.gz", "lts.tsv.gz")
        for kind, change in {
            "cut short": lambda b: b[: len(b) // 2],
            "without its end": lambda b: b[:-4],
            "bytes overwritten": lambda b: b[: len(b) // 2] + b"\xff" * 40 + b[len(b) // 2 + 40 :],
            "a bit flipped": lambda b: b[:-300] + bytes([b[-300] ^ 4]) + b[-299:],
            "empty": lambda _: b"",
            "no gzip": lambda _: b"cat\tk ae t\n",
            "no UTF-8": lambda _: gzip.compress(b"\xff\tk\n"),
        }.items()
    },
    "lexicon with a sound of no id": (
        _table("lexicon.tsv.gz", "cat\tk zz \x1b[2J t\n"),
        r"lexicon.tsv.gz: sounds without an id in tokens.json: '\x1b[2J', 'zz'",
    ),
    "letters with a sound of no id": (_table("lts.tsv.gz", "[c]\tqq\n"), "'qq'"),
    "tokens nested": (_bytes("tokens.json", lambda _: b"[" * 200_000), "tokens.json"),
    "tokens cut short": (_bytes("tokens.json", lambda b: b[:100]), "tokens.json"),
    "tokens in UTF-16": (_bytes("tokens.json", lambda b: b.decode().encode("utf-16")), "UTF-8"),
    "tokens of a list": (_bytes("tokens.json", lambda _: b"[]"), "tokens.json"),
    "an id twice": (_bytes("tokens.json", lambda b: b.replace(b'"_"', b'"aa"')), "once only"),
    "no voices": (_tokens(voices=[]), "voices must be a list, and not empty"),
    "voices in lists": (_tokens(voices=[["slt"]]), "voices: ['slt'] is no name"),
    "voice of two lines": (_tokens(voices=["a\nb"]), r"voices: 'a\nb' is no name"),
    "voice of half a pair": (_tokens(voices=["\ud800"]), "voices[0]"),
    "voice without an id": (_tokens(voices=["joe"]), "ids has no joe"),
    "ids of no kind": (_tokens(ids=[]), "ids must be a dict"),
    **{
        f"{key} {value!r:.9}": (_tokens(**{key: value}), f"{key} must be a whole number")
        for key in ("vocab_size", "audio_base", "codebook_size")
        for value in (None, True, "76", -1, 1.5, 10**400)
    },
    "vocabulary too small": (_tokens(vocab_size=40), "must have an id below vocab_size"),
    "id of no kind": (_ids(aa="7"), "'aa' must have an id below vocab_size, got '7'"),
    "id of yes": (_ids(aa=True), "'aa' must have an id below vocab_size, got True"),
    "id below none": (_ids(aa=-1), "'aa' must have an id below vocab_size, got -1"),
    "id past all": (_ids(aa=10**400), "'aa' must have an id below vocab_size, got 1000"),
    "name of half a pair": (_ids(**{"\ud800": 1}), r"ids.'\ud800'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_one_line(starter: Pack, tmp_path: Path, name: str) -> None:
    for file in ("tokens.json", "lexicon.tsv.gz", "lts.tsv.gz"):
        (tmp_path / file).write_bytes((starter.root / file).read_bytes())
    change, told = BROKEN[name]
    change(tmp_path)
    with pytest.raises(PackMismatchError) as refused:
        arpabet.load(tmp_path)
    line = str(refused.value)
    assert told in line
    assert line.isprintable()
    assert len(line) < 500


@pytest.mark.parametrize(
    ("text", "like"),
    [("5 apples", "five apples"), ("5km", "five km"), ("x1y2", "x one y two"), ("12", "one two")],
)
def test_digits_that_the_funnel_left_are_read_by_name(starter: Pack, text: str, like: str) -> None:
    assert starter.text_side.text_tokens(text) == starter.text_side.text_tokens(like)


def test_an_okina_is_an_apostrophe(starter: Pack) -> None:
    side = starter.text_side
    assert side.text_tokens("Hawai\u02bbi") == side.text_tokens("Hawai'i")
