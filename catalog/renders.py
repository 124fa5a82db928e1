"""The renders of a catalog, one by one, in an order that never changes.

Passage by passage as the catalog lists them, and for each passage the voices as listed: a corpus is
streamed once, whatever the number of voices. Passages of a corpus come in the order of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.corpus import Corpus
from catalog.errors import NothingSelectedError, show
from catalog.loader import LoadedCatalog, SpokenPassage
from catalog.schema import Catalog, Format, Voice
from catalog.selection import Matcher, PassageRules, Rule, only_matchers, rules_of


@dataclass(frozen=True, slots=True)
class Render:
    """One passage in one voice with its seed: the unit a user counts."""

    voice: Voice
    passage_id: str
    text: str
    seed: int
    language: str
    """The tag of the language that the text is read in."""
    style: str | None
    format: Format
    turns: tuple[tuple[str, str], ...] = ()
    """(speaker of the pack, text) of a dialogue."""

    @property
    def key(self) -> str:
        """`voice/passage`, unique in the catalog."""
        return f"{self.voice.name}/{self.passage_id}"

    @property
    def audio_path(self) -> str:
        """Where the audio lies in the output folder; each format's name is its extension."""
        return f"audio/{self.key}.{self.format}"


def iter_passages(loaded: LoadedCatalog) -> Iterator[SpokenPassage]:
    """Every passage in catalog order. Raises CorpusError when a corpus changed under us."""
    for each in loaded.passages:
        if isinstance(each, Corpus):
            for name, text in each.rows():
                yield SpokenPassage(name, text)
        else:
            yield each


def iter_renders(loaded: LoadedCatalog, only: str | None = None) -> Iterator[Render]:
    """The renders that the catalog asks for and `only` (VOICE/PASSAGE, both globs) lets through.

    Seeds: a rule of `renders`, then the passage, the voice, the defaults; of several rules that
    match, the last that has a seed gives it. Language and style: the passage, the voice, the
    defaults. Raises NothingSelectedError at once for a malformed `only`, and in place of the first
    render when nothing is left.
    """
    matchers = only_matchers(only) if only is not None else None
    return _renders(loaded, only, matchers)


def _renders(
    loaded: LoadedCatalog, only: str | None, matchers: tuple[Matcher, Matcher] | None
) -> Iterator[Render]:
    catalog = loaded.catalog
    rules = rules_of(catalog)
    by_passage = PassageRules(rules)
    voices = [
        (voice, speaking)
        for voice in catalog.voices
        if (matchers is None or matchers[0](voice.name))
        and (speaking := [rule for rule in rules if rule.voice(voice.name)])
    ]
    speakers = {each.name: each.conditioned_as for each in catalog.voices}
    found = False
    for passage in iter_passages(loaded) if voices else ():
        if matchers is not None and not matchers[1](passage.id):
            continue
        asked = {rule.index for rule in by_passage.asking_for(passage.id)}
        for voice, speaking in voices:
            # A dialogue is one render, of the voice that speaks first.
            if passage.turns and voice.name != passage.turns[0].voice:
                continue
            if matching := [rule for rule in speaking if rule.index in asked]:
                found = True
                yield _render(catalog, voice, passage, matching, speakers)
    if not found:
        names = ", ".join(voice.name for voice in catalog.voices[:8])
        raise NothingSelectedError(
            f"--only {show(only)}: matches none of the renders; the voices are: {names}"
            if only is not None
            else f"{loaded.path}: renders: the rules leave no render; expected at least one"
        )


def _render(
    catalog: Catalog,
    voice: Voice,
    passage: SpokenPassage,
    rules: list[Rule],
    speakers: dict[str, str],
) -> Render:
    defaults = catalog.defaults
    ruled = [rule.seed for rule in rules if rule.seed is not None]
    seeds = (*ruled[-1:], passage.seed, voice.seed, defaults.seed)
    return Render(
        voice=voice,
        passage_id=passage.id,
        text=passage.text,
        seed=next(seed for seed in seeds if seed is not None),
        language=passage.language or catalog.language_id(voice),
        style=passage.style or voice.style or defaults.style,
        format=defaults.format,
        turns=tuple((speakers[turn.voice], turn.text) for turn in passage.turns),
    )
