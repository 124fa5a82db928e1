"""What a command would render and why: the catalog against the pack and the ledger.

Nothing here imports torch or starts Ray. A plan is a stream: a corpus of millions of passages is
never held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from catalog.loader import LoadedCatalog
from catalog.renders import Render, iter_renders
from catalog.schema import Passage, Voice
from engine.contracts.contract import Conditioning
from engine.dialogue import dialogue_chunks, require_dialogue
from engine.errors import EngineError, PackNotFoundError
from engine.pack import Pack, open_pack, verify_pack
from engine.speech_chunks import speech_chunks
from jobs.content import content_key
from jobs.errors import CatalogRefusedError
from jobs.history import History


@dataclass(frozen=True, slots=True)
class PlannedRender:
    """A render and what is known of it before anything runs."""

    render: Render
    conditioning: Conditioning
    content_key: str
    reason: str
    """`current`: nothing to do. `cannot be made`: it failed before for good, and nothing it is made
    of has changed. `new`, `changed`, `file missing`, `file altered`, `other format`,
    `failed before`, `asked for`: it will be rendered, and why."""

    @property
    def is_current(self) -> bool:
        """Whether the output already has this render."""
        return self.reason == "current"

    @property
    def is_hopeless(self) -> bool:
        """Whether it would only fail again; `--all` tries it all the same."""
        return self.reason == "cannot be made"


def open_catalog_pack(loaded: LoadedCatalog) -> Pack:
    """The pack that a catalog names, opened and verified, its voices checked against it.

    Raises `CatalogRefusedError` naming the place in the catalog, `PackMismatchError` and
    `ManifestError`.
    """
    catalog = loaded.catalog
    try:
        # A bare word that is no bundled pack is a folder beside the catalog.
        reference = loaded.pack_folder or catalog.pack_name
        pack = open_pack(reference, sha256=catalog.pack_sha256, base=loaded.folder)
    except PackNotFoundError as error:
        raise CatalogRefusedError(loaded.problem(("pack",), str(error))) from None
    verify_pack(pack)
    for index, voice in enumerate(catalog.voices):
        _check_voice(loaded, pack, index, voice)
    for index, passage in enumerate(catalog.passages):
        if isinstance(passage, Passage):
            _check_passage(loaded, pack, index, passage)
    return pack


def _check_passage(loaded: LoadedCatalog, pack: Pack, index: int, passage: Passage) -> None:
    """What a passage asks of the prompt must have a place in it."""
    try:
        if passage.turns:
            require_dialogue(pack)
        elif passage.style:
            speaker = loaded.catalog.voices[0].conditioned_as
            pack.text_side.prompt((), Conditioning(speaker, style=passage.style))
    except EngineError as error:
        key = "turns" if passage.turns else "style"
        raise CatalogRefusedError(loaded.problem(("passages", index, key), str(error))) from None


def _check_voice(loaded: LoadedCatalog, pack: Pack, index: int, voice: Voice) -> None:
    """Ask the contract for the voice's prompt, one property at a time, to name the culprit."""

    def refuse(key: str, told: str) -> CatalogRefusedError:
        written = key if getattr(voice, key, None) else "name"
        return CatalogRefusedError(loaded.problem(("voices", index, written), told))

    whole = conditioning_of(voice, voice.style or loaded.catalog.defaults.style)
    for key in ("speaker", "style", "accent", "env"):
        alone = Conditioning(**{"speaker": whole.speaker, key: getattr(whole, key)})
        try:
            pack.text_side.prompt((), alone)
        except EngineError as error:
            raise refuse(key, str(error)) from None
    language = loaded.catalog.language_id(voice)
    if language not in pack.manifest.languages:
        spoken = ", ".join(pack.manifest.languages)
        raise refuse("language", f"pack {pack.manifest.name} speaks {spoken}, not {language!r}")


def conditioning_of(voice: Voice, style: str | None) -> Conditioning:
    """What the prompt says of a voice; a voice without a speaker is spoken by its own name."""
    return Conditioning(
        speaker=voice.conditioned_as,
        style=style or "",
        accent=voice.accent or "",
        env=voice.env or "",
    )


def conditioning_for(render: Render) -> Conditioning:
    """A dialogue's prompt names the speakers in its text, and has no place for the rest."""
    if render.turns:
        return Conditioning(render.turns[0][0])
    return conditioning_of(render.voice, render.style)


def plan_renders(
    loaded: LoadedCatalog,
    pack: Pack,
    history: History,
    *,
    only: str | None = None,
    everything: bool = False,
) -> Iterator[PlannedRender]:
    """Every selected render with the reason why it will or will not be rendered."""
    for render in iter_renders(loaded, only):
        conditioning = conditioning_for(render)
        key = content_key(
            pack,
            conditioning,
            text=render.text,
            language=render.language,
            seed=render.seed,
            turns=render.turns,
        )
        reason = "asked for" if everything else history.reason(render, key)
        yield PlannedRender(render, conditioning, key, reason)


@dataclass(frozen=True, slots=True)
class ChunkCount:
    """How a planned text will be split, or why it cannot be spoken."""

    chunks: int
    characters: int
    error: str | None = None


def count_chunks(pack: Pack, render: Render) -> ChunkCount:
    """The chunks of a render's text, without a model."""
    try:
        if render.turns:
            chunks = dialogue_chunks(pack, render.turns, render.language)
        else:
            chunks = speech_chunks(pack, render.text, render.language)
            for chunk in chunks:
                pack.text_side.text_tokens(chunk)
    except EngineError as error:
        return ChunkCount(0, len(render.text), f"{error.code}: {error}")
    return ChunkCount(len(chunks), sum(len(chunk) for chunk in chunks))


@dataclass(slots=True)
class PlanTotals:
    """What a plan adds up to."""

    planned: int = 0
    to_render: int = 0
    chunks: int = 0
    audio_s: float = 0.0
    unspeakable: int = 0

    def count(self, pack: Pack, planned: PlannedRender) -> dict[str, Any]:
        """Add a render; what is to be said of it."""
        counted = count_chunks(pack, planned.render)
        seconds = 0.0 if counted.error else estimated_seconds(pack, counted.characters)
        self.planned += 1
        self.unspeakable += counted.error is not None
        if not planned.is_current and not planned.is_hopeless:
            self.to_render += 1
            self.chunks += counted.chunks
            self.audio_s += seconds
        return {
            "render": planned.render.key,
            "reason": planned.reason,
            "chunks": counted.chunks,
            "audio_s": round(seconds, 1),
            "seed": planned.render.seed,
            "error": counted.error,
        }

    def as_json(self) -> dict[str, Any]:
        """The totals by the names that scripts read."""
        return {
            "planned": self.planned,
            "to_render": self.to_render,
            "chunks": self.chunks,
            "audio_s": round(self.audio_s, 1),
            "cannot_be_spoken": self.unspeakable,
        }


def estimated_seconds(pack: Pack, characters: int) -> float:
    """About how long a text will sound, from the pack's own characters a row entry."""
    algorithm = pack.algorithm
    return characters / algorithm.chunking.chars / algorithm.row_rate_hz
