"""A tokenizer.json whose settings or vocabulary are not Llama-3's is refused by what differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers

from engine.contracts import llama3_audio, orpheus
from engine.contracts.llama3_json import bpe_of_document, library_errors, require_round_trips
from engine.contracts.llama3_tokenizer import PlainTextEncoder, read_speakers, read_tokenizer
from engine.errors import ContractMismatchError, PackMismatchError, UnsupportedTextError
from tests import tokenizers_small as small

PATH = Path("tokenizer.json")
TEXT = "Good morning,  world's \u65e5\u672c \U0001f600\r\n 12345 <|eot_id|> \u00e9t\u00e9 zyx"

Document = dict[str, Any]
Change = Callable[[Document], object]


@pytest.fixture(scope="module")
def genuine() -> Document:
    parsed: Document = json.loads(small.tokenizer_json("llama-3-audio"))
    return parsed


@pytest.fixture
def document(genuine: Document) -> Document:
    """A document that may be changed; the vocabulary and the merges are the module's own."""
    copied: Document = json.loads(json.dumps({k: v for k, v in genuine.items() if k != "model"}))
    return copied | {"model": dict(genuine["model"])}


@pytest.fixture(scope="module")
def ids(genuine: Document) -> list[int]:
    whole: list[int] = bpe_of_document(genuine, PATH).encode(TEXT, add_special_tokens=False).ids
    return whole


def _cut(at: int, **changes: object) -> Change:
    return lambda d: d["pre_tokenizer"]["pretokenizers"][at].update(changes)


def _model(**changes: object) -> Change:
    return lambda d: d["model"].update(changes)


def _vocab(change: Callable[[dict[str, int]], object]) -> Change:
    def apply(document: Document) -> None:
        vocab = dict(document["model"]["vocab"])
        change(vocab)
        document["model"]["vocab"] = vocab

    return apply


def _merges(change: Callable[[list[Any]], object]) -> Change:
    def apply(document: Document) -> None:
        merges = list(document["model"]["merges"])
        change(merges)
        document["model"]["merges"] = merges

    return apply


def _swap(vocab: dict[str, int]) -> None:
    vocab["\u0120the"], vocab["ing"] = vocab["ing"], vocab["\u0120the"]


# -- what is taken --------------------------------------------------------------------------------

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": False,
    "use_regex": True,
}
SAME: dict[str, Change] = {
    "as transformers saves it": lambda d: None,
    "merges as strings": _merges(lambda m: m.__setitem__(slice(None), [" ".join(p) for p in m])),
    "split by removing the rest": _cut(0, behavior="Removed", invert=True),
    "offsets kept": _cut(1, trim_offsets=False),
    "empty affixes": _model(continuing_subword_prefix="", end_of_word_suffix=""),
    "settings left out": lambda d: [d["model"].pop(k) for k in ("byte_fallback", "unk_token")],
    "dropout, which is for training": _model(dropout=0.9),
    "a sequence of no normalizers": lambda d: d.update(
        normalizer={"type": "Sequence", "normalizers": []}
    ),
    "post-processors in a sequence": lambda d: d.update(
        post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, d["post_processor"]]}
    ),
    "nothing after the model": lambda d: d.update(post_processor=None, decoder=None),
    "padding and truncation": lambda d: d.update(
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_id_is_taken(document: Document, ids: list[int], name: str) -> None:
    SAME[name](document)
    bpe = bpe_of_document(document, PATH)
    require_round_trips(bpe, PATH)
    assert PlainTextEncoder(bpe).encode(TEXT) == ids


def test_a_file_from_before_whole_words_were_looked_up_is_taken(document: Document) -> None:
    """Llama-3's first files are without the setting; they merge where newer ones look up."""
    del document["model"]["ignore_merges"]
    bpe = bpe_of_document(document, PATH)
    require_round_trips(bpe, PATH)
    assert len(bpe.encode(" zyx", add_special_tokens=False).ids) == 4


# -- what is refused ------------------------------------------------------------------------------

OTHER: dict[str, tuple[Change, str]] = {
    "lower case": (lambda d: d.update(normalizer={"type": "Lowercase"}), "normalizer must be"),
    "letters removed": (
        lambda d: d.update(
            normalizer={"type": "Replace", "pattern": {"Regex": "."}, "content": ""}
        ),
        "normalizer must be null",
    ),
    "special prepended": (
        lambda d: d.update(normalizer={"type": "Prepend", "prepend": "<|eot_id|>"}),
        "normalizer must be null",
    ),
    "normalizer of no kind": (lambda d: d.update(normalizer="\x1b[2J"), "got '\\x1b[2J'"),
    "no cut": (lambda d: d.update(pre_tokenizer=None), "pre_tokenizer must be"),
    "cut left out": (lambda d: d.pop("pre_tokenizer"), "pre_tokenizer must be"),
    "cut of no kind": (lambda d: d.update(pre_tokenizer=[1]), "pre_tokenizer must be"),
    "GPT-2's cut": (
        lambda d: d.update(pre_tokenizer=BYTE_LEVEL | {"add_prefix_space": False}),
        "pre_tokenizer must be",
    ),
    "bytes before the cut": (
        lambda d: d["pre_tokenizer"]["pretokenizers"].reverse(),
        "pre_tokenizer must be",
    ),
    "one step of two": (
        lambda d: d["pre_tokenizer"]["pretokenizers"].pop(0),
        "pre_tokenizer must be",
    ),
    "steps of no kind": (
        lambda d: d["pre_tokenizer"].update(pretokenizers=[1, None]),
        "pre_tokenizer must be",
    ),
    "another pattern": (_cut(0, pattern={"Regex": r"\s+"}), "pre_tokenizer must be"),
    "pattern that never ends": (_cut(0, pattern={"Regex": "(.|..)*!$"}), "pre_tokenizer must be"),
    "pattern that is none": (_cut(0, pattern={"Regex": "("}), "pre_tokenizer must be"),
    "pattern as a plain string": (
        _cut(0, pattern={"String": small.PATTERN}),
        "pre_tokenizer must be",
    ),
    "matches thrown away": (_cut(0, behavior="Removed"), "pre_tokenizer must be"),
    "matches merged": (_cut(0, behavior="MergedWithPrevious"), "pre_tokenizer must be"),
    "a space added": (_cut(1, add_prefix_space=True), "pre_tokenizer must be"),
    "cut twice": (_cut(1, use_regex=True), "pre_tokenizer must be"),
    "prefix": (
        _model(continuing_subword_prefix="##########"),
        "model.continuing_subword_prefix must be",
    ),
    "prefix of two bytes": (
        _model(continuing_subword_prefix="\u00e9"),
        "model.continuing_subword_prefix must be",
    ),
    "suffix": (_model(end_of_word_suffix="</w>"), "model.end_of_word_suffix must be"),
    "unknown token": (_model(unk_token="<unk>"), "model.unk_token must be null"),
    "byte fallback": (_model(byte_fallback=True), "model.byte_fallback must be false"),
    "no yes and no no": (_model(ignore_merges="yes"), "model.ignore_merges must be"),
    "no merges": (_model(merges=None), "model.merges must be a list"),
    "merges of nothing": (_model(merges=[]), "model.merges has 0 of the "),
    "merges cut short": (_merges(lambda m: m.pop()), "model.merges has "),
    "a merge twice": (_merges(lambda m: m.append(m[-1])), "in the order of the ids they make"),
    "merges in another order": (
        _merges(lambda m: m.insert(0, m.pop())),
        "model.merges[1]: ['H', 'e'] makes id 256, and the one before it",
    ),
    "merge of strangers": (_merges(lambda m: m.insert(3, ["zz", "qq"])), "model.merges[3]: ['zz'"),
    "merge of three": (_merges(lambda m: m.insert(0, ["a", "b", "c"])), "model.merges[0]: ['a', "),
    "merge of no kind": (_merges(lambda m: m.insert(0, 7)), "model.merges[0]: 7 is no pair"),
    "ids swapped": (_vocab(_swap), "in the order of the ids they make"),
    "a byte without a token": (
        _vocab(lambda v: v.update({"filler": v.pop("\u00c3")})),
        "model.vocab has no token '\u00c3'",
    ),
    "a token that is no bytes": (
        _vocab(lambda v: v.update({"\u2603": v.pop("\u0120zyx")})),
        "model.vocab: '\u2603' is not spelt in",
    ),
    "an empty token": (_vocab(lambda v: v.update({"": v.pop("\u0120zyx")})), "model.vocab: '' is"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_what_changes_ids_is_refused_by_its_key(document: Document, name: str) -> None:
    change, told = OTHER[name]
    change(document)
    with pytest.raises(PackMismatchError) as refused:
        bpe_of_document(document, PATH)
    line = str(refused.value)
    assert line.startswith("tokenizer.json: ")
    assert told in line
    assert line.isprintable()
    assert len(line) < 500


def test_a_contract_refuses_it_too(tmp_path: Path, document: Document) -> None:
    document["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(PackMismatchError, match=r"tokenizer\.json: normalizer must be null"):
        llama3_audio.load(tmp_path)


def test_a_panic_of_the_library_is_one_line() -> None:
    """Its Rust code panics where a prefix is longer than a token; that is no `Exception`."""
    vocab = {"a": 0, "b": 1, "ab": 2}
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]}
    panicking = json.dumps({"version": "1.0", "model": model | {"continuing_subword_prefix": "##"}})
    refusal = pytest.raises(PackMismatchError, match="the tokenizers library refuses it: ")
    with refusal, library_errors(PATH):
        Tokenizer.from_str(panicking)
    with pytest.raises(KeyboardInterrupt), library_errors(PATH):
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["lower case", "nothing"])
def test_text_that_does_not_come_back_is_refused(genuine: Document, kind: str) -> None:
    bpe = Tokenizer(models.BPE())
    if kind == "lower case":
        bpe = bpe_of_document(genuine, PATH)
        bpe.normalizer = normalizers.Lowercase()
    with pytest.raises(PackMismatchError, match="mangles plain text"):
        require_round_trips(bpe, PATH)


def test_half_of_a_surrogate_pair_has_no_ids(genuine: Document) -> None:
    encoder = PlainTextEncoder(bpe_of_document(genuine, PATH))
    with pytest.raises(UnsupportedTextError, match=r"surrogate pair is in 'a\\ud800'"):
        encoder.encode("a\ud800")


# -- files beside it ------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", [llama3_audio, orpheus])
def test_a_plain_llama_tokenizer_is_told_by_its_file_and_first_id(
    tmp_path: Path, document: Document, contract: Any
) -> None:
    document["added_tokens"] = document["added_tokens"][:256]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ContractMismatchError) as refused:
        contract.load(tmp_path)
    told = str(refused.value)
    assert told.startswith(f"{tmp_path / 'tokenizer.json'}: 128256 entries are not {contract.NAME}")
    assert "id 128256 is nothing here and '<" in told


@pytest.mark.parametrize(
    "names", ['["a\\nb"]', '["\\u001b[31m"]', '["\\ud800"]', '["a", " "]', "[" * 100_000]
)
def test_speakers_are_lines_of_text(tmp_path: Path, names: str) -> None:
    (tmp_path / "speakers.json").write_text(names, encoding="utf-8")
    with pytest.raises(PackMismatchError, match=r"speakers\.json: "):
        read_speakers(tmp_path)


def test_an_id_of_too_many_digits_beside_a_rank_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"")
    decoder = {"added_tokens_decoder": {"9" * 5000: {"content": "<|x|>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(decoder), encoding="utf-8")
    with pytest.raises(PackMismatchError, match="its added tokens cannot be read"):
        read_tokenizer(tmp_path)


def test_an_added_token_that_is_a_megabyte_is_shown_in_part(tmp_path: Path) -> None:
    last = small.entry("<|nv_burp|>", 156_959)
    long = small.entry("\x1b" * 10**6, 156_959)
    small.write_tokenizer(tmp_path, "llama-3-audio", (last, long))
    with pytest.raises(ContractMismatchError) as refused:
        llama3_audio.load(tmp_path)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600
