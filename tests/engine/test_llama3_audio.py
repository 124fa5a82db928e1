"""The llama-3-audio contract: its id map, what is refused under it, and its prompts."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.contracts import llama3_audio
from engine.contracts.contract import Conditioning, TokenContract
from engine.contracts.llama3_audio import Llama3AudioTextSide
from engine.contracts.llama3_ranks import merges_of
from engine.contracts.llama3_tokenizer import read_speakers, read_tokenizer, require_same_ids
from engine.contracts.registry import load_text_side
from engine.errors import (
    ContractMismatchError,
    ManifestError,
    NothingToSpeakError,
    PackMismatchError,
    TokenBandError,
    UnknownSpeakerError,
    UnsupportedTagError,
    UnsupportedTextError,
)
from engine.frames import deinterleave, interleave
from tests import tokenizers_small as small

BEGIN, EOT = 128_000, 128_009
START_OF_SPEECH, START_OF_HUMAN, END_OF_HUMAN, START_OF_AI = 128_257, 128_259, 128_260, 128_261
SPEAKER, SPEAKER_END, STYLE, STYLE_END, ENV, ENV_END = range(156_938, 156_944)
FINGERPRINT = "f628225ff00a311b"

repeatable = settings(deadline=None, derandomize=True, max_examples=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write_tokenizer(tmp_path_factory.mktemp("a"), "llama-3-audio")


@pytest.fixture(scope="module")
def side(folder: Path) -> Llama3AudioTextSide:
    return llama3_audio.load(folder)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Tokenizer:
    """The tokenizer as others use it: specials are recognised in a string."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def string_path(whole: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(whole.encode(text, add_special_tokens=False).ids)


# The id map


def test_the_id_map_is_the_tokenizers(side: Llama3AudioTextSide, whole: Tokenizer) -> None:
    by_library = {token.content: id_ for id_, token in whole.get_added_tokens_decoder().items()}
    assert dict(side.contract.added_tokens) == by_library
    assert by_library == dict(small.added_tokens("llama-3-audio"))
    assert len(by_library) == 28_960
    assert side.contract.vocabulary_size == whole.get_vocab_size() == 156_960


def test_ids_are_those_of_the_document(side: Llama3AudioTextSide) -> None:
    told = [
        ("<|begin_of_text|>", 128_000),
        ("<|reserved_special_token_0|>", 128_002),
        ("<|finetune_right_pad_id|>", 128_004),
        ("<|eot_id|>", 128_009),
        ("<|reserved_special_token_247|>", 128_255),
        ("<|reserved_0|>", 128_256),
        ("<|start_of_speech|>", 128_257),
        ("<|end_of_speech|>", 128_258),
        ("<|start_of_human|>", 128_259),
        ("<|end_of_human|>", 128_260),
        ("<|start_of_ai|>", 128_261),
        ("<|end_of_ai|>", 128_262),
        ("<|pad|>", 128_263),
        ("<|reserved_8|>", 128_264),
        ("<|reserved_9|>", 128_265),
        ("<|snac_0|>", 128_266),
        ("<|snac_28671|>", 156_937),
        ("<|speaker>", 156_938),
        ("<speaker|>", 156_939),
        ("<|style>", 156_940),
        ("<style|>", 156_941),
        ("<|env>", 156_942),
        ("<env|>", 156_943),
        *((f"<|nv_{name}|>", 156_944 + at) for at, name in enumerate(small.NON_VERBALS)),
    ]
    for spelling, token in told:
        assert side.contract.added_tokens[spelling] == token, spelling


def test_bands_start_at_128266_and_end_below_the_conditioning(side: Llama3AudioTextSide) -> None:
    bands = [side.contract.band(position) for position in range(7)]
    assert bands[0] == (128_266, 132_362)
    assert bands[6] == (152_842, 156_938)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(bands))
    assert side.contract.end_of_speech == 128_258
    assert side.contract.tokens_per_frame == 7


def test_frames_are_laid_out_in_the_ids_that_the_tokenizer_spells(
    side: Llama3AudioTextSide,
) -> None:
    codes = [[4095, 0], [1, 2, 3, 4095], [5, 6, 7, 8, 9, 10, 11, 12]]
    base, size = side.contract.audio_base, side.contract.codebook_size
    stream = [int(token) for token in interleave(*codes, audio_base=base, codebook_size=size)]
    spelled = {token: spelling for spelling, token in side.contract.added_tokens.items()}
    in_frames = [*(4095, 1, 5, 6, 2, 7, 8), *(0, 3, 9, 10, 4095, 11, 12)]
    assert [spelled[token] for token in stream] == [
        f"<|snac_{at % 7 * 4096 + code}|>" for at, code in enumerate(in_frames)
    ]
    back = deinterleave(stream, audio_base=base, codebook_size=size)
    assert [level.tolist() for level in back.levels] == codes
    shifted = [stream[0] + 4096, *stream[1:]]
    with pytest.raises(TokenBandError, match=r"tokens\[0\]: id 136457 .* \(128266\.\.132361\)"):
        deinterleave(shifted, audio_base=base, codebook_size=size)


def test_it_is_registered_by_name(folder: Path) -> None:
    found = load_text_side("llama-3-audio", folder)
    assert found.contract.name == "llama-3-audio"


# The fingerprint


def test_the_fingerprint_stands(side: Llama3AudioTextSide) -> None:
    """Manifests and records hold it."""
    assert side.contract.fingerprint() == FINGERPRINT


def read_as_it_stands(folder: Path) -> TokenContract:
    """The contract that a folder's own ids make."""
    read = read_tokenizer(folder)
    return replace(
        llama3_audio.contract(),
        added_tokens=read.added_tokens,
        vocabulary_size=read.vocabulary_size,
    )


@pytest.mark.parametrize(
    ("sibling", "size", "first"),
    [
        ("bare-156938", 156_938, "id 156938 is nothing here and '<|speaker>' there; 21 more"),
        ("trimmed-156942", 156_942, "id 156942 is nothing here and '<|env>' there; 17 more"),
        ("style-156952", 156_952, "id 156938 is '<|style>' here and '<|speaker>' there; 21 more"),
    ],
)
def test_siblings_with_the_same_audio_band_are_told_apart(
    tmp_path: Path, sibling: small.Family, size: int, first: str
) -> None:
    small.write_tokenizer(tmp_path, sibling)
    own = read_as_it_stands(tmp_path)
    ours = llama3_audio.contract()
    # What a range check sees is all the same.
    audio = [f"<|snac_{n}|>" for n in (0, 4096, 28_671)]
    assert [own.added_tokens[name] for name in audio] == [128_266, 132_362, 156_937]
    assert own.fingerprint() != FINGERPRINT
    with pytest.raises(ContractMismatchError) as refusal:
        llama3_audio.load(tmp_path)
    told = str(refusal.value)
    assert told.startswith(f"{tmp_path / 'tokenizer.json'}: {size} entries with fingerprint ")
    assert own.fingerprint() in told
    assert f"llama-3-audio (156960, {ours.fingerprint()})" in told
    assert first in told


def test_no_two_tokenizers_of_the_family_share_a_fingerprint(tmp_path: Path) -> None:
    families: tuple[small.Family, ...] = ("llama-3-audio", *small.SIBLINGS, "orpheus")
    prints = {
        read_as_it_stands(small.write_tokenizer(tmp_path / family, family)).fingerprint()
        for family in families
    }
    assert len(prints) == len(families)
    assert FINGERPRINT in prints


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        # one id
        (
            [(small.entry("<|nv_burp|>", 156_959), small.entry("<|nv_burp|>", 156_960))],
            "id 156959 is nothing here and '<|nv_burp|>' there; 1 more",
        ),
        (
            [
                (small.entry("<|style>", 156_940), small.entry("<|style>", 156_942)),
                (small.entry("<|env>", 156_942), small.entry("<|env>", 156_940)),
            ],
            "id 156940 is '<|env>' here and '<|style>' there; 1 more",
        ),
        # one spelling: of the control block, of the conditioning, of Llama's own
        (
            [('"<|pad|>"', '"<|padding|>"')],
            "id 128263 is '<|padding|>' here and '<|pad|>' there",
        ),
        (
            [('"<|nv_laugh|>"', '"<|nv_laughter|>"')],
            "id 156947 is '<|nv_laughter|>' here and '<|nv_laugh|>' there",
        ),
        (
            [('"<|finetune_right_pad_id|>"', '"<|reserved_special_token_2b|>"')],
            "id 128004 is '<|reserved_special_token_2b|>' here",
        ),
        # one band: two codes of it swapped, one of them lost, its first id gone
        (
            [
                (small.entry("<|snac_8199|>", 136_465), small.entry("<|snac_8199|>", 136_466)),
                (small.entry("<|snac_8200|>", 136_466), small.entry("<|snac_8200|>", 136_465)),
            ],
            "id 136465 (band 2, code 7) is '<|snac_8200|>' here and '<|snac_8199|>' there",
        ),
        (
            [(small.entry("<|snac_24576|>", 152_842) + ", ", "")],
            "id 152842 (band 6, code 0) is nothing here and '<|snac_24576|>' there",
        ),
        # one token more, above everything
        (
            [
                (
                    small.entry("<|nv_burp|>", 156_959),
                    f"{small.entry('<|nv_burp|>', 156_959)}, "
                    f"{small.entry('<|nv_whistle|>', 200_000)}",
                )
            ],
            "id 200000 is '<|nv_whistle|>' here and nothing there",
        ),
    ],
)
def test_what_was_corrupted_is_named(
    tmp_path: Path, changes: Sequence[tuple[str, str]], named: str
) -> None:
    small.write_tokenizer(tmp_path, "llama-3-audio", *changes)
    with pytest.raises(ContractMismatchError) as refusal:
        llama3_audio.load(tmp_path)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            (small.entry("<|pad|>", 128_263), small.entry("<|pad|>", 128_262)),
            "id 128262 is both '<|end_of_ai|>' and '<|pad|>'",
        ),
        (
            ('"<|end_of_ai|>"', '"<|start_of_ai|>"'),
            "'<|start_of_ai|>' has two ids, 128261 and 128262",
        ),
        (
            (small.entry("<|eot_id|>", 128_009), small.entry("<|eot_id|>", 9)),
            "'<|eot_id|>' has id 9, which the base vocabulary has",
        ),
        (("\": 127999}", "\": 128000}"), "id 127999 is missing"),
        (("\": 127999}", "\": 127998}"), "id 127999 is missing"),
        (("\": 127999}", "\": 127999, \"more\": 128000}"), "has 128001 entries"),
    ],
)  # fmt: skip
def test_maps_that_are_no_map_are_refused(
    tmp_path: Path, change: tuple[str, str], named: str
) -> None:
    small.write_tokenizer(tmp_path, "llama-3-audio", change)
    with pytest.raises(ContractMismatchError) as refusal:
        llama3_audio.load(tmp_path)
    assert named in str(refusal.value)


def test_what_changes_no_meaning_changes_no_fingerprint(
    tmp_path: Path, side: Llama3AudioTextSide
) -> None:
    padding = {
        "strategy": {"Fixed": 64},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 128_263,
        "pad_type_id": 0,
        "pad_token": "<|pad|>",
    }
    cut = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    special = small.entry("<|snac_5|>", 128_271)
    small.write_tokenizer(
        tmp_path,
        "llama-3-audio",
        ('"padding": null', f'"padding": {json.dumps(padding)}'),
        ('"truncation": null', f'"truncation": {json.dumps(cut)}'),
        ('"dropout": null', '"dropout": 0.5'),
        (special, special.replace('"special": true', '"special": false')),
    )
    config = {
        "padding_side": "right",
        "model_max_length": 7,
        "chat_template": "{{ x }}",
        "bos_token": "<|pad|>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    other = llama3_audio.load(tmp_path)
    assert other.contract.fingerprint() == side.contract.fingerprint()
    # Nor do they pad, cut or shake a text.
    text = "Hello world. " * 40
    assert other.text_tokens(text) == side.text_tokens(text)
    assert len(other.text_tokens("a")) == 1


def test_each_part_of_the_meaning_moves_the_fingerprint() -> None:
    ours = llama3_audio.contract()
    ids = ours.added_tokens
    moved = [
        replace(ours, vocabulary_size=156_961),
        replace(ours, audio_base=128_267),
        replace(ours, codebook_size=4095),
        replace(ours, tokens_per_frame=6),
        replace(ours, end_of_speech=128_262),
        replace(ours, start_of_speech=128_261),
        replace(ours, prompt_layout=(*ours.prompt_layout, "<|start_of_speech|>")),
        replace(ours, added_tokens={**ids, "<|style>": 156_942, "<|env>": 156_940}),
    ]
    assert len({ours.fingerprint(), *(other.fingerprint() for other in moved)}) == 9


# Files


def test_a_rank_file_is_the_same_tokenizer(tmp_path: Path, side: Llama3AudioTextSide) -> None:
    small.write_tokenizer_model(tmp_path, "llama-3-audio")
    other = llama3_audio.load(tmp_path)
    assert other.contract.fingerprint() == side.contract.fingerprint()
    own = tiktoken.Encoding(
        "small",
        pat_str=small.PATTERN,
        mergeable_ranks={token: rank for rank, token in enumerate(small.ranks())},
        special_tokens={},
    )
    alphabet = "Hello wrd.\n\n the bird 123 \u00e9t\u00e9 \u65e5\u672c <|eot_id|> tara: ing"
    for seed in range(300):
        drawn = random.Random(seed).choices([*alphabet, " the", "ing", " zyx", " zyx "], k=40)
        text = "".join(drawn).strip()
        ids = tuple(own.encode_ordinary(text))
        assert other.text_tokens(text) == ids, text
        assert side.text_tokens(text) == ids, text


def test_merges_are_all_pairs_by_what_they_make() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5, b"zz": 6}
    assert merges_of(ranks) == [(b"b", b"c"), (b"a", b"b"), (b"a", b"bc"), (b"ab", b"c")]


def test_added_tokens_json_serves_beside_a_rank_file(tmp_path: Path) -> None:
    small.write_tokenizer_model(tmp_path, "llama-3-audio")
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(PackMismatchError, match=r"no added tokens.*save the tokenizer as"):
        llama3_audio.load(tmp_path)
    (tmp_path / "added_tokens.json").write_text(
        json.dumps(dict(small.added_tokens("llama-3-audio"))), encoding="utf-8"
    )
    require_same_ids(read_tokenizer(tmp_path), llama3_audio.contract())


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("tokenizer.json", b"{", "cannot be read as JSON"),
        ("tokenizer.json", b"[]", r"model\.type must be 'BPE'"),
        ("tokenizer.json", b'{"model": {"type": "Unigram"}}', r"model\.type must be 'BPE'"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', r"model\.vocab must be an object"),
        ("tokenizer.json", b'{"model": 1, "model": 2}', "key 'model' stands there twice"),
        ("tokenizer.json", b"\xff", "cannot be read as JSON"),
        ("tokenizer.model", b"\x0a\x0e\x0a\x05<unk>", "SentencePiece model belongs to another"),
        ("tokenizer.model", b"AA== 1\n", r":1: is no line of a tiktoken rank file"),
        ("tokenizer.model", b"AA== 0\nAA== 1\n", r":2: is no line of a tiktoken rank file"),
        ("tokenizer.model", b"AA== 0\n", "has 1 ranks, Llama-3 has 128000"),
        ("vocab.json", b"{}", r"holds neither tokenizer\.json nor tokenizer\.model"),
    ],
)
def test_files_that_are_no_such_tokenizer_are_refused(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    beside = {"added_tokens_decoder": {"128000": {"content": "<|begin_of_text|>"}}}
    if name == "tokenizer.model":
        config = json.dumps(beside | {"x": 1})
        (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
        with pytest.raises(PackMismatchError, match=told):
            read_tokenizer(tmp_path).build()
    else:
        with pytest.raises(PackMismatchError, match=told):
            llama3_audio.load(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        '{"content": "<|x|>"}',
        '{"id": true, "content": "<|x|>"}',
        '{"id": 1.5, "content": ""}',
        '{"id": 156960, "content": null}',
        '{"id": 156960, "content": "\\ud800"}',
        "7",
    ],
)
def test_an_added_token_needs_a_content_and_an_id(tmp_path: Path, entry: str) -> None:
    last = small.entry("<|nv_burp|>", 156_959)
    small.write_tokenizer(tmp_path, "llama-3-audio", (last, f"{last}, {entry}"))
    with pytest.raises(PackMismatchError, match=r"added token (28960 must|.*half of a)"):
        llama3_audio.load(tmp_path)


# Prompts


def rendered(text: str, speaker: str, style: str, accent: str, env: str) -> str:
    """The layout as the document writes it."""
    said = [(speaker, "speaker"), (style, "style"), (accent, "style"), (env, "env")]
    blocks = "".join(f"<|{wrap}>{value}<{wrap}|>\n" for value, wrap in said if value)
    return (
        f"<|start_of_human|><|begin_of_text|>{blocks}{text}<|eot_id|><|end_of_human|>"
        "<|start_of_ai|>"
    )


def test_a_prompt_by_its_ids(side: Llama3AudioTextSide) -> None:
    newline, hello = 10, side.text_tokens("Hello")
    assert len(hello) == 1
    voice = Conditioning("joe", style="bird", accent="tara", env="laugh")
    name, style, accent, env = (side.text_tokens(w) for w in ("joe", "bird", "tara", "laugh"))
    assert side.prompt(hello, voice) == (
        *(START_OF_HUMAN, BEGIN),
        *(SPEAKER, *name, SPEAKER_END, newline),
        *(STYLE, *style, STYLE_END, newline),
        *(STYLE, *accent, STYLE_END, newline),
        *(ENV, *env, ENV_END, newline),
        *hello,
        *(EOT, END_OF_HUMAN, START_OF_AI),
    )
    assert side.opening == (START_OF_SPEECH,)
    assert side.prompt(hello, Conditioning("")) == (
        *(START_OF_HUMAN, BEGIN, *hello, EOT, END_OF_HUMAN, START_OF_AI),
    )


@pytest.mark.parametrize("filled", list(itertools.product([True, False], repeat=4)))
def test_blocks_stand_in_order_and_an_empty_one_not_at_all(
    side: Llama3AudioTextSide, whole: Tokenizer, filled: tuple[bool, ...]
) -> None:
    values = ["Anagha", "calm, slow", "Scottish English", "in a\tcave"]
    speaker, style, accent, env = (v if yes else "" for v, yes in zip(values, filled, strict=True))
    text = "Good morning.\n\nHello world!"
    prompt = side.prompt(side.text_tokens(text), Conditioning(speaker, style, accent, env))
    assert prompt == string_path(whole, rendered(text, speaker, style, accent, env))


ORDINARY = st.text(
    st.sampled_from([*"aeHl .,!?:'\"\n\r\t12-_()\u00e9\u0301\u65e5\u3000\U0001f600"])
)


@given(ORDINARY, ORDINARY, ORDINARY)
@repeatable
def test_the_explicit_path_gives_the_ids_of_the_string_path(
    side: Llama3AudioTextSide, whole: Tokenizer, text: str, speaker: str, style: str
) -> None:
    if not text.strip():
        with pytest.raises(NothingToSpeakError):
            side.text_tokens(text)
        return
    prompt = side.prompt(side.text_tokens(text), Conditioning(speaker, style))
    assert prompt == string_path(whole, rendered(text.strip(), speaker, style, "", ""))


def test_a_specials_spelling_in_a_text_stays_text(
    side: Llama3AudioTextSide, whole: Tokenizer
) -> None:
    specials = [spelling for spelling, _ in small.added_tokens("llama-3-audio")]
    for special in (*specials[:270], *specials[-24:]):
        text = f"Hello {special}\nworld{special}"
        tokens = side.text_tokens(text)
        assert max(tokens) < 128_000
        assert whole.decode(list(tokens), skip_special_tokens=False) == text
        prompt = side.prompt(tokens, Conditioning(special, special, special, special))
        assert [token for token in prompt if token >= 128_000] == [
            *(START_OF_HUMAN, BEGIN, SPEAKER, SPEAKER_END, STYLE, STYLE_END, STYLE, STYLE_END),
            *(ENV, ENV_END, EOT, END_OF_HUMAN, START_OF_AI),
        ]
        dialogue = side.dialogue_prompt([(special, text)])
        assert [token for token in dialogue if token >= 128_000] == [
            *(START_OF_HUMAN, BEGIN, SPEAKER, SPEAKER_END, EOT, END_OF_HUMAN, START_OF_AI)
        ]


def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(
    side: Llama3AudioTextSide,
) -> None:
    text = "Hello \ud800"
    with pytest.raises(UnsupportedTextError, match=r"^the text holds half of a surrogate pair"):
        side.text_tokens(text)
    for kind in ("speaker", "style", "accent", "env"):
        voice = Conditioning(**{"speaker": "joe", kind: text})
        with pytest.raises(UnsupportedTextError, match=f"^the {kind} holds half"):
            side.prompt((), voice)
    with pytest.raises(UnsupportedTextError, match=r"^turns\[1\]: the text holds half"):
        side.dialogue_prompt([("A", "Hello"), ("B", text)])
    with pytest.raises(UnsupportedTextError, match=r"^turns\[1\]: the speaker holds half"):
        side.dialogue_prompt([("A", "Hello"), (text, "Hello")])
    assert side.text_tokens("Hello \U0001f680")


def test_tags_become_their_ids(side: Llama3AudioTextSide, whole: Tokenizer) -> None:
    for at, name in enumerate(small.NON_VERBALS):
        assert side.text_tokens(f"<{name}>") == (156_944 + at,)
    told = "Hello <laugh> world, [bird_squawk] the bird<sigh>!"
    written = "Hello <|nv_laugh|> world, <|env>bird squawk<env|> the bird<|nv_sigh|>!"
    assert side.text_tokens(told) == string_path(whole, written)
    with pytest.raises(UnsupportedTagError, match=r"<chuckle> is no tag.*has <breath> .*<burp>"):
        side.text_tokens("Hello <chuckle> world")
    for text in ("x\u0304<foo> x\u0304[rain]", "\u0939\u0948[rain]", "<laugh > <laugh/> <laugh1>"):
        assert max(side.text_tokens(text)) < 128_000
    for text in ("a < b", "x[1] and [12]", "a<b", "</laugh>", "<|nv_laugh|>", "List<int> x[i]"):
        assert max(side.text_tokens(text)) < 128_000


# Dialogue


def test_turns_stand_in_the_text_with_a_blank_line_between(
    side: Llama3AudioTextSide, whole: Tokenizer
) -> None:
    turns = [("A", "Good morning."), ("B", "Hello\n\n\nworld!\n"), ("A", " <laugh> the bird ")]
    written = (
        "<|start_of_human|><|begin_of_text|>"
        "<|speaker>A<speaker|>\nGood morning.\n\n"
        "<|speaker>B<speaker|>\nHello\n\n\nworld!\n\n"
        "<|speaker>A<speaker|>\n<|nv_laugh|> the bird"
        "<|eot_id|><|end_of_human|><|start_of_ai|>"
    )
    prompt = side.dialogue_prompt(turns)
    assert prompt == string_path(whole, written)
    assert whole.decode(list(prompt), skip_special_tokens=False) == written
    # The break is one token with the mark before it, as in a string; not a newline of its own.
    assert len(whole.encode(".\n\n", add_special_tokens=False).ids) == 1


@given(st.lists(st.tuples(ORDINARY, ORDINARY), min_size=1, max_size=4))
@repeatable
def test_any_dialogue_has_the_ids_of_its_string(
    side: Llama3AudioTextSide, whole: Tokenizer, turns: list[tuple[str, str]]
) -> None:
    turns = [(f"S{speaker}", f"{text}." if not text.strip() else text) for speaker, text in turns]
    said = "\n\n".join(f"<|speaker>{name}<speaker|>\n{text.strip()}" for name, text in turns)
    assert side.dialogue_prompt(turns) == string_path(whole, rendered(said, "", "", "", ""))


def test_turns_that_cannot_be_spoken_are_named(side: Llama3AudioTextSide) -> None:
    with pytest.raises(NothingToSpeakError, match="no turn"):
        side.dialogue_prompt([])
    with pytest.raises(NothingToSpeakError, match=r"turns\[1\]: the text is empty"):
        side.dialogue_prompt([("A", "Hello"), ("B", " \n")])
    with pytest.raises(UnknownSpeakerError, match=r"turns\[0\]: .*needs a speaker"):
        side.dialogue_prompt([("", "Hello")])


# What a pack says beside its tokenizer


def test_any_speaker_is_taken_unless_the_pack_lists_them(
    folder: Path, side: Llama3AudioTextSide
) -> None:
    assert side.speakers == ()
    assert side.prompt((), Conditioning("any body"))
    listing = folder / "speakers.json"
    listing.write_text('["joe", "tara"]', encoding="utf-8")
    try:
        listed = llama3_audio.load(folder)
        assert listed.speakers == ("joe", "tara")
        assert listed.prompt((), Conditioning("tara")) == side.prompt((), Conditioning("tara"))
        with pytest.raises(UnknownSpeakerError, match=r"no speaker 'jo'.*joe, tara"):
            listed.prompt((), Conditioning("jo"))
        with pytest.raises(UnknownSpeakerError, match=r"turns\[1\]: no speaker 'ann'"):
            listed.dialogue_prompt([("joe", "Hello"), ("ann", "Hello")])
        for wrong in ("[]", '{"joe": 1}', '["joe", "joe"]', '["joe", ""]', '["joe", 1]', "[1"):
            listing.write_text(wrong, encoding="utf-8")
            with pytest.raises(PackMismatchError, match=r"speakers\.json"):
                read_speakers(folder)
    finally:
        listing.unlink()


def test_a_pack_has_the_tags_that_its_manifest_lists(
    folder: Path, side: Llama3AudioTextSide
) -> None:
    assert side.supported_tags == (*small.NON_VERBALS, "env")
    manifest = folder / "manifest.json"
    try:
        manifest.write_text('{"supported_tags": ["laugh"]}', encoding="utf-8")
        few = llama3_audio.load(folder)
        assert few.supported_tags == ("laugh",)
        assert few.text_tokens("<laugh> [rain]")[0] == 156_947
        assert max(few.text_tokens("Hello [rain]")) < 128_000
        with pytest.raises(UnsupportedTagError, match=r"<sigh> is no tag.*it has <laugh>$"):
            few.text_tokens("<sigh>")
        manifest.write_text('{"supported_tags": []}', encoding="utf-8")
        assert max(llama3_audio.load(folder).text_tokens("<laugh> <b> [rain]")) < 128_000
        wrong: list[tuple[str, str]] = [
            ('["laugh", "giggle"]', r"supported_tags\[1\]: 'giggle' is no tag of llama-3-audio"),
            ('["<laugh>"]', r"supported_tags\[0\]: '<laugh>' is no tag's bare name"),
            ("[7]", "supported_tags: must be a list of names"),
        ]
        for listed, told in wrong:
            manifest.write_text(f'{{"supported_tags": {listed}}}', encoding="utf-8")
            with pytest.raises(ManifestError, match=told):
                llama3_audio._tags_of(folder)
    finally:
        manifest.unlink()
