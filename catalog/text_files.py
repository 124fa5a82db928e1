"""The `text_file` of a passage: UTF-8 text that lies in the folder of its catalog."""

from __future__ import annotations

from pathlib import Path

from catalog.files import UnreadableFile, read_bounded, utf8_text

MAX_TEXT_BYTES = 16 * 2**20
"""Several times the longest novel; more than that is a corpus and belongs in Parquet."""


def read_text_file(folder: Path, name: str) -> str:
    """The text with line feeds only and none at the end; UnreadableFile says why there is none.

    A catalog may come from somebody else, so it can name nothing outside its own folder: no
    absolute path, no `..`, no link that leads out. Line endings are unified because a checkout on
    another system must not make a clip stale.
    """
    inner = Path(name)
    if inner.is_absolute() or "\\" in name or ".." in inner.parts:
        raise UnreadableFile(
            'expected a path below the folder of the catalog, with "/" and without ".."'
        )
    try:
        real = (folder / inner).resolve()
        inside = real.is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links; a NUL
        raise UnreadableFile(f"cannot be read: {error}") from None
    if not inside:
        raise UnreadableFile("a link leads outside the folder of the catalog; copy the file there")
    text = utf8_text(read_bounded(real, limit_bytes=MAX_TEXT_BYTES))
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
