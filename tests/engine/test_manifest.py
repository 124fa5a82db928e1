"""manifest.json against loudkit's reader: the same fingerprint for what is valid, a key for what
is not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import loudkit.checkpoint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit.manifest import algorithm_from as reference_algorithm_from
from safetensors.numpy import save_file

from engine.algorithm import UNSET, CodecConfig, FrameConfig, TextConfig
from engine.errors import ManifestError
from engine.manifest import algorithm_from, read_manifest

LOUDR_1 = Path(__file__).parent / "data" / "manifest-loudr-1.json"

Manifest = dict[str, Any]


def loudr_1() -> Manifest:
    return read_manifest(LOUDR_1)


def key_of_refusal(manifest: Manifest) -> str:
    with pytest.raises(ManifestError) as refusal:
        algorithm_from(manifest)
    assert str(refusal.value).startswith(f"{refusal.value.key}: ")
    return refusal.value.key


def changed(manifest: Manifest, key: str, value: object) -> Manifest:
    """The manifest with the value at a dotted key replaced; blocks on the way are made."""
    out = copy.deepcopy(manifest)
    *blocks, leaf = key.split(".")
    block = out
    for name in blocks:
        block = block.setdefault(name, {})
    block[leaf] = value
    return out


# -- known answers ---------------------------------------------------------------------------------


def test_the_shipped_manifest_has_its_published_fingerprint() -> None:
    assert algorithm_from(loudr_1()).fingerprint() == "7cd75498ad4e7531"


def test_the_fused_successor_has_its_published_fingerprint() -> None:
    manifest = loudr_1() | {
        "format_version": 2,
        "decode": {"mode": "fusion_mtp2"},
        "n_cfm_timesteps": 1,
    }
    assert algorithm_from(manifest).fingerprint() == "e5303ba243087222"


# -- valid manifests -------------------------------------------------------------------------------

COUNT = st.integers(0, 200)
SHARE = st.floats(0.0, 0.99)
IDS = st.lists(st.integers(0, 8193), max_size=6)
WORDS = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=4)


def as_json_writes_it(number: int) -> st.SearchStrategy[int | float]:
    return st.sampled_from([number, float(number)])


@st.composite
def blocks(draw: st.DrawFn, /, **entries: st.SearchStrategy[Any]) -> Manifest:
    """A block with any subset of its keys."""
    names = [name for name in entries if draw(st.booleans())]
    return {name: draw(entries[name]) for name in names}


@st.composite
def postprocess_blocks(draw: st.DrawFn) -> Manifest:
    ceiling = draw(st.floats(0.5, 6.0))
    band = draw(st.floats(0.0, 5.0))
    cycles = draw(st.integers(2, 5))
    block = {
        "ceiling_speech_per_text_token": ceiling,
        "desperation_speech_per_text_token": ceiling + draw(st.floats(0.01, 3.0)),
        "desperation_band_ratio": band,
        "desperation_min_keep_per_text_token": band * draw(st.floats(0.0, 1.0)),
        "repetition_min_cycles": cycles,
        "repetition_min_span": cycles + draw(COUNT),
    }
    rest = draw(
        blocks(
            mode=st.sampled_from(["off", "report", "trim"]),
            trailing_filler_threshold=st.floats(0.01, 1.0),
            filler_min_eos_probability=SHARE,
            echo_strong_eos_probability=SHARE,
            echo_weak_eos_probability=SHARE,
            echo_strong_min_position_pct=st.integers(0, 100),
            echo_weak_min_position_pct=st.integers(0, 100),
            pacing_tolerance=st.one_of(st.integers(1, 3), st.floats(-5, 5)),
            retry_max_attempts=st.integers(0, 7),
            repetition_max_period=st.integers(1, 30),
            stall_run_tokens=st.integers(1, 60),
            repetition_resume=st.sampled_from(["condemn", "cut"]),
            repetition_silence=st.sampled_from(["acoustic", "sampling"]),
            **{name: COUNT.flatmap(as_json_writes_it) for name in COUNTED},
        )
    )
    return block | rest if draw(st.booleans()) else rest


COUNTED = (
    "ceiling_slack_tokens",
    "trailing_silence_run_tokens",
    "filler_max_speech_after_run",
    "desperation_band_floor",
    "desperation_min_text_tokens",
    "ended_tail_silence_run",
    "ended_tail_blip_max",
    "ended_tail_word_max",
    "ended_tail_keep",
    "echo_strong_max_tail",
    "echo_weak_max_tail",
    "dropout_min_tokens",
)


@st.composite
def valid_manifests(draw: st.DrawFn) -> Manifest:
    """Every key the two readers share, each there or not, within the rules that tie them."""
    window = draw(st.integers(8, 600))
    chunk = draw(st.integers(2, window))
    steps = draw(st.integers(1, 5))
    inner = sorted(draw(st.sets(st.floats(0.01, 0.99), min_size=steps - 1, max_size=steps - 1)))
    start, stop = draw(st.lists(st.integers(0, 8193), min_size=2, max_size=2, unique=True))
    guidance = draw(
        st.sampled_from(
            [
                {},
                {"guidance": "single_path", "guidance_rate": 0},
                {"guidance": "cfg_dual_path", "guidance_rate": 0.7},
            ]
        )
    )
    fused = draw(st.booleans())
    manifest: Manifest = {
        "format": "loudkit-checkpoint",
        "format_version": 2 if fused else draw(st.sampled_from([1, 2])),
        "window": {
            "max_speech_tokens": draw(as_json_writes_it(window)),
            **draw(
                blocks(
                    static_length=st.one_of(st.none(), st.just(window + 3)),
                    pad_token_id=st.one_of(st.none(), st.integers(0, 8193)),
                    static_prompt_tokens=st.one_of(st.none(), st.integers(1, 300)),
                )
            ),
        },
        "chunking": {
            "max_tokens": chunk,
            "prefix_tokens": draw(st.integers(0, chunk - 1)),
            **draw(
                blocks(
                    enabled=st.booleans(),
                    split_on=WORDS,
                    abbreviations=WORDS,
                    cap_resplit=st.sampled_from(["word", "off"]),
                    mid_sentence_period=st.sampled_from(["hold", "break"]),
                    first_chunk_max_tokens=st.one_of(st.none(), st.integers(1, chunk)),
                )
            ),
        },
        "sampling_defaults": {
            "max_new_tokens": draw(st.integers(1, window)),
            **draw(
                blocks(
                    temperature=st.one_of(st.integers(1, 4), st.floats(0.01, 4.0)),
                    repetition_penalty=st.floats(1.0, 3.0),
                    min_p=SHARE,
                )
            ),
        },
        "n_cfm_timesteps": steps,
        "speech_tokens": {"start": start, "stop": stop},
        **guidance,
        **draw(
            blocks(
                recipe_version=st.just("loudkit-1"),
                euler_grid=st.sampled_from([None, [0, *inner, 1.0]]),
                edge_fade_seconds=st.one_of(
                    st.none(), st.sampled_from([0.005, 0.02]), st.floats(0.001, 0.05)
                ),
                sample_rate=st.integers(1, 96_000).flatmap(as_json_writes_it),
                token_rate_hz=st.one_of(st.integers(1, 100), st.floats(0.1, 100.0)),
                speech_vocab_size=st.integers(8194, 20_000),
                silence_token_ids=IDS,
                silence_render_ids=IDS,
                quiet_render_ids=IDS,
                eos_floor=blocks(min_tokens_floor=COUNT, min_tokens_text_ratio=st.floats(0, 3)),
                postprocess=postprocess_blocks(),
                dtypes=st.just({"t3": "fp16"}),
            )
        ),
    }
    if fused:
        manifest["decode"] = {"mode": "fusion_mtp2"}
    elif draw(st.booleans()):
        manifest["decode"] = draw(st.sampled_from([None, {}, {"mode": "single"}]))
    return manifest


@given(valid_manifests())
@settings(derandomize=True, deadline=None, max_examples=400)
def test_a_valid_manifest_has_the_reference_s_canonical_form(manifest: Manifest) -> None:
    ours, theirs = algorithm_from(manifest), reference_algorithm_from(manifest)
    assert ours.canonical_form() == theirs.canonical_form()
    assert ours.fingerprint() == theirs.fingerprint()


@pytest.mark.slow
@given(valid_manifests())
@settings(derandomize=True, deadline=None, max_examples=3_000)
def test_a_valid_manifest_has_the_reference_s_canonical_form_at_length(manifest: Manifest) -> None:
    assert (
        algorithm_from(manifest).canonical_form()
        == reference_algorithm_from(manifest).canonical_form()
    )


@pytest.mark.parametrize("absent", [*loudr_1(), "all"])
def test_an_absent_key_takes_the_reference_s_default(absent: str) -> None:
    manifest = loudr_1()
    keep = {"format", "format_version"}
    manifest = {k: v for k, v in manifest.items() if k in keep or absent not in (k, "all")}
    assert (
        algorithm_from(manifest).canonical_form()
        == reference_algorithm_from(manifest).canonical_form()
    )


@pytest.mark.parametrize("key", ["window", "decode", "euler_grid", "edge_fade_seconds"])
def test_null_reads_as_the_reference_reads_it(key: str) -> None:
    manifest = loudr_1() | {key: None}
    assert (
        algorithm_from(manifest).canonical_form()
        == reference_algorithm_from(manifest).canonical_form()
    )


# -- wrong types -----------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")

NOT_A_NUMBER: list[object] = ["1", "", True, False, None, [], [1], {}]
NOT_WHOLE: list[object] = [*NOT_A_NUMBER, 1.5, -0.25, NAN, INF, -INF]
NOT_A_WORD: list[object] = ["", "Word", 1, True, None, [], {}]
NOT_A_FLAG: list[object] = [0, 1, "true", None, []]
NOT_A_LIST: list[object] = ["12", "", 5, True, {}, {"0": 1}]
NOT_A_LIST_OF_WORDS: list[object] = ["ab", 5, True, None]
NOT_A_BLOCK: list[object] = ["", "x", 0, 1.5, True, [], [1]]

COUNTS = (
    "window.max_speech_tokens",
    "chunking.max_tokens",
    "chunking.prefix_tokens",
    "sampling_defaults.max_new_tokens",
    "eos_floor.min_tokens_floor",
    "n_cfm_timesteps",
    "sample_rate",
    "speech_vocab_size",
    "speech_tokens.start",
    "speech_tokens.stop",
    *(f"postprocess.{name}" for name in COUNTED),
    "postprocess.echo_strong_min_position_pct",
    "postprocess.echo_weak_min_position_pct",
    "postprocess.retry_max_attempts",
    "postprocess.repetition_max_period",
    "postprocess.repetition_min_cycles",
    "postprocess.repetition_min_span",
    "postprocess.stall_run_tokens",
)
COUNTS_OR_NULL = (
    "window.static_length",
    "window.pad_token_id",
    "window.static_prompt_tokens",
    "chunking.first_chunk_max_tokens",
)
NUMBERS = (
    "sampling_defaults.temperature",
    "sampling_defaults.repetition_penalty",
    "sampling_defaults.min_p",
    "eos_floor.min_tokens_text_ratio",
    "guidance_rate",
    "token_rate_hz",
    "postprocess.ceiling_speech_per_text_token",
    "postprocess.trailing_filler_threshold",
    "postprocess.desperation_band_ratio",
    "postprocess.filler_min_eos_probability",
    "postprocess.desperation_speech_per_text_token",
    "postprocess.desperation_min_keep_per_text_token",
    "postprocess.echo_strong_eos_probability",
    "postprocess.echo_weak_eos_probability",
    "postprocess.pacing_tolerance",
)
CHOICES = (
    "recipe_version",
    "guidance",
    "decode.mode",
    "chunking.cap_resplit",
    "chunking.mid_sentence_period",
    "postprocess.mode",
    "postprocess.repetition_resume",
    "postprocess.repetition_silence",
)
ID_LISTS = ("silence_token_ids", "silence_render_ids", "quiet_render_ids")
WORD_LISTS = ("chunking.split_on", "chunking.abbreviations")
BLOCKS = (
    "sampling_defaults",
    "eos_floor",
    "speech_tokens",
    "chunking",
    "postprocess",
    "window",
    "decode",
)

WRONG_TYPES: list[tuple[str, object, str]] = [
    *((key, value, key) for key in COUNTS for value in NOT_WHOLE),
    *((key, value, key) for key in COUNTS_OR_NULL for value in NOT_WHOLE if value is not None),
    *((key, value, key) for key in NUMBERS for value in NOT_A_NUMBER),
    *((key, value, key) for key in CHOICES for value in NOT_A_WORD),
    *(("chunking.enabled", value, "chunking.enabled") for value in NOT_A_FLAG),
    *(
        ("edge_fade_seconds", value, "edge_fade_seconds")
        for value in NOT_A_NUMBER
        if value is not None
    ),
    *((key, value, key) for key in (*ID_LISTS, "euler_grid") for value in NOT_A_LIST),
    *((key, value, key) for key in WORD_LISTS for value in NOT_A_LIST_OF_WORDS),
    *((key, [1, 2, value], f"{key}[2]") for key in ID_LISTS for value in NOT_WHOLE),
    *(("euler_grid", [0, value, 1], "euler_grid[1]") for value in NOT_A_NUMBER),
    *((key, value, key) for key in BLOCKS for value in NOT_A_BLOCK),
]


def test_a_wrong_type_is_refused_by_its_key_and_by_the_reference() -> None:
    for key, value, refused in WRONG_TYPES:
        manifest = changed(loudr_1(), key, value)
        assert key_of_refusal(manifest) == refused, (key, value)
        with pytest.raises((ValueError, TypeError, AttributeError)):
            reference_algorithm_from(manifest)


@given(valid_manifests(), st.sampled_from(WRONG_TYPES))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_one_wrong_value_in_any_manifest_is_refused_by_its_key(
    manifest: Manifest, wrong: tuple[str, object, str]
) -> None:
    key, value, refused = wrong
    block = manifest.get(key.partition(".")[0])
    if "." in key and block is None:
        manifest.pop(key.partition(".")[0], None)
    broken = changed(manifest, key, value)
    assert key_of_refusal(broken) == refused
    with pytest.raises((ValueError, TypeError, AttributeError)):
        reference_algorithm_from(broken)


OUT_OF_RANGE: list[tuple[str, object]] = [
    ("sampling_defaults.temperature", 0),
    ("sampling_defaults.temperature", 4.001),
    ("sampling_defaults.repetition_penalty", 0.999),
    ("sampling_defaults.min_p", 1),
    ("sampling_defaults.max_new_tokens", 0),
    ("sampling_defaults.max_new_tokens", 256),
    ("eos_floor.min_tokens_floor", -1),
    ("eos_floor.min_tokens_text_ratio", -0.5),
    ("window.max_speech_tokens", 0),
    ("window.static_length", 254),
    ("window.static_prompt_tokens", 0),
    ("chunking.max_tokens", 0),
    ("chunking.max_tokens", 1),
    ("chunking.max_tokens", 256),
    ("chunking.prefix_tokens", -1),
    ("chunking.prefix_tokens", 255),
    ("chunking.first_chunk_max_tokens", 0),
    ("chunking.first_chunk_max_tokens", 256),
    ("chunking.split_on", []),
    ("guidance_rate", 0.5),
    ("n_cfm_timesteps", 0),
    ("euler_grid", [0, 1]),
    ("euler_grid", [0, 0, 1]),
    ("euler_grid", [0.1, 0.5, 1]),
    ("edge_fade_seconds", 0.06),
    ("edge_fade_seconds", 0),
    ("sample_rate", 0),
    ("token_rate_hz", 0),
    ("speech_vocab_size", 0),
    ("speech_tokens.start", 8194),
    ("speech_tokens.stop", -1),
    ("speech_tokens.stop", 6561),
    ("postprocess.retry_max_attempts", 8),
    ("postprocess.retry_max_attempts", -1),
    ("postprocess.repetition_min_cycles", 1),
    ("postprocess.repetition_min_span", 2),
    ("postprocess.repetition_max_period", 0),
    ("postprocess.stall_run_tokens", 0),
    ("postprocess.ceiling_speech_per_text_token", 0),
    ("postprocess.desperation_speech_per_text_token", 4.0),
    ("postprocess.desperation_min_keep_per_text_token", -0.1),
    ("postprocess.desperation_min_keep_per_text_token", 2.7),
    ("postprocess.trailing_filler_threshold", 0),
    ("postprocess.trailing_filler_threshold", 1.01),
    ("postprocess.filler_min_eos_probability", 1),
    ("postprocess.echo_weak_min_position_pct", 101),
    ("postprocess.echo_strong_min_position_pct", -1),
    *((f"postprocess.{name}", -1) for name in COUNTED),
    *((f"postprocess.{name}", [1]) for name in ("silence_render_ids", "quiet_render_ids")),
]


@pytest.mark.parametrize(("key", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_by_its_key_and_by_the_reference(
    key: str, value: object
) -> None:
    manifest = changed(loudr_1(), key, value)
    assert key_of_refusal(manifest) == key
    with pytest.raises(ValueError, match=r"."):
        reference_algorithm_from(manifest)


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        # Read by the reference, by coercion or for want of a rule; refused here.
        ("chunking.split_on", [". ", 5], "chunking.split_on[1]"),
        ("chunking.split_on", {". ": 1}, "chunking.split_on"),
        ("chunking.split_on", [""], "chunking.split_on[0]"),
        ("chunking.abbreviations", [None], "chunking.abbreviations[0]"),
        ("silence_token_ids", [4, -1], "silence_token_ids[1]"),
        ("quiet_render_ids", [-1], "quiet_render_ids[0]"),
        ("sampling_defaults.repetition_penalty", NAN, "sampling_defaults.repetition_penalty"),
        ("sampling_defaults.repetition_penalty", INF, "sampling_defaults.repetition_penalty"),
        ("eos_floor.min_tokens_text_ratio", NAN, "eos_floor.min_tokens_text_ratio"),
        ("token_rate_hz", INF, "token_rate_hz"),
        ("sample_rate", 10**400, "sample_rate"),
        ("speech_vocab_size", 2**53 + 1, "speech_vocab_size"),
        ("chunking.abbreviations", ["a" * 201], "chunking.abbreviations[0]"),
    ],
)
def test_what_only_we_refuse(key: str, value: object, refused: str) -> None:
    manifest = changed(loudr_1(), key, value)
    reference_algorithm_from(manifest)
    assert key_of_refusal(manifest) == refused


def test_a_number_past_every_float_is_refused() -> None:
    manifest = changed(loudr_1(), "token_rate_hz", 10**400)
    assert key_of_refusal(manifest) == "token_rate_hz"


# -- format and version ----------------------------------------------------------------------------

ABSENT = object()


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"format": ABSENT}, "format"),
        ({"format": "loudkit"}, "format"),
        ({"format": None}, "format"),
        ({"format": 1}, "format"),
        ({"format_version": ABSENT}, "format_version"),
        ({"format_version": 0}, "format_version"),
        ({"format_version": 3}, "format_version"),
        ({"format_version": None}, "format_version"),
        ({"format_version": "x"}, "format_version"),
        ({"format_version": []}, "format_version"),
        ({"decode": {"mode": "fusion_mtp2"}}, "decode.mode"),
    ],
)
def test_an_unknown_layout_is_refused_as_the_reference_refuses_it(
    values: Manifest, refused: str, tmp_path: Path
) -> None:
    merged = loudr_1() | values
    manifest = {key: value for key, value in merged.items() if value is not ABSENT}
    assert key_of_refusal(manifest) == refused
    packed = tmp_path / "model.safetensors"
    save_file({}, packed, metadata={"manifest": json.dumps(manifest)})
    with pytest.raises(ValueError, match=r"."):
        loudkit.checkpoint.read_manifest(packed)


@pytest.mark.parametrize("version", ["1", True, 1.5, "2"])
def test_a_version_that_the_reference_coerces_is_refused(version: object) -> None:
    assert key_of_refusal(loudr_1() | {"format_version": version}) == "format_version"


def test_a_refused_mode_is_named_with_its_version() -> None:
    with pytest.raises(ManifestError, match=r"loudkit-checkpoint version 1.*fusion_mtp2"):
        algorithm_from(loudr_1() | {"decode": {"mode": "fusion_mtp2"}})
    with pytest.raises(ManifestError, match="'single' or 'fusion_mtp2', got 'fusion_mtp4'"):
        algorithm_from(loudr_1() | {"format_version": 2, "decode": {"mode": "fusion_mtp4"}})


# -- SNAC packs ------------------------------------------------------------------------------------

SNAC: Manifest = {
    "format": "loudkit-batch-pack",
    "format_version": 1,
    "edge_fade_seconds": 0.02,
    "sample_rate": 24_000,
    "token_rate_hz": 82.03125,
    "speech_vocab_size": 3682,
    "speech_tokens": {"start": 67, "stop": 68},
    "window": {"max_speech_tokens": 90},
    "sampling_defaults": {"max_new_tokens": 90},
    "chunking": {"max_tokens": 80, "chars_per_token": 1.4},
    "postprocess": {"earliest_cut_tokens": 4},
    "frame": {"tokens_per_frame": 7, "samples_per_frame": 2048},
    "codec": {
        "kind": "snac",
        "codebook_size": 512,
        "vq_strides": [4, 2, 1],
        "noise_stream": 3,
        "window_frames": 512,
        "context_frames": 4,
    },
    "token_contract": {"name": "llama3-audio", "fingerprint": "0123456789abcdef"},
    "text": {"recipe": "verbatim"},
}


def test_a_snac_manifest_is_read() -> None:
    algorithm = algorithm_from(SNAC)
    assert algorithm.frame == FrameConfig(7, 2048)
    assert algorithm.codec == CodecConfig("snac", 512, (4, 2, 1), 3, 512, 4)
    assert algorithm.token_contract == "0123456789abcdef"
    assert algorithm.text == TextConfig(recipe="verbatim", grammar="")
    assert algorithm.chunking.chars == 1.4
    assert algorithm.postprocess.earliest_cut == 4
    assert algorithm.edge_fade_seconds is UNSET


SNAC_CHANGES: dict[str, object] = {
    "chunking.chars_per_token": 1.5,
    "postprocess.earliest_cut_tokens": 5,
    "frame.samples_per_frame": 2400,
    "codec.codebook_size": 4096,
    "codec.vq_strides": [4, 1, 2],
    "codec.noise_stream": 4,
    "codec.window_frames": 256,
    "codec.context_frames": 2,
    "token_contract.fingerprint": "f123456789abcdef",
    "text.recipe": "funnel",
}


def test_each_snac_key_moves_the_fingerprint() -> None:
    prints = {key: algorithm_from(changed(SNAC, key, to)) for key, to in SNAC_CHANGES.items()}
    fingerprints = {algorithm.fingerprint() for algorithm in prints.values()}
    assert len({algorithm_from(SNAC).fingerprint(), *fingerprints}) == 1 + len(SNAC_CHANGES)


def test_snac_keys_in_a_loudr_manifest_move_its_fingerprint_and_their_absence_does_not() -> None:
    plain = algorithm_from(loudr_1()).fingerprint()
    for key in ("frame", "codec", "token_contract"):
        assert algorithm_from(loudr_1() | {key: SNAC[key]}).fingerprint() != plain
    for key in ("chunking.chars_per_token", "postprocess.earliest_cut_tokens"):
        manifest = changed(loudr_1(), key, SNAC_CHANGES[key])
        assert algorithm_from(manifest).fingerprint() != plain
    assert algorithm_from(loudr_1() | {"text": {"recipe": "funnel"}}).fingerprint() == plain


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("format_version", 2, "format_version"),
        ("decode.mode", "fusion_mtp2", "decode.mode"),
        ("frame", None, "frame"),
        ("frame", [], "frame"),
        ("frame", {"samples_per_frame": 2048}, "frame.tokens_per_frame"),
        ("frame", {"tokens_per_frame": 7}, "frame.samples_per_frame"),
        ("frame.tokens_per_frame", 7.5, "frame.tokens_per_frame"),
        ("frame.tokens_per_frame", 8, "frame.tokens_per_frame"),
        ("frame.samples_per_frame", 0, "frame.samples_per_frame"),
        ("codec", {}, "codec.kind"),
        ("codec.kind", "encodec", "codec.kind"),
        ("codec.codebook_size", "512", "codec.codebook_size"),
        ("codec.vq_strides", [4, "2", 1], "codec.vq_strides[1]"),
        ("codec.vq_strides", [4, 3, 1], "codec.vq_strides[1]"),
        ("codec.vq_strides", "421", "codec.vq_strides"),
        ("codec.noise_stream", -1, "codec.noise_stream"),
        ("codec.window_frames", True, "codec.window_frames"),
        ("codec.context_frames", 1.5, "codec.context_frames"),
        ("token_contract", "0123456789abcdef", "token_contract"),
        ("token_contract", {"fingerprint": "0123456789abcdef"}, "token_contract.name"),
        ("token_contract", {"name": "x"}, "token_contract.fingerprint"),
        ("token_contract.name", 3, "token_contract.name"),
        ("token_contract.fingerprint", "0123", "token_contract.fingerprint"),
        ("token_contract.fingerprint", 16, "token_contract.fingerprint"),
        ("text", "verbatim", "text"),
        ("text.recipe", "literal", "text.recipe"),
        ("text.recipe", None, "text.recipe"),
        ("chunking.chars_per_token", "1", "chunking.chars_per_token"),
        ("chunking.chars_per_token", 0, "chunking.chars_per_token"),
        ("postprocess.earliest_cut_tokens", 4.5, "postprocess.earliest_cut_tokens"),
        ("postprocess.earliest_cut_tokens", -1, "postprocess.earliest_cut_tokens"),
        ("postprocess.earliest_cut_tokens", None, "postprocess.earliest_cut_tokens"),
    ],
)
def test_a_snac_key_that_cannot_be_is_refused_by_its_name(
    key: str, value: object, refused: str
) -> None:
    assert key_of_refusal(changed(SNAC, key, value)) == refused


def test_the_shipped_file_is_read_as_it_stands() -> None:
    assert loudr_1() == json.loads(LOUDR_1.read_text())
