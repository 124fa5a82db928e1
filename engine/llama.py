"""The language model: Llama's mathematics over a set of weights and a static KV cache.

Free functions and plain tensors; the loop that drives them is in `decode.py`. Two things here
are for the identity contract rather than for the model:

* On the CPU every row attends by itself, over its own exact cache. A row's bits then cannot
  depend on its batch-mates, and nothing is spent on padding: with mixed lengths that was
  1.5 times as fast as one masked call over all rows padded to the longest.
* Everything else is a row-wise operation or a matrix product. The products are the same bits
  for any number of rows from `ExecutionConfig.row_padding` up; `invariance.py` checks that on
  the machine at hand. Where oneDNN is there, their weights are packed for it once, at load.

Shapes: S rows, T prompt tokens, D hidden size, N query heads, K key/value heads, H head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.errors import PackMismatchError, WindowOverflowError
from engine.llama_config import LlamaConfig, RopeScaling

Product = Callable[[Tensor], Tensor]
"""A matrix product with a weight `(out, in)`: rows `(n, in)` become `(n, out)`."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One block; the three attention projections and the two gates are one product each."""

    input_norm: Tensor  # (D,)
    qkv: Product  # ((N + 2K) * H, D)
    out: Product  # (D, N * H)
    post_norm: Tensor  # (D,)
    gate_up: Product  # (2 * intermediate, D)
    down: Product  # (D, intermediate)


Project = Callable[[LlamaConfig, Layer, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
FeedForward = Callable[[LlamaConfig, Layer, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Llama:
    """A model ready to run: weights in one dtype on one device, its rotary table, its kernels."""

    config: LlamaConfig
    embedding: Tensor  # (V, D)
    layers: tuple[Layer, ...]
    final_norm: Tensor  # (D,)
    head: Tensor  # (V, D)
    cos: Tensor  # (positions, H) float32
    sin: Tensor  # (positions, H) float32
    project: Project
    feed_forward: FeedForward

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype


def load_llama(
    config: LlamaConfig,
    state: Mapping[str, Tensor],
    *,
    device: str,
    dtype: torch.dtype,
    packed: bool = False,
    compile_model: bool = False,
    cuda_graphs: bool = False,
) -> Llama:
    """Place Hugging Face tensors. `PackMismatchError` lists what is missing, extra or misshapen.

    `packed` keeps the layers' weights in oneDNN's layout; `compile_model` and `cuda_graphs` hand
    the row-wise mathematics to torch's compiler. The bits are then those of other kernels, class
    equivalent.
    """
    product = packed_product if packed else plain_product
    remaining = dict(state)
    missing: list[str] = []

    def take(name: str, *shape: int) -> Tensor:
        tensor = remaining.pop(name, None)
        if tensor is None:
            missing.append(name)
            return torch.empty(0)
        if tuple(tensor.shape) != shape:
            raise PackMismatchError(
                f"{name} has shape {tuple(tensor.shape)}, the config asks for {shape}"
            )
        if not torch.isfinite(tensor).all():
            raise PackMismatchError(f"{name} holds values that are not finite numbers")
        return tensor.to(device=device, dtype=dtype)

    c = config
    queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    embedding = take("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
    layers = []
    for index in range(c.num_hidden_layers):
        at = f"model.layers.{index}."
        q = take(at + "self_attn.q_proj.weight", queries, c.hidden_size)
        k = take(at + "self_attn.k_proj.weight", keys, c.hidden_size)
        v = take(at + "self_attn.v_proj.weight", keys, c.hidden_size)
        gate = take(at + "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size)
        up = take(at + "mlp.up_proj.weight", c.intermediate_size, c.hidden_size)
        layers.append(
            Layer(
                input_norm=take(at + "input_layernorm.weight", c.hidden_size),
                qkv=product(torch.cat((q, k, v))),
                out=product(take(at + "self_attn.o_proj.weight", c.hidden_size, queries)),
                post_norm=take(at + "post_attention_layernorm.weight", c.hidden_size),
                gate_up=product(torch.cat((gate, up))),
                down=product(take(at + "mlp.down_proj.weight", c.hidden_size, c.intermediate_size)),
            )
        )
    final_norm = take("model.norm.weight", c.hidden_size)
    if c.tie_word_embeddings:
        # Some exporters write the tied copy out; it must then be the same matrix.
        head, copy = embedding, remaining.pop("lm_head.weight", None)
        if copy is not None and not torch.equal(copy.to(device=device, dtype=dtype), embedding):
            raise PackMismatchError("lm_head.weight differs from the embedding it is tied to")
    else:
        head = take("lm_head.weight", c.vocab_size, c.hidden_size)
    extra = [name for name in remaining if not c.is_rotary_buffer(name)]
    if missing or extra:
        raise PackMismatchError(
            f"tensors that do not fit a {c.num_hidden_layers}-layer Llama: "
            f"missing {_listed(missing)}; not placed {_listed(extra)}"
        )
    cos, sin = rope_table(config, config.max_position_embeddings)
    project: Project = _project
    feed_forward: FeedForward = _feed_forward
    if compile_model or cuda_graphs:
        mode = "reduce-overhead" if cuda_graphs else "default"
        project = torch.compile(_project, dynamic=True, mode=mode)
        feed_forward = torch.compile(_feed_forward, dynamic=True, mode=mode)
    return Llama(
        config=config,
        embedding=embedding,
        layers=tuple(layers),
        final_norm=final_norm,
        head=head,
        cos=cos.to(device),
        sin=sin.to(device),
        project=project,
        feed_forward=feed_forward,
    )


def plain_product(weight: Tensor) -> Product:
    """The product as torch computes it from the weight as it is."""
    return lambda x: F.linear(x, weight)


def packed_product(weight: Tensor) -> Product:
    """The product by oneDNN, from a copy of the weight in the layout that it computes in.

    Packed once, 16 rows of the embedded pack cost 2.1 ms a step instead of 3.9, and a row's bits
    were the same for 2 to 300 rows. See `can_pack`.
    """
    held = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, held, None, "none", [], "")


def can_pack(device: str) -> bool:
    """Whether this torch has oneDNN's packed product for that device.

    Its two operators are the ones torch's compiler calls; they have no public name.
    """
    return (
        device == "cpu"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) if names else "none"


def rope_table(config: LlamaConfig, positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, each `(positions, H)` float32.

    Su et al., RoFormer (2021); the scaling is the one published with Llama 3.1.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    inverse = 1.0 / (config.rope_theta**half)
    if config.rope_scaling is not None:
        inverse = _scaled_frequencies(inverse, config.rope_scaling)
    angles = torch.outer(torch.arange(positions).float(), inverse)  # (positions, H/2)
    doubled = torch.cat((angles, angles), dim=-1)  # (positions, H)
    return doubled.cos(), doubled.sin()


def _scaled_frequencies(inverse: Tensor, scaling: RopeScaling) -> Tensor:
    wavelength = 2 * math.pi / inverse
    context = scaling.original_max_position_embeddings
    longest, shortest = context / scaling.low_freq_factor, context / scaling.high_freq_factor
    slowed = inverse / scaling.factor
    blend = (context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    between = (1 - blend) * slowed + blend * inverse
    scaled = torch.where(wavelength > longest, slowed, inverse)
    return torch.where((wavelength <= longest) & (wavelength >= shortest), between, scaled)


class KVCache:
    """Keys and values of every slot, allocated once: `(slots, K, capacity, H)` a layer.

    `lengths[slot]` is how many positions of a slot hold something. The space of a retired slot
    is reused by setting its length to 0; what lies beyond a length is never read.
    """

    def __init__(self, model: Llama, *, slots: int, capacity: int) -> None:
        if capacity > model.config.max_position_embeddings:
            raise WindowOverflowError(
                f"{capacity} positions a window are asked for, the model has "
                f"{model.config.max_position_embeddings}"
            )
        shape = (slots, model.config.num_key_value_heads, capacity, model.config.head_dim)
        self.keys, self.values = (
            [torch.zeros(shape, device=model.device, dtype=model.dtype) for _ in model.layers]
            for _ in ("keys", "values")
        )
        # One view a slot and layer, (1, K, capacity, H): cutting them anew each step costs more
        # than a short row's attention.
        self.keys_of, self.values_of = (
            [list(torch.split(layer, 1)) for layer in layers] for layers in (self.keys, self.values)
        )
        self.capacity = capacity
        self.lengths = [0] * slots


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm of each row, in float32 whatever the weights' dtype."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of `(..., heads, H)` by tables `(..., 1, H)`."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


def _project(
    config: LlamaConfig, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries `(rows, N, H)`, rotated keys and plain values `(rows, K, H)`."""
    heads = config.num_attention_heads
    turning = heads + config.num_key_value_heads
    qkv = layer.qkv(rms_norm(x, layer.input_norm, config.rms_norm_eps))
    qkv = qkv.view(x.shape[0], turning + config.num_key_value_heads, config.head_dim)
    turned = rotate(qkv[:, :turning], cos, sin)
    return turned[:, :heads], turned[:, heads:], qkv[:, turning:]


def _feed_forward(config: LlamaConfig, layer: Layer, x: Tensor, merged: Tensor) -> Tensor:
    """A block after attention: `merged` `(rows, N * H)` joins the stream `(rows, D)`."""
    x = x + layer.out(merged)
    normed = rms_norm(x, layer.post_norm, config.rms_norm_eps)
    gate, up = layer.gate_up(normed).chunk(2, dim=-1)
    return x + layer.down(F.silu(gate) * up)


@torch.inference_mode()
def prefill(model: Llama, cache: KVCache, slot: int, ids: Sequence[int]) -> Tensor:
    """Read a whole prompt into a slot, alone and at its exact length; the last hidden `(D,)`."""
    if len(ids) > cache.capacity:
        raise WindowOverflowError(
            f"a prompt of {len(ids)} tokens does not fit a cache of {cache.capacity}"
        )
    c, length = model.config, len(ids)
    x = model.embedding[torch.tensor(ids, device=model.device)]  # (T, D)
    cos, sin = model.cos[:length, None], model.sin[:length, None]  # (T, 1, H)
    for index, layer in enumerate(model.layers):
        q, k, v = model.project(model.config, layer, x, cos, sin)
        cache.keys[index][slot, :, :length] = k.transpose(0, 1)  # (K, T, H)
        cache.values[index][slot, :, :length] = v.transpose(0, 1)
        attended = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],  # (1, N, T, H)
            cache.keys[index][slot : slot + 1, :, :length],
            cache.values[index][slot : slot + 1, :, :length],
            is_causal=True,
            enable_gqa=c.num_key_value_heads != c.num_attention_heads,
        )
        merged = attended[0].transpose(0, 1).reshape(length, -1)  # (T, N * H)
        x = model.feed_forward(model.config, layer, x, merged)
    cache.lengths[slot] = length
    return rms_norm(x[-1:], model.final_norm, c.rms_norm_eps)[0]


@torch.inference_mode()
def step(
    model: Llama, cache: KVCache, slots: Sequence[int], ids: Sequence[int], *, row_padding: int
) -> Tensor:
    """Feed one token to each of `slots`; their hidden rows `(len(slots), D)`.

    Rows are padded to `row_padding` with token 0 and no attention, so that a nearly empty batch
    takes the same matrix kernels as a full one.
    """
    used = len(slots)
    padding = [0] * max(row_padding - used, 0)
    lengths = [cache.lengths[slot] for slot in slots]
    if used and max(lengths) >= cache.capacity:
        raise WindowOverflowError(f"a slot is full: {cache.capacity} positions")
    at = torch.tensor(lengths + padding, device=model.device)
    which = torch.tensor(list(slots), device=model.device)
    x = model.embedding[torch.tensor(list(ids) + padding, device=model.device)]  # (S, D)
    cos, sin = model.cos[at, None], model.sin[at, None]  # (S, 1, H)
    attend = _attend_alone if model.device.type == "cpu" else _attend_masked
    for index, layer in enumerate(model.layers):
        q, k, v = model.project(model.config, layer, x, cos, sin)
        cache.keys[index][which, :, at[:used]] = k[:used]
        cache.values[index][which, :, at[:used]] = v[:used]
        merged = attend(model, cache, index, slots, lengths, q)
        x = model.feed_forward(model.config, layer, x, merged)
    for slot in slots:
        cache.lengths[slot] += 1
    return rms_norm(x, model.final_norm, model.config.rms_norm_eps)[:used]


def _attend_alone(
    model: Llama,
    cache: KVCache,
    index: int,
    slots: Sequence[int],
    lengths: Sequence[int],
    q: Tensor,
) -> Tensor:
    """Each row over its own exact cache, one call a row; `(S, N * H)`, padding rows zero."""
    grouped = model.config.num_key_value_heads != model.config.num_attention_heads
    keys, values = cache.keys_of[index], cache.values_of[index]
    queries = torch.split(q[:, :, None], 1)  # S of (1, N, 1, H)
    attended = [
        F.scaled_dot_product_attention(
            query,
            keys[slot].narrow(2, 0, length + 1),
            values[slot].narrow(2, 0, length + 1),
            enable_gqa=grouped,
        )
        for query, slot, length in zip(queries, slots, lengths, strict=False)
    ]
    attended += [torch.zeros_like(query) for query in queries[len(slots) :]]
    return torch.cat(attended).view(q.shape[0], -1)


_CROP = 64
"""The masked cache is cropped to a multiple of this many positions."""


def _attend_masked(
    model: Llama,
    cache: KVCache,
    index: int,
    slots: Sequence[int],
    lengths: Sequence[int],
    q: Tensor,
) -> Tensor:
    """All rows in one call over the cache cropped to the longest; for a device where calls cost.

    `(S, N * H)`. Padding rows read slot 0 under a mask that shows them one position.
    """
    rows = q.shape[0]
    at = torch.tensor(list(lengths) + [0] * (rows - len(slots)), device=q.device)
    which = torch.tensor(list(slots) + [0] * (rows - len(slots)), device=q.device)
    crop = min(cache.capacity, -(-(max(lengths, default=0) + 1) // _CROP) * _CROP)
    shown = torch.arange(crop, device=q.device)[None] <= at[:, None]  # (S, crop)
    attended = F.scaled_dot_product_attention(
        q[:, :, None],  # (S, N, 1, H)
        cache.keys[index][which, :, :crop],
        cache.values[index][which, :, :crop],
        attn_mask=shown[:, None, None],
        enable_gqa=model.config.num_key_value_heads != model.config.num_attention_heads,
    )
    return attended.reshape(rows, -1)
