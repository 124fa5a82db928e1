"""What `pack import` refuses, always with the file or folder it is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from engine.errors import EngineError, ManifestError, PackMismatchError, PackNotFoundError
from engine.shown import shown


class PackImportError(EngineError):
    """A folder cannot become a pack, or the pack cannot be put where it was asked for."""

    code: ClassVar[str] = "import_refused"


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Turn what a reader of a finished pack refuses into a `PackImportError` that names `path`."""
    try:
        yield
    except (ManifestError, PackMismatchError, PackNotFoundError) as error:
        told = str(error)
        named = told.startswith(f"{path}:")
        raise PackImportError(told if named else f"{path}: {told}") from None


def require_plain_name(path: Path) -> None:
    """Refuse a file whose name a manifest could not hold, or a terminal not show."""
    if not path.name.isprintable():
        raise PackImportError(
            f"{path.parent}: a file is named {shown(path.name)}, which is no printable text"
        )
