"""tiktoken behind the surface of the `tokenizers` library, with named specials above its base.

A base (its ranks, its pattern and its own specials) is content: the adapter's `to_str` is made of
all of it, so whatever is keyed by the adapter's sha256 moves with any of it. Nothing here opens a
connection, and the cache that tiktoken fills when it fetches is not read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Final

from engine.contracts.tiktoken_base import TiktokenBase, load_base
from engine.errors import ManifestError, TokenBandError, UnsupportedTextError
from engine.strict_json import read_object

ADAPTER: Final = "tiktoken"
# tiktoken's pattern matcher aborts on a run of 999,999 white-space characters and more.
_LONGEST_GAP: Final = 900_000
_LONG_GAP: Final = re.compile(rf"\s{{{_LONGEST_GAP}}}")

_HIGHEST_ID: Final = 2**31 - 1
_SIDECAR_KEYS: Final = ("adapter", "base", "specials", "n_vocab")


@dataclass(frozen=True, slots=True)
class Encoded:
    """What `encode` answers; the name of its field is that of the `tokenizers` library."""

    ids: list[int]


class TiktokenAdapter:
    """An encoding with specials added above its base.

    Raises `ManifestError` for a special that takes an id or a spelling that the base has.
    """

    def __init__(self, base: TiktokenBase, specials: Mapping[str, int]) -> None:
        from tiktoken import Encoding

        _require_free(base, specials)
        self.base = base
        self.specials = dict(sorted(specials.items(), key=lambda entry: entry[1]))
        self._encoding = Encoding(
            f"{base.name}+{len(specials)}",
            pat_str=base.pattern,
            mergeable_ranks=dict(base.ranks),
            special_tokens={**base.specials, **specials},
        )
        self._recognised = frozenset(specials)

    def encode(self, text: str) -> Encoded:
        """The ids of a text in which the added specials count as such.

        The base's own specials stay plain text. For text of a user take `encode_plain`. Raises
        `UnsupportedTextError` for half of a surrogate pair.
        """
        _require_unicode(text)
        ids: list[int] = []
        for piece in _pieces(text):
            ids += self._encoding.encode(
                piece, allowed_special=self._recognised, disallowed_special=()
            )
        return Encoded(ids)

    def encode_plain(self, text: str) -> list[int]:
        """The ids of a text as it stands: the spelling of a special is characters like any others.

        Raises `UnsupportedTextError` for half of a surrogate pair.
        """
        _require_unicode(text)
        return [token for piece in _pieces(text) for token in self._encoding.encode_ordinary(piece)]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD.

        Specials are spelled out unless asked otherwise, so that decoding undoes encoding. Raises
        `TokenBandError` naming index and id of what is no token.
        """
        added = self.base.specials.keys() | self._recognised
        skipped = {self.token_to_id(name) for name in added} if skip_special_tokens else set()
        try:
            return self._encoding.decode([token for token in ids if token not in skipped])
        except (KeyError, OverflowError, TypeError):
            raise TokenBandError(self._first_unknown(ids)) from None

    def token_to_id(self, token: str) -> int | None:
        """The id of a special, or of a text that is one token; None for anything else."""
        for specials in (self.specials, self.base.specials):
            if token in specials:
                return specials[token]
        try:
            return self.base.ranks.get(token.encode())
        except UnicodeEncodeError:
            return None

    def get_vocab_size(self) -> int:
        """One more than the highest id; not every id below it is a token."""
        return int(self._encoding.n_vocab)

    def to_str(self) -> str:
        """Canonical JSON over all that decides an id: it moves with the base and the specials."""
        facts = {
            "adapter": ADAPTER,
            "base": {
                "name": self.base.name,
                "pattern": self.base.pattern,
                "ranks_sha256": self.base.ranks_sha256(),
                "specials": dict(self.base.specials),
            },
            "specials": self.specials,
            "n_vocab": self.get_vocab_size(),
        }
        return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def sha256(self) -> str:
        """The sha256 of `to_str`: the key of whatever is derived from this tokenizer."""
        return hashlib.sha256(self.to_str().encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the sidecar: `adapter`, `base` by name, `specials` and `n_vocab`; no ranks."""
        sidecar = {
            "adapter": ADAPTER,
            "base": self.base.name,
            "specials": self.specials,
            "n_vocab": self.get_vocab_size(),
        }
        Path(path).write_text(
            json.dumps(sidecar, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    @classmethod
    def from_file(cls, path: str | Path) -> TiktokenAdapter:
        """The adapter that a sidecar describes; ranks beside it go before installed ones.

        Raises `PackNotFoundError` without a sidecar, `ManifestError` naming its key that is wrong,
        and what `load_base` raises.
        """
        sidecar = read_object(path)
        for key in [*_SIDECAR_KEYS, *sidecar]:
            if key not in sidecar or key not in _SIDECAR_KEYS:
                told = "is unknown" if key in sidecar else "is missing"
                raise ManifestError(key, f"{told} (in {path}); it holds {', '.join(_SIDECAR_KEYS)}")
        if sidecar["adapter"] != ADAPTER:
            raise ManifestError("adapter", f"is {sidecar['adapter']!r}, expected {ADAPTER!r}")
        specials = _specials_of(sidecar["specials"])
        adapter = cls(load_base(sidecar["base"], Path(path).parent), specials)
        n_vocab = sidecar["n_vocab"]
        if type(n_vocab) is not int or n_vocab != adapter.get_vocab_size():
            raise ManifestError(
                "n_vocab", f"is {n_vocab!r}, base and specials make {adapter.get_vocab_size()}"
            )
        return adapter

    def _first_unknown(self, ids: Sequence[int]) -> str:
        known = {*self.base.ranks.values(), *self.base.specials.values(), *self.specials.values()}
        index, token = next(
            (index, token)
            for index, token in enumerate(ids)
            if not isinstance(token, Integral) or token not in known
        )
        return (
            f"ids[{index}]: id {token!r} is no token of {self.base.name} with"
            f" {len(self.specials)} specials (0..{self.get_vocab_size() - 1})"
        )


def _specials_of(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ManifestError("specials", f"must be an object, got {type(value).__name__}")
    for name, token in value.items():
        if type(token) is not int:
            raise ManifestError(f"specials.{name}", f"must be an id, got {token!r}")
    return value


def _require_free(base: TiktokenBase, specials: Mapping[str, int]) -> None:
    """Refuse a special that would hide another token, or be hidden by it."""
    taken = {token: name for name, token in base.specials.items()}
    highest_rank = max(base.ranks.values())
    for name, token in specials.items():
        key = f"specials.{name}"
        if not name or name in base.specials:
            raise ManifestError(key, f"is a special of {base.name}" if name else "has no spelling")
        if not highest_rank < token <= _HIGHEST_ID:
            raise ManifestError(
                key, f"id {token} is not above the ranks, {highest_rank + 1}..{_HIGHEST_ID}"
            )
        if token in taken:
            raise ManifestError(key, f"id {token} is that of {taken[token]}")
        taken[token] = name


def _require_unicode(text: str) -> None:
    """tiktoken would silently read half of a surrogate pair as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedTextError(
            f"character {error.start} is half of a surrogate pair; the text must be Unicode"
        ) from None


def _pieces(text: str) -> Iterator[str]:
    """The text, cut inside runs of white space that are too long for tiktoken's matcher.

    Where no run is that long the text stays whole, so its ids are tiktoken's own.
    """
    start = 0
    if len(text) >= _LONGEST_GAP:
        for gap in _LONG_GAP.finditer(text):
            yield text[start : gap.end()]
            start = gap.end()
    yield text[start:]
