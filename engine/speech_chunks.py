"""A passage's text as the chunks it will be spoken in: the steps before any weight is needed."""

from __future__ import annotations

from engine.chunking import split_text
from engine.contracts.tags import TagSet
from engine.errors import UnsupportedLanguageError
from engine.pack import Pack
from engine.speech_text import VERBATIM, prepare_text
from engine.tagged_text import ProtectedText, protect_tags


def speech_chunks(pack: Pack, text: str, language: str) -> list[str]:
    """The chunks a passage is spoken in; needs no weights, so `plan` can count them.

    Tags that the pack lists are kept whole and beside their text, and each chunk has by itself the
    tags that the whole text has there; a pack that lists none has no tags. Raises
    `UnsupportedLanguageError`, `UnsupportedTagError`, `NothingToSpeakError` and what the text side
    refuses.
    """
    if language not in pack.manifest.languages:
        raise UnsupportedLanguageError(
            f"pack {pack.manifest.name} speaks {', '.join(pack.manifest.languages)}, "
            f"not {language!r}"
        )
    recipe = pack.algorithm.text
    tags = TagSet.of(pack.manifest.supported_tags)
    protected = protect_tags(text, tags, spaced=recipe.recipe != VERBATIM)
    prepared = prepare_text(protected.text, language, recipe)
    pieces = split_text(prepared, pack.algorithm.chunking)
    chunks = _speakable(pieces, protected)
    if protected.is_kept_by(chunks):
        return chunks
    return protected.restore(_speakable(protected.recut(prepared, pieces), protected))


def _speakable(pieces: list[str], protected: ProtectedText) -> list[str]:
    """The pieces, those of marks or tags alone joined to their neighbours."""
    chunks: list[str] = []
    for piece in pieces:
        # A piece of marks alone cannot be spoken by itself: it closes the chunk before it.
        if protected.has_words(piece) or not chunks:
            chunks.append(piece)
        else:
            chunks[-1] = f"{chunks[-1]} {piece}"
    if len(chunks) > 1 and not protected.has_words(chunks[0]):
        chunks[:2] = [f"{chunks[0]} {chunks[1]}"]
    return chunks
