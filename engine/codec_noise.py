"""SNAC's decoder run step by step, its noise handed in instead of drawn from a global generator.

`snac.NoiseBlock` calls the global `torch.randn`. Here a decode is a function of its latents and of
a `NoiseSource`, which every call brings along: two decodes of one codec at once share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import torch
from snac.layers import DecoderBlock, NoiseBlock, ResidualUnit, Snake1d
from torch import Tensor, nn

from engine.codec_config import SnacConfig
from engine.philox import derive, normals

# (noise layer, samples) -> standard normals `(samples,)`, on the decoder's device.
NoiseSource: TypeAlias = Callable[[int, int], Tensor]


class LatentDecoder(Protocol):
    """Turns latents `(T, latent_dim)` into samples `(T * hop,)`."""

    def __call__(self, latents: Tensor, noise: NoiseSource) -> Tensor: ...


def philox_noise(
    config: SnacConfig, *, seed: int, stream: int, first_frame: int, device: torch.device
) -> NoiseSource:
    """The noise of a decode that starts at an absolute frame.

    Sample n of layer l, counted from frame 0 at that layer's rate, is sample n of
    `normals(derive(seed, stream), stream, l, ...)`; layers are the noise blocks in order. It is
    drawn on the host, so every device hears the same numbers.
    """
    key = derive(seed, stream)

    def draw(layer: int, samples: int) -> Tensor:
        start = first_frame * config.stage_samples_per_frame[layer]
        return torch.from_numpy(normals(key, stream, layer, start, samples)).to(device)

    return draw


class PlainDecoder:
    """SNAC's own modules in their own layout: for accelerators, and as the reference on the CPU.

    Class: bit-exact with `snac.SNAC` under the same noise (measured on the CPU, one thread). Its
    scripted snake is replaced by the same operations run eagerly, because the script may be fused
    into another kernel after its first calls, and in place, which is faster.
    """

    def __init__(self, decoder: Any) -> None:
        self._modules: tuple[Any, ...] = tuple(decoder.model)

    def __call__(self, latents: Tensor, noise: NoiseSource) -> Tensor:
        """Decode; see `LatentDecoder`."""
        layer = 0
        x = latents.t()[None].contiguous()
        for module in self._modules:
            if not isinstance(module, DecoderBlock):
                x = self._step(module, x)
                continue
            for part in module.block:
                if isinstance(part, NoiseBlock):
                    drawn = noise(layer, x.shape[-1])
                    x = part.linear(x).mul_(drawn).add_(x)
                    layer += 1
                else:
                    x = self._step(part, x)
        return x[0, 0]

    def _step(self, module: Any, x: Tensor) -> Tensor:
        """One module; it may overwrite what it is given, except in a residual unit."""
        if isinstance(module, ResidualUnit):
            return self._residual(module.block, x)
        if isinstance(module, Snake1d):
            return x.add_(_snake_wave(x, module.alpha))
        if isinstance(module, nn.Tanh):
            return x.tanh_()
        result: Tensor = module(x)
        return result

    def _residual(self, block: Iterable[Any], x: Tensor) -> Tensor:
        first, *rest = block
        y = _snake_wave(x, first.alpha).add_(x)
        for module in rest:
            y = self._step(module, y)
        return y.add_(x)


def _snake_wave(x: Tensor, alpha: Tensor) -> Tensor:
    """What snake adds to x: `sin(alpha * x)^2 / alpha`, in snac's order of operations."""
    wave = torch.mul(x, alpha).sin_()
    return wave.mul_(wave).mul_((alpha + 1e-9).reciprocal())
