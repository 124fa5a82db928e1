"""The arpabet contract: English words to phones to ids, in llama-3-audio's prompt layout.

A word is looked up in the pack's lexicon; an unknown one is read letter by letter, each letter
under the longest context that the letter-to-sound table knows. Numbers, dates and abbreviations
are words by the time they get here: reading them is the text funnel's business.
"""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contracts.contract import Conditioning, TokenContract, require_plain_voice
from engine.errors import (
    NothingToSpeakError,
    PackMismatchError,
    UnsupportedTextError,
)

PROMPT_LAYOUT = (
    "<|start_of_human|>",
    "<|begin_of_text|>",
    "<|speaker>",
    "{speaker}",
    "<speaker|>",
    "\n",
    "{text}",
    "<|eot_id|>",
    "<|end_of_human|>",
    "<|start_of_ai|>",
    "<|start_of_speech|>",
)

_MARKS = {":": ";", "(": ",", ")": ",", "\u2026": ".", "\u2013": ",", "\u2014": ",", "--": ","} | {
    mark: mark for mark in ",.?!;"
}
_APOSTROPHES = re.compile("[\u2018\u2019\u02bb\u02bc]")
_DIGITS = "zero one two three four five six seven eight nine".split()
_LINE_BREAK = "\n"
_STRONG, _WEAK = ".?!", ",;"
_ITEM = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*|--|[.,?!;:()\u2026\u2013\u2014]|\n")
_VOWELS = frozenset("aa ae ah ao aw ax ay eh er ey ih iy ow oy uh uw".split())
_VOICELESS = frozenset("p t k f th".split())
_SIBILANTS = frozenset("s z sh zh ch jh".split())
_CONTEXTS = ((3, 3), (2, 3), (2, 2), (1, 2), (1, 1), (0, 1), (0, 0))
"""Letters of context left and right of the one being read, longest first."""

_LONGEST_SPELLED = 5
"""A word in capitals up to this long that the lexicon lacks is spelled out."""


@dataclass(frozen=True, slots=True)
class Pronunciations:
    """How words sound: a lexicon, and a table of letters in context for the rest."""

    lexicon: Mapping[str, str]
    letters: Mapping[str, str]

    def phones(self, word: str) -> list[str]:
        """The phones of one word, apostrophes included."""
        lower = word.lower()
        known = self.lexicon.get(lower)
        if known is not None:
            return known.split()
        if lower.endswith("'s"):
            return _possessive(self.phones(lower[:-2]))
        if "'" in lower:
            return [phone for part in lower.split("'") for phone in self.phones(part)]
        if word.isupper() and 1 < len(word) <= _LONGEST_SPELLED:
            return [phone for letter in lower for phone in self.phones(letter)]
        return self._by_letter(lower)

    def _by_letter(self, word: str) -> list[str]:
        padded = f"###{word}###"
        heard: list[str] = []
        for at in range(3, len(padded) - 3):
            for left, right in _CONTEXTS:
                key = f"{padded[at - left : at]}[{padded[at]}]{padded[at + 1 : at + 1 + right]}"
                sound = self.letters.get(key)
                if sound is not None:
                    heard += sound.split()
                    break
        # A doubled consonant is one sound; a doubled vowel is two syllables.
        return [
            phone
            for at, phone in enumerate(heard)
            if at == 0 or phone != heard[at - 1] or phone in _VOWELS
        ]


def _possessive(base: list[str]) -> list[str]:
    last = base[-1] if base else ""
    if last in _SIBILANTS:
        return [*base, "ax", "z"]
    return [*base, "s" if last in _VOICELESS else "z"]


def read_symbols(text: str, pronunciations: Pronunciations) -> list[str]:
    """Phones, `_` between words and one mark a pause, ending on a mark; empty if no word is left.

    Raises `UnsupportedTextError` for letters outside the Latin alphabet.
    """
    items = _ITEM.findall(_to_ascii_letters(text))
    words = [pronunciations.phones(item) if item[0].isalpha() else None for item in items]
    symbols: list[str] = []
    for at, (item, phones) in enumerate(zip(items, words, strict=True)):
        if phones is None:
            _add_mark(symbols, "." if item == _LINE_BREAK else _MARKS[item])
        elif phones:
            if item.lower() == "the":
                following = words[at + 1] if at + 1 < len(words) else None
                phones = ["dh", "iy" if following and following[0] in _VOWELS else "ax"]
            if symbols and symbols[-1] not in _STRONG + _WEAK:
                symbols.append("_")
            symbols += phones
    if symbols and symbols[-1] in _WEAK:
        symbols[-1] = "."
    elif symbols and symbols[-1] not in _STRONG:
        symbols.append(".")
    return symbols


def _add_mark(symbols: list[str], mark: str) -> None:
    """One mark a pause: nothing before the first word, and a stronger mark replaces a weak one."""
    if not symbols:
        return
    if symbols[-1] in _WEAK:
        symbols[-1] = mark
    elif symbols[-1] not in _STRONG:
        symbols.append(mark)


def _to_ascii_letters(text: str) -> str:
    """Curly apostrophes straightened and accents dropped; letters of other scripts are refused."""
    straight = _APOSTROPHES.sub("'", text)
    plain = "".join(
        c for c in unicodedata.normalize("NFKD", straight) if not unicodedata.combining(c)
    )
    # What the funnel left as a digit ("5km") is read by its name rather than dropped.
    plain = re.sub("[0-9]", lambda digit: f" {_DIGITS[int(digit[0])]} ", plain)
    foreign = sorted({c for c in plain if c.isalpha() and not c.isascii()})
    if foreign:
        raise UnsupportedTextError(
            "this pack speaks English words in Latin letters; it cannot read "
            f"{', '.join(foreign[:8])}"
        )
    return plain


class ArpabetTextSide:
    """The text side of an arpabet pack."""

    def __init__(self, contract: TokenContract, speakers: Sequence[str], sounds: Pronunciations):
        self.contract = contract
        self.speakers = tuple(speakers)
        self.opening: tuple[int, ...] = ()  # start_of_speech is the last token of the prompt here
        self._sounds = sounds

    def text_tokens(self, text: str) -> tuple[int, ...]:
        """The ids of the phones and marks. Raises `NothingToSpeakError` if there is no word."""
        symbols = read_symbols(text, self._sounds)
        if not symbols:
            raise NothingToSpeakError(f"no word to speak in {text[:40]!r}")
        return tuple(self.contract.added_tokens[symbol] for symbol in symbols)

    def prompt(self, text_tokens: Sequence[int], conditioning: Conditioning) -> tuple[int, ...]:
        """`PROMPT_LAYOUT` filled in."""
        require_plain_voice(conditioning, self.speakers, contract="arpabet")
        ids = self.contract.added_tokens
        prompt: list[int] = []
        for part in self.contract.prompt_layout:
            if part == "{text}":
                prompt += text_tokens
            else:
                prompt.append(ids[conditioning.speaker if part == "{speaker}" else part])
        return tuple(prompt)


def load(root: Path) -> ArpabetTextSide:
    """Read `tokens.json`, `lexicon.tsv.gz` and `lts.tsv.gz` of a pack folder."""
    table, ids = _read_tokens(root / "tokens.json")
    contract = TokenContract(
        name="arpabet",
        vocabulary_size=table["vocab_size"],
        added_tokens=ids,
        audio_base=table["audio_base"],
        codebook_size=table["codebook_size"],
        start_of_speech=ids["<|start_of_speech|>"],
        end_of_speech=ids["<|end_of_speech|>"],
        prompt_layout=PROMPT_LAYOUT,
    )
    sounds = Pronunciations(_read_table(root / "lexicon.tsv.gz"), _read_table(root / "lts.tsv.gz"))
    return ArpabetTextSide(contract, table["voices"], sounds)


def _read_tokens(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The id map and what stands beside it; whatever it lacks is refused by name."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PackMismatchError(f"{path}: is not the JSON of an id map: {error}") from error
    wanted = {"ids": dict, "vocab_size": int, "audio_base": int, "codebook_size": int}
    for key, kind in {**wanted, "voices": list}.items():
        if not isinstance(table, dict) or not isinstance(table.get(key), kind):
            raise PackMismatchError(f"{path}: {key} must be a {kind.__name__}")
    ids = table["ids"]
    named = {part for part in PROMPT_LAYOUT if not part.startswith("{")}
    needed = named | set(table["voices"]) | {"<|end_of_speech|>", "_", *_STRONG, *_WEAK}
    missing = sorted(str(name) for name in needed if not isinstance(ids.get(name), int))
    if missing:
        raise PackMismatchError(f"{path}: ids has no {', '.join(missing)}")
    return table, ids


def _read_table(path: Path) -> dict[str, str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            pairs = (line.rstrip("\n").partition("\t") for line in lines)
            table = {word: phones for word, tab, phones in pairs if tab}
    except (OSError, EOFError, ValueError) as error:
        raise PackMismatchError(f"{path}: is not a gzipped table: {error}") from error
    if not table:
        raise PackMismatchError(f"{path.name} holds no pronunciations")
    return table
