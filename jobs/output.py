"""Where a job leaves what it makes: a folder, or a store such as a bucket.

The ledger, its index and the records are always made in a local folder. For a store that folder
is a mirror: a segment is the store's before it is the mirror's, audio goes to the store alone,
and the records follow at the end. So whatever machine the next run is on, the store has all of it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from catalog.errors import WriteFailedError
from catalog.files import remove_leftovers, sync_folder, write_atomic, write_new
from catalog.store import Store
from jobs.lease import FolderLease, LeasePlace, StoreLease
from jobs.segments import SEGMENT_NAME

RECORDS = ("tokens", "site", "provenance.json", "catalog.json")
"""In the order in which they are handed over: whoever reads finds what the last one names."""

_SIZES = ".objects.sqlite"


class Output(Protocol):
    """A place for clips, ledger and records."""

    @property
    def folder(self) -> Path:
        """The local folder: ledger, index and records are made here."""

    @property
    def address(self) -> str:
        """The place, for people."""

    def lease(self) -> LeasePlace:
        """Where the job that holds the output says so."""

    def prepare(self, voices: list[str]) -> None:
        """Clear up what a kill left, and fetch what another machine committed."""

    def put_audio(self, path: str, data: bytes) -> None:
        """Keep a clip under its path; durable once `make_durable` has returned."""

    def make_durable(self) -> None:
        """Before the ledger tells of a clip, the clip must be there to stay."""

    def size_of(self, path: str) -> int | None:
        """The bytes of a clip; None where there is none."""

    def commit_segment(self, name: str, data: bytes) -> bool:
        """Keep a ledger segment where none of that name is; whether this call did."""

    def hand_over(self, names: tuple[str, ...]) -> None:
        """Make files and folders of `folder` readable for others."""


class FolderOutput:
    """An output folder; everything is where it is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsynced: set[Path] = set()

    @property
    def address(self) -> str:
        """The folder."""
        return str(self.folder)

    def lease(self) -> LeasePlace:
        """See `Output`."""
        return FolderLease(self.folder)

    def prepare(self, voices: list[str]) -> None:
        """See `Output`."""
        for name in ("", "ledger", "tokens", "site", *(f"audio/{voice}" for voice in voices)):
            remove_leftovers(self.folder / name)

    def put_audio(self, path: str, data: bytes) -> None:
        """See `Output`."""
        place = self.folder / path
        write_atomic(place, data, sync_parent=False)
        self._unsynced.add(place.parent)

    def make_durable(self) -> None:
        """See `Output`."""
        for folder in sorted(self._unsynced):
            sync_folder(folder)
        self._unsynced.clear()

    def size_of(self, path: str) -> int | None:
        """See `Output`."""
        try:
            return (self.folder / path).stat().st_size
        except (OSError, ValueError):  # ValueError: a NUL in the path
            return None

    def commit_segment(self, name: str, data: bytes) -> bool:
        """See `Output`."""
        return write_new(self.folder / "ledger" / name, data)

    def hand_over(self, names: tuple[str, ...]) -> None:
        """They are there."""


class StoreOutput:
    """A store, with a local mirror of its ledger.

    The sizes of the store's clips are listed once, into a file: a million of them are not held, and
    not asked for one by one.
    """

    def __init__(self, store: Store, mirror: Path) -> None:
        self.folder = mirror
        self._store = store
        self._sizes: sqlite3.Connection | None = None

    @property
    def address(self) -> str:
        """The store's."""
        return self._store.address

    def lease(self) -> LeasePlace:
        """See `Output`."""
        return StoreLease(self._store)

    def prepare(self, voices: list[str]) -> None:
        """See `Output`."""
        for name in ("", "ledger", "tokens", "site"):
            remove_leftovers(self.folder / name)
        self._mirror_segments()
        self._list_sizes()

    def put_audio(self, path: str, data: bytes) -> None:
        """See `Output`."""
        self._store.put(path, data)
        self._known().execute("REPLACE INTO sizes VALUES (?,?)", (path, len(data)))

    def make_durable(self) -> None:
        """A store answers when it has them."""

    def size_of(self, path: str) -> int | None:
        """See `Output`."""
        for (size,) in self._known().execute("SELECT bytes FROM sizes WHERE path = ?", (path,)):
            return int(size)
        return None

    def commit_segment(self, name: str, data: bytes) -> bool:
        """See `Output`."""
        if not self._store.put_new(f"ledger/{name}", data):
            return False
        write_atomic(self.folder / "ledger" / name, data)
        return True

    def hand_over(self, names: tuple[str, ...]) -> None:
        """Put the files of these names, and of the folders among them, into the store."""
        for name in names:
            for path in _files(self.folder / name):
                self._store.put(path.relative_to(self.folder).as_posix(), path)
            self._remove_strays(name)

    def _remove_strays(self, name: str) -> None:
        """A folder of the store holds what the mirror's holds: parts of a longer run go."""
        if not (self.folder / name).is_dir():
            return
        for facts in list(self._store.list(f"{name}/")):
            if not (self.folder / facts.key).exists():
                self._store.delete(facts.key)

    def _mirror_segments(self) -> None:
        ledger = self.folder / "ledger"
        ledger.mkdir(parents=True, exist_ok=True)
        there = {
            facts.key.removeprefix("ledger/"): facts.size_bytes
            for facts in self._store.list("ledger/")
        }
        there = {name: size for name, size in there.items() if SEGMENT_NAME.fullmatch(name)}
        for path in ledger.iterdir():
            if SEGMENT_NAME.fullmatch(path.name) and path.stat().st_size != there.get(path.name):
                path.unlink()  # of another store, or of a bucket that was emptied
        for name in sorted(there):
            if not (ledger / name).exists():
                self._store.get_to(f"ledger/{name}", ledger / name)

    def _list_sizes(self) -> None:
        path = self.folder / _SIZES
        path.unlink(missing_ok=True)
        self._sizes = sqlite3.connect(path, isolation_level=None)
        self._sizes.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE sizes (path TEXT PRIMARY KEY, bytes INTEGER) WITHOUT ROWID;"
        )
        self._sizes.execute("BEGIN")
        self._sizes.executemany(
            "REPLACE INTO sizes VALUES (?,?)",
            ((facts.key, facts.size_bytes) for facts in self._store.list("audio/")),
        )
        self._sizes.execute("COMMIT")

    def _known(self) -> sqlite3.Connection:
        if self._sizes is None:
            raise RuntimeError("prepare() comes first")
        return self._sizes


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
    elif path.is_file():
        yield path


def mirror_of(uri: str, base: Path) -> Path:
    """The local folder for a store: always the same one for the same address."""
    return base / f"store-{hashlib.sha256(uri.encode()).hexdigest()[:12]}"


def open_output(
    place: str,
    *,
    mirrors: Path,
    endpoint_url: str | None = None,
    region: str | None = None,
    unconditional: bool = False,
) -> Output:
    """A folder, or s3://bucket/prefix with its mirror below `mirrors`.

    Raises what `open_store` raises, and `WriteFailedError`.
    """
    if "://" not in place:
        return FolderOutput(Path(place))
    from catalog.store import open_store

    store = open_store(place, endpoint_url=endpoint_url, region=region, unconditional=unconditional)
    mirror = mirror_of(store.address, mirrors)
    try:
        mirror.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailedError(f"{mirror}: cannot be made: {error.strerror}") from error
    return StoreOutput(store, mirror)
