"""Tags in a text: `<laugh>`, one of a closed set, and `[bird_squawk]`, an open class of labels.

A tag is not a word, and the text funnel drops markup and brackets. So before the funnel each tag
becomes one letter of a script that the text has none of, and when the chunks are cut each letter
becomes the tag again, spelled as it was: one character cannot be split, and it keeps its place.

    <laugh> <deep_sigh>      closed: a name of the pack's; an unknown one that stands alone is
                             refused, one that follows a letter (`List<int>`) is text
    [rain] [bird_squawk]     open, where the pack lists `env`: any label of ASCII letters and
                             underscores that is no index (`x[i]`), no editor's letter (`[T]he`)
                             and no link (`[here](...)`)

Everything else with a `<` or a `[` in it is text: `a < b`, `x[1]`, `[12]`, `<|eot_id|>`, `</b>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from engine.errors import ManifestError, UnsupportedTagError, UnsupportedTextError
from engine.speech_text import has_words
from engine.strict_json import read_object

OPEN_CLASS: Final = "env"
"""What a manifest's `supported_tags` says for the open class; every other entry is a name."""

_NAME: Final = r"[A-Za-z]+(?:_[A-Za-z]+)*"
# A run of labels is taken whole or not at all, hence the possessive `++`.
_TAGS: Final = re.compile(
    rf"<(?P<closed>{_NAME})>|(?<![\w\])])(?P<open>(?:\[{_NAME}\])++)(?![\w(])"
)
_LABEL: Final = re.compile(rf"\[({_NAME})\]")

_CUNEIFORM: Final = range(0x12000, 0x12399)
"""Letters without case that no funnel grammar and no catalogue text is expected to hold."""

_OPENING: Final = '"\u201c\u201e\u2018\u00ab(\u00bf\u00a1'
_CLOSING: Final = '"\u201d\u2019\u00bb).,;:!?\u2026'


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag in a text: `text[start:end]`."""

    start: int
    end: int
    kind: Literal["closed", "open"]
    name: str


@dataclass(frozen=True, slots=True)
class TagSet:
    """The tags that a pack knows."""

    closed: tuple[str, ...]
    open: bool

    @classmethod
    def of(cls, names: Sequence[str]) -> TagSet:
        """From a manifest's `supported_tags`. Raises `ManifestError` for what can be no name."""
        for index, name in enumerate(names):
            if not re.fullmatch(_NAME, name):
                raise ManifestError(
                    f"supported_tags[{index}]",
                    f"{name!r} is no tag's bare name; expected one such as laugh, "
                    f"or {OPEN_CLASS} for [labels]",
                )
        closed = tuple(dict.fromkeys(name for name in names if name != OPEN_CLASS))
        return cls(closed, OPEN_CLASS in names)

    @property
    def names(self) -> tuple[str, ...]:
        """The set as a manifest lists it."""
        return (*self.closed, OPEN_CLASS) if self.open else self.closed

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self.closed) or self.open

    def __str__(self) -> str:
        """The set, as an error lists it."""
        listed = [f"<{name}>" for name in self.closed] + ["[any_label]"] * self.open
        return " ".join(listed) or "none"


def tags_of_folder(root: Path) -> TagSet | None:
    """What the manifest of a pack's folder supports; None where there is no manifest yet."""
    path = root / "manifest.json"
    if not path.is_file():
        return None
    names = read_object(path).get("supported_tags")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManifestError("supported_tags", "must be a list of names")
    return TagSet.of(names)


def find_tags(text: str, tags: TagSet) -> list[Tag]:
    """The tags of a text, in order. Raises `UnsupportedTagError` listing the set."""
    found: list[Tag] = []
    for match in _TAGS.finditer(text) if tags else ():
        start, end = match.span()
        name = match["closed"]
        if name is None:
            if tags.open:
                found += (
                    Tag(start + label.start(), start + label.end(), "open", label[1])
                    for label in _LABEL.finditer(match[0])
                )
        elif name in tags.closed:
            found.append(Tag(start, end, "closed", name))
        elif not re.match(r"\w", text[start - 1 : start]):
            raise UnsupportedTagError(f"<{name}> is no tag of this pack; it has {tags}")
    return found


@dataclass(frozen=True, slots=True)
class ProtectedText:
    """A text whose tags are one letter each, and how to undo that."""

    text: str
    letter: str
    spellings: tuple[str, ...]
    leans: tuple[int, ...]  # -1: with what precedes it, 1: with what follows, 0: either

    def has_words(self, piece: str) -> bool:
        """Whether a piece of the text has anything but tags to speak."""
        return has_words(piece.replace(self.letter, "")) if self.letter else has_words(piece)

    def restore(self, chunks: Sequence[str]) -> list[str]:
        """The chunks with their tags again, each beside the text that it was written to.

        Raises `UnsupportedTextError` if the letters did not come back as they went.
        """
        if not self.spellings:
            return list(chunks)
        if sum(chunk.count(self.letter) for chunk in chunks) != len(self.spellings):
            raise UnsupportedTextError("reading this text aloud lost one of its tags")
        spellings = iter(self.spellings)
        return [
            re.sub(self.letter, lambda _: next(spellings), chunk)
            for chunk in self._rejoined(chunks)
        ]

    def _rejoined(self, chunks: Sequence[str]) -> list[str]:
        """The chunks, with a tag moved over the cut that parted it from its text."""
        leans = iter(self.leans)
        moved = [chunks[0]]
        behind = list(islice(leans, chunks[0].count(self.letter)))
        for chunk in chunks[1:]:
            ahead = list(islice(leans, chunk.count(self.letter)))
            while behind and behind[-1] > 0 and _ends_apart(moved[-1], self.letter):
                moved[-1] = moved[-1][:-1].rstrip()
                chunk = f"{self.letter} {chunk}"
                ahead.insert(0, behind.pop())
            while ahead and ahead[0] < 0 and chunk.startswith(self.letter) and chunk[1:].strip():
                moved[-1] = f"{moved[-1]} {self.letter}"
                chunk = chunk[1:].lstrip()
                ahead.pop(0)
            moved.append(chunk)
            behind = ahead
        return moved


def _ends_apart(chunk: str, letter: str) -> bool:
    return chunk.endswith(letter) and chunk[-2:-1].isspace()


def protect_tags(text: str, tags: TagSet, *, spaced: bool) -> ProtectedText:
    """The text with one letter for each tag; `spaced` keeps it apart from letters beside it.

    Raises `UnsupportedTagError`.
    """
    found = find_tags(text, tags)
    if not found:
        return ProtectedText(text, "", (), ())
    letter = next((chr(code) for code in _CUNEIFORM if chr(code) not in text), None)
    if letter is None:
        raise UnsupportedTextError("a text with tags cannot hold every cuneiform sign as well")
    parts: list[str] = []
    at = 0
    for tag in found:
        parts += (text[at : tag.start], letter)
        at = tag.end
    parts.append(text[at:])
    return ProtectedText(
        "".join(_spaced(parts)) if spaced else "".join(parts),
        letter,
        tuple(text[tag.start : tag.end] for tag in found),
        tuple(_leans(text, found)),
    )


def _spaced(parts: Sequence[str]) -> Iterator[str]:
    """A space where a tag would touch a word or a tag; quotes and marks may touch it."""
    for index in range(0, len(parts) - 1, 2):
        before, letter, after = parts[index : index + 3]
        yield before
        if before and not (before[-1].isspace() or before[-1] in _OPENING):
            yield " "
        yield letter
        last = index + 3 == len(parts)
        if not (last if not after else after[0].isspace() or after[0] in _CLOSING):
            yield " "
    yield parts[-1]


def _leans(text: str, found: Sequence[Tag]) -> Iterator[int]:
    """Which side each tag was written to: the text it touches, or the text of its own line.

    Tags with nothing but spaces between them lean together.
    """
    first = 0
    for last, tag in enumerate(found):
        following = found[last + 1].start if last + 1 < len(found) else len(text)
        gap = text[tag.end : following]
        if last + 1 < len(found) and not gap.strip() and "\n" not in gap:
            continue
        before = text[found[first - 1].end if first else 0 : found[first].start]
        touches = before[-1:].strip() != "", gap[:1].strip() != ""
        alone = _ends_line(gap), _ends_line(before[::-1])
        lean = (touches[1] - touches[0]) or (alone[1] - alone[0])
        yield from [lean] * (last + 1 - first)
        first = last + 1


def _ends_line(rest: str) -> bool:
    """Whether nothing but spaces is left of the line."""
    return "\n" in rest[: len(rest) - len(rest.lstrip())] or not rest.strip()
