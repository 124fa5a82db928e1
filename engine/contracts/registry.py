"""Which contracts this build can read, by the name a pack's manifest gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engine.contracts import arpabet, lavender, llama3_audio, loudr, orpheus
from engine.contracts.contract import TextSide
from engine.errors import ManifestError

_LOADERS: Mapping[str, Callable[[Path], TextSide]] = {
    "arpabet": arpabet.load,
    lavender.NAME: lavender.load,
    loudr.NAME: loudr.load,
    llama3_audio.NAME: llama3_audio.load,
    orpheus.NAME: orpheus.load,
}


def load_text_side(name: str, root: Path) -> TextSide:
    """The text side of a pack folder. Raises `ManifestError` listing the contracts known here."""
    loader = _LOADERS.get(name)
    if loader is None:
        raise ManifestError(
            "token_contract.name", f"{name!r} is unknown; this build reads {', '.join(_LOADERS)}"
        )
    return loader(root)
