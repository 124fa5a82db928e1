"""Which renders are asked for: the `renders` of a catalog, and `--only`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import translate
from unicodedata import normalize

from catalog.errors import NothingSelectedError, show
from catalog.schema import MAX_PATTERN_LENGTH, Catalog

Matcher = Callable[[str], bool]

_WILD = re.compile(r"[*?\[\]]")


def name_matcher(pattern: str) -> Matcher:
    """Matches one name by fnmatch's rules; case counts, the Unicode normal form does not.

    A name has no slash, so `*` never crosses from the voice into the passage.
    """
    if pattern == "*":
        return lambda name: True
    found = re.compile(translate(normalize("NFC", pattern))).match
    return lambda name: found(name if name.isascii() else normalize("NFC", name)) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of `renders`; its `index` there."""

    index: int
    voice: Matcher
    passage: Matcher
    seed: int | None
    pattern: str
    """Of the passage, as it was written."""


def rules_of(catalog: Catalog) -> tuple[Rule, ...]:
    """The rules, with `all` as a single one that matches everything."""
    if catalog.renders == "all":
        everything = name_matcher("*")
        return (Rule(0, everything, everything, None, "*"),)
    return tuple(
        Rule(index, name_matcher(rule.voice), name_matcher(rule.passage), rule.seed, rule.passage)
        for index, rule in enumerate(catalog.renders)
    )


class PassageRules:
    """Tells which rules ask for a passage.

    Holding a thousand rules against every passage is thirty million calls for a book. So rules lie
    by how the names they match must begin, or end where that says more, and a name is held only
    against those that begin or end as it does.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._begun: dict[int, dict[str, list[Rule]]] = {}
        self._ended: dict[int, dict[str, list[Rule]]] = {}
        for rule in rules:
            start, end = _fixed_ends(normalize("NFC", rule.pattern))
            lying, part = (self._begun, start) if len(start) >= len(end) else (self._ended, end)
            lying.setdefault(len(part), {}).setdefault(part, []).append(rule)

    def asking_for(self, name: str) -> list[Rule]:
        """The rules whose passage pattern matches a name, in no order."""
        return [rule for rule in self.worth_trying(name) if rule.passage(name)]

    def worth_trying(self, name: str) -> list[Rule]:
        """The rules whose passage pattern begins or ends as a name does."""
        plain = name if name.isascii() else normalize("NFC", name)
        found: list[Rule] = []
        for length, begun in self._begun.items():
            found += begun.get(plain[:length], ())
        for length, ended in self._ended.items():
            found += ended.get(plain[-length:], ())
        return found


def _fixed_ends(pattern: str) -> tuple[str, str]:
    """What stands before the first wildcard of a pattern and behind the last."""
    return _WILD.split(pattern, maxsplit=1)[0], _WILD.split(pattern)[-1]


def only_matchers(only: str) -> tuple[Matcher, Matcher]:
    """`--only VOICE/PASSAGE` as two matchers. Raises NothingSelectedError for another form."""
    voice, slash, passage = only.partition("/")
    if not slash or not voice or not passage or "/" in passage or len(only) > MAX_PATTERN_LENGTH:
        raise NothingSelectedError(
            f'--only {show(only)}: expected VOICE/PASSAGE, such as "slt/*" or "*/alice"'
        )
    return name_matcher(voice), name_matcher(passage)
