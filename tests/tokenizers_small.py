"""Llama-3 tokenizers that are complete in their ids and tiny in their BPE.

Every added token stands at its real id. The base vocabulary has the 256 bytes, merges for a few
words, and fillers up to 128,000 that no text can reach, so a tokenizer is made in a second.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

Family = Literal["llama-3-audio", "bare-156938", "trimmed-156942", "style-156952", "orpheus"]
SIBLINGS: Final[tuple[Family, ...]] = ("bare-156938", "trimmed-156942", "style-156952")

NON_VERBALS: Final = (
    "breath stammer throat laugh swallow sniff sigh cough hum gasp wheeze sneeze snort yawn groan "
    "burp"
).split()

PATTERN: Final = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)

_WORDS: Final = (
    *("Hello", " Hello", " world", " the", " morning", " Good", "Good", "tara", " bird", "bird"),
    *(" squawk", "ing", " a", " and", "\n\n", ".\n", ".\n\n", "!\n\n", "joe", " laugh", "laugh"),
    *(" \u00e9t\u00e9", "\u65e5\u672c", "::", "</", "<|", "|>", " <", "123", " _"),
)


def added_tokens(family: Family) -> list[tuple[str, int]]:
    """(spelling, id) of every added token, written out here and not taken from the engine."""
    spellings = [f"<|reserved_special_token_{n}|>" for n in range(2)]
    spellings = ["<|begin_of_text|>", "<|end_of_text|>", *spellings, "<|finetune_right_pad_id|>"]
    spellings += ["<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>"]
    spellings += ["<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    spellings += [f"<|reserved_special_token_{n}|>" for n in range(3, 248)]
    if family == "orpheus":
        spellings += [f"<custom_token_{n}>" for n in range(28_684)]
    else:
        spellings += ["<|reserved_0|>", "<|start_of_speech|>", "<|end_of_speech|>"]
        spellings += ["<|start_of_human|>", "<|end_of_human|>", "<|start_of_ai|>"]
        spellings += ["<|end_of_ai|>", "<|pad|>", "<|reserved_8|>", "<|reserved_9|>"]
        spellings += [f"<|snac_{n}|>" for n in range(7 * 4096)]
        spellings += _above_the_audio(family)
    return [(spelling, 128_000 + n) for n, spelling in enumerate(spellings)]


def _above_the_audio(family: Family) -> list[str]:
    wrappers = ["<|speaker>", "<speaker|>", "<|style>", "<style|>", "<|env>", "<env|>"]
    if family == "bare-156938":
        return []
    if family == "trimmed-156942":
        return wrappers[:4]
    if family == "style-156952":
        return ["<|style>", "<style|>", *(f"<|style_{n}|>" for n in range(12))]
    return [*wrappers, *(f"<|nv_{name}|>" for name in NON_VERBALS)]


@lru_cache(maxsize=1)
def ranks() -> tuple[bytes, ...]:
    """The base vocabulary as bytes, by id."""
    tokens = [bytes([byte]) for byte in range(256)]
    for word in _WORDS:
        spelled = word.encode()
        # Left to right, so that every token is two older ones.
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in tokens:
                tokens.append(spelled[:end])
    # A word that no merge makes: it is found as a whole or not at all.
    tokens.append(b" zyx")
    # Bytes that no UTF-8 has.
    tokens += [b"\xff\xfe%06d" % n for n in range(128_000 - len(tokens))]
    return tuple(tokens)


def _letters() -> dict[int, str]:
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + n) for n, byte in enumerate(rest)}


@lru_cache(maxsize=1)
def _model() -> str:
    letters = _letters()
    spelled = ["".join(letters[byte] for byte in token) for token in ranks()]
    count = len([token for token in ranks() if not token.startswith(b"\xff\xfe")])
    known = {token: rank for rank, token in enumerate(spelled[:count])}
    merges = [
        [token[:cut], token[cut:]]
        for token in spelled[256:count]
        for cut in sorted(range(1, len(token)), key=lambda at: known.get(token[:at], count))
        if token[:cut] in known and token[cut:] in known
    ]
    return json.dumps(
        {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {token: rank for rank, token in enumerate(spelled)},
            "merges": merges,
        }
    )


def entry(spelling: str, token: int) -> str:
    """An added token as tokenizer.json has it."""
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return json.dumps(
        {"id": token, "content": spelling, **dict.fromkeys(flags, False), "special": True}
    )


@lru_cache(maxsize=5)
def tokenizer_json(family: Family) -> str:
    """The text of a tokenizer.json, as `transformers` would save it."""
    begin = {"id": "<|begin_of_text|>", "type_id": 0}
    head = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": "HERE",
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": PATTERN},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": begin}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {
                "<|begin_of_text|>": {
                    "id": "<|begin_of_text|>",
                    "ids": [128_000],
                    "tokens": ["<|begin_of_text|>"],
                }
            },
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
    }
    added = ", ".join(entry(*pair) for pair in added_tokens(family))
    text = json.dumps(head).replace('"HERE"', f"[{added}]")
    return f'{text[:-1]}, "model": {_model()}}}'


def write_tokenizer(folder: Path, family: Family, *changes: tuple[str, str]) -> Path:
    """Put a tokenizer.json into `folder`, each (old, new) of its text replaced; old is there once.

    An added token's text is `entry(spelling, id)`.
    """
    text = tokenizer_json(family)
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return folder


def write_tokenizer_model(folder: Path, family: Family) -> Path:
    """Put the same tokenizer into `folder` as tokenizer.model and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (b"%s %d\n" % (base64.b64encode(token), n) for n, token in enumerate(ranks()))
    (folder / "tokenizer.model").write_bytes(b"".join(lines))
    decoder = {str(token): {"content": spelling} for spelling, token in added_tokens(family)}
    config = {"added_tokens_decoder": decoder, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
