"""The codec: against SNAC itself, against itself in windows, and against everything around it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file
from snac import SNAC
from torch import Tensor

import engine
from engine.codec import SnacCodec
from engine.codec_config import SnacConfig, context_frames_needed
from engine.codec_noise import PlainDecoder, philox_noise
from engine.codec_weights import load_snac, snac_shapes
from engine.errors import (
    AudioNotFiniteError,
    DecodeOnlyError,
    ManifestError,
    PackMismatchError,
    TokenBandError,
)
from engine.frames import Codes, FrameShapeError, interleave
from engine.philox import CODEC_NOISE, derive, normals

STARTER: Final = Path(engine.__file__).parent / "packs" / "starter"
BASE: Final = 76

# SNAC 24 kHz in its published shape, with few channels and codes.
SNAC_24K: Final[dict[str, Any]] = {
    "sampling_rate": 24000,
    "encoder_dim": 4,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 64,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 32,
    "codebook_dim": 8,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}
STARTER_CONFIG: Final[dict[str, Any]] = json.loads((STARTER / "codec_config.json").read_text())


def random_state(config: dict[str, Any]) -> dict[str, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        state: dict[str, Tensor] = SNAC(**config).state_dict()
    return state


CONFIGS: Final = {"starter": STARTER_CONFIG, "snac_24k": SNAC_24K}
STATES: Final = {
    "starter": load_file(STARTER / "codec.safetensors"),
    "snac_24k": random_state(SNAC_24K),
}
CODECS: Final = {
    name: SnacCodec.load(CONFIGS[name], STATES[name], decode_only=True) for name in CONFIGS
}

each_codec = pytest.mark.parametrize("name", list(CODECS))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def some_codes(name: str, n_frames: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng([seed, n_frames])
    size = CONFIGS[name]["codebook_size"]
    return Codes(*(rng.integers(0, size, n_frames * k) for k in (1, 2, 4)))


def some_tokens(n_frames: int, seed: int = 0) -> list[int]:
    codes = some_codes("starter", n_frames, seed)
    return [int(t) for t in interleave(*codes.levels, audio_base=BASE, codebook_size=512)]


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def largest(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(np.abs(a.astype(np.float64) - b).max())


def snac_decode(
    name: str, codes: Codes, seed: int, monkeypatch: pytest.MonkeyPatch
) -> NDArray[np.float32]:
    """`snac.SNAC.decode` as published, weight norm and all, its randn answered by Philox."""
    model = SNAC(**CONFIGS[name]).eval()
    model.load_state_dict(STATES[name])
    layers = iter(range(99))

    def randn(shape: tuple[int, ...], **_: Any) -> Tensor:
        drawn = normals(derive(seed, CODEC_NOISE), CODEC_NOISE, next(layers), 0, shape[-1])
        return torch.from_numpy(drawn).reshape(shape)

    with monkeypatch.context() as patch, torch.inference_mode():
        patch.setattr(torch, "randn", randn)
        audio = model.decode([torch.from_numpy(level)[None] for level in codes.levels])
    assert next(layers) == 4  # all four noise blocks drew
    result: NDArray[np.float32] = audio[0, 0].numpy()
    return result


# Against SNAC


@each_codec
@pytest.mark.parametrize("n_frames", [1, 2, 7, 30])
def test_it_decodes_as_snac_does(name: str, n_frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = some_codes(name, n_frames)
    reference = snac_decode(name, codes, 5, monkeypatch)
    audio = CODECS[name].decode(codes, seed=5)
    assert audio.dtype == np.float32
    assert np.abs(reference).max() > 0.05  # there is something to compare
    assert largest(audio, reference) < 1e-6  # measured: 2e-7 here, 8e-7 at full width


@each_codec
@pytest.mark.parametrize("n_frames", [1, 7, 30])
def test_folded_weights_and_eager_modules_keep_snacs_bits(
    name: str, n_frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = some_codes(name, n_frames)
    reference = snac_decode(name, codes, 5, monkeypatch)
    config = SnacConfig.from_mapping(CONFIGS[name])
    model = load_snac(config, STATES[name], decode_only=True)
    noise = philox_noise(
        config, seed=5, stream=CODEC_NOISE, first_frame=0, device=torch.device("cpu")
    )
    with torch.inference_mode():
        latents = model.quantizer.from_codes([torch.from_numpy(c)[None] for c in codes.levels])
        plain = PlainDecoder(model.decoder)(latents[0].t(), noise).numpy()
    assert same_bits(plain, reference)


@pytest.mark.parametrize("rates", [[2], [3, 2], [5, 3], [7, 7, 3, 3], [4, 6]])
@pytest.mark.parametrize("depthwise", [True, False])
def test_odd_rates_give_whole_frames_and_snacs_samples(
    rates: list[int], depthwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**SNAC_24K, "encoder_rates": rates[::-1], "decoder_rates": rates}
    config |= {"decoder_dim": 32, "depthwise": depthwise, "noise": False}
    state = random_state(config)
    codec = SnacCodec.load(config, state, decode_only=True)
    model = SNAC(**config).eval()
    model.load_state_dict(state)
    for n_frames in (1, 2, 5):
        codes = some_codes("snac_24k", n_frames)
        with torch.inference_mode():
            levels = [torch.from_numpy(level)[None] for level in codes.levels]
            reference = model.decode(levels)[0, 0].numpy()
        audio = codec.decode(codes, seed=1)
        assert audio.shape == (n_frames * 4 * int(np.prod(rates)),)
        assert largest(audio, reference) < 1e-6
        assert same_bits(audio, codec.decode(codes, seed=2))  # no noise blocks, no noise


# Noise


def test_noise_is_addressed_by_seed_stream_layer_and_absolute_sample() -> None:
    config = SnacConfig.from_mapping(STARTER_CONFIG)
    cpu = torch.device("cpu")
    whole = philox_noise(config, seed=9, stream=3, first_frame=0, device=cpu)
    later = philox_noise(config, seed=9, stream=3, first_frame=7, device=cpu)
    for layer, per_frame in enumerate((20, 100, 300, 2400)):
        everything = whole(layer, 9 * per_frame)
        assert torch.equal(everything[7 * per_frame :], later(layer, 2 * per_frame))
        expected = normals(derive(9, 3), 3, layer, 0, 9 * per_frame)
        np.testing.assert_array_equal(everything.numpy(), expected)


@each_codec
def test_seed_place_and_stream_each_move_the_noise(name: str) -> None:
    codes, codec = some_codes(name, 3), CODECS[name]
    other = SnacCodec.load(CONFIGS[name], STATES[name], decode_only=True, noise_stream=77)
    takes = [
        codec.decode(codes, seed=1),
        codec.decode(codes, seed=2),
        codec.decode(codes, seed=1, first_frame=1),
        other.decode(codes, seed=1),
    ]
    for i, take in enumerate(takes):
        assert not any(same_bits(take, later) for later in takes[i + 1 :])


# Nothing else moves a bit


@each_codec
def test_global_generators_are_neither_read_nor_moved(name: str) -> None:
    codes, codec = some_codes(name, 5), CODECS[name]
    first = codec.decode(codes, seed=3)
    torch.manual_seed(99)
    torch.randn(17)
    np.random.seed(99)
    np.random.rand(3)
    random.seed(99)
    before = (torch.get_rng_state(), np.random.get_state(), random.getstate())
    again = codec.decode(codes, seed=3)
    SnacCodec.load(CONFIGS[name], STATES[name], decode_only=False)
    assert same_bits(first, again)
    assert torch.equal(before[0], torch.get_rng_state())
    assert repr(before[1]) == repr(np.random.get_state())
    assert before[2] == random.getstate()


@each_codec
def test_other_lengths_and_other_calls_move_no_bit(name: str) -> None:
    codes, codec = some_codes(name, 8), CODECS[name]
    first = codec.decode(codes, seed=3)
    for n_frames in (1, 3, 12):
        codec.decode(some_codes(name, n_frames), seed=n_frames)
        assert same_bits(first, codec.decode(codes, seed=3))
    fresh = SnacCodec.load(CONFIGS[name], STATES[name], decode_only=True)
    assert same_bits(first, fresh.decode(codes, seed=3))


@each_codec
def test_one_thread_or_two_move_no_bit(name: str) -> None:
    codes, codec = some_codes(name, 3), CODECS[name]
    first = codec.decode(codes, seed=3)
    torch.set_num_threads(2)
    assert same_bits(first, codec.decode(codes, seed=3))


def test_concurrent_decodes_of_one_codec_share_nothing() -> None:
    codec = CODECS["starter"]
    jobs = [(some_codes("starter", 4 + i % 3, seed=i), i) for i in range(12)]
    alone = [codec.decode(codes, seed=seed) for codes, seed in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: codec.decode(job[0], seed=job[1]), jobs))
    assert all(map(same_bits, alone, together))


def test_a_codec_does_not_follow_later_changes_of_its_tensors() -> None:
    state = {name: tensor.clone() for name, tensor in STATES["snac_24k"].items()}
    codec = SnacCodec.load(SNAC_24K, state, decode_only=True)
    codes = some_codes("snac_24k", 2)
    before = codec.decode(codes, seed=1)
    for tensor in state.values():
        tensor.zero_()
    assert same_bits(before, codec.decode(codes, seed=1))


# Windows


@each_codec
def test_with_enough_context_windows_have_the_bits_of_the_whole(name: str) -> None:
    codes, codec = some_codes(name, 15), CODECS[name]
    whole = codec.decode(codes, seed=8, first_frame=2)
    for window in (1, 7, 14, 15, 16):
        windowed = codec.decode_long(
            codes,
            seed=8,
            window_frames=window,
            context_frames=codec.context_frames_needed,
            first_frame=2,
        )
        assert same_bits(windowed, whole)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(4, 6), st.integers(0, 10**9))
@settings(deadline=None, derandomize=True, max_examples=15)
def test_any_window_any_context_that_covers(
    n_frames: int, window: int, context: int, first: int
) -> None:
    codes, codec = some_codes("starter", n_frames), CODECS["starter"]
    windowed = codec.decode_long(
        codes, seed=1, window_frames=window, context_frames=context, first_frame=first
    )
    assert same_bits(windowed, codec.decode(codes, seed=1, first_frame=first))


def test_long_audio_in_windows_of_512_frames_has_the_bits_of_the_whole() -> None:
    codes, codec = some_codes("starter", 530), CODECS["starter"]
    windowed = codec.decode_long(codes, seed=8, window_frames=512, context_frames=4)
    assert same_bits(windowed, codec.decode(codes, seed=8))


def test_streaming_in_windows_of_four_frames_with_the_middle_kept_is_near_the_whole() -> None:
    codes, codec = some_codes("starter", 40), CODECS["starter"]
    # Two frames are kept, one of context is heard on each side: a window of four.
    streamed = codec.decode_long(codes, seed=8, window_frames=2, context_frames=1)
    assert 0 < largest(streamed, codec.decode(codes, seed=8)) < SEAMS["starter", 1]


# (codec, context) -> the largest sample error of windows of two frames, above the measured one.
SEAMS: Final = {
    ("starter", 3): 1e-6,
    ("starter", 2): 2e-3,
    ("starter", 1): 5e-2,  # two kept of a window of four: streaming
    ("snac_24k", 2): 2e-3,
    ("snac_24k", 1): 1e-1,
}


@pytest.mark.parametrize(("name", "context"), list(SEAMS))
def test_with_too_little_context_the_seams_show_within_a_bound(name: str, context: int) -> None:
    codes, codec = some_codes(name, 30), CODECS[name]
    whole = codec.decode(codes, seed=8)
    windowed = codec.decode_long(codes, seed=8, window_frames=2, context_frames=context)
    assert 0 < largest(windowed, whole) < SEAMS[name, context]


def test_context_needed_is_known_for_the_shapes_in_use() -> None:
    assert {name: codec.context_frames_needed for name, codec in CODECS.items()} == {
        "starter": 4,
        "snac_24k": 3,
    }


@pytest.mark.parametrize("rates", [[2], [3, 2], [8, 8, 4, 2], [5, 5, 3, 8], [7, 7, 3, 3], [2, 9]])
def test_no_code_is_heard_beyond_the_context_needed(rates: list[int]) -> None:
    config = {**SNAC_24K, "encoder_rates": rates, "decoder_rates": rates, "decoder_dim": 32}
    codec = SnacCodec.load(config, random_state(config), decode_only=True)
    needed = context_frames_needed(codec.config)
    n_frames, middle = 2 * needed + 3, needed + 1
    codes = some_codes("snac_24k", n_frames)
    changed = Codes(*(level.copy() for level in codes.levels))
    for level, n in zip(changed.levels, (1, 2, 4), strict=True):
        level[middle * n : (middle + 1) * n] = (level[middle * n : (middle + 1) * n] + 1) % 32
    difference = codec.decode(codes, seed=1) != codec.decode(changed, seed=1)
    heard = np.flatnonzero(difference.reshape(n_frames, -1).any(axis=1)) - middle
    assert heard.min() >= -needed
    assert heard.max() <= needed
    assert 0 in heard


def test_windows_of_nothing_are_refused() -> None:
    codec, codes = CODECS["snac_24k"], some_codes("snac_24k", 2)
    with pytest.raises(FrameShapeError):
        codec.decode_long(codes, seed=1, window_frames=0)
    with pytest.raises(FrameShapeError):
        codec.decode_long(codes, seed=1, context_frames=-1)
    with pytest.raises(FrameShapeError):
        codec.decode(codes, seed=1, first_frame=-1)


# One window and its carry


def test_the_carry_is_heard_and_not_rendered() -> None:
    codec = CODECS["starter"]
    tokens, carry = some_tokens(6), some_tokens(2, seed=1)
    rendered = codec.decode_window(tokens, seed=4, audio_base=BASE, context=carry)
    both = codec.decode_window([*carry, *tokens], seed=4, audio_base=BASE)
    assert len(rendered) == 6 * codec.samples_per_frame
    assert same_bits(rendered, both[2 * codec.samples_per_frame :])
    alone = codec.decode_window(tokens, seed=4, audio_base=BASE)
    assert not same_bits(rendered, alone)


def test_a_windows_noise_starts_at_its_first_context_frame() -> None:
    codec = CODECS["starter"]
    codes = some_codes("starter", 6)
    tokens = some_tokens(6)
    alone = codec.decode_window(tokens, seed=4, audio_base=BASE)
    assert same_bits(alone, codec.decode(codes, seed=4))
    carried = codec.decode_window(tokens[28:], seed=4, audio_base=BASE, context=tokens[:28])
    assert same_bits(carried, alone[4 * codec.samples_per_frame :])


def test_a_long_window_is_decoded_in_windows() -> None:
    codec = CODECS["starter"]
    whole = codec.decode_window(some_tokens(9), seed=4, audio_base=BASE)
    cut = codec.decode_window(
        some_tokens(9), seed=4, audio_base=BASE, window_frames=2, context_frames=1
    )
    codes = some_codes("starter", 9)
    expected = codec.decode_long(codes, seed=4, window_frames=2, context_frames=1)
    assert same_bits(cut, expected)
    assert not same_bits(cut, whole)


def test_nothing_to_decode_is_no_samples() -> None:
    codec = CODECS["starter"]
    for audio in (
        codec.decode(some_codes("starter", 0), seed=1),
        codec.decode_long(some_codes("starter", 0), seed=1),
        codec.decode_window([], seed=1, audio_base=BASE, context=some_tokens(1)),
    ):
        assert audio.shape == (0,)
        assert audio.dtype == np.float32


def test_bad_tokens_are_named_by_row() -> None:
    codec = CODECS["starter"]
    good = some_tokens(2)
    with pytest.raises(TokenBandError, match=r"^tokens\[8\]: id 3 is outside band 1"):
        codec.decode_window([*good[:8], 3, *good[9:]], seed=1, audio_base=BASE, context=good)
    with pytest.raises(TokenBandError, match=r"^context\[0\]: id 3 is outside band 0"):
        codec.decode_window(good, seed=1, audio_base=BASE, context=[3, *good[1:7]])
    with pytest.raises(FrameShapeError, match=r"^context: 6 ids"):
        codec.decode_window(good, seed=1, audio_base=BASE, context=good[:6])
    with pytest.raises(TokenBandError, match=r"c1\[0\]: code 512"):
        codec.decode(Codes(np.zeros(1, int), np.array([512, 0]), np.zeros(4, int)), seed=1)


# Loading


def test_the_three_spellings_of_a_weight_are_one_codec() -> None:
    state = STATES["snac_24k"]
    older = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in state.items()
    }
    config = SnacConfig.from_mapping(SNAC_24K)
    plain = load_snac(config, state, decode_only=False).state_dict()
    assert not any("original" in name for name in plain)
    codes = some_codes("snac_24k", 3)
    for other in (older, plain):
        codec = SnacCodec.load(SNAC_24K, other, decode_only=True)
        expected = CODECS["snac_24k"].decode(codes, seed=1)
        assert same_bits(codec.decode(codes, seed=1), expected)


def test_encoder_tensors_are_needed_only_to_encode() -> None:
    without = {k: v for k, v in STATES["snac_24k"].items() if not k.startswith("encoder.")}
    codes = some_codes("snac_24k", 2)
    codec = SnacCodec.load(SNAC_24K, without, decode_only=True)
    expected = CODECS["snac_24k"].decode(codes, seed=1)
    assert same_bits(codec.decode(codes, seed=1), expected)
    with pytest.raises(PackMismatchError, match=r"missing: encoder\.block\.0\.bias, .* more"):
        SnacCodec.load(SNAC_24K, without, decode_only=False)


def _drop(*names: str) -> Callable[[dict[str, Tensor]], None]:
    def change(state: dict[str, Tensor]) -> None:
        for name in names:
            del state[name]

    return change


def _put(name: str, value: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    def change(state: dict[str, Tensor]) -> None:
        state[name] = value(state.get(name, torch.zeros(1)))

    return change


def _shape(name: str, *shape: int) -> Callable[[dict[str, Tensor]], None]:
    return _put(name, lambda _: torch.zeros(shape))


CONV: Final = "decoder.model.1.parametrizations.weight."
BIAS: Final = "decoder.model.1.bias"
CODEBOOK: Final = "quantizer.quantizers.2.codebook.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop(BIAS, CODEBOOK), f"missing: {BIAS}, {CODEBOOK}"),
        (_drop(CONV + "original0"), f"missing: {CONV}original0"),
        (_drop(CONV + "original1"), f"missing: {CONV}original1"),
        (
            _drop(CONV + "original0", CONV + "original1"),
            "missing: decoder.model.1.weight",
        ),
        (
            lambda state: state.update(typo=state.pop(BIAS)),
            f"codec weights missing: {BIAS}; unexpected: typo",
        ),
        (_put("decoder.model.9.bias", lambda t: t), "unexpected: decoder.model.9.bias"),
        (_put("quantiser.x", lambda t: t), "unexpected: quantiser.x"),
        (_put("decoder.model.1.weight", lambda t: t), f"unexpected: {CONV}original0"),
        (_put(BIAS, lambda t: t[1:]), f"of another shape: {BIAS} (63,) instead of (64,)"),
        (
            _put(CONV + "original0", lambda t: t[1:]),
            f"of another shape: {CONV}original0 (63, 1, 1) instead of (64, 1, 1)",
        ),
        # What torch's own folding divides by, indexes, or multiplies to the right shape.
        *(
            (_shape(CONV + original, *shape), f"{original} ({told}")
            for original, shape, told in [
                ("original0", (), ") instead of (64, 1, 1)"),
                ("original0", (0, 1, 1), "0, 1, 1) instead of (64, 1, 1)"),
                ("original0", (64,), "64,) instead of (64, 1, 1)"),
                ("original1", (), ") instead of (64, 64, 1)"),
                ("original1", (0, 1, 1), "0, 1, 1) instead of (64, 64, 1)"),
                ("original1", (64, 64, 0), "64, 64, 0) instead of (64, 64, 1)"),
                ("original1", (64, 64), "64, 64) instead of (64, 64, 1)"),
            ]
        ),
        (_put("x" * 500 + "\x1b[2J\n", lambda t: t), "unexpected: 'xxxxx"),
        (_put(CODEBOOK, lambda t: t.fill_(float("nan"))), f"not finite: {CODEBOOK}"),
        (_put(CONV + "original0", lambda t: t * float("inf")), "not finite: decoder.model.1.wei"),
        (_put(CONV + "original1", lambda t: t * 0), "not finite: decoder.model.1.weight"),
        (_put(CODEBOOK, lambda t: t.to(torch.int32)), f"not floats: {CODEBOOK}"),
    ],
)
def test_weights_that_do_not_fit_are_listed(
    change: Callable[[dict[str, Tensor]], None], message: str
) -> None:
    state = {name: tensor.clone() for name, tensor in STATES["snac_24k"].items()}
    change(state)
    with pytest.raises(PackMismatchError) as refused:
        SnacCodec.load(SNAC_24K, state, decode_only=True)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_half_precision_weights_are_widened() -> None:
    half = {name: tensor.half() for name, tensor in STATES["snac_24k"].items()}
    wide = {name: tensor.float() for name, tensor in half.items()}
    codes = some_codes("snac_24k", 2)
    takes = [
        SnacCodec.load(SNAC_24K, state, decode_only=True).decode(codes, seed=1)
        for state in (half, wide)
    ]
    assert same_bits(*takes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vq_strides", [8, 4, 2, 1]),
        ("vq_strides", [4, 2, 2]),
        ("vq_strides", 4),
        ("attn_window_size", 32),
        ("decoder_rates", [8, 8, 8, 1]),
        ("decoder_rates", [8, 8, 4, 4]),
        ("decoder_rates", []),
        ("decoder_rates[1]", [8, 8.0, 4, 2]),
        ("encoder_rates", "2488"),
        ("encoder_rates[0]", [True, 4, 8, 8]),
        ("decoder_dim", 72),
        ("decoder_dim", 0),
        ("codebook_size", "512"),
        ("sampling_rate", None),
        ("latent_dim", 1.5),
        ("noise", 1),
        ("depthwise", "yes"),
        ("decoder_rate", [1]),
        ("'\\x1b[2J'", [1]),
        *(
            (key, value)
            for key in (*"encoder_dim decoder_dim codebook_dim codebook_size".split(), "latent_dim")
            for value in (10**400, 2**70, 2**40, 2**21, -1)
        ),
        *(("sampling_rate", value) for value in (10**400, 2**21, 1, 2047)),
        *((f"{key}[1]", [8, 10**400, 4, 2]) for key in ("encoder_rates", "decoder_rates")),
        *((key, [2] * 17) for key in ("encoder_rates", "decoder_rates")),
        ("encoder_dim", 1 << 13),
    ],
)
def test_a_bad_config_is_refused_by_key(key: str, value: Any) -> None:
    config = {**SNAC_24K, ("\x1b[2J" if key[0] == "'" else key.split("[")[0]): value}
    with pytest.raises(ManifestError) as refused:
        SnacCodec.load(config, STATES["snac_24k"], decode_only=True)
    assert refused.value.key == key
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_the_largest_config_is_still_a_shape() -> None:
    """What passes the bounds never overflows the sizes that torch counts with."""
    rates = {"encoder_rates": [1024, 1], "decoder_rates": [2] * 10, "sampling_rate": 1 << 20}
    widths = {"encoder_dim": 1 << 14, "decoder_dim": 1 << 16, "codebook_dim": 1 << 16}
    for depthwise in (True, False):
        config = {**SNAC_24K, **rates, **widths, "codebook_size": 1 << 20, "depthwise": depthwise}
        shapes = snac_shapes(SnacConfig.from_mapping(config), (), decode_only=False)
        assert shapes["quantizer.quantizers.0.codebook.weight"] == (1 << 20, 1 << 16)


@pytest.mark.parametrize("key", [k for k in SNAC_24K if k not in ("noise", "depthwise")])
def test_a_missing_config_key_is_named(key: str) -> None:
    config = {k: v for k, v in SNAC_24K.items() if k != key}
    with pytest.raises(ManifestError) as refused:
        SnacConfig.from_mapping(config)
    assert refused.value.key == key


def test_samples_that_are_no_numbers_are_named() -> None:
    state = {name: tensor.clone() for name, tensor in STATES["snac_24k"].items()}
    state["decoder.model.0.bias"].fill_(3e38)
    codec = SnacCodec.load(SNAC_24K, state, decode_only=True)
    with pytest.raises(AudioNotFiniteError, match="decoded audio: sample 0 is nan"):
        codec.decode(some_codes("snac_24k", 1), seed=1)


# Encoding


def test_a_decode_only_codec_does_not_encode() -> None:
    with pytest.raises(DecodeOnlyError):
        CODECS["starter"].encode(np.zeros(2400, dtype=np.float32))


def test_it_encodes_as_snac_does() -> None:
    codec = SnacCodec.load(SNAC_24K, STATES["snac_24k"], decode_only=False)
    model = SNAC(**SNAC_24K).eval()
    model.load_state_dict(STATES["snac_24k"])
    audio = np.random.default_rng(3).normal(0, 0.1, 3 * 2048 - 100).astype(np.float32)
    with torch.inference_mode():
        reference = model.encode(torch.from_numpy(audio)[None, None])
    for _ in range(3):
        codes = codec.encode(audio)
        for level, expected in zip(codes.levels, reference, strict=True):
            np.testing.assert_array_equal(level, expected[0].numpy())
    assert codes.n_frames == 3
    assert codec.encode(np.zeros(0, dtype=np.float32)).n_frames == 0


def test_audio_that_cannot_be_encoded_is_refused() -> None:
    codec = SnacCodec.load(SNAC_24K, STATES["snac_24k"], decode_only=False)
    broken = np.zeros(2048, dtype=np.float32)
    broken[7] = np.inf
    with pytest.raises(AudioNotFiniteError, match="audio to encode: sample 7 is inf"):
        codec.encode(broken)
    with pytest.raises(FrameShapeError, match="one row"):
        codec.encode(np.zeros((2, 2048), dtype=np.float32))


def test_an_encoder_that_cannot_feed_the_quantizer_is_refused() -> None:
    config = {**SNAC_24K, "latent_dim": 96}
    state = random_state(config)
    assert SnacCodec.load(config, state, decode_only=True).decode_only
    with pytest.raises(ManifestError, match="latent_dim"):
        SnacCodec.load(config, state, decode_only=False)
