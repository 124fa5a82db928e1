"""Chunking against loudkit 0.1.1 on generated texts, and what must hold of any cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit.config import ChunkConfig as ReferenceConfig
from loudkit.frontend import chunking as reference

from engine.algorithm import ChunkConfig
from engine.chunking import estimate_tokens, split_in_half, split_text

_SPOKEN = """
the a of night reader slowly went naïve über Łódź straße well-known o'clock don't end.
e.g i.e etc Dr Mr Mrs prof dr św St J K R Hr Vors Cpn xDr 3Dr A1 B I Z A. B. C. U.S.A No. p.m.
42 3.14 1,000 10:30 v2.0 https://ex.am/p.q?r=s,t www.a.b/c. me@x.org
「こんにちは」 世界。日本語のテキスト、です 你好,世界
한국어 문장입니다. مرحبا بالعالم، كيف الحال؟ שלום
👋 👨‍👩‍👧‍👦 🇵🇱 é \u0301 ﷺ \u200b \u00ad ﬁ 𝔘𝔫𝔦
. ... … — – - ! ? ?! ; , : ( ) [ ] « » “quoted.” ‘so,’ "Yes!" 'No?'
"""
_WORDS = _SPOKEN.split()
_GAPS = (
    *(" ",) * 30,
    *(". ", "! ", "? ", "; ", ", ") * 3,
    *("  ", "\n", "\n\n", "\t", "\r\n", "", "", ".", "... ", "。"),
    *("\u00a0", "\u2007", "\u202f", "\u2003", "\u3000", "\x1c", "\u0085"),
)


def random_text(rng: random.Random) -> str:
    """A text of some kind: prose, one word a line, one endless run, mostly periods, noise."""
    kind = rng.random()
    if kind < 0.02:
        run = "".join(rng.choices("abcxyz語文.,é😀", k=rng.choice((300, 700, 5000))))
        return rng.choice(("", "Well. ", " ")) + run + rng.choice(("", ". And then.", " x"))
    if kind < 0.12:
        return "\n".join(rng.choices(_WORDS, k=rng.randint(1, 60)))
    if kind < 0.22:
        return "".join(rng.choices("ab.! \u00a0,Dr1;é", k=rng.randint(0, 300)))
    if kind < 0.32:
        initials = rng.choices(("J", "Dr", "xDr", "prof", "Mr", "A", "so", "End", "4"), k=60)
        return ". ".join(initials[: rng.randint(1, 60)])
    size = rng.choice((3, 20, 60, 120))
    words = rng.choices(_WORDS, k=rng.randint(0, size))
    gaps = rng.choices(_GAPS, k=len(words))
    return "".join(part for pair in zip(words, gaps, strict=True) for part in pair)


def random_fields(rng: random.Random) -> dict[str, Any]:
    """Keyword arguments that build the same chunk config here and in the reference."""
    if rng.random() < 0.25:
        return {}
    max_tokens = rng.choice((2, 3, 5, 9, 20, 41, 64, 100, 255, 600, 2000))
    fields: dict[str, Any] = {
        "enabled": rng.random() < 0.97,
        "max_tokens": max_tokens,
        "prefix_tokens": 0,
        "mid_sentence_period": rng.choice(("hold", "hold", "break")),
    }
    if rng.random() < 0.4:
        separators = [". ", "! ", "? ", "; ", ", ", ".", "... ", "..", "!.", " ", "。", "، ", "a"]
        fields["split_on"] = tuple(rng.sample(separators, k=rng.randint(1, 7)))
    if rng.random() < 0.4:
        words = ["Dr", "r", "J", "prof", "św", "e.g", "etc", "…", "A. B", "a", "世界"]
        fields["abbreviations"] = tuple(rng.sample(words, k=rng.randint(0, 6)))
    if rng.random() < 0.3:
        first = rng.choice((None, 1, 2, 7, max_tokens // 2 or 1, max_tokens))
        fields["first_chunk_max_tokens"] = None if first is None else min(first, max_tokens)
    return fields


def visible(text: str) -> str:
    """`text` without its white space."""
    return "".join(text.split())


def assert_same_cuts(text: str, ours: ChunkConfig, theirs: ReferenceConfig) -> list[str]:
    """Chunks and halves equal the reference's, nothing visible is lost, no chunk is blank."""
    chunks = split_text(text, ours)
    assert chunks == reference.split_text(text, theirs), (text, ours)
    assert visible("".join(chunks)) == visible(text)
    for chunk in chunks:
        assert chunk
        assert chunk == chunk.strip()
        halves = split_in_half(chunk)
        assert halves == reference.split_in_half(chunk), chunk
        if halves is not None:
            assert all(half and half == half.strip() for half in halves)
            assert visible("".join(halves)) == visible(chunk)
    return chunks


def compare_many(count: int, seed: int) -> None:
    rng = random.Random(seed)
    fields = [random_fields(rng) for _ in range(400)]
    pairs = [(ChunkConfig(**kwargs), ReferenceConfig(**kwargs)) for kwargs in fields]
    several = halved = 0
    for _ in range(count):
        chunks = assert_same_cuts(random_text(rng), *rng.choice(pairs))
        several += len(chunks) > 1
        halved += any(split_in_half(chunk) is not None for chunk in chunks)
    # The texts have to exercise the splitter, not only pass it.
    assert several > count / 3
    assert halved > count / 3


def test_twenty_thousand_texts_are_cut_as_the_reference_cuts_them() -> None:
    compare_many(20_000, seed=1)


@pytest.mark.slow
def test_four_hundred_thousand_texts_are_cut_as_the_reference_cuts_them() -> None:
    compare_many(400_000, seed=2)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    text=st.text(st.one_of(st.characters(), st.sampled_from("aDrJ .,;!?\n\u00a0\u202f"))),
    max_tokens=st.integers(2, 80),
    first=st.none() | st.integers(1, 80),
    hold=st.sampled_from(["hold", "break"]),
)
def test_any_text_is_cut_as_the_reference_cuts_it(
    text: str, max_tokens: int, first: int | None, hold: Any
) -> None:
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        "prefix_tokens": 0,
        "mid_sentence_period": hold,
        "first_chunk_max_tokens": None if first is None else min(first, max_tokens),
    }
    assert_same_cuts(text, ChunkConfig(**fields), ReferenceConfig(**fields))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from("abc \t\n\r\u00a0\u2007\u202f\u2003.é")))
def test_any_text_is_halved_as_the_reference_halves_it(text: str) -> None:
    assert split_in_half(text) == reference.split_in_half(text)


def _config(max_tokens: int, **fields: Any) -> ChunkConfig:
    return ChunkConfig(max_tokens=max_tokens, prefix_tokens=0, **fields)


@pytest.mark.parametrize(
    ("text", "max_tokens", "chunks"),
    [
        # The strongest separator wins, and its latest occurrence.
        ("One. Two, three. Four, five, six", 50, ["One. Two, three.", "Four, five, six"]),
        # A weaker one only where the stronger ones are absent.
        ("One two, three four, five six", 50, ["One two, three four,", "five six"]),
        # Periods before lower case and after abbreviations and initials hold.
        ("Stop. Ask Dr. Who, then go on.", 40, ["Stop.", "Ask Dr. Who,", "then go on."]),
        ("Well. He is approx. nine years.", 46, ["Well.", "He is approx. nine", "years."]),
        ("Hm. It was J. R. Ewing there.", 40, ["Hm.", "It was J. R. Ewing", "there."]),
        # ... but the abbreviation has to be a whole word.
        ("Hm. It was xDr. Ewing there, yes.", 44, ["Hm. It was xDr.", "Ewing there, yes."]),
        # Words are kept whole where there is a space, and cut where there is none.
        ("aaaaaa bbbbbb cccccc", 30, ["aaaaaa bbbbbb", "cccccc"]),
        ("aaaaaaaaaaaaaaaaaaaa", 18, ["aaaaaaaaa", "aaaaaaaaa", "aa"]),
    ],
)
def test_known_cuts(text: str, max_tokens: int, chunks: list[str]) -> None:
    assert split_text(text, _config(max_tokens)) == chunks


def test_blank_text_has_no_chunks() -> None:
    for text in ("", " \n\t", "\u00a0\u2003"):
        assert split_text(text, ChunkConfig()) == []
        assert split_text(text, ChunkConfig(enabled=False)) == []


def test_the_first_chunk_may_be_shorter_than_the_others() -> None:
    text = "one two three four five six seven eight nine ten"
    longest = [len(c) for c in split_text(text, _config(40, first_chunk_max_tokens=16))]
    assert longest[0] <= 8
    assert max(longest[1:]) > 8
    # A budget under one character still advances.
    assert split_text("ab cd", _config(4, first_chunk_max_tokens=1))[0] == "a"


def test_half_goes_to_the_earlier_of_two_equal_breaks() -> None:
    assert split_in_half("aa bb cc dd e") == ("aa bb", "cc dd e")
    assert split_in_half("a b c") == ("a b", "c")
    assert split_in_half("ab cd") == ("ab", "cd")
    assert split_in_half("abc d ef") == ("abc", "d ef")
    for whole in ("", "a", "abc", " a", "a ", " ", "語語語語", "a\u2003b"):
        assert split_in_half(whole) is None


def test_a_chunk_can_be_punctuation_alone_as_in_the_reference() -> None:
    """The splitter counts characters; whether a chunk can be spoken is the caller's question."""
    text = "One two three. - . . . . ! ! ! ! ! ! ! ! ! !"
    chunks = split_text(text, _config(30))
    assert chunks == reference.split_text(text, ReferenceConfig(max_tokens=30, prefix_tokens=0))
    assert any(not any(c.isalnum() for c in chunk) for chunk in chunks)


def test_the_budget_follows_the_characters_of_a_row_entry() -> None:
    """A pack that speaks 1.5 characters a row entry cuts like one of 0.5 with thrice the tokens."""
    rng = random.Random(5)
    for _ in range(500):
        text = random_text(rng)
        assert split_text(text, _config(20, chars_per_token=1.5)) == split_text(text, _config(60))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=300))
def test_estimates(text: str) -> None:
    assert estimate_tokens(text, ChunkConfig()) == reference.estimate_tokens(text)
    assert estimate_tokens(text, ChunkConfig(chars_per_token=2.0)) == len(text) // 2 + 1


class WatchedText(str):
    """A text that counts the characters anyone looks at."""

    looked_at = 0

    def strip(self, chars: str | None = None, /) -> str:
        stripped = str.strip(self, chars)
        return self if len(stripped) == len(self) else stripped

    def rfind(
        self,
        sub: str,
        start: SupportsIndex | None = None,
        end: SupportsIndex | None = None,
        /,
    ) -> int:
        self.looked_at += len(range(len(self))[slice(start, end)])
        return str.rfind(self, sub, start, end)

    def __getitem__(self, key: SupportsIndex | slice, /) -> str:
        part = str.__getitem__(self, key)
        self.looked_at += len(part)
        return part


@pytest.mark.parametrize(
    "paragraph",
    [
        "It was late, and Dr. Grey had not slept. He read on; nobody spoke! What now? ",
        "a. b. c. d. and so on. e. f. g. h. ",
        "unbroken" * 8,
        "word\n",
    ],
)
def test_eight_times_the_text_is_eight_times_the_work(paragraph: str) -> None:
    def work(size: int) -> int:
        text = WatchedText((paragraph * (size // len(paragraph))).strip())
        split_text(text, ChunkConfig())
        return text.looked_at

    small, large = work(100_000), work(800_000)
    assert small > 100_000
    assert 7.8 < large / small < 8.2


def test_eight_megabytes_are_cut_as_the_reference_cuts_them() -> None:
    paragraph = "It was late, and Dr. Grey had not slept. He read on; nobody spoke!\n"
    text = WatchedText((paragraph * (8_000_000 // len(paragraph))).strip())
    chunks = split_text(text, ChunkConfig())
    assert text.looked_at < 100 * len(text)
    assert chunks == reference.split_text(str(text), ReferenceConfig())


@pytest.mark.parametrize("hold", ["hold", "break"])
def test_public_domain_prose_is_cut_as_the_reference_cuts_it(hold: Any) -> None:
    """Carroll, Alice's Adventures in Wonderland, under every budget up to the whole text."""
    alice = Path(__file__).parent.parent.parent / "examples" / "alice.txt"
    text = alice.read_text(encoding="utf-8")
    for max_tokens in range(2, 2 * len(text) + 3):
        fields: dict[str, Any] = {
            "max_tokens": max_tokens,
            "prefix_tokens": 0,
            "mid_sentence_period": hold,
        }
        ours = split_text(text, ChunkConfig(**fields))
        assert ours == reference.split_text(text, ReferenceConfig(**fields))
        for chunk in ours:
            assert split_in_half(chunk) == reference.split_in_half(chunk)
