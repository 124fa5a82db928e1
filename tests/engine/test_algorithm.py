"""AlgorithmConfig: its canonical form, what moves a fingerprint, what is refused."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import loudkit.config
import loudkit.postprocess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.algorithm import (
    UNSET,
    VERBATIM_TEXT,
    AlgorithmConfig,
    ChunkConfig,
    CodecConfig,
    FrameConfig,
    PostprocessConfig,
    SamplingConfig,
    Unset,
    WindowConfig,
)
from engine.errors import ManifestError

FRAME = FrameConfig(tokens_per_frame=7, samples_per_frame=2048)
CODEC = CodecConfig(
    kind="snac",
    codebook_size=4096,
    vq_strides=(4, 2, 1),
    noise_stream=3,
    window_frames=512,
    context_frames=4,
)
SNAC = AlgorithmConfig(
    text=VERBATIM_TEXT,
    frame=FRAME,
    codec=CODEC,
    token_contract="0123456789abcdef",
    chunking=ChunkConfig(chars_per_token=1.5),
    postprocess=PostprocessConfig(earliest_cut_tokens=4),
)


def test_the_defaults_are_the_reference_s() -> None:
    assert AlgorithmConfig().canonical_form() == loudkit.config.AlgorithmConfig().canonical_form()


@given(
    fade=st.one_of(st.none(), st.sampled_from([0.005, 0.02]), st.floats(0.001, 0.05)),
    first=st.one_of(st.just("unset"), st.none(), st.integers(1, 255)),
    temperature=st.floats(0.01, 4.0),
    grid=st.one_of(st.none(), st.floats(0.01, 0.99)),
)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_the_canonical_form_is_the_reference_s(
    fade: float | None, first: int | str | None, temperature: float, grid: float | None
) -> None:
    def build(module: Any) -> Any:
        values: dict[str, Any] = {"sampling": module.SamplingConfig(temperature=temperature)}
        if fade is not None:
            values["edge_fade_seconds"] = fade
        if first != "unset":
            values["chunking"] = module.ChunkConfig(first_chunk_max_tokens=first)
        if grid is not None:
            values["euler_grid"] = (0.0, grid, 1.0)
        return module.AlgorithmConfig(**values)

    import engine.algorithm

    ours, theirs = build(engine.algorithm), build(loudkit.config)
    assert ours.canonical_form() == theirs.canonical_form()
    assert ours.fingerprint() == theirs.fingerprint()


def test_the_fingerprint_is_the_head_of_the_sha256_of_the_canonical_form() -> None:
    form = SNAC.canonical_form()
    assert SNAC.fingerprint() == hashlib.sha256(form.encode()).hexdigest()[:16]


def test_unset_survives_copy_and_pickle_as_itself() -> None:
    twins = [copy.copy(UNSET), copy.deepcopy(UNSET), pickle.loads(pickle.dumps(UNSET))]
    assert all(twin is UNSET for twin in twins)
    shipped = pickle.loads(pickle.dumps(AlgorithmConfig()))
    assert shipped.fingerprint() == AlgorithmConfig().fingerprint()
    assert shipped.frame is UNSET


def test_a_numpy_number_hashes_as_the_number_it_is() -> None:
    plain = AlgorithmConfig(
        sampling=SamplingConfig(temperature=0.5, max_new_tokens=9, silence_token_ids=(3, 4))
    )
    numpy = AlgorithmConfig(
        sampling=SamplingConfig(
            temperature=np.float32(0.5),  # type: ignore[arg-type]
            max_new_tokens=np.int32(9),  # type: ignore[arg-type]
            silence_token_ids=tuple(np.array([3, 4])),
        )
    )
    assert numpy.canonical_form() == plain.canonical_form()


def test_single_said_aloud_is_single_unsaid() -> None:
    said = AlgorithmConfig(decode_mode="single")
    assert said.decode == AlgorithmConfig().decode == "single"
    assert said.fingerprint() == AlgorithmConfig().fingerprint()


def test_unset_fields_leave_no_trace_and_set_ones_show() -> None:
    loudr = AlgorithmConfig().canonical_form()
    snac = SNAC.canonical_form()
    for name in (
        "frame",
        "codec",
        "token_contract",
        "chars_per_token",
        "earliest_cut_tokens",
        "decode_mode",
    ):
        assert f'"{name}"' not in loudr
        assert (f'"{name}"' in snac) == (name != "decode_mode")


SNAC_CHANGES: dict[str, Callable[[], AlgorithmConfig]] = {
    "no frame": lambda: replace(SNAC, frame=UNSET),
    "no codec": lambda: replace(SNAC, codec=UNSET),
    "no contract": lambda: replace(SNAC, token_contract=UNSET),
    "no chars": lambda: replace(SNAC, chunking=ChunkConfig()),
    "no earliest cut": lambda: replace(SNAC, postprocess=PostprocessConfig()),
    "contract": lambda: replace(SNAC, token_contract="f123456789abcdef"),
    "chars": lambda: replace(SNAC, chunking=ChunkConfig(chars_per_token=1.25)),
    "the default chars, said": lambda: replace(SNAC, chunking=ChunkConfig(chars_per_token=0.5)),
    "earliest cut": lambda: replace(SNAC, postprocess=PostprocessConfig(earliest_cut_tokens=10)),
    "samples": lambda: replace(SNAC, frame=replace(FRAME, samples_per_frame=2400)),
    "tokens": lambda: replace(
        SNAC,
        frame=replace(FRAME, tokens_per_frame=3),
        codec=replace(CODEC, vq_strides=(2, 1)),
    ),
    "codebook": lambda: replace(SNAC, codec=replace(CODEC, codebook_size=512)),
    "strides": lambda: replace(SNAC, codec=replace(CODEC, vq_strides=(4, 1, 2))),
    "noise": lambda: replace(SNAC, codec=replace(CODEC, noise_stream=5)),
    "window": lambda: replace(SNAC, codec=replace(CODEC, window_frames=256)),
    "context": lambda: replace(SNAC, codec=replace(CODEC, context_frames=8)),
    "text": lambda: replace(SNAC, text=AlgorithmConfig().text),
}


def test_every_snac_field_moves_the_fingerprint() -> None:
    prints = {name: change().fingerprint() for name, change in SNAC_CHANGES.items()}
    assert len({SNAC.fingerprint(), *prints.values()}) == 1 + len(SNAC_CHANGES), prints


def test_effective_values() -> None:
    loudr = AlgorithmConfig()
    assert (loudr.tokens_per_row_entry, loudr.row_rate_hz) == (1, 25.0)
    assert (loudr.edge_fade, loudr.chunking.chars, loudr.postprocess.earliest_cut) == (
        0.02,
        0.5,
        10,
    )
    snac = replace(SNAC, token_rate_hz=7 * 24_000 / 2048)
    assert (snac.tokens_per_row_entry, snac.row_rate_hz) == (7, 24_000 / 2048)
    assert (snac.chunking.chars, snac.postprocess.earliest_cut) == (1.5, 4)
    assert ChunkConfig(first_chunk_max_tokens=None).first_budget is None
    assert ChunkConfig(first_chunk_max_tokens=40).first_budget == 40


def test_the_detectors_preset_has_the_reference_s_fields_and_one_of_ours() -> None:
    ours = {f.name for f in fields(PostprocessConfig)}
    theirs = {f.name for f in fields(loudkit.postprocess.PostprocessConfig)}
    assert ours - theirs == {"earliest_cut_tokens"}
    assert theirs <= ours


NAN, INF = float("nan"), float("inf")

REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (SamplingConfig, {"temperature": 0.0}, "temperature"),
    (SamplingConfig, {"temperature": NAN}, "temperature"),
    (SamplingConfig, {"repetition_penalty": 0.99}, "repetition_penalty"),
    (SamplingConfig, {"repetition_penalty": NAN}, "repetition_penalty"),
    (SamplingConfig, {"min_p": 1.0}, "min_p"),
    (SamplingConfig, {"min_p": -0.1}, "min_p"),
    (SamplingConfig, {"max_new_tokens": 0}, "max_new_tokens"),
    (SamplingConfig, {"min_tokens_floor": -1}, "min_tokens_floor"),
    (SamplingConfig, {"min_tokens_text_ratio": INF}, "min_tokens_text_ratio"),
    (SamplingConfig, {"silence_token_ids": (1, -1)}, "silence_token_ids[1]"),
    (ChunkConfig, {"max_tokens": 1, "prefix_tokens": 0}, "max_tokens"),
    (ChunkConfig, {"max_tokens": 3, "prefix_tokens": 3}, "prefix_tokens"),
    (ChunkConfig, {"chars_per_token": 0.0}, "chars_per_token"),
    (ChunkConfig, {"chars_per_token": INF}, "chars_per_token"),
    (ChunkConfig, {"chars_per_token": 0.001}, "max_tokens"),
    (ChunkConfig, {"split_on": ()}, "split_on"),
    (ChunkConfig, {"split_on": (". ", "")}, "split_on[1]"),
    (ChunkConfig, {"abbreviations": ("",)}, "abbreviations[0]"),
    (ChunkConfig, {"cap_resplit": "words"}, "cap_resplit"),
    (ChunkConfig, {"mid_sentence_period": "stay"}, "mid_sentence_period"),
    (ChunkConfig, {"first_chunk_max_tokens": 256}, "first_chunk_max_tokens"),
    (WindowConfig, {"max_speech_tokens": 0}, "max_speech_tokens"),
    (WindowConfig, {"static_length": 254}, "static_length"),
    (WindowConfig, {"static_prompt_tokens": 0}, "static_prompt_tokens"),
    (PostprocessConfig, {"mode": "cut"}, "mode"),
    (PostprocessConfig, {"retry_max_attempts": 8}, "retry_max_attempts"),
    (PostprocessConfig, {"earliest_cut_tokens": -1}, "earliest_cut_tokens"),
    (FrameConfig, {"tokens_per_frame": 0, "samples_per_frame": 1}, "tokens_per_frame"),
    (FrameConfig, {"tokens_per_frame": 7, "samples_per_frame": 0}, "samples_per_frame"),
    (AlgorithmConfig, {"guidance": "both"}, "guidance"),
    (AlgorithmConfig, {"guidance_rate": 0.1}, "guidance_rate"),
    (AlgorithmConfig, {"guidance": "cfg_dual_path"}, "guidance_rate"),
    (AlgorithmConfig, {"decode_mode": "triple"}, "decode_mode"),
    (AlgorithmConfig, {"euler_steps": 0}, "euler_steps"),
    (AlgorithmConfig, {"euler_grid": (0.0, 1.0)}, "euler_grid"),
    (AlgorithmConfig, {"euler_grid": (0.0, 1.0, 1.0)}, "euler_grid"),
    (AlgorithmConfig, {"euler_grid": (0.0, NAN, 1.0)}, "euler_grid"),
    (AlgorithmConfig, {"euler_grid": (0.1, 0.5, 1.0)}, "euler_grid"),
    (AlgorithmConfig, {"edge_fade_seconds": 0.0005}, "edge_fade_seconds"),
    (AlgorithmConfig, {"sample_rate": 0}, "sample_rate"),
    (AlgorithmConfig, {"token_rate_hz": 0.0}, "token_rate_hz"),
    (AlgorithmConfig, {"token_rate_hz": NAN}, "token_rate_hz"),
    (AlgorithmConfig, {"speech_vocab_size": 0}, "speech_vocab_size"),
    (AlgorithmConfig, {"start_speech_token": 8194}, "start_speech_token"),
    (AlgorithmConfig, {"stop_speech_token": -1}, "stop_speech_token"),
    (AlgorithmConfig, {"stop_speech_token": 6561}, "stop_speech_token"),
    (AlgorithmConfig, {"sampling": SamplingConfig(max_new_tokens=256)}, "sampling.max_new_tokens"),
    (AlgorithmConfig, {"chunking": ChunkConfig(max_tokens=256)}, "chunking.max_tokens"),
    (AlgorithmConfig, {"token_contract": ""}, "token_contract"),
    (
        AlgorithmConfig,
        {"frame": replace(FRAME, tokens_per_frame=8), "codec": CODEC},
        "frame.tokens_per_frame",
    ),
]


@pytest.mark.parametrize(("block", "values", "key"), REFUSED)
def test_what_no_engine_could_run_is_refused_by_name(
    block: type, values: dict[str, Any], key: str
) -> None:
    with pytest.raises(ManifestError) as refusal:
        block(**values)
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"kind": "encodec"}, "kind"),
        ({"codebook_size": 0}, "codebook_size"),
        ({"vq_strides": ()}, "vq_strides"),
        ({"vq_strides": (4, 3, 1)}, "vq_strides[1]"),
        ({"vq_strides": (4, 0)}, "vq_strides[1]"),
        ({"noise_stream": -1}, "noise_stream"),
        ({"noise_stream": 2**32}, "noise_stream"),
        ({"window_frames": 0}, "window_frames"),
        ({"context_frames": -1}, "context_frames"),
    ],
)
def test_a_codec_that_cannot_be_is_refused_by_name(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ManifestError) as refusal:
        replace(CODEC, **values)
    assert refusal.value.key == key


def test_a_chunk_budget_past_the_window_matters_only_where_text_is_chunked() -> None:
    config = AlgorithmConfig(chunking=ChunkConfig(enabled=False, max_tokens=400))
    assert not config.chunking.enabled


def test_unset_is_a_type_that_a_reader_can_ask_for() -> None:
    assert isinstance(AlgorithmConfig().codec, Unset)
    assert not isinstance(SNAC.codec, Unset)
