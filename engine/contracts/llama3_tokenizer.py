"""A Llama-3 tokenizer with added audio tokens: its id map checked, its BPE alone used.

What an id means is read from the files and held against a contract, id by id and by spelling. Text
is then encoded by the BPE without the added tokens, so that a special's spelling inside a text
stays text; specials reach a prompt only by their ids, written out by the contract.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.contracts.contract import TokenContract
from engine.contracts.llama3_json import bpe_of_document, require_round_trips
from engine.contracts.llama3_ranks import MODEL_FILE, added_tokens_beside, tokenizer_of_ranks
from engine.errors import ContractMismatchError, PackMismatchError, UnsupportedTextError
from engine.shown import is_one_line, shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

JSON_FILE: Final = "tokenizer.json"
SPEAKERS_FILE: Final = "speakers.json"
TEXT_SIDE_FILES: Final = (
    *(JSON_FILE, MODEL_FILE, "tokenizer_config.json", "added_tokens.json", SPEAKERS_FILE),
)
"""Everything that is read here, where it lies there; the last is ours, not Hugging Face's."""

BPE_SIZE: Final = 128_000
_NAMED: Final = {
    0: "begin_of_text",
    1: "end_of_text",
    4: "finetune_right_pad_id",
    6: "start_header_id",
    7: "end_header_id",
    8: "eom_id",
    9: "eot_id",
    10: "python_tag",
}


def llama_specials() -> dict[str, int]:
    """The 256 specials of Llama 3.1 and 3.2, 128,000 to 128,255.

    Those without a use are numbered through, skipping the named ones between them.
    """
    reserved = 0
    specials: dict[str, int] = {}
    for offset in range(256):
        name = _NAMED.get(offset)
        if name is None:
            name, reserved = f"reserved_special_token_{reserved}", reserved + 1
        specials[f"<|{name}|>"] = BPE_SIZE + offset
    return specials


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """What was read from a folder: the added tokens as they stand there, and a BPE to be built."""

    path: Path
    added_tokens: Mapping[str, int]
    build: Callable[[], Tokenizer]

    @property
    def vocabulary_size(self) -> int:
        """Entries, wherever they lie: base and added tokens."""
        return BPE_SIZE + len(self.added_tokens)


class PlainTextEncoder:
    """Text to ids by the BPE alone: no special is recognised, none is added."""

    def __init__(self, bpe: Tokenizer) -> None:
        self._bpe = bpe

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises `UnsupportedTextError` for what is no Unicode."""
        try:
            ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        except TypeError:  # what the library says of a string that has no UTF-8
            raise UnsupportedTextError(
                f"half of a surrogate pair is in {shown(text)}; it must be Unicode"
            ) from None
        return ids

    def encode_pieces(self, pieces: Iterable[str | int]) -> tuple[int, ...]:
        """The ids of texts and of ids that stand between them.

        Texts that follow each other are encoded as one: a newline that ends a block belongs to
        the same token as the punctuation before it.
        """
        ids: list[int] = []
        waiting = ""
        for piece in pieces:
            if isinstance(piece, str):
                waiting += piece
                continue
            ids += self.encode(waiting) if waiting else ()
            ids.append(piece)
            waiting = ""
        return (*ids, *(self.encode(waiting) if waiting else ()))


def read_tokenizer(root: Path) -> TokenizerFile:
    """The tokenizer of a folder: its `tokenizer.json`, or else its `tokenizer.model`.

    Raises `PackMismatchError` for files that cannot be read, and `ContractMismatchError` for a base
    vocabulary that is not Llama-3's in number.
    """
    if (root / JSON_FILE).is_file():
        return _from_json(root / JSON_FILE)
    path = root / MODEL_FILE
    if path.is_file():
        return _from_ranks(path)
    raise PackMismatchError(
        f"{root}: holds neither {JSON_FILE} nor {MODEL_FILE}; a Hugging Face tokenizer folder does"
    )


def require_same_ids(tokenizer: TokenizerFile, contract: TokenContract) -> None:
    """Refuse a tokenizer whose ids mean something else, by the first id that differs.

    The whole map decides, as it decides the fingerprint, and not a range of ids: tokenizers of this
    family share their audio band and disagree above it. Raises `ContractMismatchError`.
    """
    if dict(tokenizer.added_tokens) == dict(contract.added_tokens):
        return
    here = {token: spelling for spelling, token in tokenizer.added_tokens.items()}
    there = {token: spelling for spelling, token in contract.added_tokens.items()}
    differing = sorted(
        token for token in here.keys() | there.keys() if here.get(token) != there.get(token)
    )
    first = differing[0]
    raise ContractMismatchError(
        f"{tokenizer.path}: {tokenizer.vocabulary_size} entries"
        f"{_fingerprint_told(tokenizer, contract)} are not {contract.name} "
        f"({contract.vocabulary_size}, {contract.fingerprint()}): id {shown(first)}"
        f"{_place(first, contract)} is "
        f"{_shown(here.get(first))} here and {_shown(there.get(first))} there"
        f"{f'; {len(differing) - 1} more ids differ' if differing[1:] else ''}"
    )


def _fingerprint_told(tokenizer: TokenizerFile, contract: TokenContract) -> str:
    """The fingerprint that the ids make, if they can make a contract: plain Llama-3's have no
    audio ids at all."""
    try:
        found = replace(
            contract,
            vocabulary_size=tokenizer.vocabulary_size,
            added_tokens=tokenizer.added_tokens,
        )
    except ContractMismatchError:
        return ""
    return f" with fingerprint {found.fingerprint()}"


def read_speakers(root: Path) -> tuple[str, ...]:
    """The names in a pack's `speakers.json`, a list; empty where there is no such file.

    No file means that any name is taken: in these families a speaker is free text, and which names
    a checkpoint was trained on is in no file of Hugging Face's.
    """
    path = root / SPEAKERS_FILE
    if not path.is_file():
        return ()
    names = _read_json(path)
    wrong = f"{path}: must be a list of different speaker names, each a line of text"
    if not isinstance(names, list) or not names:
        raise PackMismatchError(wrong)
    if not all(isinstance(name, str) and name.strip() and is_one_line(name) for name in names):
        raise PackMismatchError(wrong)
    if len(set(names)) != len(names):
        raise PackMismatchError(wrong)
    return tuple(names)


def _place(token: int, contract: TokenContract) -> str:
    """Where in a frame an audio id stands."""
    for position in range(contract.tokens_per_frame):
        first, past = contract.band(position)
        if first <= token < past:
            return f" (band {position}, code {token - first})"
    return ""


def _shown(spelling: str | None) -> str:
    return "nothing" if spelling is None else shown(spelling)


def _from_ranks(path: Path) -> TokenizerFile:
    try:
        id_map = _id_map(added_tokens_beside(path), path)
    except OSError as error:
        raise PackMismatchError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # an id of more digits than Python reads
        raise PackMismatchError(f"{path}: its added tokens cannot be read: {error}") from None
    return TokenizerFile(path, id_map, _probed(path, lambda: tokenizer_of_ranks(path, BPE_SIZE)))


def _probed(path: Path, build: Callable[[], Tokenizer]) -> Callable[[], Tokenizer]:
    def build_and_probe() -> Tokenizer:
        bpe = build()
        require_round_trips(bpe, path)
        return bpe

    return build_and_probe


def _from_json(path: Path) -> TokenizerFile:
    document = _read_json(path)
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise PackMismatchError(f"{path}: model.type must be 'BPE', as Llama-3's is")
    _require_base(model.get("vocab"), path)
    added = document.get("added_tokens")
    if not isinstance(added, list):
        raise PackMismatchError(f"{path}: added_tokens must be a list")
    entries = (entry if isinstance(entry, dict) else {} for entry in added)
    id_map = _id_map(((entry.get("content"), entry.get("id")) for entry in entries), path)
    return TokenizerFile(path, id_map, _probed(path, lambda: bpe_of_document(document, path)))


def _require_base(vocab: object, path: Path) -> None:
    """The base must be the ids 0 to 127,999, each once."""
    if not isinstance(vocab, dict):
        raise PackMismatchError(f"{path}: model.vocab must be an object")
    ids = {token for token in vocab.values() if type(token) is int}
    if len(vocab) == len(ids) == BPE_SIZE and min(ids) == 0 and max(ids) == BPE_SIZE - 1:
        return
    missing = next((token for token in range(BPE_SIZE) if token not in ids), None)
    named = f"id {missing} is missing" if missing is not None else "ids go beyond it"
    raise ContractMismatchError(
        f"{path}: model.vocab has {len(vocab)} entries, Llama-3's has the ids 0 to "
        f"{BPE_SIZE - 1}: {named}"
    )


def _id_map(entries: Iterable[tuple[object, object]], path: Path) -> dict[str, int]:
    """Added tokens by spelling; no spelling and no id twice."""
    by_spelling: dict[str, int] = {}
    by_id: dict[int, str] = {}
    for spelling, token in entries:
        if not isinstance(spelling, str) or type(token) is not int:
            raise PackMismatchError(
                f"{path}: added token {len(by_id)} must have a content and an id, "
                f"got {shown(spelling)} and {shown(token)}"
            )
        if any("\ud800" <= c <= "\udfff" for c in spelling):
            raise PackMismatchError(
                f"{path}: added token {shown(spelling)} holds half of a surrogate pair"
            )
        if token < BPE_SIZE:
            raise ContractMismatchError(
                f"{path}: added token {shown(spelling)} has id {shown(token)}, which the base "
                "vocabulary has"
            )
        if spelling in by_spelling:
            raise ContractMismatchError(
                f"{path}: {shown(spelling)} has two ids, {shown(by_spelling[spelling])} and "
                f"{shown(token)}"
            )
        if token in by_id:
            raise ContractMismatchError(
                f"{path}: id {shown(token)} is both {shown(by_id[token])} and {shown(spelling)}"
            )
        by_spelling[spelling], by_id[token] = token, spelling
    return by_spelling


def _read_json(path: Path) -> Any:
    """A JSON file in which no key stands twice, read fast: these are many megabytes."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise PackMismatchError(f"{path}: cannot be read as JSON: {error}") from None
    except OSError as error:
        raise PackMismatchError(f"{path}: cannot be read: {error.strerror}") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {shown(key)} stands there twice")
            seen.add(key)
    return out
