"""What a render is made of: the key under which its work can be used again.

Reuse is decided by content, never by a position in a catalog, a worker or a file name. Two
renders with one content key owe each other the same tokens; under one execution identity, the
same samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

from engine.contracts.contract import Conditioning
from engine.pack import Pack


def text_sha256(text: str) -> str:
    """The sha256 of a text as UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def profile_sha256(pack: Pack, conditioning: Conditioning) -> str:
    """The sha256 of what makes a voice sound as it does: the pack and the conditioning."""
    return _profile_sha256(pack.sha256, conditioning)


@lru_cache(maxsize=4096)
def _profile_sha256(pack_sha256: str, conditioning: Conditioning) -> str:
    return _sha256_of({"pack_sha256": pack_sha256, **asdict(conditioning)})


def content_key(
    pack: Pack,
    conditioning: Conditioning,
    *,
    text: str,
    language: str,
    seed: int,
    turns: Sequence[tuple[str, str]] = (),
) -> str:
    """32 hex digits over everything that decides a render's tokens."""
    return _sha256_of(
        {
            "algorithm": pack.algorithm_fingerprint,
            "token_contract": pack.manifest.token_contract.fingerprint,
            "profile_sha256": profile_sha256(pack, conditioning),
            "text_sha256": text_sha256(text),
            "language": language,
            "seed": seed,
            # Absent for a plain text, so that dialogues moved no older key.
            **({"turns": [list(turn) for turn in turns]} if turns else {}),
        }
    )[:32]


def _sha256_of(facts: dict[str, object]) -> str:
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
