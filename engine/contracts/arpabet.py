"""The arpabet contract: English words to phones to ids, in llama-3-audio's prompt layout.

A word is looked up in the pack's lexicon; an unknown one is read letter by letter, each letter
under the longest context that the letter-to-sound table knows. Numbers, dates and abbreviations
are words by the time they get here: reading them is the text funnel's business.
"""

from __future__ import annotations

import gzip
import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contracts.contract import Conditioning, TokenContract, require_plain_voice
from engine.errors import (
    ManifestError,
    NothingToSpeakError,
    PackMismatchError,
    PackNotFoundError,
    UnsupportedTextError,
)
from engine.shown import is_one_line, shown, shown_name
from engine.strict_json import read_object

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

_RULED = ("ax", "dh", "iy", "s", "z")
"""The sounds that the rules of reading write, whatever the tables hold."""

_LARGEST_ID = 2**31 - 1

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
    """Read `tokens.json`, `lexicon.tsv.gz` and `lts.tsv.gz` of a pack folder.

    Raises `PackMismatchError` for a file that is missing, broken, or names a sound without an id.
    """
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
    lexicon, letters = (_read_table(root / name, ids) for name in ("lexicon.tsv.gz", "lts.tsv.gz"))
    return ArpabetTextSide(contract, table["voices"], Pronunciations(lexicon, letters))


def _read_tokens(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The id map and what stands beside it; whatever it lacks is refused by name."""
    try:
        table: dict[str, Any] = read_object(path)
    except (ManifestError, PackNotFoundError) as error:
        raise PackMismatchError(f"{path}: is not the JSON of an id map: {error}") from None
    for key in ("vocab_size", "audio_base", "codebook_size"):
        if not _is_count(table.get(key)):
            raise PackMismatchError(
                f"{path}: {key} must be a whole number from 0 to {_LARGEST_ID}, "
                f"got {shown(table.get(key))}"
            )
    for key, kind in (("ids", dict), ("voices", list)):
        if not isinstance(table.get(key), kind) or not table[key]:
            raise PackMismatchError(f"{path}: {key} must be a {kind.__name__}, and not empty")
    ids, voices = table["ids"], table["voices"]
    for name, token in ids.items():
        if not _is_count(token) or token >= table["vocab_size"]:
            raise PackMismatchError(
                f"{path}: ids: {shown(name)} must have an id below vocab_size, got {shown(token)}"
            )
    for voice in voices:
        if not isinstance(voice, str) or not voice.strip() or not is_one_line(voice):
            raise PackMismatchError(f"{path}: voices: {shown(voice)} is no name")
    named = {part for part in PROMPT_LAYOUT if not part.startswith("{")}
    needed = {*named, *voices, "<|end_of_speech|>", "_", *_STRONG, *_WEAK, *_RULED}
    missing = sorted(shown_name(name) for name in needed - ids.keys())
    if missing:
        raise PackMismatchError(f"{path}: ids has no {', '.join(missing)}")
    return table, ids


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_ID


def _read_table(path: Path, ids: Mapping[str, int]) -> dict[str, str]:
    """Spellings and their sounds, every sound with an id."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            pairs = (line.rstrip("\n").partition("\t") for line in lines)
            table = {word: phones for word, tab, phones in pairs if tab}
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise PackMismatchError(f"{path}: is not a gzipped table: {error}") from error
    if not table:
        raise PackMismatchError(f"{path.name} holds no pronunciations")
    unknown = {phone for phones in set(table.values()) for phone in phones.split()} - ids.keys()
    if unknown:
        named = ", ".join(map(shown, sorted(unknown)[:8]))
        raise PackMismatchError(f"{path}: sounds without an id in tokens.json: {named}")
    return table
