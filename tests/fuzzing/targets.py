"""The readers under damage: each writes a case, reads it, and says what may come of it.

A refusal of the reader's own family or a whole answer; nothing else.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from catalog.export import read_token_metadata, read_token_part
from catalog.folder_store import FolderStore
from catalog.loader import load_catalog
from catalog.publish import Choice, Publisher, Source
from catalog.renders import iter_renders
from catalog.roster import Records
from catalog.roster_files import POINTER
from engine.errors import EngineError
from engine.manifest import algorithm_from, read_manifest
from engine.pack import open_pack
from jobs.errors import JobError
from jobs.segments import read_rows, segment_files
from jobs.verify import verify_store
from tests.fuzzing.damage import damaged
from tests.fuzzing.ledger_target import WholeLedger
from tests.fuzzing.samples import CONTRACT, write_corpora, write_ledger, write_tokens
from tests.fuzzing.target import Target
from tests.outputs import publish, write_output

ROOT = Path(__file__).parents[2]


class CatalogFile(Target):
    """catalog.yaml with its text files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        example = (ROOT / "examples/catalog.yaml").read_bytes()
        self._texts = [(ROOT / "examples/alice.txt").read_bytes()]
        self._catalogs = [example, *(text.encode() for text in _CATALOGS)]

    def spoil(self, rng: Random) -> None:
        catalog, text = rng.choice(self._catalogs), self._texts[0]
        if rng.random() < 0.9:
            catalog = damaged(catalog, rng, self._catalogs, text=True)
        else:
            text = damaged(text, rng, self._catalogs, text=True)
        (self.folder / "catalog.yaml").write_bytes(catalog)
        (self.folder / "alice.txt").write_bytes(text)

    def place(self, data: bytes) -> None:
        (self.folder / "catalog.yaml").write_bytes(data)

    def read(self) -> None:
        loaded = load_catalog(self.folder / "catalog.yaml")
        keys = [render.key for render in iter_renders(loaded)]
        assert len(set(keys)) == len(keys) > 0


_CATALOGS = [
    "catalog: c\npack: starter\nvoices:\n  - {name: slt}\n  - name: rms\n    speaker: kal\n"
    "defaults: {seed: 1, style: s, format: wav}\npassages:\n  - {id: a, text: A., seed: 3}\n"
    "  - {id: b, text_file: alice.txt, style: x, language: pl}\n"
    "renders:\n  - {voice: '*', passage: a}\n  - {voice: s*, passage: '[a-b]', seed: 9}\n",
    "catalog: c\npack: {path: ../packs/x, sha256: " + "0" * 64 + "}\n"
    "voices:\n- &v {name: a, language: English, language_id: en, seed: 5}\n"
    "- {name: b, source: {name: n, url: u, license: l, consent: &c c}, status: *c}\n"
    "passages:\n- id: p\n  text: |\n    One.\n    Two.\n"
    "- {id: q, turns: [{voice: a, text: Yes?}, {voice: b, text: No.}]}\n",
]


class Manifest(Target):
    """manifest.json of a pack, and of a loudkit checkpoint."""

    refusals = (EngineError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        starter = (ROOT / "engine/packs/starter/manifest.json").read_bytes()
        checkpoint = {**json.loads(starter), "format": "loudkit-checkpoint", "format_version": 2}
        del checkpoint["frame"], checkpoint["codec"], checkpoint["token_contract"]
        checkpoint["decode"] = {"mode": "fusion_mtp2"}
        self._manifests = [starter, starter, json.dumps(checkpoint, indent=1).encode()]

    def spoil(self, rng: Random) -> None:
        self.place(damaged(rng.choice(self._manifests), rng, self._manifests, text=True))

    def place(self, data: bytes) -> None:
        (self.folder / "manifest.json").write_bytes(data)

    def read(self) -> None:
        raw = read_manifest(self.folder / "manifest.json")
        refused: list[EngineError] = []
        for reader in (algorithm_from, lambda _: open_pack(self.folder)):
            try:
                assert reader(raw) is not None
            except EngineError as error:
                refused.append(error)
        if refused:
            raise refused[0]


class Segments(Target):
    """Segments of a ledger, read through."""

    refusals = (JobError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_ledger(folder / "real", 1)
        files = segment_files(folder / "real")
        self._files = [path.read_bytes() for _, path in files]
        self._committed = []
        for data in self._files:
            self.place(data)
            self._committed.append(list(read_rows(folder / "ledger")))

    def place(self, data: bytes) -> None:
        self._is_real = False
        path = self.folder / "ledger" / "segment-00000001.arrow"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)  # the one before may still be mapped
        path.write_bytes(data)

    def spoil(self, rng: Random) -> None:
        self.place(damaged(rng.choice(self._files), rng, self._files))
        self._is_real = True

    def read(self) -> None:
        rows = list(read_rows(self.folder / "ledger"))
        assert not self._is_real or rows in self._committed, "rows that were never committed so"


class Corpora(Target):
    """A corpus that a catalog names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "real").mkdir()
        self._files = [path.read_bytes() for path in write_corpora(folder / "real")]
        (folder / "catalog.yaml").write_text(
            "catalog: c\npack: starter\nvoices: [{name: slt}]\n"
            "passages: [{from: corpus.parquet, id: id, text: text}]\n"
        )

    def spoil(self, rng: Random) -> None:
        self.place(damaged(rng.choice(self._files), rng, self._files))

    def place(self, data: bytes) -> None:
        (self.folder / "corpus.parquet").write_bytes(data)

    def read(self) -> None:
        loaded = load_catalog(self.folder / "catalog.yaml")
        keys = [render.key for render in iter_renders(loaded)]
        assert len(keys) == len(set(keys)) == loaded.passage_count > 0


class TokenParts(Target):
    """Token Parquet, its rows and what it says of itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._files = [path.read_bytes() for path in write_tokens(folder / "real")]
        shutil.rmtree(folder / "real")

    def spoil(self, rng: Random) -> None:
        self.place(damaged(rng.choice(self._files), rng, self._files))

    def place(self, data: bytes) -> None:
        (self.folder / "part-00000.parquet").write_bytes(data)

    def read(self) -> None:
        path = self.folder / "part-00000.parquet"
        read_token_metadata(path)
        for row in read_token_part(path, token_contract_fingerprint=CONTRACT):
            assert isinstance(row.text, str)
            assert all(isinstance(token, int) for token in row.tokens)


class PublishedRoster(Target):
    """The files that a release is read from, and everything that they name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        clips = {"ann/short": b"one", "ann/long": b"two", "bob/short": b"three"}
        store = FolderStore(folder / "published")
        done = publish(store, write_output(folder / "real", clips))
        self._release = folder / "published" / "releases" / done.release.id
        names = ("release.json", "catalog.json", "provenance.json")
        paths = [folder / "published" / POINTER, *(self._release / name for name in names)]
        self._files = {path: path.read_bytes() for path in paths}

    def spoil(self, rng: Random) -> None:
        self._mend()
        path = rng.choice(list(self._files))
        files = list(self._files.values())
        path.write_bytes(damaged(self._files[path], rng, files, text=True))

    def place(self, data: bytes) -> None:
        self._mend()
        (self._release / "provenance.json").write_bytes(data)

    def read(self) -> None:
        found, roster = verify_store(FolderStore(self.folder / "published"), folder=None)
        assert found.clips == len(roster.records.clips)
        source = Source(self.folder / "real", Records())
        publisher = Publisher(
            FolderStore(self.folder / "published"),
            source,
            catalog="roster",
            algorithm_fingerprint="a" * 16,
        )
        publisher.would_change(roster, Choice(frozenset(), not_renewed={"x/y": "z"}))

    def _mend(self) -> None:
        for path, data in self._files.items():
            path.write_bytes(data)


TARGETS: dict[str, type[Target]] = {
    "catalog": CatalogFile,
    "manifest": Manifest,
    "segments": Segments,
    "ledger": WholeLedger,
    "corpus": Corpora,
    "tokens": TokenParts,
    "roster": PublishedRoster,
}
