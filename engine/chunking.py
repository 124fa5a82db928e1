"""Cutting a prepared text into chunks that should fit one window each.

The budget is a guess in characters, so a chunk can still fill its window; `split_in_half` is what
the passage does then. Every decision equals loudkit 0.1.1's, and the walk is linear in the text: it
searches in place between two positions and slices only what it returns.
"""

from __future__ import annotations

from typing import Final

from engine.algorithm import ChunkConfig

_WORD_BREAKS: Final = " \t\n\r\u00a0\u2007\u202f"
"""Where a word may end. No-break spaces are in the list: a forced cut beats a cut inside a word."""


def estimate_tokens(text: str, config: ChunkConfig) -> int:
    """Row entries that `text` will take at most, judging by its length alone."""
    return int(len(text) / config.chars) + 1


def split_text(text: str, config: ChunkConfig) -> list[str]:
    """The chunks of `text`, in order; blank text has none.

    Nothing but white space is dropped between chunks. A chunk always has a character that is not
    white space, but it may have punctuation only.
    """
    text = text.strip()
    if not config.enabled:
        return [text] if text else []
    first = config.first_chunk_max_tokens
    max_tokens = first if isinstance(first, int) else config.max_tokens
    chunks: list[str] = []
    start = 0
    while start < len(text):
        end = _chunk_end(text, start, int(max_tokens * config.chars), config)
        chunks.append(text[start:end].rstrip())
        start = _next_visible(text, end)
        max_tokens = config.max_tokens
    return chunks


def split_in_half(text: str) -> tuple[str, str] | None:
    """`text` cut at the word break nearest its middle, the earlier of two equally near.

    None when there is no word break inside, or when only white space would be on one side.
    """
    breaks = (i for i, character in enumerate(text) if character in _WORD_BREAKS)
    nearest = min(((abs(2 * i - len(text)), i) for i in breaks), default=None)
    if nearest is None:
        return None
    cut = nearest[1] + 1
    halves = text[:cut].strip(), text[cut:].strip()
    return halves if all(halves) else None


def _chunk_end(text: str, start: int, budget: int, config: ChunkConfig) -> int:
    """Where the chunk that begins at `start` ends (exclusive); always past `start`."""
    if len(text) - start <= budget:
        return len(text)
    # One more than the budget: a break may be the first character that no longer fits.
    reach = start + budget + 1
    for separator in config.split_on:
        found = _latest_break(text, separator, start, reach, config)
        if found > start:
            return found + len(separator)
    space = max(text.rfind(mark, start, reach) for mark in _WORD_BREAKS)
    if space > start:
        return space
    # A single run longer than the budget is cut inside. A budget of no characters (a first chunk
    # of one token) still has to advance.
    return start + max(budget, 1)


def _latest_break(text: str, separator: str, start: int, reach: int, config: ChunkConfig) -> int:
    """Position of the last `separator` in `text[start:reach]` that may end a chunk, or <= start."""
    found = text.rfind(separator, start, reach)
    while found > start and _is_held(text, separator, start, found, config):
        found = text.rfind(separator, start, found)
    return found


def _is_held(text: str, separator: str, start: int, found: int, config: ChunkConfig) -> bool:
    """Whether the separator at `found` begins with a period that does not end a sentence."""
    if config.mid_sentence_period != "hold" or not separator.startswith("."):
        return False
    follower = text[found + len(separator) : found + len(separator) + 1]
    if "a" <= follower <= "z":
        return True
    return any(_ends_in_word(text, word, start, found) for word in config.abbreviations)


def _ends_in_word(text: str, word: str, start: int, end: int) -> bool:
    """Whether `text[start:end]` ends in `word` as a word of its own.

    Only ASCII letters and digits glue: what else counts as a letter differs between the languages
    that implement this law.
    """
    if not text.endswith(word, start, end):
        return False
    before = end - len(word) - 1
    return before < start or not (text[before].isascii() and text[before].isalnum())


def _next_visible(text: str, position: int) -> int:
    """The first position from `position` on that is not white space, or the end of the text."""
    while position < len(text) and text[position].isspace():
        position += 1
    return position
