"""SNAC's decoder for the CPU: the same mathematics in another layout, faster and steadier.

Class: equivalent. Against SNAC's own modules on the same noise the measured error is below 1e-6
of full scale, and every choice here is for one of two ends:

* Bits that depend on nothing but the samples. torch picks a convolution kernel by the length and
  by the number of threads; called directly, oneDNN's kernel gave every sample the same bits
  whatever the length of the window around it and with one thread or two (measured under SSE4.1,
  AVX2 and AVX-512, for the starter and for SNAC 24 kHz). So decoding window by window gives the
  bits of decoding the whole, and the thread count moves none.
* Speed. Activations lie time-major, `(T, C)`, which is oneDNN's channels-last: its depthwise
  kernels then need no reordering. Elementwise work runs in tiles that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from snac.layers import DecoderBlock, NoiseBlock, ResidualUnit, Snake1d
from torch import Tensor, nn
from torch.nn import functional as F

from engine.codec_noise import NoiseSource

_TILE_ELEMENTS: Final = 1 << 16  # a thread's share: source, result and scratch fit its cache


@dataclass(frozen=True, slots=True)
class _Conv:
    """A convolution of stride 1 that keeps its length: `(T, C)` to `(T, C')`."""

    weight: Tensor  # (C', C / groups, 1, K), or (C', C / groups, K, 1) when dilated
    bias: Tensor | None
    padding: int
    dilation: int
    groups: int

    @classmethod
    def of(cls, module: Any) -> _Conv:
        dilation, kernel = module.dilation[0], module.kernel_size[0]
        weight = module.weight[:, :, None] if dilation == 1 else module.weight[..., None]
        return cls(
            weight.contiguous(memory_format=torch.channels_last),
            module.bias,
            dilation * (kernel // 2),
            dilation,
            module.groups,
        )

    def __call__(self, x: Tensor) -> Tensor:
        if self.dilation == 1:
            return _onednn(x[None], self.weight, self.bias, (0, self.padding), self.groups)[0]
        # Taps that are d samples apart are neighbours in a column of a picture d samples wide, for
        # which oneDNN has a fast kernel. Zeros that fill the last row are the padding's own.
        length, d = len(x), self.dilation
        picture = F.pad(x, (0, 0, 0, -length % d)).view(-1, d, x.shape[1])
        padding = (self.padding // d, 0)
        y = _onednn(picture, self.weight, self.bias, padding, self.groups)
        return y.reshape(-1, y.shape[2])[:length]


@dataclass(frozen=True, slots=True)
class _Upsample:
    """A transposed convolution of kernel 2s and stride s: `(T, C)` to `(T * s, C')`.

    Every output sample hears two inputs at most, so it is one matrix product for all taps and one
    addition of neighbours.
    """

    taps: _Conv  # to (T, 2 * s * C'), the bias in its first half
    edge: Tensor  # (s * C'), the bias: what precedes the additions past the last input
    rate: int
    padding: int

    @classmethod
    def of(cls, module: Any) -> _Upsample:
        rate = module.stride[0]
        taps = module.weight.permute(2, 1, 0).flatten(0, 1)[:, :, None, None]
        edge = module.bias.repeat(rate)
        return cls(
            _Conv(
                taps.contiguous(memory_format=torch.channels_last),
                torch.cat([edge, torch.zeros_like(edge)]),
                padding=0,
                dilation=1,
                groups=1,
            ),
            edge,
            rate,
            module.padding[0],
        )

    def __call__(self, x: Tensor) -> Tensor:
        length = len(x)
        near, far = self.taps(x).chunk(2, dim=1)
        summed = torch.empty(length + 1, len(self.edge))
        summed[:length] = near
        summed[length] = self.edge
        summed[1:] += far
        return summed.view(-1, len(self.edge) // self.rate)[self.padding :][: length * self.rate]


@dataclass(frozen=True, slots=True)
class _Snake:
    """`x + sin(alpha * x)^2 / alpha`, tile by tile."""

    alpha: Tensor  # (C,)
    inverse: Tensor  # (C,)

    @classmethod
    def of(cls, module: Any) -> _Snake:
        alpha = module.alpha.flatten()
        return cls(alpha, (alpha + 1e-9).reciprocal())

    def __call__(self, x: Tensor, *, into: Tensor) -> Tensor:
        elements = _TILE_ELEMENTS * torch.get_num_threads()
        rows = min(len(x), max(1, elements // len(self.alpha)))
        alpha, inverse = self.alpha.repeat(rows), self.inverse.repeat(rows)
        scratch = torch.empty_like(alpha)
        source, target = x.view(-1), into.view(-1)
        for start in range(0, len(source), len(alpha)):
            tile = source[start : start + len(alpha)]
            n = len(tile)
            wave = torch.mul(tile, alpha[:n], out=scratch[:n]).sin_()
            wave.mul_(wave).mul_(inverse[:n])
            torch.add(tile, wave, out=target[start : start + n])
        return into


@dataclass(frozen=True, slots=True)
class _Noise:
    """`x + noise * linear(x)`, one number for all channels of a sample."""

    linear: _Conv
    layer: int

    def __call__(self, x: Tensor, noise: NoiseSource) -> Tensor:
        return self.linear(x).mul_(noise(self.layer, len(x))[:, None]).add_(x)


@dataclass(frozen=True, slots=True)
class _Residual:
    """`x + unit(x)`: snake, convolution over time, snake, convolution over channels."""

    snakes: tuple[_Snake, _Snake]
    convs: tuple[_Conv, _Conv]

    @classmethod
    def of(cls, module: Any) -> _Residual:
        snake, conv, second_snake, second_conv = module.block
        return cls(
            (_Snake.of(snake), _Snake.of(second_snake)), (_Conv.of(conv), _Conv.of(second_conv))
        )

    def __call__(self, x: Tensor) -> Tensor:
        y = self.convs[0](self.snakes[0](x, into=torch.empty_like(x)))
        return self.convs[1](self.snakes[1](y, into=y)).add_(x)


_Step: TypeAlias = _Conv | _Upsample | _Snake | _Noise | _Residual


class HostDecoder:
    """A `LatentDecoder` over the weights of a SNAC decoder without weight norm, on the CPU."""

    def __init__(self, decoder: Any) -> None:
        self._steps: tuple[_Step, ...] = tuple(_steps(decoder.model))

    def __call__(self, latents: Tensor, noise: NoiseSource) -> Tensor:
        """Decode; see `LatentDecoder`. A step may overwrite what it is given."""
        x = latents
        for step in self._steps:
            if isinstance(step, _Snake):
                x = step(x, into=x)
            elif isinstance(step, _Noise):
                x = step(x, noise)
            else:
                x = step(x)
        return x.view(-1).tanh_()


def project_codebook(quantizer: Any) -> Tensor:
    """What each code of a SNAC quantizer adds to the latents: `(codebook_size, latent_dim)`."""
    return _Conv.of(quantizer.out_proj)(quantizer.codebook.weight)


def _steps(modules: Iterable[Any]) -> Iterator[_Step]:
    layer = 0
    for module in modules:
        for part in module.block if isinstance(module, DecoderBlock) else (module,):
            if isinstance(part, Snake1d):
                yield _Snake.of(part)
            elif isinstance(part, ResidualUnit):
                yield _Residual.of(part)
            elif isinstance(part, NoiseBlock):
                yield _Noise(_Conv.of(part.linear), layer)
                layer += 1
            elif isinstance(part, nn.ConvTranspose1d):
                yield _Upsample.of(part)
            elif isinstance(part, nn.Conv1d):
                yield _Conv.of(part)


def _onednn(
    picture: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], groups: int
) -> Tensor:
    """A two-dimensional convolution of `(H, W, C)`, by oneDNN whatever the size: `(H, W, C')`.

    A build of torch without oneDNN takes its own kernel; the execution identity tells them apart.
    """
    if not torch._C._has_mkldnn:
        plain = F.conv2d(
            picture[None].permute(0, 3, 1, 2), weight, bias, padding=padding, groups=groups
        )
        return plain[0].permute(1, 2, 0)
    result: Tensor = torch.ops.aten.mkldnn_convolution(
        picture[None].permute(0, 3, 1, 2), weight, bias, padding, (1, 1), (1, 1), groups
    )
    return result[0].permute(1, 2, 0)
