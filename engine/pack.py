"""Packs: a folder of weights and what they mean, opened read-only and known by its sha256.

A pack is its `manifest.json`, which names every other file with its sha256; the pack's own
sha256 is that of the manifest's bytes, so it stands for all of them. Nothing here imports torch:
`plan` and every refusal answer without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from engine.algorithm import AlgorithmConfig
from engine.contracts.contract import TextSide
from engine.contracts.registry import load_text_side
from engine.errors import ManifestError, PackMismatchError, PackNotFoundError
from engine.manifest import MAX_MANIFEST_BYTES, algorithm_from, read_manifest
from engine.shown import shown, shown_key, shown_name
from engine.strict_json import bytes_of

MANIFEST = "manifest.json"
_BUNDLED = Path(__file__).parent / "packs"
_HASHED_AT_ONCE = 1 << 20
_LONGEST_NAME = 255  # bytes, on every file system in use

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Block(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class PackFile(_Block):
    """One file of a pack."""

    sha256: Sha256
    bytes: int = Field(ge=0, le=2**53)


class TokenContractRef(_Block):
    """The contract a pack claims; checked against the one its files define."""

    name: str = Field(max_length=64)
    fingerprint: str


class Weights(_Block):
    """Which files hold what."""

    model: str
    model_config_file: str
    codec: str
    codec_config_file: str
    encoder: Literal["trained", "untrained", "absent"]


class PackManifest(BaseModel):
    """The part of `manifest.json` that is about the pack; the rest is the algorithm."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    format: Literal["loudkit-batch-pack"]
    format_version: Literal[1]
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    description: str
    languages: list[str] = Field(min_length=1)
    supported_tags: list[str]
    token_contract: TokenContractRef
    weights: Weights
    files: dict[str, PackFile] = Field(min_length=1)
    licence: dict[str, str] = Field(min_length=1)
    provenance: dict[str, str]


@dataclass(frozen=True)
class Pack:
    """An opened pack: what it says of itself, and where its files are."""

    root: Path
    sha256: str
    manifest: PackManifest
    algorithm: AlgorithmConfig
    raw: Mapping[str, Any]

    def path(self, name: str) -> Path:
        """Where a file of the pack lies. Raises `PackMismatchError` if the manifest lacks it."""
        if name not in self.manifest.files:
            raise PackMismatchError(
                f"{self.root / MANIFEST}: files: {shown(name)} is used, not listed"
            )
        return self.root / name

    @property
    def checkpoint_sha256(self) -> str:
        """The sha256 of the language model's weights."""
        return self.manifest.files[self.manifest.weights.model].sha256

    @property
    def codec_sha256(self) -> str:
        """The sha256 of the codec's weights."""
        return self.manifest.files[self.manifest.weights.codec].sha256

    @cached_property
    def algorithm_fingerprint(self) -> str:
        """`algorithm.fingerprint()`, computed once: a plan asks for it with every render."""
        return self.algorithm.fingerprint()

    @cached_property
    def text_side(self) -> TextSide:
        """The contract's text side, its fingerprint checked against the manifest's."""
        reference = self.manifest.token_contract
        side = load_text_side(reference.name, self.root)
        side.contract.require(reference.fingerprint, f"{self.root / MANIFEST}")
        return side


def open_pack(
    reference: str | Path, *, sha256: str | None = None, base: Path | None = None
) -> Pack:
    """Open a bundled pack by name, or a folder (relative to `base`).

    Raises `PackNotFoundError`, `PackMismatchError` when the pack is not the one that `sha256`
    asks for, and `ManifestError` for a manifest that cannot be read. File contents are not
    hashed here: that is `verify_pack`.
    """
    root = _locate(str(reference), base or Path())
    manifest_path = root / MANIFEST
    content = bytes_of(manifest_path, MAX_MANIFEST_BYTES)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and digest != sha256.lower():
        raise PackMismatchError(f"{root}: is pack {digest}, the catalog asks for {sha256}")
    raw = read_manifest(manifest_path)
    try:
        manifest = PackManifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(shown_name(str(part)) for part in first["loc"]) or "manifest"
        raise ManifestError(shown_key(key), f"{first['msg']} (in {manifest_path})") from error
    for name in manifest.files:
        _require_inside(name)
    for key in ("model", "model_config_file", "codec", "codec_config_file"):
        name = getattr(manifest.weights, key)
        if name not in manifest.files:
            raise ManifestError(f"weights.{key}", f"{shown(name)} is not listed under files")
    return Pack(root, digest, manifest, algorithm_from(raw), raw)


def _require_inside(name: str) -> None:
    key, pure = f"files.{shown_name(name)}", PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or not pure.parts:
        raise ManifestError(key, "must be a path inside the pack")
    if not name.isprintable():  # NUL, line breaks, halves of a surrogate pair
        raise ManifestError(key, "must be a name of printable characters")
    if max(len(part.encode()) for part in pure.parts) > _LONGEST_NAME:
        raise ManifestError(key, f"must be names of at most {_LONGEST_NAME} bytes")
    if pure == PurePosixPath(MANIFEST):
        raise ManifestError(key, "a manifest cannot hold its own sha256")


def bundled_packs() -> tuple[str, ...]:
    """The names of the packs that are installed with this build."""
    return tuple(sorted(found.parent.name for found in _BUNDLED.glob(f"*/{MANIFEST}")))


def _locate(reference: str, base: Path) -> Path:
    if "\x00" in reference or not reference:
        raise PackNotFoundError(f"not a pack's name or folder: {reference!r}")
    if reference in bundled_packs():
        return _BUNDLED / reference
    folder = base / reference
    try:
        if (folder / MANIFEST).is_file():
            return folder.resolve()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise PackNotFoundError(f"pack {reference[:80]!r}: {error.strerror}") from error
    what = f"holds no {MANIFEST}" if folder.is_dir() else "is neither a folder nor a bundled pack"
    raise PackNotFoundError(
        f"pack {reference!r} {what}; bundled: {', '.join(bundled_packs()) or 'none'}"
    )


def verify_pack(pack: Pack) -> None:
    """Hash every file of the pack. Raises `PackMismatchError` naming the first that differs.

    A file that the manifest does not list is refused too: a contract could read it, and the
    pack's sha256 would not stand for it. Hidden files are nobody's business.
    """
    for path in sorted(pack.root.rglob("*")):
        name = path.relative_to(pack.root).as_posix()
        hidden = any(part.startswith(".") for part in name.split("/"))
        if path.is_file() and not hidden and name not in {MANIFEST, *pack.manifest.files}:
            raise PackMismatchError(f"{path}: is not listed under files in {MANIFEST}")
    for name, entry in sorted(pack.manifest.files.items()):
        path = pack.root / name
        try:
            size = path.stat().st_size
            if size != entry.bytes:
                raise PackMismatchError(f"{path}: has {size} bytes, {MANIFEST} says {entry.bytes}")
            digest = file_sha256(path)
        except OSError as error:
            raise PackMismatchError(f"{path}: cannot be read: {error.strerror}") from error
        if digest != entry.sha256:
            raise PackMismatchError(f"{path}: sha256 is {digest}, {MANIFEST} says {entry.sha256}")


def file_sha256(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASHED_AT_ONCE):
            digest.update(piece)
    return digest.hexdigest()


def seal_pack(root: Path) -> str:
    """Write the size and sha256 of every listed file into a pack's manifest; its new sha256.

    For whoever makes a pack: list the files under `files`, seal, and the pack can be opened.
    Raises `PackNotFoundError` or `ManifestError` when there is nothing to seal, or no right to.
    """
    path = root / MANIFEST
    raw = read_manifest(path)
    files = raw.get("files")
    if not isinstance(files, dict) or not files:
        raise ManifestError("files", "must be an object that lists the pack's files")
    for name in files:
        _require_inside(name)
        files[name] = _sealed(root / name, f"files.{shown_name(name)}")
    try:
        path.write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise PackNotFoundError(f"{path}: cannot be written: {error.strerror}") from None
    return file_sha256(path)


def _sealed(path: Path, key: str) -> dict[str, object]:
    try:
        if not path.is_file():
            raise ManifestError(key, "there is no such file")
        return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    except OSError as error:
        raise ManifestError(key, f"cannot be read: {error.strerror}") from None
