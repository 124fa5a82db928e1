"""A passage's text as the chunks it will be spoken in: the steps before any weight is needed."""

from __future__ import annotations

from engine.chunking import split_text
from engine.errors import UnsupportedLanguageError
from engine.pack import Pack
from engine.speech_text import has_words, prepare_text


def speech_chunks(pack: Pack, text: str, language: str) -> list[str]:
    """The chunks a passage is spoken in; needs no weights, so `plan` can count them.

    Raises `UnsupportedLanguageError`, `NothingToSpeakError` and what the text side refuses.
    """
    if language not in pack.manifest.languages:
        raise UnsupportedLanguageError(
            f"pack {pack.manifest.name} speaks {', '.join(pack.manifest.languages)}, "
            f"not {language!r}"
        )
    prepared = prepare_text(text, language, pack.algorithm.text)
    chunks: list[str] = []
    for piece in split_text(prepared, pack.algorithm.chunking):
        # A piece of marks alone cannot be spoken by itself: it closes the chunk before it.
        if has_words(piece) or not chunks:
            chunks.append(piece)
        else:
            chunks[-1] = f"{chunks[-1]} {piece}"
    if len(chunks) > 1 and not has_words(chunks[0]):
        chunks[:2] = [f"{chunks[0]} {chunks[1]}"]
    return chunks
