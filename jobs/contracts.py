"""`contract show` and `contract check`: what a pack's ids mean, and whether a file's mean the same.

A file is held against the pack twice: its contract must be the pack's, and every id must lie in
the band of its position. The second alone would not do: sibling contracts share their bands.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from catalog.errors import show
from catalog.export import TokenRow, read_token_metadata, read_token_part
from engine.contracts import loudr
from engine.contracts.bands import band_name, require_bands
from engine.contracts.contract import TokenContract
from engine.errors import ContractMismatchError, ManifestError, TokenBandError
from engine.frames import FrameShapeError
from engine.manifest import algorithm_from, read_manifest
from engine.pack import MANIFEST, file_sha256, open_pack
from jobs.errors import JobError

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_NUMBER: Final = re.compile(r"[0-9]+")
_FOLDED_FROM: Final = 4
_LONGEST_PLAIN: Final = 1 << 14
_LARGEST_MEANING: Final = 1 << 24


class NoTokenPartsError(JobError):
    """A folder holds no token Parquet."""

    code = "no_token_parts"


@dataclass(frozen=True, slots=True)
class PackContract:
    """What a pack says of the ids that it reads and writes."""

    contract: TokenContract
    algorithm_fingerprint: str
    pack_sha256: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found to be in order."""

    parts: int
    rows: int
    tokens: int


def contract_of_pack(reference: str) -> PackContract:
    """The contract of a bundled pack or a folder, a loudr pack's as well.

    Raises `PackNotFoundError`, `ManifestError`, and `ContractMismatchError` when the manifest names
    another fingerprint than the pack's files make.
    """
    try:
        pack = open_pack(reference)
    except ManifestError as error:
        manifest = Path(reference) / MANIFEST
        raw = read_manifest(manifest) if error.key == "format" else {}
        if raw.get("format") != loudr.CHECKPOINT_FORMAT:
            raise
        algorithm = algorithm_from(raw)
        loudr.require_ids(algorithm)
        return PackContract(loudr.LOUDR, algorithm.fingerprint(), file_sha256(manifest))
    return PackContract(pack.text_side.contract, pack.algorithm.fingerprint(), pack.sha256)


def describe(contract: TokenContract) -> dict[str, Any]:
    """A contract as its reader wants it: the specials by id, without the spellings of audio ids."""
    bands = [contract.band(at) for at in range(contract.tokens_per_frame)]
    specials = sorted(
        (token, spelling)
        for spelling, token in contract.added_tokens.items()
        if not any(first <= token < past for first, past in bands)
    )
    return {
        "name": contract.name,
        "fingerprint": contract.fingerprint(),
        "vocabulary_size": contract.vocabulary_size,
        "start_of_speech": contract.start_of_speech,
        "end_of_speech": contract.end_of_speech,
        "bands": [
            {
                "position": at,
                "code": contract.frame_order[at] if contract.frame_order else None,
                "first": first,
                "last": past - 1,
            }
            for at, (first, past) in enumerate(bands)
            if past > first
        ],
        "pairs_under": list(contract.pairs_under),
        "prompt_layout": list(contract.prompt_layout),
        "specials": {spelling: token for token, spelling in specials},
    }


def describe_lines(contract: TokenContract) -> list[str]:
    """`describe` for a person."""
    facts = describe(contract)
    lines = [
        f"name: {facts['name']}",
        f"fingerprint: {facts['fingerprint']}",
        f"vocabulary: {facts['vocabulary_size']} ids",
        f"speech: starts behind {facts['start_of_speech']}, ends with {facts['end_of_speech']}",
    ]
    lines += [band_name(contract, band["position"]) for band in facts["bands"]]
    if contract.pairs_under:
        lines.append(f"pairs under: {', '.join(contract.pairs_under)}")
    if contract.prompt_layout:
        lines.append("prompt: " + " ".join(show(part) for part in contract.prompt_layout))
    return lines + _folded(facts["specials"])


def _folded(specials: dict[str, int]) -> list[str]:
    """A line a special; one for a run of the same spelling with consecutive numbers in it."""
    lines, runs = [], groupby(specials.items(), key=lambda each: _NUMBER.sub("#", each[0]))
    for kind, run in runs:
        members = list(run)
        first, last = members[0], members[-1]
        if len(members) < _FOLDED_FROM or "#" not in kind or last[1] - first[1] >= len(members):
            lines += [f"{token} {show(spelling)}" for spelling, token in members]
        else:
            lines.append(f"{first[1]}..{last[1]} {show(first[0])}..{show(last[0])}")
    return lines


def meaning_for_file(contract: TokenContract) -> str:
    """The canonical form as a file of ids carries it; a long one is deflated and in base64.

    Tokenizers that spell every audio id make a megabyte of it, and a Parquet footer holds it twice.
    """
    canonical = contract.canonical_form()
    if len(canonical) <= _LONGEST_PLAIN:
        return canonical
    return base64.b64encode(zlib.compress(canonical.encode(), 9)).decode()


def check_tokens(path: Path, reference: str) -> Checked:
    """Hold a token Parquet, or every part in a folder, against a pack.

    Raises `ContractMismatchError` naming both fingerprints and what differs first, or row, index,
    id and band of the first id out of place; what reading the pack or the file raises.
    """
    pack = contract_of_pack(reference)
    # An output folder is what a user has at hand; its tokens lie one step down.
    folder = path / "tokens" if (path / "tokens").is_dir() else path
    parts = sorted(folder.glob("part-*.parquet")) if folder.is_dir() else [path]
    if not parts:
        raise NoTokenPartsError(
            f"{folder}: holds no part-*.parquet; name a part, or a folder that holds parts"
        )
    checked = [_check_part(part, pack) for part in parts]
    return Checked(
        len(parts), sum(each.rows for each in checked), sum(each.tokens for each in checked)
    )


def _check_part(path: Path, pack: PackContract) -> Checked:
    metadata = read_token_metadata(path)
    fingerprint = pack.contract.fingerprint()
    if "token_contract_fingerprint" not in metadata:
        raise ContractMismatchError(
            f"{path} names no token contract, this is {pack.contract.name} {fingerprint}; "
            "export the tokens again with the pack that made them"
        )
    _require_digest(metadata, "token_contract_fingerprint", _FINGERPRINT, path)
    minted_under = metadata["token_contract_fingerprint"]
    meaning = _meaning_in(metadata, minted_under, path)
    if minted_under != fingerprint and meaning is None:
        _refuse_unexplained(path, minted_under, pack.contract)
    pack.contract.require(minted_under, str(path), meaning)
    _require_own_facts(metadata, pack, path)
    rows = tokens = 0
    for row in read_token_part(path, token_contract_fingerprint=fingerprint):
        try:
            require_bands(pack.contract, row.tokens)
        except (TokenBandError, FrameShapeError) as error:
            raise ContractMismatchError(f"{path}: {_row_name(rows, row)}: {error}") from None
        rows += 1
        tokens += len(row.tokens)
    return Checked(1, rows, tokens)


def _meaning_in(metadata: dict[str, str], fingerprint: str, path: Path) -> dict[str, object] | None:
    """The contract that a file carries, if it does; its fingerprint must be of that one."""
    held = metadata.get("token_contract")
    if held is None:
        return None
    canonical = held if held.startswith("{") else _inflated(held)
    found = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    if found != fingerprint:
        raise ContractMismatchError(
            f"{path}: its token_contract_fingerprint is {fingerprint}, its "
            f"token_contract is {found}: one of them was altered"
        )
    try:
        meaning = json.loads(canonical)
    except (ValueError, RecursionError):
        meaning = None
    if not isinstance(meaning, dict):
        raise ContractMismatchError(f"{path}: its token_contract is no contract")
    return meaning


def _inflated(held: str) -> str:
    """A deflated form as text; whatever cannot be inflated is text that no fingerprint is of."""
    try:
        inflater = zlib.decompressobj()
        return inflater.decompress(base64.b64decode(held), _LARGEST_MEANING).decode()
    except (binascii.Error, ValueError, zlib.error):
        return held


def _refuse_unexplained(path: Path, minted_under: str, contract: TokenContract) -> None:
    """Refuse a file that does not carry its contract by the first id that means nothing here."""
    told = "every id lies in a band of this pack, so only the fingerprint tells them apart"
    for at, row in enumerate(read_token_part(path, token_contract_fingerprint=minted_under)):
        try:
            require_bands(contract, row.tokens)
        except (TokenBandError, FrameShapeError) as error:
            told = f"first, {_row_name(at, row)}: {error}"
            break
    raise ContractMismatchError(
        f"{path} was made under token contract {minted_under}, this is {contract.name} "
        f"{contract.fingerprint()}; the file does not say what its ids mean; {told}"
    )


def _require_own_facts(metadata: dict[str, str], pack: PackContract, path: Path) -> None:
    """Refuse metadata that contradicts itself: a pack has one algorithm."""
    _require_digest(metadata, "algorithm_fingerprint", _FINGERPRINT, path)
    _require_digest(metadata, "pack_sha256", _SHA256, path)
    algorithm = metadata["algorithm_fingerprint"]
    if metadata["pack_sha256"] == pack.pack_sha256 and algorithm != pack.algorithm_fingerprint:
        raise ContractMismatchError(
            f"{path}: its algorithm_fingerprint is {algorithm}, the pack it names has "
            f"{pack.algorithm_fingerprint}: one of them was altered"
        )


def _require_digest(metadata: dict[str, str], key: str, form: re.Pattern[str], path: Path) -> None:
    value = metadata.get(key)
    if value is None or not form.fullmatch(value):
        told = "missing" if value is None else f"{show(value)}, which is no digest"
        raise ContractMismatchError(f"{path}: its {key} is {told}")


def _row_name(number: int, row: TokenRow) -> str:
    return f"row {number} ({show(f'{row.voice}/{row.passage}')}, chunk {row.chunk_index})"
