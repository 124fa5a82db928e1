"""The loudr contract: loudkit's own numbers, every id in its band, whole pairs, no text side."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loudkit.config import AlgorithmConfig as LoudkitConfig
from loudkit.errors import InvalidTokensError
from loudkit.window import validate_speech_tokens

from engine.algorithm import AlgorithmConfig, FrameConfig
from engine.contracts.bands import require_bands
from engine.contracts.contract import TokenContract
from engine.contracts.difference import first_difference
from engine.contracts.loudr import LOUDR, require_acoustic, require_carry, require_ids
from engine.contracts.registry import load_text_side
from engine.errors import ContractMismatchError, ManifestError, TokenBandError
from engine.frames import FrameShapeError
from engine.manifest import algorithm_from, read_manifest
from engine.pack import Pack
from engine.passage import carry_tail
from engine.shown import shown

REPEATABLE = settings(deadline=None, derandomize=True)
LOUDR_1 = Path(__file__).parent / "data" / "manifest-loudr-1.json"


@pytest.fixture(scope="module")
def loudr_1() -> AlgorithmConfig:
    return algorithm_from(read_manifest(LOUDR_1))


def test_the_ids_are_loudkits(loudr_1: AlgorithmConfig) -> None:
    theirs = LoudkitConfig()
    assert LOUDR.vocabulary_size == theirs.speech_vocab_size == 8194
    assert LOUDR.start_of_speech == theirs.start_speech_token == 6561
    assert LOUDR.end_of_speech == theirs.stop_speech_token == 6562
    assert LOUDR.band(0) == (0, 3**8)
    assert LOUDR.tokens_per_frame == 1
    require_ids(loudr_1)


def test_the_fingerprint_stands() -> None:
    assert LOUDR.fingerprint() == "4935346f0391d0f0"
    assert LOUDR.meaning()["frame_order"] == []
    assert LOUDR.meaning()["pairs_under"] == ["fusion_mtp2"]


def test_what_loudr_adds_to_a_contract_moves_no_other(starter: Pack) -> None:
    contract = starter.text_side.contract
    assert "pairs_under" not in contract.meaning()
    assert contract.fingerprint() == "7d885b0ff84fa295"
    paired = replace(contract, pairs_under=("fusion_mtp2",))
    assert paired.fingerprint() != contract.fingerprint()


@given(st.lists(st.integers(-3, 8200), max_size=30))
@REPEATABLE
def test_an_id_is_acoustic_when_loudkit_says_so(tokens: list[int]) -> None:
    try:
        validate_speech_tokens(tokens, limit=6561)
    except InvalidTokensError:
        index = next(at for at, token in enumerate(tokens) if not 0 <= token < 6561)
        with pytest.raises(
            TokenBandError, match=rf"^row\[{index}\]: id {tokens[index]} is outside"
        ):
            require_acoustic(tokens, "row")
    else:
        require_acoustic(tokens, "row")


@pytest.mark.parametrize("wrong", [6561, 6562, 8193, -1])
def test_a_refusal_names_index_id_and_band(wrong: int) -> None:
    with pytest.raises(TokenBandError) as refusal:
        require_acoustic([0, 6560, wrong, 5, 9999])
    told = f"tokens[2]: id {wrong} is outside band 0 (0..6560); and 1 more"
    assert str(refusal.value) == told


@pytest.mark.parametrize("wrong", [1.5, "1", None, 2**63, 2**64, -(2**70), float("nan")])
def test_what_is_no_whole_number_is_refused_not_cut(wrong: Any) -> None:
    for tokens in ([wrong], [1, 2, wrong]):
        with pytest.raises(TokenBandError, match=rf"^tokens\[{len(tokens) - 1}\]: .*no token id"):
            require_acoustic(tokens)


@pytest.mark.parametrize("length", range(6))
def test_a_carry_is_whole_pairs_under_two_token_decode_only(length: int) -> None:
    carry = [100 + at for at in range(length)]
    require_acoustic(carry)
    require_carry(carry, "single")
    if length % 2:
        with pytest.raises(FrameShapeError, match=rf"{length} tokens.*pairs.*fusion_mtp2"):
            require_carry(carry, "fusion_mtp2")
    else:
        require_carry(carry, "fusion_mtp2")
    with pytest.raises(TokenBandError, match=r"^the carry\[0\]"):
        require_carry([6561, *carry], "fusion_mtp2")


@given(st.lists(st.integers(0, 6560), max_size=40))
@REPEATABLE
def test_the_laws_own_carry_is_one(tokens: list[int]) -> None:
    raw = read_manifest(LOUDR_1)
    fused = algorithm_from({**raw, "format_version": 2, "decode": {"mode": "fusion_mtp2"}})
    require_carry(carry_tail(tokens, fused), fused.decode)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"speech_vocab_size": 8193}, "speech_vocab_size"),
        ({"start_speech_token": 6560}, "speech_tokens.start"),
        ({"stop_speech_token": 6563}, "speech_tokens.stop"),
        ({"frame": FrameConfig(tokens_per_frame=7, samples_per_frame=2048)}, "frame"),
    ],
)
def test_a_manifest_with_other_ids_is_refused_by_its_key(
    loudr_1: AlgorithmConfig, change: dict[str, Any], key: str
) -> None:
    with pytest.raises(ManifestError) as refusal:
        require_ids(replace(loudr_1, **change))
    assert refusal.value.key == key


def test_there_is_no_text_side_and_it_is_said_who_has_one(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"'loudr' has no text side.*loudkit") as refusal:
        load_text_side("loudr", tmp_path)
    assert refusal.value.key == "token_contract.name"
    assert "unknown" not in str(refusal.value)


# --- bands and differences, of any contract --------------------------------------------------

WRONG = [True, False, np.True_, None, 1.0, 10.5, "10", [10], (), 2**63, 10**5000, float("nan")]

SMALL = TokenContract(
    name="small",
    vocabulary_size=80,
    added_tokens={"<|s|>": 1, "<|e|>": 2},
    audio_base=10,
    codebook_size=8,
    start_of_speech=1,
    end_of_speech=2,
    prompt_layout=("{text}", "<|s|>"),
)


@given(st.data())
@REPEATABLE
def test_every_position_of_a_frame_has_its_own_band(data: st.DataObject) -> None:
    frames = data.draw(st.integers(1, 4))
    tokens = [
        data.draw(st.integers(first, past - 1))
        for _ in range(frames)
        for first, past in map(SMALL.band, range(7))
    ]
    require_bands(SMALL, tokens)
    at = data.draw(st.integers(0, len(tokens) - 1))
    first, past = SMALL.band(at % 7)
    wrong = data.draw(st.sampled_from([first - 1, past, 0, 66]))
    with pytest.raises(TokenBandError) as refusal:
        require_bands(SMALL, [*tokens[:at], wrong, *tokens[at + 1 :]])
    assert str(refusal.value) == (
        f"tokens[{at}]: id {wrong} is outside band {at % 7} {SMALL.frame_order[at % 7]}"
        f" ({first}..{past - 1})"
    )


def test_a_part_of_a_frame_and_a_band_that_is_not_there_are_refused() -> None:
    whole = [10 + 8 * position for position in range(7)]
    with pytest.raises(FrameShapeError, match="9 ids are 1 frames of 7 and 2 over"):
        require_bands(SMALL, [*whole, *whole[:2]])
    with pytest.raises(TokenBandError, match=r"tokens\[0\]: id 10 .*empty.*small has no audio"):
        require_bands(replace(SMALL, codebook_size=0), whole)
    require_bands(SMALL, [])


ROW = [10 + 8 * position for position in range(7)]


@pytest.mark.parametrize(
    "row",
    [
        *(None, 5, 5.0, True, "1234567", b"1234567", bytearray(7), {"a": 1}, set(ROW)),
        *(iter(ROW), (token for token in ROW), np.array(5), object()),
    ],
    ids=lambda row: type(row).__name__,
)
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises(TokenBandError, match=r"^row: .* is no row of token ids$"):
        require_bands(SMALL, row, "row")


def test_a_generator_that_is_refused_is_not_used_up() -> None:
    row: Any = (token for token in ROW)
    with pytest.raises(TokenBandError):
        require_bands(SMALL, row)
    assert list(row) == ROW


@pytest.mark.parametrize("wrong", [*WRONG, *(np.array(each) for each in (True, 10.0))], ids=shown)
@pytest.mark.parametrize("at", [0, 3, 6])
def test_what_is_no_id_is_refused_where_it_stands(wrong: Any, at: int) -> None:
    row = [*ROW[:at], wrong, *ROW[at + 1 :]]
    for given_as in (list, tuple):
        with pytest.raises(TokenBandError, match=rf"^tokens\[{at}\]: .* is no token id$"):
            require_bands(SMALL, given_as(row))


@pytest.mark.parametrize(
    "rows", [[ROW, ROW], [ROW, ROW[:2]], np.array([ROW]), np.array(ROW) > 0, np.array(ROW) / 1]
)
def test_rows_of_rows_and_arrays_of_no_ids_are_refused(rows: Any) -> None:
    with pytest.raises(TokenBandError, match=r"^tokens\[0\]: .* is no token id$"):
        require_bands(SMALL, rows)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "u8", object])
def test_ids_of_any_whole_type_are_ids(dtype: Any) -> None:
    row: Any = np.array(ROW, dtype=dtype)
    for given_as in (row, list(row), row[:0]):
        require_bands(SMALL, given_as)
    row[1] = 10
    with pytest.raises(TokenBandError, match=r"tokens\[1\]: id 10 is outside band 1"):
        require_bands(SMALL, row)
    require_bands(SMALL, ())


DIFFERENCES = [
    (replace(SMALL, vocabulary_size=79), "vocabulary_size is 79 there, 80 here"),
    (replace(SMALL, audio_base=9), "audio_base is 9 there, 10 here"),
    (replace(SMALL, codebook_size=9), "codebook_size is 9 there, 8 here"),
    (replace(SMALL, tokens_per_frame=6), "tokens_per_frame is 6 there, 7 here"),
    (replace(SMALL, start_of_speech=3), "start_of_speech is 3 there, 1 here"),
    (replace(SMALL, end_of_speech=3), "end_of_speech is 3 there, 2 here"),
    (
        replace(SMALL, added_tokens={"<|s|>": 1, "<|x|>": 2}),
        'added_tokens: id 2 is "<|x|>" there, "<|e|>" here',
    ),
    (
        replace(SMALL, added_tokens={"<|s|>": 1, "<|e|>": 3}),
        'added_tokens: id 2 is nothing there, "<|e|>" here',
    ),
    (
        replace(SMALL, added_tokens={"<|s|>": 1, "<|e|>": 2, "<|n|>": 7}),
        'added_tokens: id 7 is "<|n|>" there, nothing here',
    ),
    (
        replace(SMALL, prompt_layout=("{text}", "\n", "<|s|>")),
        r'prompt_layout[1] is "\n" there, "<|s|>" here',
    ),
    (
        replace(SMALL, prompt_layout=("{text}",)),
        'prompt_layout[1] is nothing there, "<|s|>" here',
    ),
    (
        replace(SMALL, pairs_under=("fusion_mtp2",)),
        'pairs_under is ["fusion_mtp2"] there, nothing here',
    ),
    (SMALL, ""),
]


@pytest.mark.parametrize(("other", "told"), DIFFERENCES)
def test_what_differs_first_is_named(other: TokenContract, told: str) -> None:
    read_back = json.loads(other.canonical_form())
    assert first_difference(read_back, SMALL.meaning()) == told
    if told:
        with pytest.raises(ContractMismatchError, match=re.escape(told)) as refusal:
            SMALL.require(other.fingerprint(), "a.parquet", read_back)
        assert other.fingerprint() in str(refusal.value)
        assert SMALL.fingerprint() in str(refusal.value)


def test_what_moves_every_id_is_named_before_a_single_id() -> None:
    other = replace(SMALL, audio_base=11, added_tokens={"<|s|>": 5}, prompt_layout=())
    assert first_difference(other.meaning(), SMALL.meaning()).startswith("audio_base")


@pytest.mark.parametrize(
    "strange",
    [
        {},
        {"added_tokens": []},
        {"added_tokens": {"a": None}},
        {"added_tokens": {"a": "b"}},
        {"vocabulary_size": {"deep": [1] * 1000}},
        {"prompt_layout": 5},
        {"\x1b[31m": "\x1b[31m"},
    ],
)
def test_whatever_a_file_says_is_told_in_one_short_line(strange: dict[str, Any]) -> None:
    for meaning in (strange, {**SMALL.meaning(), **strange}):
        told = first_difference(meaning, SMALL.meaning())
        assert len(told) < 300
        assert told.isprintable()
