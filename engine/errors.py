"""Every refusal of the engine: a stable code, whether a retry can help, and one clear line."""

from __future__ import annotations

from typing import ClassVar


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""

    code: ClassVar[str] = "engine_error"
    retryable: ClassVar[bool] = False


class ManifestError(EngineError):
    """A manifest cannot be read; `key` is the dotted path of what was refused."""

    code = "manifest_invalid"

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key, self.message = key, message

    def __reduce__(self) -> tuple[type[ManifestError], tuple[str, str]]:
        """Rebuilt from both arguments: errors cross process borders."""
        return type(self), (self.key, self.message)


class PackNotFoundError(EngineError):
    """No pack by that name or in that folder."""

    code = "pack_not_found"


class PackMismatchError(EngineError):
    """A file of the pack is missing or is not the file that its manifest names."""

    code = "pack_mismatch"


class ContractMismatchError(EngineError):
    """Token ids were minted under another token contract than the one they are read under."""

    code = "contract_mismatch"


class ExecutionRefusedError(EngineError):
    """This machine cannot run the requested execution configuration."""

    code = "execution_refused"


class NothingToSpeakError(EngineError):
    """The text has nothing that can be spoken once it is read."""

    code = "nothing_to_speak"


class UnsupportedTextError(EngineError):
    """The text holds letters that the pack cannot read."""

    code = "unsupported_text"


class UnsupportedLanguageError(EngineError):
    """The pack was not trained on that language, or the text funnel cannot read it."""

    code = "unsupported_language"


class UnknownSpeakerError(EngineError):
    """The pack has no conditioning for that speaker."""

    code = "unknown_speaker"


class UnsupportedTagError(EngineError):
    """The pack was not trained on that non-verbal tag."""

    code = "unsupported_tag"


class UnsupportedPromptError(EngineError):
    """The pack's prompt has no place for it: a style, an accent, an env, a dialogue."""

    code = "unsupported_prompt"


class NoSpeechError(EngineError):
    """The model ended a window without a single speech token."""

    code = "no_speech"


class WindowOverflowError(EngineError):
    """A prompt and its window do not fit the model's positions."""

    code = "window_overflow"


class TokenBandError(EngineError):
    """A token id lies outside the band of its position in the frame."""

    code = "token_out_of_band"


class LogitsNotFiniteError(EngineError):
    """The model produced a logit that is not a number."""

    code = "logits_not_finite"


class AudioNotFiniteError(EngineError):
    """The codec produced a sample that is not a finite number."""

    code = "audio_not_finite"


class AudioSilentError(EngineError):
    """A rendered passage has no sound in it."""

    code = "audio_silent"


class AudioFormatError(EngineError):
    """The audio format is unknown, or this libsndfile cannot write it."""

    code = "audio_format"


class DecodeOnlyError(EngineError):
    """The pack ships no trained encoder, so audio cannot be turned into tokens."""

    code = "decode_only"
