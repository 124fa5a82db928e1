"""A text with tags on its way through the funnel and the chunks.

A tag is not a word, and the funnel drops markup and brackets. So before the funnel each tag becomes
one letter of a script that the text has none of, and in the chunks each letter becomes the tag
again, spelled as it was and touching what it touched: one character cannot be split, and it keeps
its place.

What is a tag is decided once, on the whole text. The chunks that the law cuts then keep to that
decision: a cut moves where it would part a tag from the text that it was written to, and where it
would part brackets that are text from the character that makes them text (`x|[i]`, `[T]|he`). A
chunk read by itself therefore has the tags that were decided, and no others. So have its halves:
they are cut at white space, which no tag and no decision reaches over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from engine.contracts.tags import (
    LABEL,
    LOOK_ALIKES,
    Tag,
    TagSet,
    base_before,
    find_tags,
    holds_before,
    holds_label_after,
)
from engine.errors import UnsupportedTagError, UnsupportedTextError
from engine.speech_text import has_words

_CUNEIFORM: Final = range(0x12000, 0x12399)
"""Letters without case that no funnel grammar and no catalogue text is expected to hold."""

_OPENING: Final = '"\u201c\u201e\u2018\u00ab(\u00bf\u00a1'
_CLOSING: Final = '"\u201d\u2019\u00bb).,;:!?\u2026'


@dataclass(frozen=True, slots=True)
class Place:
    """How a tag stood in the text. Tags with nothing but spaces between them are a group."""

    spelling: str
    touches_before: bool
    touches_after: bool
    first: int  # of its group
    last: int
    held_before: bool = False  # the group belongs to what precedes it
    held_after: bool = False  # the group belongs to what follows it


@dataclass(frozen=True, slots=True)
class ProtectedText:
    """A text whose tags are one letter each, and how to undo that."""

    text: str
    letter: str
    places: tuple[Place, ...]
    tags: TagSet

    def has_words(self, piece: str) -> bool:
        """Whether a piece of the text has anything but tags to speak."""
        return has_words(piece.replace(self.letter, "")) if self.letter else has_words(piece)

    def is_kept_by(self, chunks: Sequence[str]) -> bool:
        """Whether chunks that the law cut can stay: no tags, and none that a cut has made."""
        try:
            return not self.letter and not any(find_tags(chunk, self.tags) for chunk in chunks)
        except UnsupportedTagError:
            return False

    def recut(self, prepared: str, pieces: Sequence[str]) -> list[str]:
        """The law's pieces of the prepared text, cut elsewhere where a cut would do harm.

        Raises `UnsupportedTextError` if the letters did not come back as they went.
        """
        if self.letter and prepared.count(self.letter) != len(self.places):
            raise UnsupportedTextError("reading this text aloud lost one of its tags")
        starts: list[int] = []
        at = 0
        for piece in pieces:
            starts.append(_visible_from(prepared, at))
            at = starts[-1] + len(piece)
        if not starts:
            return []
        bounds = [starts[0], *_Cuts(prepared, self).moved(starts[1:]), len(prepared)]
        return [prepared[start:end].rstrip() for start, end in pairwise(bounds)]

    def restore(self, chunks: Sequence[str]) -> list[str]:
        """The chunks with their tags again."""
        if not self.letter:
            return list(chunks)
        places = iter(self.places)
        return ["".join(self._spelled(chunk.split(self.letter), places)) for chunk in chunks]

    def _spelled(self, between: list[str], places: Iterator[Place]) -> Iterator[str]:
        """The texts between tags and the tags; without the spaces that only the funnel needed.

        A label stays apart from a word that was no word when the tag was found.
        """
        for index in range(len(between) - 1):
            place = next(places)
            before, after = between[index], between[index + 1]
            is_label = place.spelling.startswith("[")
            closer = before.removesuffix(" ")
            if place.touches_before and not (is_label and _makes_text_of_label(closer)):
                before = closer
            yield before
            yield place.spelling
            closer = after.removeprefix(" ")
            if place.touches_after and not (is_label and holds_label_after(closer[:1])):
                between[index + 1] = closer
        yield between[-1]


def protect_tags(text: str, tags: TagSet, *, spaced: bool) -> ProtectedText:
    """The text with one letter for each tag; `spaced` keeps it apart from letters beside it.

    Raises `UnsupportedTagError`.
    """
    found = find_tags(text, tags)
    if not found:
        return ProtectedText(text, "", (), tags)
    letter = next((chr(code) for code in _CUNEIFORM if chr(code) not in text), None)
    if letter is None:
        raise UnsupportedTextError("a text with tags cannot hold every cuneiform sign as well")
    parts: list[str] = []
    at = 0
    for tag in found:
        parts += (text[at : tag.start], letter)
        at = tag.end
    parts.append(text[at:])
    protected = "".join(_spaced(parts) if spaced else parts)
    return ProtectedText(protected, letter, tuple(_places(text, found)), tags)


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


def _places(text: str, found: Sequence[Tag]) -> Iterator[Place]:
    """Each tag's place: it is held by the text that it touches, or else by that of its own line."""
    first = 0
    for last, tag in enumerate(found):
        following = found[last + 1].start if last + 1 < len(found) else len(text)
        gap = text[tag.end : following]
        if last + 1 < len(found) and not gap.strip() and "\n" not in gap:
            continue
        before = text[found[first - 1].end if first else 0 : found[first].start]
        held = _touches(text, found[first].start - 1), _touches(text, tag.end)
        if not any(held):
            alone = _ends_line(before[::-1]), _ends_line(gap)
            held = alone[1] and not alone[0], alone[0] and not alone[1]
        for tag in found[first : last + 1]:
            yield Place(
                spelling=text[tag.start : tag.end],
                touches_before=_touches(text, tag.start - 1),
                touches_after=_touches(text, tag.end),
                first=first,
                last=last,
                held_before=held[0],
                held_after=held[1],
            )
        first = last + 1


def _touches(text: str, at: int) -> bool:
    return 0 <= at < len(text) and not text[at].isspace()


def _ends_line(rest: str) -> bool:
    """Whether nothing but spaces is left of the line."""
    return "\n" in rest[: len(rest) - len(rest.lstrip())] or not rest.strip()


def _makes_text_of_label(before: str) -> bool:
    base = base_before(before, len(before))
    return holds_before(before[base], label=True) if base >= 0 else bool(before)


def _visible_from(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


@dataclass(frozen=True, slots=True)
class _LookAlike:
    """A name or a run of labels that is text, and the characters that make it so."""

    base: int  # of the character before it; its own start where that one does not matter
    start: int
    end: int
    labels: tuple[int, ...]  # where each begins, and the end; none for a name
    held_after: bool


class _Cuts:
    """Where a prepared text may be cut. A cut is the position of a chunk's first character."""

    def __init__(self, text: str, protected: ProtectedText) -> None:
        self._text, self._letter = text, protected.letter
        self._places = protected.places
        self._letters = [at for at, c in enumerate(text) if c == self._letter]
        self._index = {at: index for index, at in enumerate(self._letters)}
        self._look_alikes = list(self._found(protected.tags))
        self._bases = [each.base for each in self._look_alikes]

    def moved(self, cuts: Sequence[int]) -> list[int]:
        """The cuts, each that does harm moved as little as can be, or dropped."""
        kept: list[int] = []
        since = 0
        for n, cut in enumerate(cuts):
            if cut <= since:
                continue
            # What lies before the law's previous cut was looked through for that one.
            floor = max(since, cuts[n - 1] if n else 0)
            ceiling = cuts[n + 1] if n + 1 < len(cuts) else len(self._text)
            for place in self._nearby(cut, floor, ceiling):
                if place == len(self._text):
                    return kept
                if place > since and self._allows(place, since):
                    kept.append(place)
                    since = place
                    break
        return kept

    def _nearby(self, cut: int, floor: int, ceiling: int) -> Iterator[int]:
        """The cut and the places for it, best first; none of them does as well."""
        text = self._text
        yield cut
        yield from self._beside_group(cut)
        back = [at for at in range(cut - 1, floor, -1) if not text[at].isspace()]
        yield from (at for at in back if text[at - 1].isspace())
        if text[cut - 1].isspace():
            yield from (
                at
                for at in range(cut + 1, ceiling)
                if text[at - 1].isspace() and not text[at].isspace()
            )
        else:  # The law cuts within a word where nothing else is left, and so does this.
            yield from (at for at in back if not self._is_inside(at))
            yield from back
            yield from (at for at in range(cut + 1, ceiling) if not text[at].isspace())

    def _beside_group(self, cut: int) -> Iterator[int]:
        """The other side of a group of tags that the cut touches, or both if it is in one."""
        for at in (self._before(cut), cut):
            index = self._index.get(at)
            if index is not None:
                place = self._places[index]
                yield self._letters[place.first]
                yield _visible_from(self._text, self._letters[place.last] + 1)

    def _before(self, cut: int) -> int:
        """The last visible character before a cut."""
        cut -= 1
        while cut > 0 and self._text[cut].isspace():
            cut -= 1
        return cut

    def _allows(self, cut: int, since: int) -> bool:
        """Whether a cut leaves each tag and each look-alike what it is, the last one being `since`.

        A group of tags is not parted, nor is it parted from what holds it.
        """
        before, after = (self._index.get(at) for at in (self._before(cut), cut))
        if before is not None and self._places[before].held_after:
            return False
        if after is not None:
            place = self._places[after]
            if place.held_before or after > place.first:
                return False
        return self._keeps_text(cut, since)

    def _keeps_text(self, cut: int, since: int) -> bool:
        """Whether look-alikes on both sides of a cut are text without what the cut takes away."""
        look_alike = self._over(cut)
        if look_alike is None:
            return True
        labels, start = look_alike.labels, look_alike.start
        if not labels:
            return cut > start
        if not (look_alike.base < start and since <= look_alike.base):
            # Nothing before the run makes it text, and the cut takes away what follows it. After a
            # cut within a label, what is left of that label makes text of the next.
            first = bisect_left(labels, max(since, start))
            is_within = since > start and labels[first] != since
            if not is_within and first + 1 < len(labels) and labels[first + 1] <= cut:
                return False
        begins_label = cut <= start or (self._is_bound(labels, cut) and cut < look_alike.end)
        return look_alike.held_after or not begins_label

    def _is_inside(self, at: int) -> bool:
        """Whether a look-alike's own characters are on both sides."""
        found = self._over(at)
        return found is not None and (
            found.start < at < found.end and not self._is_bound(found.labels, at)
        )

    @staticmethod
    def _is_bound(labels: Sequence[int], at: int) -> bool:
        index = bisect_left(labels, at)
        return index < len(labels) and labels[index] == at

    def _over(self, cut: int) -> _LookAlike | None:
        """The look-alike that a cut parts, from itself or from what stands beside it."""
        index = bisect_left(self._bases, cut) - 1
        found = self._look_alikes[index] if index >= 0 else None
        return found if found is not None and cut <= found.end else None

    def _found(self, tags: TagSet) -> Iterator[_LookAlike]:
        text = self._text
        for match in LOOK_ALIKES.finditer(text):
            start, end = match.span()
            is_run = match["open"] is not None
            if is_run and not tags.open:
                continue
            base = base_before(text, start)
            holder = text[base] if base >= 0 else ""
            if base in self._index:
                holder = self._places[self._index[base]].spelling[-1]
            labels = (*(start + label.start() for label in LABEL.finditer(match[0])), end)
            after = text[end : end + 1]
            yield _LookAlike(
                base=base if holds_before(holder, label=is_run) else start,
                start=start,
                end=end,
                labels=labels if is_run else (),
                held_after=after != self._letter and holds_label_after(after),
            )
