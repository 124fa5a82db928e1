"""Checkpoints as Hugging Face serves them: a folder with one weights file, or shards and an index.

A checkpoint is opened without reading its weights: names, types and shapes come from the files'
headers, and tensors are read one at a time. Safetensors are mapped; a pickle is read with
`weights_only=True`, which builds tensors and runs no code of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.importing_errors import PackImportError, about, require_plain_name
from engine.shown import shown, shown_key, shown_name
from engine.strict_json import read_object

_WEIGHT_FILES: Final = ("model.safetensors", "pytorch_model.bin")
"""Single files and, with `.index.json` behind them, indexes: in the order transformers prefers."""

_ZIP_MAGIC: Final = b"PK\x03\x04"
_NAMED_AT_MOST: Final = 24
_LONGEST_FILE: Final = 255  # bytes of a name, on every file system in use
_COMPARED_AT_ONCE: Final = 1 << 22
_FORBIDDEN_GLOBAL: Final = re.compile(r"GLOBAL ([\w.]+)")
_UNPICKLED: Final = re.compile(r"WeightsUnpickler error:\s*(.+)")
"""What stands behind torch's advice to load the file without its guard."""

FLOAT_BYTES: Final[Mapping[str, int]] = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}
"""The number types that are read, by their name in a safetensors header, widest first."""

_NAMES_OF_TYPES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}


class TensorKind(NamedTuple):
    """What a header says of a tensor."""

    dtype: str  # a safetensors name
    shape: tuple[int, ...]


class _Shard(Protocol):
    """An open weights file."""

    kinds: Mapping[str, TensorKind]

    def read(self, name: str) -> Tensor: ...


class _SafetensorsShard:
    """A mapped file: a tensor's bytes are read when it is asked for."""

    def __init__(self, path: Path) -> None:
        try:
            opened: Any = safe_open(path, framework="pt")
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            self.kinds: Mapping[str, TensorKind] = {
                name: TensorKind(found.get_dtype(), tuple(found.get_shape()))
                for name, found in slices.items()
            }
            self._file = opened
        except (SafetensorError, OSError) as error:
            raise PackImportError(f"{path}: not a safetensors file: {_one_line(error)}") from None

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor


class _PickleShard:
    """A file of torch.save that holds a plain mapping of names to tensors, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._tensors = _read_pickle(path)
        self.kinds: Mapping[str, TensorKind] = {
            name: TensorKind(
                _NAMES_OF_TYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")),
                tuple(tensor.shape),
            )
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> Tensor:
        # A view may say that its values are negated, which the bytes that are written would not.
        return self._tensors[name].detach().resolve_conj().resolve_neg()


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """Tensors by name; mapped where the file's layout allows it (files older than torch 1.6 do
    not)."""
    try:
        with path.open("rb") as file:
            zipped = file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
        loaded = torch.load(str(path), map_location="cpu", weights_only=True, mmap=zipped)
    except OSError as error:
        raise PackImportError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # the unpickler of a broken or hostile file raises nearly anything
        forbidden, cause = (p.search(str(error)) for p in (_FORBIDDEN_GLOBAL, _UNPICKLED))
        why = (
            f"it asks for {forbidden[1]}" if forbidden else _one_line(cause[1] if cause else error)
        )
        raise PackImportError(
            f"{path}: refused, only a torch.save of plain tensors is read: {why}"
        ) from None
    if not isinstance(loaded, Mapping):
        raise PackImportError(f"{path}: holds a {type(loaded).__name__}, not tensors by name")
    wrong = [shown_name(name) for name, value in loaded.items() if not _is_plain(name, value)]
    if wrong:
        raise PackImportError(f"{path}: holds more than plain tensors: {listed(wrong)}")
    spread = [shown_name(name) for name, tensor in loaded.items() if not _is_stored(tensor)]
    if spread:
        raise PackImportError(f"{path}: tensors with more values than are stored: {listed(spread)}")
    return dict(loaded)


def _is_plain(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        return False
    return value.layout is torch.strided and value.device.type == "cpu"


def _is_stored(tensor: Tensor) -> bool:
    """Whether every value has its bytes in the file; a stride of 0 makes any number out of one."""
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint: which tensors there are, and where each of them is."""

    root: Path
    files: tuple[Path, ...]
    kinds: Mapping[str, TensorKind]
    _holders: Mapping[str, _Shard]

    def require_floats(self, names: Iterable[str]) -> None:
        """Refuse integers and quantised types. Raises `PackImportError` naming the tensors."""
        kinds = {name: self.kinds[name].dtype for name in names}
        wrong = [
            f"{shown_name(name)} ({kind})"
            for name, kind in kinds.items()
            if kind not in FLOAT_BYTES
        ]
        if wrong:
            raise PackImportError(
                f"{self.root}: weights are read as {', '.join(FLOAT_BYTES)}, not as integers and "
                f"not quantised: {listed(wrong)}"
            )

    def read(self, name: str) -> Tensor:
        """One tensor on the CPU in the type it is stored in.

        Raises `PackImportError` for a type that is no plain float and for values that are not
        finite numbers in float32, which is what the widest are computed in.
        """
        self.require_floats((name,))
        tensor = self._holders[name].read(name)
        # In pieces: the comparison's own memory is three times that of what it compares.
        pieces = torch.split(tensor.reshape(-1), _COMPARED_AT_ONCE)
        if not all(bool(piece.float().isfinite().all()) for piece in pieces):
            raise PackImportError(
                f"{self.root}: {shown_name(name)} holds values that are not finite numbers in "
                "float32"
            )
        return tensor


def open_checkpoint(root: Path) -> Checkpoint:
    """Find the weights of a folder: one file, shards with an index, or a lone `*.safetensors`.

    Raises `PackImportError` in one line: no weights, a missing shard, a tensor that the index does
    not list, lists in another shard, or lists and no shard has.
    """
    for name in _WEIGHT_FILES:
        if (root / name).is_file():
            return _checkpoint(root, {root / name: _open(root / name)})
        index = root / f"{name}.index.json"
        if index.is_file():
            return _sharded(root, index)
    lone = sorted(root.glob("*.safetensors"))
    if len(lone) == 1:
        require_plain_name(lone[0])
        return _checkpoint(root, {lone[0]: _open(lone[0])})
    raise PackImportError(
        f"{root}: holds no weights: none of {', '.join(_WEIGHT_FILES)}, or one of them with "
        ".index.json behind it"
    )


def _open(path: Path) -> _Shard:
    return _SafetensorsShard(path) if path.suffix == ".safetensors" else _PickleShard(path)


def _checkpoint(root: Path, shards: Mapping[Path, _Shard]) -> Checkpoint:
    return Checkpoint(
        root=root,
        files=tuple(shards),
        kinds={name: kind for shard in shards.values() for name, kind in shard.kinds.items()},
        _holders={name: shard for shard in shards.values() for name in shard.kinds},
    )


def _sharded(root: Path, index: Path) -> Checkpoint:
    promised = _weight_map(index)
    files = sorted(set(promised.values()))
    missing = [file for file in files if not (root / file).is_file()]
    if missing:
        raise PackImportError(f"{index}: shards that are not there: {listed(missing)}")
    shards = {root / file: _open(root / file) for file in files}
    found = [(name, path.name) for path, shard in shards.items() for name in shard.kinds]
    copies = Counter(name for name, _ in found)
    held = dict(found)
    _refuse(
        index,
        {
            "tensors in more than one shard": [
                shown_name(n) for n, count in copies.items() if count > 1
            ],
            "tensors that no shard has": [shown_name(n) for n in promised if n not in held],
            "tensors of the shards that the index does not list": [
                f"{shown_name(n)} (in {file})" for n, file in held.items() if n not in promised
            ],
            "tensors in another shard": [
                f"{shown_name(n)} (in {held[n]}, not {file})"
                for n, file in promised.items()
                if n in held and held[n] != file
            ],
        },
    )
    return _checkpoint(root, shards)


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name to shard file, every file a plain name beside the index."""
    with about(index):
        entries = read_object(index).get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise PackImportError(f"{index}: weight_map must be an object of tensors and their shards")
    for name, file in entries.items():
        if not _is_beside(file):
            raise PackImportError(
                f"{index}: weight_map.{shown_name(name)}: must be a .safetensors or .bin file "
                f"beside the index, got {shown(file)}"
            )
    return entries


def _is_beside(file: object) -> bool:
    """Whether it can be the name of a weights file in the index's own folder."""
    if not isinstance(file, str) or not file.isprintable() or len(file.encode()) > _LONGEST_FILE:
        return False
    plain = PurePosixPath(file).name == file and "\\" not in file
    return plain and PurePosixPath(file).suffix in {".safetensors", ".bin"}


def _refuse(where: Path, faults: Mapping[str, list[str]]) -> None:
    found = [f"{fault}: {listed(names)}" for fault, names in faults.items() if names]
    if found:
        raise PackImportError(f"{where}: {'; '.join(found)}")


def require_tensors(
    checkpoint: Checkpoint, wanted: Mapping[str, tuple[int, ...]], optional: Callable[[str], bool]
) -> None:
    """Compare names and shapes with what the config asks for, by the headers alone.

    Raises `PackImportError` listing what is missing, what could not be placed, what is misshapen.
    """
    shapes = {name: kind.shape for name, kind in checkpoint.kinds.items()}
    _refuse(
        checkpoint.root,
        {
            "tensors that are missing": [name for name in wanted if name not in shapes],
            "tensors that could not be placed": [
                shown_name(name) for name in shapes if name not in wanted and not optional(name)
            ],
            "tensors of another shape than the config gives": [
                f"{name} {shapes[name]} instead of {shape}"
                for name, shape in wanted.items()
                if name in shapes and shapes[name] != shape
            ],
        },
    )


def listed(names: Iterable[str]) -> str:
    """Names in order, and how many more there are when they are too many for a line."""
    ordered = sorted(names)
    more = len(ordered) - _NAMED_AT_MOST
    return ", ".join(ordered[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _one_line(error: Exception | str) -> str:
    text = str(error).strip() or type(error).__name__
    return shown_key(text.splitlines()[0])
