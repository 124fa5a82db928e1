"""Which renders are asked for: the `renders` of a catalog, and `--only`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from unicodedata import normalize

from catalog.errors import NothingSelectedError, show
from catalog.schema import MAX_PATTERN_LENGTH, Catalog

Matcher = Callable[[str], bool]


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


def rules_of(catalog: Catalog) -> tuple[Rule, ...]:
    """The rules, with `all` as a single one that matches everything."""
    if catalog.renders == "all":
        everything = name_matcher("*")
        return (Rule(0, everything, everything, None),)
    return tuple(
        Rule(index, name_matcher(rule.voice), name_matcher(rule.passage), rule.seed)
        for index, rule in enumerate(catalog.renders)
    )


def only_matchers(only: str) -> tuple[Matcher, Matcher]:
    """`--only VOICE/PASSAGE` as two matchers. Raises NothingSelectedError for another form."""
    voice, slash, passage = only.partition("/")
    if not slash or not voice or not passage or "/" in passage or len(only) > MAX_PATTERN_LENGTH:
        raise NothingSelectedError(
            f'--only {show(only)}: expected VOICE/PASSAGE, such as "slt/*" or "*/alice"'
        )
    return name_matcher(voice), name_matcher(passage)
