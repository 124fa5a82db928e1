"""Tags in a text: `<laugh>`, one of a closed set, and `[bird_squawk]`, an open class of labels.

    <laugh> <deep_sigh>      closed: a name of the pack's; an unknown one that stands alone is
                             refused, one that follows a word (`List<int>`) is text
    [rain] [bird_squawk]     open, where the pack lists `env`: any label of ASCII letters and
                             underscores that is no index (`x[i]`), no editor's letter (`[T]he`)
                             and no link (`[here](...)`)

A name is ASCII letters, parted by single underscores, and nothing else between the brackets. So
everything else with a `<` or a `[` in it is text: `a < b`, `x[1]`, `[12]`, `<|eot_id|>`, `</b>`,
and also what comes close to a tag: `<laugh >`, `<laugh1>`, `<laugh-x>`, `<laugh/>`. Markup is not
guessed at: `<b>bold</b>` has a `<b>` that stands alone, which is refused like any unknown name.

Whether something is a tag may depend on the characters beside it, never on those farther away.
Combining marks and joiners belong to the letter before them, so a word is the same in every
normal form and in every script. `engine.tagged_text` keeps these neighbours together when a text
is cut, so a chunk and a half of it have the tags that the whole text has there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from engine.errors import ManifestError, UnsupportedTagError
from engine.strict_json import read_object

OPEN_CLASS: Final = "env"
"""What a manifest's `supported_tags` says for the open class; every other entry is a name."""

_NAME: Final = r"[A-Za-z]+(?:_[A-Za-z]+)*"
# A run of labels is taken whole or not at all, hence the possessive `++`.
LOOK_ALIKES: Final = re.compile(rf"<(?P<closed>{_NAME})>|(?P<open>(?:\[{_NAME}\])++)")
"""All that is spelled like tags, whatever stands beside it."""
_TAGS: Final = re.compile(
    rf"<(?P<closed>{_NAME})>|(?<![\w\])])(?P<open>(?:\[{_NAME}\])++)(?![\w(])"
)
LABEL: Final = re.compile(rf"\[({_NAME})\]")

_JOINERS: Final = "\u200c\u200d"


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


def base_before(text: str, at: int) -> int:
    """Where the character before `at` begins, marks and joiners being part of it; -1 for nowhere.

    What Unicode calls a word has its combining marks in it, and Python's `\\w` has them not.
    """
    at -= 1
    while at >= 0 and (text[at] in _JOINERS or unicodedata.category(text[at])[0] == "M"):
        at -= 1
    return at


def holds_before(base: str, *, label: bool) -> bool:
    """Whether a character makes text of the name, or of the label, that follows it."""
    return _is_word(base) or (label and base in ("]", ")"))


def holds_label_after(character: str) -> bool:
    """Whether a character makes text of the label that it follows."""
    return _is_word(character) or character == "("


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_held(text: str, at: int, *, label: bool) -> bool:
    base = base_before(text, at)
    return base >= 0 and holds_before(text[base], label=label)


def find_tags(text: str, tags: TagSet) -> list[Tag]:
    """The tags of a text, in order. Raises `UnsupportedTagError` listing the set."""
    found: list[Tag] = []
    for match in _TAGS.finditer(text) if tags else ():
        start, end = match.span()
        name = match["closed"]
        if name is None:
            if tags.open and not _is_held(text, start, label=True):
                found += (
                    Tag(start + label.start(), start + label.end(), "open", label[1])
                    for label in LABEL.finditer(match[0])
                )
        elif name in tags.closed:
            found.append(Tag(start, end, "closed", name))
        elif not _is_held(text, start, label=False):
            raise UnsupportedTagError(f"<{name}> is no tag of this pack; it has {tags}")
    return found
