"""How a pack is run: what was asked for, and what decides the last bits, as measured.

`ExecutionConfig` is the request. `ExecutionIdentity` is what a worker reports once it has loaded:
two renders can be compared bit for bit where their identities are equal, and only there. The
number of slots and of workers is in neither, because no bit depends on it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from engine.errors import ExecutionRefusedError

if TYPE_CHECKING:
    import torch

Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]

MINIMUM_ROWS = 4
"""Below this many rows the CPU's float32 matrix product takes another kernel (measured)."""


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """The execution a user asks for."""

    device: Device = "cpu"
    dtype: Dtype = "float32"
    threads: int = 1
    row_padding: int = MINIMUM_ROWS
    allow_tf32: bool = False
    packed_weights: bool = True
    """Products by oneDNN from weights in its own layout, where the device and torch have that."""
    compile_model: bool = False
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ExecutionRefusedError(f"device must be cpu or cuda, got {self.device!r}")
        if self.dtype not in ("float32", "bfloat16"):
            raise ExecutionRefusedError(f"dtype must be float32 or bfloat16, got {self.dtype!r}")
        if type(self.threads) is not int or not 1 <= self.threads <= 1024:
            raise ExecutionRefusedError(f"threads must be in 1..1024, got {self.threads}")
        if type(self.row_padding) is not int or not MINIMUM_ROWS <= self.row_padding <= 4096:
            raise ExecutionRefusedError(
                f"row_padding must be in {MINIMUM_ROWS}..4096, got {self.row_padding}"
            )
        if self.cuda_graphs and self.device != "cuda":
            raise ExecutionRefusedError(f"cuda_graphs needs device cuda, got {self.device!r}")


@dataclass(frozen=True, slots=True)
class ExecutionIdentity:
    """What decides the last bits of a render, measured where it ran."""

    torch: str
    numpy: str
    device: str
    capability: str
    dtype: str
    threads: int
    row_padding: int
    matmul_tf32: bool
    cudnn_tf32: bool
    packed_weights: bool
    compile_model: bool
    cuda_graphs: bool
    probe: str
    """A digest of logits that this pack gives here; see `invariance.py`."""

    def digest(self) -> str:
        """Sixteen hex digits over every field."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def describe(self) -> str:
        """One line for records and logs."""
        return (
            f"exec[{self.digest()}] torch {self.torch} {self.device} {self.capability} "
            f"{self.dtype} threads={self.threads} rows>={self.row_padding} "
            f"tf32={'on' if self.matmul_tf32 or self.cudnn_tf32 else 'off'}"
            f"{' packed' if self.packed_weights else ''}"
            f"{' compiled' if self.compile_model else ''}{' graphs' if self.cuda_graphs else ''}"
        )


def apply_execution(config: ExecutionConfig) -> None:
    """Pin this process to the asked execution: threads, TF32 flags, deterministic algorithms.

    Raises `ExecutionRefusedError` when the device is not there.
    """
    import torch

    if config.device == "cuda" and not torch.cuda.is_available():
        raise ExecutionRefusedError("device cuda was asked for and no CUDA device is visible")
    torch.set_num_threads(config.threads)
    torch.backends.cuda.matmul.allow_tf32 = config.allow_tf32
    torch.backends.cudnn.allow_tf32 = config.allow_tf32
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=config.device == "cuda")
    # Every buffer here is written whole before it is read; filling it first only costs time.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010  untyped
    for flag in ("allow_tf32", "compile_model", "cuda_graphs"):
        if getattr(config, flag):
            warnings.warn(
                f"{flag} leaves the envelope in which bits were proven: same tokens are likely, "
                "same samples are not; it is part of the execution identity",
                stacklevel=2,
            )


def packs_weights(config: ExecutionConfig) -> bool:
    """Whether the weights of this execution are packed here; torch's compiler wants them plain."""
    from engine.llama import can_pack

    return config.packed_weights and not config.compile_model and can_pack(config.device)


def measure_identity(config: ExecutionConfig, *, probe: str) -> ExecutionIdentity:
    """The identity of this process under `config`, with the digest of its probe."""
    import numpy as np
    import torch

    return ExecutionIdentity(
        torch=torch.__version__,
        numpy=np.__version__,
        device=config.device,
        capability=_capability(config.device),
        dtype=config.dtype,
        threads=torch.get_num_threads(),
        row_padding=config.row_padding,
        matmul_tf32=torch.backends.cuda.matmul.allow_tf32,
        cudnn_tf32=torch.backends.cudnn.allow_tf32,
        packed_weights=packs_weights(config),
        compile_model=config.compile_model,
        cuda_graphs=config.cuda_graphs,
        probe=probe,
    )


def _capability(device: str) -> str:
    import torch

    if device == "cpu":
        return torch.backends.cpu.get_cpu_capability()
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} sm{major}{minor}"


def torch_dtype(config: ExecutionConfig) -> torch.dtype:
    """The torch dtype of the weights and the cache."""
    import torch

    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.dtype]
