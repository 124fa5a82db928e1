"""A Llama-3 `tokenizer.json`: what it must say for its BPE to be Llama-3's, and that BPE.

Hugging Face's format can say much that changes the ids of a text: a normalizer, another cut before
the merges, affixes of words, tokens left out at random. A model was trained on the ids that
Llama-3's own settings give, so any other setting is refused, by its key.

The vocabulary is held against itself: every byte has a token, and the merges are all the ways to
put a token together from two others, in the order of the tokens' ids, which is how the family's
published file was made (280,147 of them) from the ranks. Ids of longer tokens that were swapped do
not fit that order. Ids of two single bytes that were swapped do, and are not found out: which id a
byte has is in no rule, only in the vocabulary itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.contracts.llama3_ranks import SPLIT_PATTERN
from engine.errors import PackMismatchError
from engine.shown import shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MODEL_SETTINGS: Final[Mapping[str, tuple[object, ...]]] = {
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "unk_token": (None,),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False, True),  # files of Llama-3's first weeks are without it
}
"""What the model's settings may be; a dropout is for training and is left out, whatever it is."""

_PROBES: Final = (
    "".join(map(chr, range(0x100))),
    "".join(chr(first) for first in (*range(0x80, 0x800, 0x40), *range(0x800, 0xD800, 0x1000))),
    "".join(chr(first) for first in range(0x10000, 0x110000, 0x10000)),
    "It's 12345 o'clock,\r\n\r\n   and\t\tall's  well!   ",
    "\u65e5\u672c\u8a9e \u0939\u093f\u0928\u094d\u0926\u0940 e\u0301 \U0001f468\u200d\U0001f469",
    "<|begin_of_text|> [INST] \u2581 \u0120 \ufeff\u00a0\u3000",
)
"""Every byte that UTF-8 has, runs of white space, scripts that are many bytes a letter, and
spellings that a tokenizer may take for something else."""


def bpe_of_document(document: Mapping[str, Any], path: Path) -> Tokenizer:
    """The BPE of a parsed `tokenizer.json` alone: no added token, nothing written around a text.

    Raises `PackMismatchError` naming the setting or the token that is not as Llama-3's.
    """
    model = document["model"]
    if not _is_nothing(document.get("normalizer")):
        raise _refused(path, "normalizer", "null", document["normalizer"])
    if not _is_llama3_cut(document.get("pre_tokenizer")):
        cut = "its Split and then a ByteLevel that adds and cuts nothing"
        raise _refused(path, "pre_tokenizer", cut, document.get("pre_tokenizer"))
    for key, allowed in _MODEL_SETTINGS.items():
        if not any(model.get(key) is each or model.get(key) == each for each in allowed):
            raise _refused(path, f"model.{key}", json.dumps(allowed[-1]), model[key])
    _require_bytes(model["vocab"], path)
    _require_merges(model["vocab"], model.get("merges"), path)
    return _built(document, path)


def _built(document: Mapping[str, Any], path: Path) -> Tokenizer:
    from tokenizers import Tokenizer, decoders

    kept = {key: document["model"].get(key) for key in ("type", "vocab", "merges")}
    kept["ignore_merges"] = bool(document["model"].get("ignore_merges"))
    clean = {"version": "1.0", "model": kept, "pre_tokenizer": document["pre_tokenizer"]}
    with library_errors(path):
        bpe = Tokenizer.from_str(json.dumps(clean))
        bpe.decoder = decoders.ByteLevel()
    return bpe


def require_round_trips(bpe: Tokenizer, path: Path) -> None:
    """Refuse a BPE that loses or changes what is written. Raises `PackMismatchError`."""
    with library_errors(path):
        for text in _PROBES:
            ids = bpe.encode(text, add_special_tokens=False).ids
            back = bpe.decode(ids, skip_special_tokens=False)
            if not ids or back != text:
                raise PackMismatchError(
                    f"{path}: mangles plain text: {shown(text)} comes back as {shown(back)}"
                )


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turn what the tokenizers library raises into one line.

    It raises bare `Exception`, and a panic of its Rust code is not even one.
    """
    try:
        yield
    except (PackMismatchError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        told = " ".join(shown(str(error)).split())
        raise PackMismatchError(f"{path}: the tokenizers library refuses it: {told}") from None


def _is_nothing(step: object) -> bool:
    """No step at all, or a sequence of none."""
    return step is None or step == {"type": "Sequence", "normalizers": []}


def _is_llama3_cut(step: object) -> bool:
    """Llama-3's cut before the merges, in either way in which its Split is written.

    The pattern covers every character, so keeping the matches apart and removing all that does not
    match are the same.
    """
    steps = step.get("pretokenizers") if isinstance(step, dict) else None
    if (
        not isinstance(steps, list)
        or len(steps) != 2
        or not all(isinstance(s, dict) for s in steps)
    ):
        return False
    split, letters = steps
    cuts = split.get("behavior"), split.get("invert")
    return (
        split.get("type") == "Split"
        and split.get("pattern") == {"Regex": SPLIT_PATTERN}
        and cuts in (("Isolated", False), ("Removed", True))
        and letters.get("type") == "ByteLevel"
        and letters.get("add_prefix_space") is False
        and letters.get("use_regex") is False
    )


def _require_bytes(vocab: Mapping[str, int], path: Path) -> None:
    """Tokens must be spelt in the 256 letters that stand for bytes, and each byte be a token."""
    from tokenizers import pre_tokenizers

    letters = set(pre_tokenizers.ByteLevel.alphabet())
    missing = sorted(letter for letter in letters if letter not in vocab)
    if missing:
        raise PackMismatchError(
            f"{path}: model.vocab has no token {missing[0]!r}, a byte of its own; Llama-3's has "
            "one for each of 256"
        )
    if "" in vocab or not letters.issuperset(set().union(*vocab)):
        strange = next(token for token in vocab if not token or not letters.issuperset(token))
        raise PackMismatchError(
            f"{path}: model.vocab: {shown(strange)} is not spelt in the letters of a byte-level BPE"
        )


def _require_merges(vocab: Mapping[str, int], merges: object, path: Path) -> None:
    """The merges must be every pair of tokens that makes another, by ids."""
    if not isinstance(merges, list):
        raise _refused(path, "model.merges", "a list", merges)
    ranks = [_ranks_of(merge, at, vocab, path) for at, merge in enumerate(merges)]
    for at, (before, after) in enumerate(pairwise(ranks)):
        if not before < after:
            raise PackMismatchError(
                f"{path}: model.merges[{at + 1}]: {shown(merges[at + 1])} makes id {after[0]}, and "
                f"the one before it id {before[0]}; Llama-3's are in the order of the ids they make"
            )
    needed = sum(
        token[:cut] in vocab and token[cut:] in vocab
        for token in vocab
        for cut in range(1, len(token))
    )
    if len(ranks) != needed:
        raise PackMismatchError(
            f"{path}: model.merges has {len(ranks)} of the {needed} pairs of tokens that make "
            "another; Llama-3's has them all"
        )


def _ranks_of(merge: object, at: int, vocab: Mapping[str, int], path: Path) -> tuple[int, int, int]:
    """Ids of what a merge makes and of its two parts; it is a pair, in older files in a string."""
    parts: Any = merge.split(" ") if isinstance(merge, str) else merge
    try:
        left, right = parts
        return vocab[left + right], vocab[left], vocab[right]
    except (TypeError, ValueError, KeyError):
        raise PackMismatchError(
            f"{path}: model.merges[{at}]: {shown(merge)} is no pair of tokens that makes another"
        ) from None


def _refused(path: Path, key: str, wanted: str, found: object) -> PackMismatchError:
    return PackMismatchError(f"{path}: {key} must be {wanted}, as Llama-3's is, got {shown(found)}")
