"""What a reader under damage is to the process that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random

from catalog.errors import CatalogError


class Target(ABC):
    """A reader and the files that it is given."""

    refusals: tuple[type[Exception], ...] = (CatalogError,)

    def __init__(self, folder: Path) -> None:
        """Writes what the cases are made of below `folder`."""
        self.folder = folder

    @abstractmethod
    def spoil(self, rng: Random) -> None:
        """Put one case on the disk."""

    @abstractmethod
    def place(self, data: bytes) -> None:
        """Put a file that was thought up on the disk."""

    @abstractmethod
    def read(self) -> None:
        """Read it. What is neither a refusal nor an answer is an AssertionError."""
