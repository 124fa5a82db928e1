"""catalog.yaml -> LoadedCatalog: what can be refused before rendering is refused here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from catalog.corpus import Corpus, IdDigests
from catalog.errors import (
    CatalogCollisionError,
    CatalogEncodingError,
    CatalogInvalidError,
    CatalogNotFoundError,
    CatalogUnreadableError,
    CorpusError,
    NothingSelectedError,
    Problems,
    TextFileError,
    show,
)
from catalog.files import UnreadableFile, read_bounded, utf8_text
from catalog.names import folded
from catalog.schema import Catalog, Passage, PassageSource, Turn
from catalog.schema_errors import Loc, nearest, problem_line, schema_error
from catalog.selection import PassageRules, rules_of
from catalog.text_files import read_text_file
from catalog.yaml_tree import Node, read_tree

MAX_CATALOG_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class SpokenPassage:
    """A passage with its text read; None where the catalog leaves the choice to the voice."""

    id: str
    text: str
    style: str | None = None
    language: str | None = None
    seed: int | None = None
    turns: tuple[Turn, ...] = ()
    """Of a dialogue; `text` then holds them as lines, for people and records."""


@dataclass(frozen=True, slots=True)
class LoadedCatalog:
    """A catalog that holds together: names are unique, files are there, rules match something."""

    path: Path
    sha256: str
    """Of the bytes of catalog.yaml."""
    catalog: Catalog
    passages: tuple[SpokenPassage | Corpus, ...]
    """As listed; a corpus stands for all its rows and is streamed."""
    passage_count: int
    tree: Node = field(repr=False)

    @property
    def folder(self) -> Path:
        """What relative paths in the catalog are relative to."""
        return self.path.parent

    @property
    def pack_folder(self) -> Path | None:
        """The pack as a folder, when it is written as a path; None for the name of a bundled one.

        A folder beside the catalog is written `./name`, so that a bundled pack never shadows it.
        """
        pack = self.catalog.pack
        if isinstance(pack, str) and "/" not in pack and not pack.startswith("."):
            return None
        return self.folder / self.catalog.pack_name

    def problem(self, loc: Loc, told: str) -> str:
        """`catalog.yaml:12:5: voices[2].speaker: TOLD` for ("voices", 2, "speaker")."""
        return problem_line(str(self.path), self.tree.find(loc), loc, told)


def load_catalog(path: str | Path) -> LoadedCatalog:
    """Read, check and resolve a catalog. Raises a CatalogError of one line for whatever is wrong.

    A corpus is read through once for its ids, without its texts.
    """
    path = Path(path)
    data = _read(path)
    try:
        text = utf8_text(data)
    except UnreadableFile as error:
        raise CatalogEncodingError(f"{path}: {error.reason}") from None
    tree = read_tree(text, str(path))
    try:
        catalog = Catalog.model_validate(tree.value)
    except ValidationError as error:
        raise schema_error(error, tree, str(path)) from None
    draft = LoadedCatalog(path, sha256(data).hexdigest(), catalog, (), 0, tree)
    _check_collisions(draft)
    _check_turns(draft)
    passages = _resolve(draft)
    count = _check_ids_and_rules(draft, passages)
    return LoadedCatalog(path, draft.sha256, catalog, passages, count, tree)


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, limit_bytes=MAX_CATALOG_BYTES)
    except UnreadableFile as error:
        if error.missing:
            raise CatalogNotFoundError(f"{path}: no such file; expected a catalog.yaml") from None
        raise CatalogUnreadableError(f"{path}: {error.reason}") from None


def _check_collisions(loaded: LoadedCatalog) -> None:
    """Voices among themselves, and the passages that the catalog lists, must keep apart."""
    catalog = loaded.catalog
    problems: list[str] = []
    voices = [(voice.name, ("voices", n, "name")) for n, voice in enumerate(catalog.voices)]
    listed = [
        (passage.id, ("passages", n, "id"))
        for n, passage in enumerate(catalog.passages)
        if isinstance(passage, Passage)
    ]
    for names in (voices, listed):
        first: dict[str, tuple[str, Loc]] = {}
        for name, loc in names:
            other, where = first.setdefault(folded(name), (name, loc))
            if where != loc:
                at = loaded.tree.find(where)
                problems.append(
                    loaded.problem(loc, _collision(name, other, f"at {at.line}:{at.column}"))
                )
    if problems:
        raise CatalogCollisionError(*problems)


def _check_turns(loaded: LoadedCatalog) -> None:
    """Whoever speaks in a dialogue is a voice of the catalog."""
    names = [voice.name for voice in loaded.catalog.voices]
    voices = set(names)
    problems = Problems()
    for n, passage in enumerate(loaded.catalog.passages):
        turns = passage.turns if isinstance(passage, Passage) else None
        for at, turn in enumerate(turns or ()):
            if turn.voice not in voices:
                loc, told = ("passages", n, "turns", at, "voice"), f"no voice {show(turn.voice)}"
                problems.add(partial(_unknown, loaded, loc, told, name=turn.voice, names=names))
    problems.refuse_as(CatalogInvalidError)


def _collision(name: str, other: str, place: str) -> str:
    if name == other:
        return f"{show(name)} is already given {place}; expected a name of its own"
    return (
        f"{show(name)} and {show(other)} {place} differ only in case or Unicode normal form, and "
        "would share a file on some disks; expected a name of its own"
    )


def _resolve(loaded: LoadedCatalog) -> tuple[SpokenPassage | Corpus, ...]:
    """Every listed passage with its text, every source opened for reading."""
    problems: list[str] = []
    texts: dict[str, str] = {}
    resolved: list[SpokenPassage | Corpus] = []
    for n, passage in enumerate(loaded.catalog.passages):
        if isinstance(passage, PassageSource):
            resolved.append(_corpus(loaded, n, passage))
            continue
        text = passage.text
        if passage.text_file is not None:
            try:
                if passage.text_file not in texts:
                    texts[passage.text_file] = read_text_file(loaded.folder, passage.text_file)
                text = texts[passage.text_file]
            except UnreadableFile as error:
                told = f"{show(passage.text_file)}: {error.reason}"
                problems.append(loaded.problem(("passages", n, "text_file"), told))
        turns = passage.turns or ()
        if turns:
            text = "\n".join(f"{turn.voice}: {turn.text}" for turn in turns)
        resolved.append(
            SpokenPassage(
                passage.id, text or "", passage.style, passage.language, passage.seed, turns
            )
        )
    if problems:
        raise TextFileError(*problems)
    return tuple(resolved)


def _corpus(loaded: LoadedCatalog, n: int, source: PassageSource) -> Corpus:
    # Unlike a text_file it may lie anywhere: corpora live on other disks, and nothing is taken
    # from a file that is not Parquet with the two named columns.
    where = loaded.problem(("passages", n, "from"), show(source.file))
    return Corpus(loaded.folder / source.file, source.id, source.text, where)


def _check_ids_and_rules(
    loaded: LoadedCatalog, passages: tuple[SpokenPassage | Corpus, ...]
) -> int:
    """One walk over all ids: they collide nowhere, and every rule matches one. Returns how many."""
    rules = rules_of(loaded.catalog)
    by_passage, unmatched = PassageRules(rules), {rule.index for rule in rules}
    digests = IdDigests() if any(isinstance(each, Corpus) for each in passages) else None
    count = 0
    for name in _all_ids(passages):
        count += 1
        if digests is not None and digests.add(name) and (pair := digests.first_collision()):
            raise _corpus_collision(passages, *pair)
        if unmatched:
            unmatched -= {
                rule.index
                for rule in by_passage.worth_trying(name)
                if rule.index in unmatched and rule.passage(name)
            }
    if not count:
        told = "no passage: the sources have no rows; expected at least one"
        raise NothingSelectedError(loaded.problem(("passages",), told))
    if digests is not None and (pair := digests.first_collision()):
        raise _corpus_collision(passages, *pair)
    _check_rules(loaded, unmatched)
    return count


def _all_ids(passages: tuple[SpokenPassage | Corpus, ...]) -> Iterator[str]:
    for each in passages:
        if isinstance(each, Corpus):
            yield from each.ids()
        else:
            yield each.id


def _corpus_collision(
    passages: tuple[SpokenPassage | Corpus, ...], first: int, again: int
) -> CorpusError | CatalogCollisionError:
    """Names the two places of the ids at those positions, reading the corpus once more."""
    places = islice(_placed_ids(passages), again + 1)
    found = {n: place for n, place in enumerate(places) if n in (first, again)}
    other, other_row, other_corpus = found[first]
    name, row, corpus = found[again]
    place = f"in row {other_row} of {other_corpus.path.name}" if other_corpus else "in the catalog"
    if corpus is not None:
        told = f"row {row}: {corpus.id_column}: {_collision(name, other, place)}"
        return corpus.refuse(told)
    return CatalogCollisionError(f"passages: {_collision(name, other, place)}")


def _placed_ids(
    passages: tuple[SpokenPassage | Corpus, ...],
) -> Iterator[tuple[str, int, Corpus | None]]:
    for each in passages:
        if isinstance(each, Corpus):
            yield from ((name, row, each) for row, name in enumerate(each.ids()))
        else:
            yield each.id, 0, None


def _check_rules(loaded: LoadedCatalog, without_passage: set[int]) -> None:
    catalog = loaded.catalog
    if catalog.renders == "all":
        return
    problems = Problems()
    voices = [voice.name for voice in catalog.voices]
    listed = [each.id for each in catalog.passages if isinstance(each, Passage)]
    for rule in rules_of(catalog):
        asked = catalog.renders[rule.index]
        if not any(map(rule.voice, voices)):
            loc, told = ("renders", rule.index, "voice"), f"no voice matches {show(asked.voice)}"
            problems.add(partial(_unknown, loaded, loc, told, name=asked.voice, names=voices))
        if rule.index in without_passage:
            loc, told = ("renders", rule.index, "passage"), "no passage matches "
            told += show(asked.passage)
            problems.add(partial(_unknown, loaded, loc, told, name=asked.passage, names=listed))
    problems.refuse_as(NothingSelectedError)


def _unknown(loaded: LoadedCatalog, loc: Loc, told: str, *, name: str, names: list[str]) -> str:
    """The problem at that place with the name that was meant, or the names that there are."""
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    hint = nearest(name, names) or (f"; there are: {shown}" if names else "")
    return loaded.problem(loc, told + hint)
