"""Text as it will be spoken: loudkit's funnel, or the text as it stands.

The funnel (numbers, dates, abbreviations, symbols in twelve languages) is the published
package's. Its code version and the digest of its data are in the algorithm fingerprint, so a
funnel that reads one date differently is another algorithm.
"""

from __future__ import annotations

import unicodedata

from engine.algorithm import TextConfig
from engine.errors import NothingToSpeakError, UnsupportedLanguageError, UnsupportedTextError

VERBATIM = "verbatim"


def prepare_text(text: str, language: str, config: TextConfig) -> str:
    """The words a passage will be spoken from.

    Raises `NothingToSpeakError` when reading leaves no letter or digit, `UnsupportedTextError`
    for what is no Unicode, and `UnsupportedLanguageError` for a language the funnel has no grammar
    for.
    """
    require_unicode(text)
    read = text.strip() if config.recipe == VERBATIM else _through_the_funnel(text, language)
    if not has_words(read):
        shown = text.strip()[:40]
        raise NothingToSpeakError(
            f"nothing to speak in {shown!r}: no word is left once it is read aloud"
            if shown
            else "nothing to speak: the text is empty"
        )
    return read


def require_unicode(text: str, what: str = "the text") -> None:
    """Refuse what has no UTF-8 and so no ids. Raises `UnsupportedTextError`."""
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise UnsupportedTextError(f"{what} holds half of a surrogate pair; it must be Unicode")


def has_words(text: str) -> bool:
    """Whether there is a letter or a digit to speak."""
    return any(unicodedata.category(c)[0] in "LN" for c in text)


def _through_the_funnel(text: str, language: str) -> str:
    from loudkit.frontend.numbers import supported_languages
    from loudkit.frontend.speechtext import speech_text

    if language not in supported_languages():
        raise UnsupportedLanguageError(
            f"the text funnel cannot read {language!r}; it reads "
            f"{', '.join(sorted(supported_languages()))}"
        )
    return speech_text(text, language)
