"""The probe a worker runs at load: does this machine keep a row's bits whatever its batch?

Nobody promises that a matrix product gives a row the same bits in another batch; it was measured
on one machine and is checked on every other. The probe decodes a few fixed prompts on the real
weights, alone and beside others, and compares hidden rows bit for bit. A configuration that
fails is refused, since under it the promise of this product would be false.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.errors import ExecutionRefusedError
from engine.execution import ExecutionConfig
from engine.llama import KVCache, Llama, prefill, step

_STEPS = 2
_SHORT, _LONG = 5, 67
"""Prompt lengths beside the probed one: a short cache and a long one."""

_PROBED = 23
_HEAD_ROWS = 512
"""How much of the head is probed; kernels are chosen by the number of rows of the input."""


def probe_invariance(model: Llama, execution: ExecutionConfig, *, slots: int) -> str:
    """Raises `ExecutionRefusedError` naming the batch that moved a bit; a digest of the bits.

    The digest enters the execution identity: two machines that claim the same identity have
    computed the same hidden rows.
    """
    alone = _decode(model, execution, slots=1, at=0, fill=[])
    most = max(slots, execution.row_padding)
    layouts = {
        "the last slot of a full batch": (most, most - 1, [_SHORT, _LONG] * most),
        "the first slot of a full batch": (most, 0, [_LONG, _SHORT] * most),
        "one row more than the padding": (execution.row_padding + 1, 1, [_LONG] * (most + 1)),
    }
    for name, (count, at, fill) in layouts.items():
        beside = _decode(model, execution, slots=count, at=at, fill=fill)
        if not torch.equal(alone, beside):
            worst = (alone - beside).abs().max().item()
            raise ExecutionRefusedError(
                f"a row's bits depend on its batch here: alone and in {name} ({count} rows) they "
                f"differ by up to {worst:.3g}. Refused: dtype {execution.dtype} on "
                f"{execution.device} with {execution.threads} threads and row_padding "
                f"{execution.row_padding}. A row_padding equal to the number of slots "
                f"({most}), one thread or float32 may pass."
            )
    return hashlib.sha256(alone.cpu().float().numpy().tobytes()).hexdigest()[:16]


def _decode(
    model: Llama, execution: ExecutionConfig, *, slots: int, at: int, fill: list[int]
) -> Tensor:
    """What slot `at` among `slots` computes: hidden states of each step, then logits, `(n,)`."""
    cache = KVCache(model, slots=slots, capacity=_LONG + _STEPS + 1)
    states = []
    for slot in range(slots):
        length = _PROBED if slot == at else fill[slot]
        hidden = prefill(model, cache, slot, _prompt(model, length))
        if slot == at:
            states.append(hidden)
    for number in range(_STEPS):
        ids = [_token(model, slot + 3 * number) for slot in range(slots)]
        ids[at] = _token(model, 1000 + number)
        hidden = step(model, cache, list(range(slots)), ids, row_padding=execution.row_padding)
        states.append(hidden[at])
    # The head is a product of its own, over the same padded rows as the decoder's.
    missing = max(execution.row_padding - slots, 0)
    rows = torch.cat((hidden, hidden.new_zeros(missing, hidden.shape[1])))
    logits = F.linear(rows, model.head[:_HEAD_ROWS])[at]
    return torch.cat((*states, logits))


def _prompt(model: Llama, length: int) -> list[int]:
    return [_token(model, index) for index in range(length)]


def _token(model: Llama, index: int) -> int:
    """A fixed walk over the vocabulary; which ids they are does not matter."""
    return (index * 7919 + 13) % model.config.vocab_size
