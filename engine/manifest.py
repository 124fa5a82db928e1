"""manifest.json -> AlgorithmConfig. An absent key takes the recipe's default; a key that is present
holds what it should, or is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from engine.algorithm import (
    DEFAULT_EDGE_FADE_S,
    LEGACY_EDGE_FADE_S,
    RECIPE_VERSION,
    UNSET,
    VERBATIM_TEXT,
    AlgorithmConfig,
    ChunkConfig,
    CodecConfig,
    FrameConfig,
    PostprocessConfig,
    SamplingConfig,
    TextConfig,
    Unset,
    WindowConfig,
    funnel_identity,
)
from engine.errors import ManifestError
from engine.manifest_values import (
    Reader,
    flag,
    list_of,
    number,
    one_of,
    or_null,
    whole,
    word,
    wrong,
)
from engine.strict_json import read_object

__all__ = ["LOUDKIT_FORMAT", "MAX_MANIFEST_BYTES", "PACK_FORMAT", "algorithm_from", "read_manifest"]

LOUDKIT_FORMAT: Final = "loudkit-checkpoint"
PACK_FORMAT: Final = "loudkit-batch-pack"
MAX_MANIFEST_BYTES: Final = 2**19
"""A manifest has some kilobytes; what a larger one costs grows past what a refusal may."""

# The decode modes that each layout may declare. Under an older version a reader would run the loop
# it knows over weights made for another, and speak fluent nonsense.
_DECODE_MODES: Final[Mapping[tuple[str, int], tuple[str, ...]]] = {
    (LOUDKIT_FORMAT, 1): ("single",),
    (LOUDKIT_FORMAT, 2): ("single", "fusion_mtp2"),
    (PACK_FORMAT, 1): ("single",),
}
_KNOWN_DECODE_MODES: Final = ("single", "fusion_mtp2")

_CONTRACT_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16,64}")

Config = TypeVar("Config")


# -- the tables: which key fills which field, and how it is read ----------------------------------


def _edge_fade(value: object, key: str) -> float | Unset:
    # Manifests that do not name a fade are older than the field and were rendered with 5 ms.
    seconds = LEGACY_EDGE_FADE_S if value is None else number(value, key)
    return UNSET if seconds == DEFAULT_EDGE_FADE_S else seconds


def _refused_here(value: object, key: str) -> None:
    raise ManifestError(key, "belongs at the top level of the manifest")


class Field(NamedTuple):
    """One row: the config field, the dotted manifest key, the reader."""

    name: str
    key: str
    read: Reader


_SAMPLING: Final = (
    Field("temperature", "sampling_defaults.temperature", number),
    Field("repetition_penalty", "sampling_defaults.repetition_penalty", number),
    Field("min_p", "sampling_defaults.min_p", number),
    Field("max_new_tokens", "sampling_defaults.max_new_tokens", whole),
    Field("silence_token_ids", "silence_token_ids", list_of(whole)),
    Field("min_tokens_floor", "eos_floor.min_tokens_floor", whole),
    Field("min_tokens_text_ratio", "eos_floor.min_tokens_text_ratio", number),
)
_WINDOW: Final = (
    Field("max_speech_tokens", "window.max_speech_tokens", whole),
    Field("static_length", "window.static_length", or_null(whole)),
    Field("pad_token_id", "window.pad_token_id", or_null(whole)),
    Field("static_prompt_tokens", "window.static_prompt_tokens", or_null(whole)),
)
_CHUNKING: Final = (
    Field("enabled", "chunking.enabled", flag),
    Field("max_tokens", "chunking.max_tokens", whole),
    Field("prefix_tokens", "chunking.prefix_tokens", whole),
    Field("split_on", "chunking.split_on", list_of(word)),
    Field("abbreviations", "chunking.abbreviations", list_of(word)),
    Field("cap_resplit", "chunking.cap_resplit", one_of("word", "off")),
    Field("mid_sentence_period", "chunking.mid_sentence_period", one_of("hold", "break")),
    Field("first_chunk_max_tokens", "chunking.first_chunk_max_tokens", or_null(whole)),
    Field("chars_per_token", "chunking.chars_per_token", number),
)
_RENDER_CENSUSES: Final = ("silence_render_ids", "quiet_render_ids")
_BY_TYPE: Final[Mapping[type, Reader]] = {float: number, int: whole, str: word, Unset: whole}
_POSTPROCESS: Final = (
    *(
        Field(f.name, f"postprocess.{f.name}", _BY_TYPE[type(f.default)])
        for f in fields(PostprocessConfig)
        if f.name not in _RENDER_CENSUSES
    ),
    *(Field(name, f"postprocess.{name}", _refused_here) for name in _RENDER_CENSUSES),
    *(Field(name, name, list_of(whole)) for name in _RENDER_CENSUSES),
)
_FRAME: Final = (
    Field("tokens_per_frame", "frame.tokens_per_frame", whole),
    Field("samples_per_frame", "frame.samples_per_frame", whole),
)
_CODEC: Final = (
    Field("kind", "codec.kind", one_of("snac")),
    Field("codebook_size", "codec.codebook_size", whole),
    Field("vq_strides", "codec.vq_strides", list_of(whole)),
    Field("noise_stream", "codec.noise_stream", whole),
    Field("window_frames", "codec.window_frames", whole),
    Field("context_frames", "codec.context_frames", whole),
)
_ALGORITHM: Final = (
    Field("recipe_version", "recipe_version", one_of(RECIPE_VERSION)),
    Field("guidance", "guidance", one_of("single_path", "cfg_dual_path")),
    Field("guidance_rate", "guidance_rate", number),
    Field("euler_steps", "n_cfm_timesteps", whole),
    Field("euler_grid", "euler_grid", or_null(list_of(number))),
    Field("edge_fade_seconds", "edge_fade_seconds", _edge_fade),
    Field("sample_rate", "sample_rate", whole),
    Field("token_rate_hz", "token_rate_hz", number),
    Field("speech_vocab_size", "speech_vocab_size", whole),
    Field("start_speech_token", "speech_tokens.start", whole),
    Field("stop_speech_token", "speech_tokens.stop", whole),
)
# What AlgorithmConfig says of its blocks, in the manifest's words.
_BLOCK_KEYS: Final = {"sampling.max_new_tokens": "sampling_defaults.max_new_tokens"}


# -- the manifest ---------------------------------------------------------------------------------


def algorithm_from(manifest: Mapping[str, object]) -> AlgorithmConfig:
    """The algorithm that a manifest declares.

    Raises `ManifestError` with the dotted key of what cannot be read. Keys that are not the
    algorithm's (weights, hashes, notes) are left alone.
    """
    modes = _decode_modes(manifest)
    # A null window is the ragged one, a null or absent fade is older than the field.
    window = {} if manifest.get("window", {}) is None else manifest
    return _build(
        AlgorithmConfig,
        _ALGORITHM,
        {"edge_fade_seconds": None, **manifest},
        sampling=_build(SamplingConfig, _SAMPLING, manifest),
        window=_build(WindowConfig, _WINDOW, window),
        chunking=_build(ChunkConfig, _CHUNKING, manifest),
        postprocess=_build(PostprocessConfig, _POSTPROCESS, manifest),
        text=_text_from(manifest),
        decode_mode=_decode_from(manifest, modes),
        frame=_build(FrameConfig, _FRAME, manifest) if "frame" in manifest else UNSET,
        codec=_build(CodecConfig, _CODEC, manifest) if "codec" in manifest else UNSET,
        token_contract=_contract_from(manifest) if "token_contract" in manifest else UNSET,
    )


def read_manifest(path: str | Path) -> dict[str, object]:
    """The manifest in a file, as strict JSON; nothing of it is interpreted yet.

    Raises `PackNotFoundError` where there is no file, `ManifestError` where it is no such JSON.
    """
    return read_object(path, limit_bytes=MAX_MANIFEST_BYTES)


def _decode_modes(manifest: Mapping[str, object]) -> tuple[str, ...]:
    """The decode modes that the declared format and version may name."""
    name = _needed(manifest, "format", one_of(LOUDKIT_FORMAT, PACK_FORMAT))
    version = _needed(manifest, "format_version", whole)
    if (name, version) not in _DECODE_MODES:
        known = " or ".join(str(v) for n, v in _DECODE_MODES if n == name)
        raise ManifestError("format_version", f"must be {known} for {name}, got {version}")
    return _DECODE_MODES[name, version]


def _decode_from(manifest: Mapping[str, object], modes: tuple[str, ...]) -> object:
    if manifest.get("decode") is None:
        return UNSET
    mode = _look_up(manifest, "decode.mode")
    mode = "single" if mode is _ABSENT else one_of(*_KNOWN_DECODE_MODES)(mode, "decode.mode")
    if mode not in modes:
        layout = f"{manifest['format']} version {manifest['format_version']}"
        known = " or ".join(repr(known) for known in modes)
        raise ManifestError("decode.mode", f"must be {known} in {layout}, got {mode!r}")
    return UNSET if mode == "single" else mode


def _text_from(manifest: Mapping[str, object]) -> TextConfig:
    recipe = _look_up(manifest, "text.recipe")
    recipe = "funnel" if recipe is _ABSENT else recipe
    verbatim = one_of("funnel", "verbatim")(recipe, "text.recipe") == "verbatim"
    return VERBATIM_TEXT if verbatim else funnel_identity()


def _contract_fingerprint(value: object, key: str) -> str:
    if not isinstance(value, str) or not _CONTRACT_FINGERPRINT.fullmatch(value):
        raise wrong(key, "16 to 64 lower-case hex digits", value)
    return value


def _contract_from(manifest: Mapping[str, object]) -> object:
    _needed(manifest, "token_contract.name", word)
    return _needed(manifest, "token_contract.fingerprint", _contract_fingerprint)


def _build(
    config: type[Config], table: Iterable[Field], manifest: Mapping[str, object], **given: object
) -> Config:
    """A config block from its table; what the block refuses is refused by its manifest key."""
    values: dict[str, Any] = dict(given)
    keys = dict(_BLOCK_KEYS)
    for row in table:
        keys[row.name] = row.key
        found = _look_up(manifest, row.key)
        if found is not _ABSENT:
            values[row.name] = row.read(found, row.key)
    for name in _required(config):
        if name not in values:
            raise ManifestError(keys[name], "is missing")
    try:
        return config(**values)
    except ManifestError as error:
        name, bracket, index = error.key.partition("[")
        message = str(error).removeprefix(f"{error.key}: ")
        raise ManifestError(keys.get(name, name) + bracket + index, message) from None


def _required(config: Any) -> list[str]:
    """The fields of a block that have no default."""
    defaults = {f.name: (f.default, f.default_factory) for f in fields(config)}
    return [name for name, default in defaults.items() if default == (MISSING, MISSING)]


class _Absent:
    """Tells a key that is not there from one that is null."""


_ABSENT: Final = _Absent()


def _look_up(manifest: Mapping[str, object], key: str) -> object:
    """The value at `block.leaf` or `leaf`; a block that is not an object is refused."""
    block_key, _, leaf = key.rpartition(".")
    block = manifest.get(block_key, {}) if block_key else manifest
    if not isinstance(block, Mapping):
        raise wrong(block_key, "an object", block)
    return block.get(leaf, _ABSENT)


def _needed(manifest: Mapping[str, object], key: str, read: Reader) -> Any:
    value = _look_up(manifest, key)
    if value is _ABSENT:
        raise ManifestError(key, "is missing")
    return read(value, key)
