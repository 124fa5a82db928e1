"""SNAC weights: names and shapes checked, weight norm folded, nothing taken on trust.

Class of the folding: bit-exact. A weight-normed convolution recomputes the same product of the
same tensors at every call; here it is computed once (measured: equal bits on the starter's decoder
for windows of 1 to 90 frames).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import torch
from snac import SNAC
from torch import Tensor, nn
from torch.nn.utils import parametrize

from engine.codec_config import SnacConfig
from engine.errors import ManifestError, PackMismatchError
from engine.shown import shown_name

# How a weight `<layer>.weight` may be spelt as a norm and a direction: by torch's
# parametrizations, and by the older hook.
_SPELLINGS: Final = (
    ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    ("weight_g", "weight_v"),
)
_NAMED_AT_MOST: Final = 12


def snac_shapes(
    config: SnacConfig, names: Collection[str], *, decode_only: bool
) -> dict[str, tuple[int, ...]]:
    """Every tensor that `load_snac` needs and its shape, spelt as `names` spell the weights.

    Raises `ManifestError` for a config whose parts do not fit each other.
    """
    return _spelt(_plain_shapes(_skeleton(config, decode_only=decode_only)), names)[0]


def load_snac(config: SnacConfig, state: Mapping[str, Tensor], *, decode_only: bool) -> Any:
    """A `snac.SNAC` on the CPU in float32 with plain weights.

    With `decode_only` it has no encoder, and `encoder.*` tensors are neither needed nor read.
    Raises `PackMismatchError` listing every tensor that is missing, unexpected, of another shape,
    or not finite.
    """
    model = _skeleton(config, decode_only=decode_only)
    shapes, sources = _spelt(_plain_shapes(model), state)
    _require_shapes(shapes, state, ignored="encoder." if decode_only else None)
    weights = {
        name: _folded([_float32(source, state[source]) for source in spelt])
        for name, spelt in sources.items()
    }
    _refuse({"not finite": [name for name, w in weights.items() if not bool(w.isfinite().all())]})
    model.load_state_dict(weights, assign=True)
    return model.eval().requires_grad_(False)


def _skeleton(config: SnacConfig, *, decode_only: bool) -> Any:
    """SNAC without storage: building it fills no weights, so it draws no random numbers."""
    encoded = config.encoder_dim * 2 ** len(config.encoder_rates)
    if not decode_only and config.latent_dim != encoded:
        raise ManifestError("latent_dim", f"must be {encoded}, which the encoder gives")
    with torch.device("meta"):
        model = SNAC(**config.arguments())
    if decode_only:
        model.encoder = nn.Identity()
    for module in model.modules():
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    return model


def _plain_shapes(skeleton: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}


def _spelt(
    plain: Mapping[str, tuple[int, ...]], names: Collection[str]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[str, ...]]]:
    """The shapes of the tensors that are read, and of which of them each plain weight is made."""
    shapes: dict[str, tuple[int, ...]] = {}
    sources: dict[str, tuple[str, ...]] = {}
    for name, shape in plain.items():
        spelt = sources[name] = _sources(name, names)
        shapes[spelt[-1]] = shape
        if len(spelt) > 1:  # a norm for each row of the direction
            shapes[spelt[0]] = (shape[0], *[1] * (len(shape) - 1))
    return shapes, sources


def _sources(name: str, names: Collection[str]) -> tuple[str, ...]:
    if name not in names and name.endswith(".weight"):
        layer = name.removesuffix("weight")
        for norm, direction in _SPELLINGS:
            if layer + norm in names or layer + direction in names:
                return layer + norm, layer + direction
    return (name,)


def _require_shapes(
    shapes: Mapping[str, tuple[int, ...]], state: Mapping[str, Tensor], *, ignored: str | None
) -> None:
    """Names, then shapes, before any value is read: torch's own folding divides by a shape."""
    _refuse(
        {
            "missing": [name for name in shapes if name not in state],
            "unexpected": [
                shown_name(name)
                for name in state
                if name not in shapes and not (ignored and name.startswith(ignored))
            ],
        }
    )
    found = {name: tuple(state[name].shape) for name in shapes}
    _refuse(
        {
            "of another shape": [
                f"{name} {found[name]} instead of {shape}"
                for name, shape in shapes.items()
                if found[name] != shape
            ]
        }
    )


def _folded(tensors: Sequence[Tensor]) -> Tensor:
    """A weight of its own, from itself or from its norm and direction."""
    if len(tensors) == 1:
        return tensors[0].clone()
    norm, direction = tensors
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
