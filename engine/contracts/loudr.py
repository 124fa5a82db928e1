"""The loudr contract: one codebook, one token a frame, pairs where a decode step writes two.

Audio ids are `[0, 6561)`: eight digits of base three. Behind them stand the start and the stop of
speech; the rest of the 8,194 rows is never spoken. A row may end on half a pair, for the stop can
be the second of two; a carry may not, because the model reads its prefix in pairs from its start.

The ids are all that is here. Text and prompts of a loudr pack are the business of the `loudkit`
package, which renders it, so there is no text side to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from engine.algorithm import AlgorithmConfig, Unset
from engine.contracts.bands import require_bands
from engine.contracts.contract import TokenContract
from engine.errors import ManifestError
from engine.frames import FrameShapeError

NAME: Final = "loudr"
CHECKPOINT_FORMAT: Final = "loudkit-checkpoint"
"""The `format` of the manifests that loudr packs have."""

LOUDR: Final = TokenContract(
    name=NAME,
    vocabulary_size=8194,
    added_tokens={},
    audio_base=0,
    codebook_size=6561,
    start_of_speech=6561,
    end_of_speech=6562,
    prompt_layout=(),
    tokens_per_frame=1,
    pairs_under=("fusion_mtp2",),
)


def require_acoustic(tokens: Sequence[int], what: str = "tokens") -> None:
    """Refuse what is no audio id. Raises `TokenBandError` naming index, id and band."""
    require_bands(LOUDR, tokens, what)


def require_carry(tokens: Sequence[int], decode: str, what: str = "the carry") -> None:
    """Refuse a carry that is not acoustic, or not in whole pairs where `decode` writes pairs.

    Raises `TokenBandError` and `FrameShapeError`.
    """
    require_acoustic(tokens, what)
    if decode in LOUDR.pairs_under and len(tokens) % 2:
        raise FrameShapeError(
            f"{what} has {len(tokens)} tokens, which are not whole pairs: under {decode} it would "
            "be read with the wrong partners"
        )


def require_ids(algorithm: AlgorithmConfig) -> None:
    """Refuse a manifest whose speech ids are not loudr's. Raises `ManifestError` with the key."""
    if not isinstance(algorithm.frame, Unset):
        raise ManifestError("frame", f"a {NAME} stream has no frames")
    for key, declared, ours in (
        ("speech_vocab_size", algorithm.speech_vocab_size, LOUDR.vocabulary_size),
        ("speech_tokens.start", algorithm.start_speech_token, LOUDR.start_of_speech),
        ("speech_tokens.stop", algorithm.stop_speech_token, LOUDR.end_of_speech),
    ):
        if declared != ours:
            raise ManifestError(key, f"is {declared}, in the {NAME} contract it is {ours}")


def load(root: Path) -> NoReturn:
    """There is no text side to load. Raises `ManifestError` saying who renders such a pack."""
    raise ManifestError(
        "token_contract.name",
        f"{NAME!r} has no text side here: the ids of {root.name or root} are known, its text and "
        f"prompts are the loudkit package's, which renders packs of format {CHECKPOINT_FORMAT!r}",
    )
