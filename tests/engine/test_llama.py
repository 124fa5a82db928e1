"""Our Llama against transformers', and the independence of a row from its batch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.errors import ManifestError, PackMismatchError, WindowOverflowError
from engine.llama import (
    KVCache,
    Llama,
    _attend_alone,
    _attend_masked,
    can_pack,
    load_llama,
    prefill,
    rope_table,
    step,
)
from engine.llama_config import LlamaConfig, RopeScaling, read_llama_config
from tests.fakes import random_llama_state, tiny_llama_config

SCALING = RopeScaling(8.0, 1.0, 4.0, 64)
SHAPES = [
    pytest.param(kv, tied, scaling, id=f"kv{kv}-{'tied' if tied else 'untied'}-{name}")
    for kv in (1, 2, 4)
    for tied in (True, False)
    for name, scaling in (("plain", None), ("llama3", SCALING))
]


def _reference(config: LlamaConfig, state: dict[str, Tensor]) -> Any:
    from transformers import LlamaConfig as ReferenceConfig
    from transformers import LlamaForCausalLM

    sizes = asdict(config)
    scaling = sizes.pop("rope_scaling")
    theta = sizes.pop("rope_theta")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if scaling:
        rope = {"rope_type": "llama3", "rope_theta": theta, **scaling}
    model = LlamaForCausalLM(
        ReferenceConfig(**sizes, rope_parameters=rope, attn_implementation="eager")
    )
    model.load_state_dict(state, strict=False)
    if config.tie_word_embeddings:
        model.tie_weights()
    return model.eval()


def _load(config: LlamaConfig, state: dict[str, Tensor], *, packed: bool = False) -> Llama:
    return load_llama(config, state, device="cpu", dtype=torch.float32, packed=packed)


PACKED = pytest.mark.parametrize(
    "packed",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(not can_pack("cpu"), reason="torch without oneDNN here"),
        ),
    ],
)


@PACKED
@pytest.mark.parametrize(("kv_heads", "tied", "scaling"), SHAPES)
def test_logits_and_greedy_tokens_are_those_of_transformers(
    kv_heads: int, tied: bool, scaling: RopeScaling | None, packed: bool
) -> None:
    config = tiny_llama_config(kv_heads=kv_heads, tied=tied, scaling=scaling)
    state = random_llama_state(config, seed=kv_heads)
    ours, reference = _load(config, state, packed=packed), _reference(config, state)
    prompt = [3, 14, 15, 92, 65, 35]
    cache = KVCache(ours, slots=1, capacity=256)
    hidden = prefill(ours, cache, 0, prompt)[None]
    tokens, past = list(prompt), None
    for _ in range(200):
        with torch.inference_mode():
            logits = torch.nn.functional.linear(hidden, ours.head)[0]
            new = tokens if past is None else tokens[-1:]
            said = reference(torch.tensor([new]), past_key_values=past, use_cache=True)
            wanted, past = said.logits[0, -1], said.past_key_values
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=0)
        assert int(logits.argmax()) == int(wanted.argmax())
        tokens.append(int(logits.argmax()))
        hidden = step(ours, cache, [0], tokens[-1:], row_padding=4)


def _hidden_rows(model: Llama, slots: list[int], prompts: list[list[int]]) -> list[Tensor]:
    """Four steps of every prompt, together, each in its slot; `(5, D)` a prompt."""
    cache = KVCache(model, slots=max(slots) + 1, capacity=128)
    rows = [[prefill(model, cache, s, p)] for s, p in zip(slots, prompts, strict=True)]
    for number in range(4):
        ids = [(7 * len(p) + number) % model.config.vocab_size for p in prompts]
        for row, hidden in zip(rows, step(model, cache, slots, ids, row_padding=4), strict=True):
            row.append(hidden)
    return [torch.stack(row) for row in rows]


@PACKED
def test_a_row_has_the_same_bits_whatever_slot_and_batch_it_is_in(packed: bool) -> None:
    config = tiny_llama_config()
    model = _load(config, random_llama_state(config, seed=5), packed=packed)
    prompts = [[n % 97 for n in range(start, start + 3 + 11 * start)] for start in range(1, 9)]
    together = _hidden_rows(model, list(range(8)), prompts)
    for index, prompt in enumerate(prompts):
        alone = _hidden_rows(model, [0], [prompt])[0]
        assert torch.equal(alone, together[index])
    scattered = _hidden_rows(model, [11, 2, 7], [prompts[6], prompts[0], prompts[3]])
    assert torch.equal(scattered[0], together[6])
    assert torch.equal(scattered[2], together[3])


def test_a_slot_that_was_used_before_leaves_nothing_behind() -> None:
    config = tiny_llama_config()
    model = _load(config, random_llama_state(config, seed=6))
    cache = KVCache(model, slots=1, capacity=64)
    prefill(model, cache, 0, list(range(60)))
    used = prefill(model, cache, 0, [1, 2, 3])
    fresh = prefill(model, KVCache(model, slots=1, capacity=64), 0, [1, 2, 3])
    assert torch.equal(used, fresh)


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_the_masked_path_attends_to_what_the_single_path_does(kv_heads: int) -> None:
    config = tiny_llama_config(kv_heads=kv_heads)
    model = _load(config, random_llama_state(config, seed=7))
    generator = torch.Generator().manual_seed(1)
    rows, slots, lengths = 5, [4, 0, 2], [17, 3, 70]
    q = torch.randn((rows, 4, 8), generator=generator)
    k, v = (torch.randn((rows, kv_heads, 8), generator=generator) for _ in range(2))
    outputs = []
    for attend in (_attend_alone, _attend_masked):
        cache = KVCache(model, slots=6, capacity=100)
        filling = torch.Generator().manual_seed(2)
        cache.keys[0].copy_(torch.randn(cache.keys[0].shape, generator=filling))
        cache.values[0].copy_(torch.randn(cache.values[0].shape, generator=filling))
        which, at = torch.tensor(slots), torch.tensor(lengths)
        cache.keys[0][which, :, at] = k[: len(slots)]
        cache.values[0][which, :, at] = v[: len(slots)]
        outputs.append(attend(model, cache, 0, slots, lengths, q)[: len(slots)])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-6, rtol=0)


def test_a_full_slot_and_a_long_prompt_are_refused() -> None:
    config = tiny_llama_config()
    model = _load(config, random_llama_state(config, seed=8))
    cache = KVCache(model, slots=1, capacity=4)
    with pytest.raises(WindowOverflowError):
        prefill(model, cache, 0, [1] * 5)
    prefill(model, cache, 0, [1] * 4)
    with pytest.raises(WindowOverflowError):
        step(model, cache, [0], [1], row_padding=4)
    with pytest.raises(WindowOverflowError):
        KVCache(model, slots=1, capacity=513)


def test_tensors_that_do_not_fit_are_listed() -> None:
    config = tiny_llama_config()
    state = random_llama_state(config, seed=9)
    state["model.surplus"] = state.pop("model.layers.1.mlp.up_proj.weight")
    with pytest.raises(PackMismatchError, match=r"up_proj.*model\.surplus"):
        _load(config, state)
    state = random_llama_state(config, seed=9)
    state["model.norm.weight"] = torch.zeros(31)
    with pytest.raises(PackMismatchError, match="norm"):
        _load(config, state)
    state = random_llama_state(config, seed=9)
    state["model.norm.weight"][3] = torch.nan
    with pytest.raises(PackMismatchError, match="finite"):
        _load(config, state)
    state = random_llama_state(config, seed=9)
    state["lm_head.weight"] = state["model.embed_tokens.weight"] + 1
    with pytest.raises(PackMismatchError, match="tied"):
        _load(config, state)


GOOD = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "tie_word_embeddings": True,
}  # fmt: skip


def test_a_config_is_read_and_its_head_size_follows() -> None:
    config = read_llama_config(GOOD)
    assert config == tiny_llama_config()
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    assert read_llama_config({**GOOD, "rope_scaling": llama3}).rope_scaling == SCALING
    newer = {k: v for k, v in GOOD.items() if k != "rope_theta"}
    newer["rope_parameters"] = {**llama3, "rope_theta": 1e4}
    assert read_llama_config(newer).rope_scaling == SCALING


@pytest.mark.parametrize(
    ("key", "value"),
    [("model_type", "mistral"), ("hidden_size", 32.5), ("hidden_size", True), ("vocab_size", 0),
     ("hidden_act", "gelu"), ("attention_bias", True), ("num_key_value_heads", 3),
     ("rms_norm_eps", 0), ("rope_theta", "1e4"),
     ("rope_scaling", {"rope_type": "yarn", "factor": 2.0})],
)  # fmt: skip
def test_what_is_not_computed_here_is_refused_by_its_key(key: str, value: object) -> None:
    with pytest.raises(ManifestError) as refused:
        read_llama_config({**GOOD, key: value})
    assert key in refused.value.key or key in str(refused.value)


LLAMA3: dict[str, object] = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
COUNTED = [key for key, value in GOOD.items() if type(value) is int]
NO_COUNT: list[object] = [10**400, 2**31, -1, 0, 1e300, "8", [8], {}, float("nan")]
NO_NUMBER: list[object] = [10**400, 1e300, 5e-324, -1.0, 0, True, "8", [8], float("nan")]
NO_BLOCK: list[object] = ["llama3", [1], 7, True]
NO_FLAG: list[object] = ["false", 0, None, []]


def _no_setting(key: str) -> list[object]:
    """What a setting of the scaling cannot be."""
    if key == "rope_type":
        return ["llama2", ["llama3"], {}, 7]
    counted = key == "original_max_position_embeddings"
    return [*(NO_COUNT if counted else NO_NUMBER), None]


def _in(block: str, key: str, value: object) -> dict[str, object]:
    return {block: LLAMA3 | {key: value}}


BLOCKS = ("rope_scaling", "rope_parameters")
BROKEN: list[tuple[str, dict[str, object]]] = [
    *[(key, {key: value}) for key in COUNTED for value in NO_COUNT],
    *[(key, {key: value}) for key in ("rms_norm_eps", "rope_theta") for value in NO_NUMBER],
    *[(f"{b}.{k}", _in(b, k, value)) for b in BLOCKS for k in LLAMA3 for value in _no_setting(k)],
    *[(block, {block: value}) for block in BLOCKS for value in NO_BLOCK],
    *[("tie_word_embeddings", {"tie_word_embeddings": value}) for value in NO_FLAG],
    ("max_position_embeddings", {"max_position_embeddings": 10**15}),
    ("head_dim", {"hidden_size": 33}),
    ("head_dim", {"num_attention_heads": 64, "num_key_value_heads": 64}),
    ("head_dim", {"head_dim": 10**400}),
    ("rope_scaling.rope_type", {"rope_scaling": {"factor": 8.0}}),
    ("rope_scaling.low_freq_factor", {"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}),
    ("rope_scaling.low_freq_factor", {"rope_scaling": LLAMA3 | {"low_freq_factor": 5.0}}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.5}),
    ("rope_parameters.partial_rotary_factor", {"rope_parameters": {"partial_rotary_factor": 0.5}}),
    ("rope_parameters.rope_theta", {"rope_parameters": {"rope_theta": 2e4}}),
    ("rope_parameters.rope_theta", {"rope_parameters": {"rope_theta": 10**400}}),
    (
        "rope_scaling.rope_type",
        {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default"}},
    ),
]


@pytest.mark.parametrize(("key", "changes"), BROKEN)
def test_a_config_that_cannot_be_is_refused_by_its_key(
    key: str, changes: dict[str, object]
) -> None:
    with pytest.raises(ManifestError) as refused:
        read_llama_config({**GOOD, **changes})
    assert refused.value.key == key
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("changes", "scaling"),
    [
        ({"rope_scaling": None, "rope_parameters": None}, None),
        ({"rope_scaling": {}, "rope_parameters": {}}, None),
        ({"rope_scaling": {"type": "default", "factor": 8.0}}, None),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}, None),
        ({"rope_parameters": {"rope_theta": 10_000, "partial_rotary_factor": 1.0}}, None),
        ({"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 1e4}}, SCALING),
        ({"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"rope_theta": 1e4}}, SCALING),
        ({"partial_rotary_factor": None, "head_dim": None}, None),
    ],
)
def test_ways_to_write_the_same_config(
    changes: dict[str, object], scaling: RopeScaling | None
) -> None:
    config = read_llama_config({**GOOD, **changes})
    assert config == tiny_llama_config(scaling=scaling)


@pytest.mark.parametrize("theta", [1.0, 1e12])
@pytest.mark.parametrize("factors", [(1.0, 1e-3, 1e6), (1e6, 1.0, 1.0000001), (1e6, 1e-3, 2e-3)])
def test_a_config_that_is_read_gives_a_finite_table(
    theta: float, factors: tuple[float, float, float]
) -> None:
    factor, low, high = factors
    scaling = {**LLAMA3, "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    longest = 1 << 20
    changes = {"rope_theta": theta, "rope_scaling": scaling, "max_position_embeddings": longest}
    config = read_llama_config({**GOOD, **changes})
    for table in rope_table(config, longest):
        assert table.isfinite().all()


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        ("model.rotary_emb.inv_freq", True),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", True),
        ("model.layers.1.self_attn.rotary_emb.inv_freq", True),
        ("model.layers.2.self_attn.rotary_emb.inv_freq", False),
        ("model.layers.00.self_attn.rotary_emb.inv_freq", False),
        ("model.layers.\u0661.self_attn.rotary_emb.inv_freq", False),
        ("model.layers.0.mlp.rotary_emb.inv_freq", False),
        ("model.layers.99999999999999999999.self_attn.rotary_emb.inv_freq", False),
        ("vision.rotary_emb.inv_freq", False),
        ("rotary_emb.inv_freq", False),
    ],
)
def test_only_a_rotary_buffer_may_be_left_over(name: str, follows: bool) -> None:
    config = tiny_llama_config()
    assert config.is_rotary_buffer(name) is follows
    state = random_llama_state(config, seed=9) | {name: torch.ones(4)}
    if follows:
        _load(config, state)
    else:
        with pytest.raises(PackMismatchError, match="not placed"):
            _load(config, state)
