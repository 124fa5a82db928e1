"""A Llama-3 `tokenizer.model`: tiktoken's rank file, as a BPE of the `tokenizers` library.

The file has one token a line, its bytes in base64 and its rank, which is its id. The library wants
merges instead: every way to put a token together from two others, in the order of the token's
rank, which is how the family's published tokenizer.json was made from the same file. The two
agree on which pair of neighbours is merged first except where two overlapping pairs make the same
token: tiktoken takes the left one, the library the one whose parts have the lower ranks.

The added tokens are not in the file. They are read from what Hugging Face keeps beside it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.errors import PackMismatchError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL_FILE: Final = "tokenizer.model"

SPLIT_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where Llama-3 cuts a text before any merge; no token reaches over such a cut."""


def tokenizer_of_ranks(path: Path, size: int) -> Tokenizer:
    """The BPE of a rank file that has the ranks 0 to `size - 1`, in order.

    Raises `PackMismatchError` naming the line that is something else.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    ranks = _read_ranks(path, size)
    letters = _byte_letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    bpe = Tokenizer(
        models.BPE(
            vocab={spelled(token): rank for token, rank in ranks.items()},
            merges=[(spelled(left), spelled(right)) for left, right in merges_of(ranks)],
            ignore_merges=True,  # tiktoken looks a whole piece up before it merges
        )
    )
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    return bpe


def merges_of(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every pair of tokens that makes another, by the rank of what it makes."""
    found: list[tuple[int, int, int, bytes, bytes]] = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                found.append((rank, ranks[left], ranks[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def added_tokens_beside(path: Path) -> list[tuple[object, object]]:
    """(spelling, id) of the added tokens, from the files beside a `tokenizer.model`.

    Raises `PackMismatchError` when there are none: the ids cannot be guessed.
    """
    config = _object_of(path.with_name("tokenizer_config.json")).get("added_tokens_decoder")
    if isinstance(config, dict) and config:
        return [
            (entry.get("content") if isinstance(entry, dict) else None, _whole(token))
            for token, entry in config.items()
        ]
    beside = _object_of(path.with_name("added_tokens.json"))
    if beside:
        return list(beside.items())
    raise PackMismatchError(
        f"{path}: holds no added tokens, and neither tokenizer_config.json (added_tokens_decoder) "
        "nor added_tokens.json beside it does; save the tokenizer as tokenizer.json"
    )


def _whole(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else text


def _object_of(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PackMismatchError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise PackMismatchError(f"{path}: must hold an object")
    return content


def _read_ranks(path: Path, size: int) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PackMismatchError(f"{path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines):
        encoded, _, rank = line.partition(b" ")
        try:
            token = base64.b64decode(encoded, validate=True)
            in_order = int(rank) == number
        except (binascii.Error, ValueError):
            token, in_order = b"", False
        if not token or not in_order or token in ranks:
            raise PackMismatchError(
                f"{path}:{number + 1}: is no line of a tiktoken rank file (base64, then the rank "
                f"{number}), which Llama-3's {MODEL_FILE} is; a SentencePiece model belongs to "
                "another family"
            )
        ranks[token] = number
    if len(ranks) != size:
        raise PackMismatchError(f"{path}: has {len(ranks)} ranks, Llama-3 has {size}")
    missing = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if missing is not None:
        raise PackMismatchError(f"{path}: has no token for byte {missing}; a byte-level BPE does")
    return ranks


def _byte_letters() -> list[str]:
    """GPT-2's letter for each byte: itself where it can be seen, else one from 256 on, in turn."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters: list[str] = []
    unseen = 256
    for byte in range(256):
        letters.append(chr(byte if byte in visible else unseen))
        unseen += byte not in visible
    return letters
