"""The probe at load: it passes where rows keep their bits, refuses where they do not, and tells
machines and weights apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import engine.invariance
from engine.engine import Engine, load_engine
from engine.errors import ExecutionRefusedError
from engine.execution import ExecutionConfig
from engine.invariance import probe_invariance
from engine.llama import KVCache, Llama, load_llama, prefill, step
from engine.llama_config import LlamaConfig
from engine.pack import Pack
from tests.fakes import random_llama_state, tiny_llama_config

EXECUTION = ExecutionConfig()
Step = Callable[..., Tensor]


@pytest.fixture
def starter_model(engine: Engine) -> Llama:
    """The embedded pack's language model with plain weights: packed ones need no padding."""
    return load_engine(engine.pack, ExecutionConfig(packed_weights=False), slots=4).model


def loaded(config: LlamaConfig, state: dict[str, Tensor]) -> Llama:
    return load_llama(config, state, device="cpu", dtype=torch.float32)


def tiny(seed: int = 1, **changes: int) -> Llama:
    config = tiny_llama_config(**changes)  # type: ignore[arg-type]
    return loaded(config, random_llama_state(config, seed=seed))


def corrupted(change: Callable[[Tensor, Sequence[int], KVCache], Tensor]) -> Step:
    """A step whose hidden rows are changed by their company."""

    def corrupt(
        model: Llama, cache: KVCache, slots: Sequence[int], ids: Sequence[int], *, row_padding: int
    ) -> Tensor:
        return change(step(model, cache, slots, ids, row_padding=row_padding), slots, cache)

    return corrupt


def test_the_starter_passes_here(engine: Engine) -> None:
    digest = probe_invariance(engine.model, engine.execution, slots=16)
    assert re.fullmatch("[0-9a-f]{16}", digest)
    assert digest == engine.identity.probe


@pytest.mark.parametrize("slots", [1, 2, 4, 5, 9])
def test_the_digest_does_not_depend_on_the_slots_or_the_call(slots: int) -> None:
    model = tiny()
    assert probe_invariance(model, EXECUTION, slots=slots) == probe_invariance(
        model, EXECUTION, slots=4
    )


def test_the_digest_does_not_depend_on_what_ran_before() -> None:
    model = tiny()
    before = probe_invariance(model, EXECUTION, slots=4)
    torch.manual_seed(3)
    cache = KVCache(model, slots=1, capacity=64)
    prefill(model, cache, 0, [1, 2, 3])
    assert probe_invariance(model, EXECUTION, slots=4) == before


def test_other_weights_have_another_digest() -> None:
    digests = {probe_invariance(tiny(seed), EXECUTION, slots=4) for seed in range(5)}
    assert len(digests) == 5


@pytest.mark.parametrize("layer", [0, 1])
def test_one_weight_of_any_layer_moves_the_digest(layer: int) -> None:
    config = tiny_llama_config()
    state = random_llama_state(config, seed=1)
    before = probe_invariance(loaded(config, state), EXECUTION, slots=4)
    state[f"model.layers.{layer}.mlp.down_proj.weight"][0, 0] += 0.5
    assert probe_invariance(loaded(config, state), EXECUTION, slots=4) != before


def test_weights_in_another_dtype_have_another_digest() -> None:
    config = tiny_llama_config()
    state = random_llama_state(config, seed=1)
    wide = load_llama(config, state, device="cpu", dtype=torch.float32)
    narrow = load_llama(config, state, device="cpu", dtype=torch.bfloat16)
    try:
        digest = probe_invariance(narrow, replace(EXECUTION, dtype="bfloat16"), slots=4)
    except ExecutionRefusedError:
        pytest.skip("bfloat16 rows depend on their batch on this machine")
    assert digest != probe_invariance(wide, EXECUTION, slots=4)


def by_the_number_of_rows(hidden: Tensor, slots: Sequence[int], _: KVCache) -> Tensor:
    return hidden + 1e-3 * len(slots)


def by_the_last_bit(hidden: Tensor, slots: Sequence[int], _: KVCache) -> Tensor:
    return hidden if len(slots) == 1 else torch.nextafter(hidden, torch.tensor(torch.inf))


def by_one_value_of_one_row(hidden: Tensor, slots: Sequence[int], _: KVCache) -> Tensor:
    if len(slots) > 4:
        hidden = hidden.clone()
        hidden[1, -1] += 1e-3
    return hidden


def by_the_slot(hidden: Tensor, slots: Sequence[int], _: KVCache) -> Tensor:
    return hidden + 1e-3 * torch.tensor(list(slots))[:, None]


def by_the_longest_neighbour(hidden: Tensor, _: Sequence[int], cache: KVCache) -> Tensor:
    return hidden + 1e-6 * max(cache.lengths)


@pytest.mark.parametrize(
    "change",
    [
        by_the_number_of_rows,
        by_the_last_bit,
        by_one_value_of_one_row,
        by_the_slot,
        by_the_longest_neighbour,
    ],
)
def test_rows_that_depend_on_their_batch_are_refused(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor, Sequence[int], KVCache], Tensor]
) -> None:
    model = tiny()
    probe_invariance(model, EXECUTION, slots=4)
    monkeypatch.setattr(engine.invariance, "step", corrupted(change))
    with pytest.raises(ExecutionRefusedError) as refusal:
        probe_invariance(model, EXECUTION, slots=4)
    told = str(refusal.value)
    assert told.startswith("a row's bits depend on its batch here")
    assert "\n" not in told
    assert "dtype float32 on cpu with 1 threads and row_padding 4" in told


def test_the_refusal_names_the_batch_and_how_far_the_bits_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine.invariance, "step", corrupted(by_the_number_of_rows))
    with pytest.raises(ExecutionRefusedError) as refusal:
        probe_invariance(tiny(), EXECUTION, slots=6)
    told = str(refusal.value)
    assert "the last slot of a full batch (6 rows)" in told
    found = re.search(r"differ by up to (\S+)\.", told)
    assert found is not None
    assert float(found[1]) >= 4.9e-3  # six rows against one; the head may spread it further
    assert "A row_padding equal to the number of slots (6)" in told


def test_a_prompt_that_is_read_differently_beside_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def corrupt(model: Llama, cache: KVCache, slot: int, ids: Sequence[int]) -> Tensor:
        return prefill(model, cache, slot, ids) + 1e-3 * len(cache.lengths)

    monkeypatch.setattr(engine.invariance, "prefill", corrupt)
    with pytest.raises(ExecutionRefusedError):
        probe_invariance(tiny(), EXECUTION, slots=4)


def test_without_padding_the_kernels_of_this_cpu_are_refused(
    starter_model: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The padding is not for show: a product of one row is another kernel on most CPUs."""

    def unpadded(
        model: Llama, cache: KVCache, slots: Sequence[int], ids: Sequence[int], *, row_padding: int
    ) -> Tensor:
        return step(model, cache, slots, ids, row_padding=1)

    head, few = starter_model.head[:512], starter_model.embedding[:8].clone()
    if torch.equal(F.linear(few[:1], head)[0], F.linear(few, head)[0]):
        pytest.skip("this CPU has one kernel for all numbers of rows")
    monkeypatch.setattr(engine.invariance, "step", unpadded)
    with pytest.raises(ExecutionRefusedError):
        probe_invariance(starter_model, EXECUTION, slots=8)


def test_a_worker_on_such_a_machine_makes_no_engine(
    starter: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.invariance, "step", corrupted(by_the_number_of_rows))
    with pytest.raises(ExecutionRefusedError, match="bits depend on its batch"):
        load_engine(starter, EXECUTION, slots=4)
