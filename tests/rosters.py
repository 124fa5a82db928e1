"""Rosters for tests: a catalog of some voices, rebuilt by null engines in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from catalog.json_spans import elements
from catalog.roster import read_roster, release_key
from catalog.store import Store
from engine.execution import ExecutionConfig
from engine.pack import open_pack, seal_pack
from jobs.progress import Silent
from jobs.rebuild import RebuildOptions, RebuildResult, run_rebuild
from jobs.render import RenderOptions
from jobs.roster_plan import StalenessPolicy
from tests.fakes import InProcessFleet

SPEAKERS = ("slt", "rms", "awb", "kal")


@dataclass
class Voice:
    """A voice of a roster under test."""

    speaker: str
    seed: int
    description: str = ""


@dataclass
class Lab:
    """A catalog that can be changed, and the place where it is published."""

    folder: Path
    published: str
    voices: dict[str, Voice]
    texts: dict[str, str] = field(
        default_factory=lambda: {"short": "Good morning.", "long": "Nobody answered, so she left."}
    )
    pack: str = "starter"
    endpoint_url: str | None = None
    fleet: Callable[..., Any] = InProcessFleet

    def write(self) -> Path:
        """catalog.yaml as it stands."""
        voices = [
            {
                "name": name,
                "speaker": voice.speaker,
                "seed": voice.seed,
                "description": voice.description or f"The voice {name}.",
                "source": {
                    "name": "us",
                    "url": "https://x.test",
                    "license": "CC0-1.0",
                    "consent": "given",
                },
            }
            for name, voice in self.voices.items()
        ]
        passages = [{"id": key, "text": text} for key, text in self.texts.items()]
        document = {
            "catalog": "roster",
            "pack": self.pack,
            "defaults": {"seed": 7, "language": "en", "format": "flac"},
            "voices": voices,
            "passages": passages,
        }
        path = self.folder / "catalog.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
        return path

    def options(self, **changes: Any) -> RebuildOptions:
        """Of a rebuild; `changes` are those of RebuildOptions, `only` and `execution`."""
        policy = StalenessPolicy(
            execution=changes.pop("execution", "voice"),
            rehash=changes.pop("rehash", False),
            only=changes.pop("only", None),
        )
        render = RenderOptions(
            catalog=self.write(),
            out=str(self.folder / "work"),
            workers=changes.pop("workers", 2),
            slots=4,
            execution=ExecutionConfig(),
            fleet=changes.pop("fleet", self.fleet),
            endpoint_url=self.endpoint_url,
            unconditional_writes=changes.pop("unconditional_writes", False),
            max_failures=changes.pop("max_failures", None),
        )
        return replace(RebuildOptions(render, self.published, policy), **changes)

    def rebuild(self, **changes: Any) -> RebuildResult:
        """Run it."""
        return run_rebuild(self.options(**changes), Silent())

    def change_pack(self) -> None:
        """The same weights in a pack that is another one."""
        folder = self.folder / "pack"
        shutil.copytree(open_pack("starter").root, folder)
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        manifest["description"] = "The same, sealed anew."
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        seal_pack(folder)
        self.pack = "./pack"


def lab_of(folder: Path, published: str, *, voices: int = 3, **changes: Any) -> Lab:
    """A lab with so many voices."""
    made = {
        f"v{number:02d}": Voice(SPEAKERS[number % len(SPEAKERS)], 100 + number)
        for number in range(voices)
    }
    return Lab(folder, published, made, **changes)


def entries(store: Store) -> dict[str, str]:
    """The text of every entry of the published provenance.json, by clip."""
    return _texts(store, "provenance.json", lambda entry: f"{entry['name']}/{entry['passage']}")


def _texts(store: Store, name: str, key: Callable[[dict[str, Any]], str]) -> dict[str, str]:
    roster = read_roster(store)
    assert roster.release is not None
    data = store.get(release_key(roster.release.id, name)).data.decode()
    return {key(json.loads(text)): text for text in elements(data)}


def failing(*renders: str) -> partial[InProcessFleet]:
    """A fleet in which these renders fail for good."""
    return partial(
        InProcessFleet, plan=lambda worker, job: "no_speech" if job.key in renders else None
    )
