"""The text side of an imported pack: a tokenizer's files, and the contract that they are of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from engine.contracts.contract import TextSide
from engine.contracts.registry import load_text_side
from engine.errors import ContractMismatchError, EngineError, UnknownSpeakerError
from engine.importing_errors import PackImportError
from engine.shown import is_one_line, shown


class _Files(NamedTuple):
    """The files of one contract, as its loader reads them."""

    needed: tuple[str, ...]
    """One of them is there; the first that is."""

    along: tuple[str, ...] = ()
    """What is taken besides where it is there; the loader says what it misses."""

    speakers: str | None = None
    """The file that names the speakers, which no tokenizer of Hugging Face's has."""


_LLAMA3: Final = _Files(("tokenizer.json", "tokenizer.model"), speakers="speakers.json")
_CONTRACTS: Final[Mapping[str, _Files]] = {
    "llama-3-audio": _LLAMA3,
    "orpheus": _LLAMA3,
    "lavender": _Files(
        ("tiktoken.json",),
        ("o200k_base.tiktoken", "o200k_base.tiktoken.gz"),
        speakers="lavender.json",
    ),
    "arpabet": _Files(("tokens.json",), ("lexicon.tsv.gz", "lts.tsv.gz")),
}
_BESIDE_RANKS: Final = ("tokenizer_config.json", "added_tokens.json")
"""Where the added tokens are when the base is a `tokenizer.model`, which has ranks alone."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """Where a text side comes from, and what the tokenizer's files cannot say.

    Raises `PackImportError` for names that no prompt could say.
    """

    tokenizer: Path
    contract: str | None
    speakers: Sequence[str]
    codebook_size: int

    def __post_init__(self) -> None:
        for at, name in enumerate(self.speakers):
            if not name.strip() or not is_one_line(name):
                raise PackImportError(
                    f"speaker {shown(name)}: must be a name, a line of UTF-8 text"
                )
            if name in self.speakers[:at]:
                raise PackImportError(f"speaker {shown(name)}: is named twice")


def take_text_side(source: TextSource, staged: Path) -> TextSide:
    """Copy a contract's files into `staged` and load its text side from there.

    Without a contract it is the one that the files fit. Raises `ContractMismatchError` for ids that
    mean something else than the contract says, and `PackImportError` for every other reason why
    the files are not its.
    """
    if source.contract is not None:
        if source.contract not in _CONTRACTS:
            raise PackImportError(
                f"contract {shown(source.contract)} cannot be imported; {', '.join(_CONTRACTS)} can"
            )
        return _take(source.contract, source, staged)
    fitting: list[str] = []
    refusals: list[EngineError] = []
    for name, files in _CONTRACTS.items():
        if _needed(source.tokenizer, files) is None:
            continue
        try:
            _take(name, source, staged)
            fitting.append(name)
        except EngineError as error:
            refusals.append(error)
        for copied in staged.iterdir():
            copied.unlink()
    if len(fitting) == 1:
        return _take(fitting[0], source, staged)
    if fitting:
        raise PackImportError(
            f"{source.tokenizer}: fits {' and '.join(fitting)}; name the contract"
        )
    if len(refusals) == 1:
        raise refusals[0]
    told = "; ".join(str(error) for error in refusals) or "; ".join(
        f"{name} needs {' or '.join(files.needed)}" for name, files in _CONTRACTS.items()
    )
    other_ids = refusals and all(isinstance(error, ContractMismatchError) for error in refusals)
    refusal = ContractMismatchError if other_ids else PackImportError
    raise refusal(f"{source.tokenizer}: holds the tokenizer of no contract: {told}")


def tags_of(side: TextSide) -> tuple[str, ...]:
    """The tags that a contract has; whether the checkpoint makes their sounds is for its owner."""
    tags: tuple[str, ...] = getattr(side, "supported_tags", ())
    return tags


def _take(contract: str, source: TextSource, staged: Path) -> TextSide:
    files = _CONTRACTS[contract]
    needed = _needed(source.tokenizer, files)
    if needed is None:
        raise PackImportError(
            f"{source.tokenizer}: holds no {' or '.join(files.needed)}, which contract {contract} "
            "reads"
        )
    beside = _BESIDE_RANKS if needed == "tokenizer.model" else ()
    given = (files.speakers,) if files.speakers and not source.speakers else ()
    for name in (needed, *files.along, *beside, *given):
        if (source.tokenizer / name).is_file():
            shutil.copyfile(source.tokenizer / name, staged / name)
    if source.speakers:
        _write_speakers(contract, source, staged)
    return _load(contract, staged, source.tokenizer)


def _needed(tokenizer: Path, files: _Files) -> str | None:
    return next((name for name in files.needed if (tokenizer / name).is_file()), None)


def _write_speakers(contract: str, source: TextSource, staged: Path) -> None:
    """The speakers as the contract's loader reads them."""
    file, names = _CONTRACTS[contract].speakers, list(source.speakers)
    if file is None:
        raise UnknownSpeakerError(f"contract {contract} names its speakers itself; name none")
    table = {"speakers": names, "codebook_size": source.codebook_size}
    written = json.dumps(table if contract == "lavender" else names, ensure_ascii=False, indent=1)
    (staged / file).write_text(f"{written}\n", encoding="utf-8")


def _load(contract: str, root: Path, shown: Path) -> TextSide:
    """The text side; whatever a broken file makes a parser raise becomes one line."""
    try:
        return load_text_side(contract, root)
    except ContractMismatchError as error:
        raise ContractMismatchError(str(error).replace(str(root), str(shown))) from None
    except (EngineError, OSError, EOFError, ValueError, LookupError, TypeError) as error:
        told = str(error) if isinstance(error, (EngineError, OSError)) else repr(error)
        told = " ".join(told.replace(str(root), str(shown)).split())
        raise PackImportError(f"{shown}: not what contract {contract} reads: {told}") from None
