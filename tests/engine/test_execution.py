"""What is asked of an execution, what is refused, and what its identity is over."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.engine import Engine
from engine.errors import ExecutionRefusedError
from engine.execution import (
    MINIMUM_ROWS,
    ExecutionConfig,
    ExecutionIdentity,
    apply_execution,
    measure_identity,
    packs_weights,
    torch_dtype,
)
from engine.llama import can_pack

IDENTITY = ExecutionIdentity(
    torch="2.13.0+cpu",
    numpy="2.3.0",
    device="cpu",
    capability="AVX512",
    dtype="float32",
    threads=1,
    row_padding=4,
    matmul_tf32=False,
    cudnn_tf32=False,
    packed_weights=False,
    compile_model=False,
    cuda_graphs=False,
    probe="0123456789abcdef",
)
OTHER: dict[str, Any] = {
    "torch": "2.13.1+cpu",
    "numpy": "2.3.1",
    "device": "cuda",
    "capability": "AVX2",
    "dtype": "bfloat16",
    "threads": 2,
    "row_padding": 8,
    "matmul_tf32": True,
    "cudnn_tf32": True,
    "packed_weights": True,
    "compile_model": True,
    "cuda_graphs": True,
    "probe": "0123456789abcdee",
}


@pytest.fixture(autouse=True)
def restored_process() -> Iterator[None]:
    """These tests turn the process's own switches; the rest of the suite runs under the default."""
    yield
    apply_execution(ExecutionConfig())


def test_the_default_execution_is_the_one_that_was_measured() -> None:
    config = ExecutionConfig()
    assert asdict(config) == {
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "row_padding": 4,
        "allow_tf32": False,
        "packed_weights": True,
        "compile_model": False,
        "cuda_graphs": False,
    }
    assert MINIMUM_ROWS == 4


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"device": "mps"}, "device must be cpu or cuda, got 'mps'"),
        ({"device": "cuda:0"}, "device must be cpu or cuda, got 'cuda:0'"),
        ({"device": ""}, "device must be cpu or cuda, got ''"),
        ({"dtype": "float16"}, "dtype must be float32 or bfloat16, got 'float16'"),
        ({"dtype": torch.float32}, "dtype must be float32 or bfloat16"),
        ({"threads": 0}, r"threads must be in 1\.\.1024, got 0"),
        ({"threads": -1}, r"threads must be in 1\.\.1024, got -1"),
        ({"threads": 1025}, r"threads must be in 1\.\.1024, got 1025"),
        ({"row_padding": 3}, r"row_padding must be in 4\.\.4096, got 3"),
        ({"row_padding": 0}, r"row_padding must be in 4\.\.4096, got 0"),
        ({"row_padding": 4097}, r"row_padding must be in 4\.\.4096, got 4097"),
        ({"cuda_graphs": True}, "cuda_graphs needs device cuda, got 'cpu'"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ExecutionRefusedError, match=f"^{told}") as refusal:
        ExecutionConfig(**asked)
    assert refusal.value.code == "execution_refused"
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"threads": 1024},
        {"row_padding": 4096},
        {"dtype": "bfloat16"},
        {"device": "cuda", "cuda_graphs": True},
        {"compile_model": True},
    ],
)
def test_the_ends_of_the_ranges_are_inside(asked: dict[str, Any]) -> None:
    config = ExecutionConfig(**asked)
    assert {name: getattr(config, name) for name in asked} == asked


def test_the_digest_moves_with_every_field() -> None:
    assert set(OTHER) == {field.name for field in fields(ExecutionIdentity)}
    digests = {replace(IDENTITY, **{name: value}).digest() for name, value in OTHER.items()}
    assert len(digests | {IDENTITY.digest()}) == len(OTHER) + 1


def test_the_digest_moves_with_nothing_else() -> None:
    assert ExecutionIdentity(**asdict(IDENTITY)).digest() == IDENTITY.digest()
    in_another_order = dict(reversed(asdict(IDENTITY).items()))
    assert ExecutionIdentity(**in_another_order).digest() == IDENTITY.digest()
    assert len(IDENTITY.digest()) == 16
    assert int(IDENTITY.digest(), 16) >= 0


def test_neither_slots_nor_workers_are_part_of_an_execution() -> None:
    names = {field.name for kind in (ExecutionConfig, ExecutionIdentity) for field in fields(kind)}
    assert not names & {"slots", "workers", "host", "started_at"}


def test_one_line_tells_an_identity() -> None:
    told = IDENTITY.describe()
    assert told.startswith(f"exec[{IDENTITY.digest()}] torch 2.13.0+cpu cpu AVX512 float32 ")
    assert "threads=1" in told
    assert "rows>=4" in told
    assert told.endswith("tf32=off")
    assert "tf32=on" in replace(IDENTITY, cudnn_tf32=True).describe()
    assert "tf32=on" in replace(IDENTITY, matmul_tf32=True).describe()
    assert replace(IDENTITY, compile_model=True).describe() != told


def test_applying_pins_threads_and_both_tf32_flags() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(False)
    apply_execution(ExecutionConfig(threads=1))
    assert torch.get_num_threads() == 1
    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.backends.cudnn.allow_tf32 is False
    assert torch.backends.cudnn.benchmark is False
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    apply_execution(ExecutionConfig(threads=2))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("flag", ["allow_tf32", "compile_model"])
def test_what_leaves_the_proven_envelope_warns(flag: str) -> None:
    asked: dict[str, Any] = {flag: True}
    with pytest.warns(UserWarning, match=flag):
        apply_execution(ExecutionConfig(**asked))
    tf32 = flag == "allow_tf32"
    assert torch.backends.cuda.matmul.allow_tf32 is tf32
    assert torch.backends.cudnn.allow_tf32 is tf32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply_execution(ExecutionConfig())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused_before_anything_is_set() -> None:
    apply_execution(ExecutionConfig(threads=1))
    with pytest.raises(ExecutionRefusedError, match="cuda was asked for and no CUDA device"):
        apply_execution(ExecutionConfig(device="cuda", threads=2, allow_tf32=True))
    assert torch.get_num_threads() == 1
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_an_identity_is_measured_not_copied_from_what_was_asked() -> None:
    asked = ExecutionConfig(threads=1, row_padding=8)
    apply_execution(asked)
    torch.set_num_threads(2)
    torch.backends.cudnn.allow_tf32 = True
    measured = measure_identity(asked, probe="feed")
    assert measured == ExecutionIdentity(
        torch=torch.__version__,
        numpy=np.__version__,
        device="cpu",
        capability=torch.backends.cpu.get_cpu_capability(),
        dtype="float32",
        threads=2,
        row_padding=8,
        matmul_tf32=False,
        cudnn_tf32=True,
        packed_weights=can_pack("cpu"),
        compile_model=False,
        cuda_graphs=False,
        probe="feed",
    )


def test_the_engines_identity_is_that_of_its_process(engine: Engine) -> None:
    apply_execution(engine.execution)
    again = measure_identity(engine.execution, probe=engine.identity.probe)
    assert engine.identity == again
    assert engine.identity.digest() == again.digest()


def test_weights_are_packed_where_asked_and_where_that_can_be() -> None:
    assert packs_weights(ExecutionConfig()) == can_pack("cpu")
    assert not packs_weights(ExecutionConfig(packed_weights=False))
    assert not packs_weights(ExecutionConfig(compile_model=True))
    assert not packs_weights(ExecutionConfig(device="cuda"))


def test_dtypes_are_torchs() -> None:
    assert torch_dtype(ExecutionConfig(dtype="float32")) is torch.float32
    assert torch_dtype(ExecutionConfig(dtype="bfloat16")) is torch.bfloat16
