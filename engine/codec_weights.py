"""SNAC weights: names and shapes checked, weight norm folded, nothing taken on trust.

Class of the folding: bit-exact. A weight-normed convolution recomputes the same product of the
same tensors at every call; here it is computed once (measured: equal bits on the starter's decoder
for windows of 1 to 90 frames).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from snac import SNAC
from torch import Tensor, nn
from torch.nn.utils import parametrize

from engine.codec_config import SnacConfig
from engine.errors import ManifestError, PackMismatchError

# How a weight `<layer>.weight` may be spelt as a norm and a direction: by torch's
# parametrizations, and by the older hook.
_SPELLINGS: Final = (
    ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    ("weight_g", "weight_v"),
)
_NAMED_AT_MOST: Final = 12


def load_snac(config: SnacConfig, state: Mapping[str, Tensor], *, decode_only: bool) -> Any:
    """A `snac.SNAC` on the CPU in float32 with plain weights.

    With `decode_only` it has no encoder, and `encoder.*` tensors are neither needed nor read.
    Raises `PackMismatchError` listing every tensor that is missing, unexpected, of another shape,
    or not finite.
    """
    expected_latent = config.encoder_dim * 2 ** len(config.encoder_rates)
    if not decode_only and config.latent_dim != expected_latent:
        raise ManifestError("latent_dim", f"must be {expected_latent}, which the encoder gives")
    model = _skeleton(config, decode_only=decode_only)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    weights, used, missing = _folded(shapes, state)
    unexpected = [
        name
        for name in state
        if name not in used and not (decode_only and name.startswith("encoder."))
    ]
    _refuse({"missing": missing, "unexpected": unexpected})
    misshapen = [
        f"{name} {tuple(weights[name].shape)} instead of {shape}"
        for name, shape in shapes.items()
        if tuple(weights[name].shape) != shape
    ]
    broken = [name for name, weight in weights.items() if not bool(weight.isfinite().all())]
    _refuse({"of another shape": misshapen, "not finite": broken})
    model.load_state_dict(weights, assign=True)
    return model.eval().requires_grad_(False)


def _skeleton(config: SnacConfig, *, decode_only: bool) -> Any:
    """SNAC without storage: building it fills no weights, so it draws no random numbers."""
    with torch.device("meta"):
        model = SNAC(**config.arguments())
    if decode_only:
        model.encoder = nn.Identity()
    for module in model.modules():
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    return model


def _folded(
    names: Mapping[str, object], state: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], set[str], list[str]]:
    """The named weights, the names in `state` that they took, and what is missing there."""
    weights: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    for name in names:
        sources = _sources(name, state)
        absent = [source for source in sources if source not in state]
        missing += absent
        if absent:
            continue
        used.update(sources)
        tensors = [_float32(source, state[source]) for source in sources]
        weights[name] = tensors[0].clone() if len(tensors) == 1 else _fold(sources, *tensors)
    return weights, used, missing


def _sources(name: str, state: Mapping[str, Tensor]) -> tuple[str, ...]:
    if name not in state and name.endswith(".weight"):
        layer = name.removesuffix("weight")
        for norm, direction in _SPELLINGS:
            if layer + norm in state or layer + direction in state:
                return layer + norm, layer + direction
    return (name,)


def _fold(names: Sequence[str], norm: Tensor, direction: Tensor) -> Tensor:
    if norm.shape != (direction.shape[0], *[1] * (direction.ndim - 1)):
        raise PackMismatchError(
            f"codec weights of another shape: {names[0]} {tuple(norm.shape)} is no norm of"
            f" {names[1]} {tuple(direction.shape)}"
        )
    return torch._weight_norm(direction, norm, 0)


def _float32(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        raise PackMismatchError(f"codec weights are {tensor.dtype}, not floats: {name}")
    return tensor.detach().to("cpu", torch.float32).contiguous()


def _refuse(faults: Mapping[str, Sequence[str]]) -> None:
    """Raise one line that lists every fault there is, each by tensor."""
    found = [f"{fault}: {_listed(names)}" for fault, names in faults.items() if names]
    if found:
        raise PackMismatchError(f"codec weights {'; '.join(found)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return ", ".join(sorted(names)[:_NAMED_AT_MOST]) + more
