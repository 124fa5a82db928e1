"""The clips of a run on their way into `catalog.json` and `provenance.json`, sorted on disk.

Clips come in the order of the catalog, passage by passage; the files list them by voice and
passage. A million records do not fit in memory and so lie in a temporary SQLite database: its
cache, one record, and a few numbers a voice are all that is held. SQLite compares text by its bytes
in UTF-8, which is the order of code points that Python sorts by.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from catalog.canonical import JsonObject, canonical_text, document, list_chunks, object_chunks
from catalog.errors import RecordsError, WriteFailedError, show
from catalog.loader import LoadedCatalog
from catalog.records import ClipRecord, entry_json, sample_json, spoken_language_id, voice_json

_CACHE_KIB = 8 * 1024

# `place` is that of a clip among those of its voice, as they came. The long texts stand last, for
# SQLite to leave them alone where it only wants the numbers.
_TABLES = """
CREATE TABLE clips (voice INTEGER, place INTEGER, seconds REAL, passage TEXT, entry TEXT,
                    sample TEXT);
CREATE UNIQUE INDEX by_passage ON clips (voice, passage);
CREATE INDEX by_place ON clips (voice, place, seconds);
"""
# The database is thrown away with whatever goes wrong: no journal, no sync, no locks (which some
# network file systems do not have), one transaction that never ends. Every query goes by an index,
# so SQLite sorts nothing in a folder for temporary files that may itself be memory.
_SETTINGS = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -{_CACHE_KIB};
BEGIN;
"""


@contextmanager
def open_spool(folder: Path, loaded: LoadedCatalog) -> Iterator[RecordSpool]:
    """An empty spool in `folder`, which is made for it and removed at the end, however that comes.

    Not for two at once: what a killed process left in `folder` goes first. Raises WriteFailedError.
    """
    with _told(folder):
        if folder.exists():
            if not folder.is_dir():  # a pipe would be waited for
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            shutil.rmtree(folder)
    try:
        with _told(folder):
            folder.mkdir(parents=True)
            address = (folder.resolve() / "clips.sqlite").as_uri() + "?mode=rwc&nolock=1"
            database = sqlite3.connect(address, uri=True, isolation_level=None)
        with closing(database):
            with _told(folder):
                database.executescript(_SETTINGS + _TABLES)
            yield RecordSpool(database, folder, loaded)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_BATCH_ROWS = 256


class RecordSpool:
    """Takes the clips of one catalog in any order, and tells them in the order of each file."""

    def __init__(self, database: sqlite3.Connection, folder: Path, loaded: LoadedCatalog) -> None:
        self._database, self._folder = database, folder
        catalog = loaded.catalog
        self._voices = {voice.name: voice_json(catalog, voice) for voice in catalog.voices}
        self._numbers = {name: number for number, name in enumerate(self._voices)}
        self.counts: Counter[str] = Counter()
        """How many clips each voice has."""
        self.by_algorithm: Counter[str] = Counter()
        """How many clips were made under each algorithm fingerprint."""
        self.language_ids: set[str] = set()
        """The tags of the languages of all clips."""

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, clip: ClipRecord) -> None:
        """Take one clip. Raises RecordsError naming the clip, and WriteFailedError.

        Refused are a voice that the catalog does not have, a clip that came before, and a value
        that JSON does not have.
        """
        if clip.voice not in self._voices:
            known = ", ".join(self._voices)
            raise RecordsError(f"clip {show(clip.key)}: no such voice in the catalog: {known}")
        sample = sample_json(clip)
        try:
            entry = canonical_text(entry_json(clip))
            text = canonical_text(sample, "sample")
        except RecordsError as error:
            raise RecordsError(f"clip {show(clip.key)}: {error}") from None
        number, place = self._numbers[clip.voice], self.counts[clip.voice]
        row = (number, place, clip.duration_seconds or 0.0, clip.passage, entry, text)
        with _told(self._folder):
            taken = self._database.execute(
                "INSERT OR IGNORE INTO clips VALUES (?, ?, ?, ?, ?, ?)", row
            )
        if not taken.rowcount:
            raise RecordsError(f"clip {show(clip.key)} is given twice; expected one record")
        self.counts[clip.voice] += 1
        self.by_algorithm[clip.algorithm_fingerprint] += 1
        self.language_ids.add(spoken_language_id(self._voices[clip.voice], sample))

    def provenance_json(self) -> Iterator[bytes]:
        """provenance.json: one entry a clip, by voice and passage."""
        return document(
            list_chunks(
                _entry_chunks(entry, sample)
                for voice in sorted(self.counts)
                for _, entry, sample in self._by_passage(voice)
            )
        )

    def catalog_json(self) -> Iterator[bytes]:
        """catalog.json: the voices with clips, in catalog order, `sample` keyed by passage id."""
        return document(list_chunks(self._voice_chunks(about) for about in self.voices()))

    def voices(self) -> Iterator[JsonObject]:
        """The voices of catalog.json, in its order, without their `sample`."""
        return (about for name, about in self._voices.items() if self.counts[name])

    def samples(self, voice: str) -> Iterator[tuple[str, JsonObject]]:
        """Passage and `sample` of the clips of a voice, in the order in which they came."""
        rows = self._rows(
            "SELECT passage, sample FROM clips INDEXED BY by_place WHERE voice = ? ORDER BY place",
            self._numbers[voice],
        )
        return ((passage, json.loads(sample)) for passage, sample in rows)

    def seconds(self) -> float:
        """The length of all clips: added up voice by voice, in the order in which they came."""
        query = "SELECT seconds FROM clips INDEXED BY by_place ORDER BY voice, place"
        return float(sum(seconds for (seconds,) in self._rows(query)))

    def _voice_chunks(self, about: JsonObject) -> Iterator[str]:
        samples = object_chunks(
            (passage, (sample,)) for passage, _, sample in self._by_passage(about["name"])
        )
        texts = {key: (canonical_text(value, key),) for key, value in about.items()}
        return object_chunks(sorted({**texts, "sample": samples}.items(), key=itemgetter(0)))

    def _by_passage(self, voice: str) -> Iterator[tuple[str, str, str]]:
        return self._rows(
            "SELECT passage, entry, sample FROM clips INDEXED BY by_passage "
            "WHERE voice = ? ORDER BY passage",
            self._numbers[voice],
        )

    def _rows(self, query: str, *values: object) -> Iterator[Any]:
        with _told(self._folder):
            found = self._database.execute(query, values)
        while True:
            # Nothing is yielded within `_told`: a reader that stops half-way is no failed read.
            with _told(self._folder):
                batch = found.fetchmany(_BATCH_ROWS)
            if not batch:
                return
            yield from batch


def _entry_chunks(entry: str, sample: str) -> Iterator[str]:
    """An entry of provenance.json with its sample, from the texts of both."""
    texts = {key: canonical_text(value) for key, value in json.loads(entry).items()}
    members = sorted({**texts, "sample": sample}.items())
    return object_chunks((key, (text,)) for key, text in members)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise WriteFailedError(f"{folder}: cannot be written: {reason or error}") from error
