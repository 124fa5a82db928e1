"""`pack import`: a Hugging Face Llama folder and a SNAC folder become a pack.

Nothing is fetched: all of it is read from folders. The pack is built beside its place, sealed,
opened and verified there, and renamed whole, so no half of a pack is ever found under its name.
What can be refused without torch is refused before torch is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.codec_config import SnacConfig
from engine.contracts.contract import TokenContract
from engine.errors import ContractMismatchError
from engine.importing_errors import PackImportError, about, require_plain_name
from engine.importing_manifest import (
    CODEC_FILE,
    MODEL_FILE,
    PackContents,
    PackLabel,
    manifest_for,
)
from engine.importing_text import TextSource, tags_of, take_text_side
from engine.pack import MANIFEST, file_sha256, open_pack, seal_pack, verify_pack
from engine.shown import shown_key
from engine.strict_json import read_object

_CONFIG: Final = "config.json"
_CODEC_CONFIG: Final = "codec_config.json"
_NOTICES: Final = ("LICEN[CS]E*", "NOTICE*", "COPYING*", "USE_POLICY*")
_LARGEST_NOTICE: Final = 1 << 20


def import_pack(
    model: Path,
    codec: Path,
    *,
    out: Path,
    label: PackLabel,
    tokenizer: Path | None = None,
    contract: str | None = None,
    speakers: Sequence[str] = (),
    decode_only: bool = False,
) -> str:
    """Make a sealed pack in `out` from a Llama folder and a SNAC folder; its sha256.

    The tokenizer's files come from `tokenizer`, or from the model's folder; without `contract` it
    is the one contract that they fit. `speakers` are the names that the model was trained on, where
    a contract keeps such a list. `decode_only` says that the codec's encoder is no use and leaves
    it out. `out` must be empty or not be there. The same sources and label give the same bytes: no
    time and no path is recorded.

    Raises `PackImportError` for what cannot be read or placed, and `ContractMismatchError` where
    model, codec and contract do not belong together.
    """
    tokenizer = tokenizer or model
    with _os_errors(model):
        _require_sources(model, codec, tokenizer)
    with _os_errors(out):
        _require_new(out)
    with _staged(out) as staged:
        with about(codec / _CONFIG):
            codec_config = SnacConfig.from_mapping(read_object(codec / _CONFIG))
        side = take_text_side(
            TextSource(tokenizer, contract, speakers, codec_config.codebook_size), staged
        )
        _require_same_frames(codec / _CONFIG, codec_config, side.contract)
        shutil.copyfile(model / _CONFIG, staged / _CONFIG)
        shutil.copyfile(codec / _CONFIG, staged / _CODEC_CONFIG)
        _take_notices({"model": model, "codec": codec}, staged)

        from engine.importing_weights import open_codec, open_model, write_codec, write_model

        speaking = open_model(model, side.contract)
        sounding = open_codec(codec, codec_config, decode_only=decode_only)
        contents = PackContents(
            contract=side.contract,
            supported_tags=tags_of(side),
            codec=codec_config,
            encoder=sounding.encoder,
            positions=speaking.config.max_position_embeddings,
            files=[*(path.name for path in staged.iterdir()), MODEL_FILE, CODEC_FILE],
            provenance={
                "model_files": _hashed(speaking.checkpoint.files),
                "codec_files": _hashed(sounding.checkpoint.files),
            },
        )
        with about(model / _CONFIG):
            _write_json(staged / MANIFEST, manifest_for(label, contents))
        open_pack(staged)  # what cannot be opened is refused before its weights are copied
        write_model(speaking, staged / MODEL_FILE)
        write_codec(sounding, staged / CODEC_FILE)
        return _seal(staged)


def _seal(staged: Path) -> str:
    """Seal a pack, and read it as any command would."""
    digest = seal_pack(staged)
    sealed = open_pack(staged, sha256=digest)
    verify_pack(sealed)
    sealed.text_side.contract.require(sealed.manifest.token_contract.fingerprint, str(staged))
    return digest


def _require_sources(model: Path, codec: Path, tokenizer: Path) -> None:
    for folder in (model, codec, tokenizer):
        if not folder.is_dir():
            raise PackImportError(f"{folder}: is no folder")
    for path in (model / _CONFIG, codec / _CONFIG):
        if not path.is_file():
            raise PackImportError(f"{path}: is missing")


def _require_new(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not _is_empty_folder(out)):
        raise PackImportError(f"{out}: is there already; a pack is imported into a new folder")


def _require_same_frames(path: Path, config: SnacConfig, contract: TokenContract) -> None:
    """The codec's frames must be those that the contract's ids spell."""
    if config.codebook_size != contract.codebook_size:
        raise ContractMismatchError(
            f"{path}: codebooks of {config.codebook_size} entries, contract {contract.name} has "
            f"ids for {contract.codebook_size}"
        )


def _take_notices(folders: Mapping[str, Path], staged: Path) -> None:
    """Copy licence files: what a licence asks to go along goes along.

    A link is followed inside of its folder, and into the blobs of the Hugging Face cache that the
    folder lies in, where every file of a snapshot is a link. Any other link is refused rather than
    left out: a pack must neither lose a licence nor gain a file of this machine's.
    """
    for role, folder in folders.items():
        for found in sorted({path for pattern in _NOTICES for path in folder.glob(pattern)}):
            if not found.is_file():
                continue
            require_plain_name(found)
            if not _is_in_folder_or_cache(found.resolve(), folder.resolve()):
                raise PackImportError(
                    f"{found}: is a link out of its folder; put the file itself there"
                )
            if found.stat().st_size > _LARGEST_NOTICE or b"\0" in found.read_bytes():
                raise PackImportError(
                    f"{found}: is no text of at most {_LARGEST_NOTICE} bytes, as a licence is"
                )
            shutil.copyfile(found, staged / f"{role}-{found.name}")


def _is_in_folder_or_cache(target: Path, folder: Path) -> bool:
    blobs = target.parent
    return folder in target.parents or (blobs.name == "blobs" and blobs.parent in folder.parents)


def _hashed(files: Sequence[Path]) -> str:
    """Name and sha256 of source files, as a hub shows them."""
    return "; ".join(f"{path.name} {file_sha256(path)}" for path in files)


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """One line of what the system refuses: a name too long, no permission, a full disk."""
    try:
        yield
    except OSError as error:
        where = shown_key(str(error.filename or path))
        raise PackImportError(f"{where}: {error.strerror or error}") from None


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its name at the end, or is removed."""
    try:
        parent = out.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=parent))
    except OSError as error:
        raise PackImportError(f"{out}: cannot be made: {error.strerror}") from None
    try:
        with _os_errors(out):
            yield staged
            staged.chmod(0o777 & ~_umask())
            os.rename(staged, out)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _umask() -> int:
    """The process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
