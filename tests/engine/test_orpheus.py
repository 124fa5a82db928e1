"""The orpheus contract: the same ids under other names, and a voice that is a word of the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.contracts import llama3_audio, orpheus
from engine.contracts.contract import Conditioning
from engine.contracts.orpheus import OrpheusTextSide
from engine.contracts.registry import load_text_side
from engine.errors import (
    ContractMismatchError,
    ManifestError,
    NothingToSpeakError,
    UnknownSpeakerError,
    UnsupportedPromptError,
)
from tests import tokenizers_small as small

FINGERPRINT = "0ae2fd6cdf4ddb13"
WITH_AUDIO = "dfa2f11b59efdb6c"

repeatable = settings(deadline=None, derandomize=True, max_examples=100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write_tokenizer(tmp_path_factory.mktemp("d"), "orpheus")


@pytest.fixture(scope="module")
def side(folder: Path) -> OrpheusTextSide:
    return orpheus.load(folder)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def string_path(whole: Tokenizer, text: str) -> list[int]:
    ids: list[int] = whole.encode(text, add_special_tokens=False).ids
    return ids


def test_the_id_map_is_the_tokenizers(side: OrpheusTextSide, whole: Tokenizer) -> None:
    by_library = {token.content: id_ for id_, token in whole.get_added_tokens_decoder().items()}
    assert dict(side.contract.added_tokens) == by_library
    assert side.contract.vocabulary_size == whole.get_vocab_size() == 156_940
    for n in (0, 1, 10, 4106, 28_681, 28_683):
        assert by_library[f"<custom_token_{n}>"] == 128_256 + n


def test_audio_and_control_ids_are_llama_3_audios_and_the_fingerprint_is_not(
    side: OrpheusTextSide,
) -> None:
    ours, theirs = side.contract, llama3_audio.contract()
    assert [ours.band(at) for at in range(7)] == [theirs.band(at) for at in range(7)]
    assert ours.start_of_speech == theirs.start_of_speech == 128_257
    assert ours.end_of_speech == theirs.end_of_speech == 128_258
    assert ours.fingerprint() == FINGERPRINT
    assert ours.fingerprint() != theirs.fingerprint()


def test_each_contract_refuses_the_others_tokenizer(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ContractMismatchError) as refusal:
        llama3_audio.load(folder)
    first = "id 128256 is '<custom_token_0>' here and '<|reserved_0|>' there; 28703 more"
    assert first in str(refusal.value)
    small.write_tokenizer(tmp_path, "llama-3-audio")
    with pytest.raises(ContractMismatchError, match=r"orpheus \(156940, .*id 128256 is '<\|res"):
        orpheus.load(tmp_path)


def test_a_tokenizer_that_names_its_last_id_audio_is_of_the_family(tmp_path: Path) -> None:
    last = '"<custom_token_28683>"'
    small.write_tokenizer(tmp_path, "orpheus", (last, '"<|audio|>"'))
    found = orpheus.load(tmp_path)
    assert found.contract.added_tokens["<|audio|>"] == 156_939
    assert found.contract.fingerprint() == WITH_AUDIO
    small.write_tokenizer(tmp_path, "orpheus", (last, '"<|video|>"'))
    with pytest.raises(ContractMismatchError, match=r"id 156939 is '<\|video\|>' here and '<cust"):
        orpheus.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('"<custom_token_2>"', '"<custom_tokn_2>"'), "id 128258 is '<custom_tokn_2>' here"),
        (
            (small.entry("<custom_token_4106>", 132_362) + ", ", ""),
            "id 132362 (band 1, code 0) is nothing here and '<custom_token_4106>' there",
        ),
        (
            (
                small.entry("<custom_token_28683>", 156_939),
                f"{small.entry('<custom_token_28683>', 156_939)}, {small.entry('x', 156_940)}",
            ),
            "id 156940 is 'x' here and nothing there",
        ),
    ],
)
def test_what_was_corrupted_is_named(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    small.write_tokenizer(tmp_path, "orpheus", change)
    with pytest.raises(ContractMismatchError) as refusal:
        orpheus.load(tmp_path)
    assert named in str(refusal.value)


def test_a_prompt_by_its_ids(side: OrpheusTextSide, whole: Tokenizer) -> None:
    text = side.text_tokens("Good morning, world.")
    prompt = side.prompt(text, Conditioning("tara"))
    assert prompt == (
        *(128_259, 128_000),
        *string_path(whole, "tara: Good morning, world."),
        *(128_009, 128_260),
    )
    assert side.opening == (128_261, 128_257)


ORDINARY = st.text([*"aeHl .,!?:'\"\n\r\t12-_()\u00e9\u0301\u65e5\u3000\U0001f600"])


@given(ORDINARY, ORDINARY)
@repeatable
def test_the_two_parts_of_a_prompt_are_the_ids_of_the_whole(
    side: OrpheusTextSide, whole: Tokenizer, voice: str, text: str
) -> None:
    if not text.strip():
        with pytest.raises(NothingToSpeakError):
            side.text_tokens(text)
        return
    prompt = side.prompt(side.text_tokens(text), Conditioning(f"v{voice}"))
    assert list(prompt[2:-2]) == string_path(whole, f"v{voice}: {text.strip()}")


@pytest.mark.parametrize("text", [f"Hello <{tag}> world" for tag in orpheus.SUPPORTED_TAGS])
def test_tags_are_plain_text(side: OrpheusTextSide, whole: Tokenizer, text: str) -> None:
    tokens = side.text_tokens(text)
    assert list(tokens) == string_path(whole, f" {text}")
    assert whole.decode(list(tokens)) == f" {text}"


def test_the_tags_are_those_of_the_family() -> None:
    told = "<laugh> <chuckle> <sigh> <cough> <sniffle> <groan> <yawn> <gasp>"
    assert " ".join(f"<{tag}>" for tag in orpheus.SUPPORTED_TAGS) == told


def test_a_specials_spelling_in_a_text_or_a_voice_stays_text(
    side: OrpheusTextSide, whole: Tokenizer
) -> None:
    for special in ("<custom_token_2>", "<custom_token_4106>", "<|eot_id|>", "<|begin_of_text|>"):
        assert len(string_path(whole, special)) == 1
        prompt = side.prompt(side.text_tokens(f"a {special}b"), Conditioning(special))
        high = [token for token in prompt if token >= 128_000]
        assert high == [128_259, 128_000, 128_009, 128_260]
        assert whole.decode(list(prompt[2:-2])) == f"{special}: a {special}b"


def test_a_voice_is_needed_and_nothing_else_is_taken(side: OrpheusTextSide) -> None:
    assert side.speakers == ()
    assert side.prompt((), Conditioning("anyone"))
    with pytest.raises(UnknownSpeakerError, match="no speaker ''"):
        side.prompt((), Conditioning(""))
    for kind in ("style", "accent", "env"):
        with pytest.raises(UnsupportedPromptError, match=f"orpheus has no {kind}.*got 'calm'"):
            side.prompt((), Conditioning(**{"speaker": "tara", kind: "calm"}))


def test_a_pack_may_list_its_speakers_and_its_tags(folder: Path) -> None:
    listing, manifest = folder / "speakers.json", folder / "manifest.json"
    try:
        listing.write_text('["tara", "leo"]', encoding="utf-8")
        manifest.write_text(json.dumps({"supported_tags": ["laugh", "giggle"]}), encoding="utf-8")
        found = load_text_side("orpheus", folder)
        assert isinstance(found, OrpheusTextSide)
        assert found.speakers == ("tara", "leo")
        assert found.supported_tags == ("laugh", "giggle")
        with pytest.raises(UnknownSpeakerError, match=r"'joe'.*tara, leo"):
            found.prompt((), Conditioning("joe"))
        manifest.write_text(json.dumps({"supported_tags": ["laugh", "env"]}), encoding="utf-8")
        with pytest.raises(ManifestError, match=r"^supported_tags\[1\]: orpheus has no open class"):
            orpheus.load(folder)
    finally:
        listing.unlink()
        manifest.unlink()
