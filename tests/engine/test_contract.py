"""Token contracts: what moves a fingerprint, and what is refused under another one."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace

import pytest

from engine.contracts.contract import FRAME_ORDER, TokenContract
from engine.contracts.registry import load_text_side
from engine.errors import ContractMismatchError, ManifestError
from engine.pack import Pack

IDS = {"<|start_of_speech|>": 2, "<|end_of_speech|>": 3, "aa": 0, "\u00e4": 1, "slt": 4}
CONTRACT = TokenContract(
    name="toy",
    vocabulary_size=64,
    added_tokens=IDS,
    audio_base=8,
    codebook_size=8,
    start_of_speech=2,
    end_of_speech=3,
    prompt_layout=("{text}", "<|start_of_speech|>"),
)


def respelled(old: str, new: str) -> dict[str, int]:
    return {new if name == old else name: token for name, token in IDS.items()}


MOVED = {
    "an id": replace(CONTRACT, added_tokens=IDS | {"slt": 5}),
    "two ids swapped": replace(CONTRACT, added_tokens=IDS | {"aa": 1, "\u00e4": 0}),
    "a spelling": replace(CONTRACT, added_tokens=respelled("slt", "stl")),
    "an accent": replace(CONTRACT, added_tokens=respelled("\u00e4", "a")),
    "another composition": replace(CONTRACT, added_tokens=respelled("\u00e4", "a\u0308")),
    "a token more": replace(CONTRACT, added_tokens=IDS | {"rms": 5}),
    "a token less": replace(CONTRACT, added_tokens={k: v for k, v in IDS.items() if k != "slt"}),
    "the vocabulary": replace(CONTRACT, vocabulary_size=65),
    "the audio base": replace(CONTRACT, audio_base=7),
    "the codebook": replace(CONTRACT, codebook_size=7),
    "the start": replace(CONTRACT, start_of_speech=4),
    "the stop": replace(CONTRACT, end_of_speech=4),
    "the layout": replace(CONTRACT, prompt_layout=("<|start_of_speech|>", "{text}")),
    "a longer layout": replace(CONTRACT, prompt_layout=("slt", *CONTRACT.prompt_layout)),
    "the frame": replace(CONTRACT, tokens_per_frame=6),
}


@pytest.mark.parametrize("what", MOVED)
def test_the_fingerprint_moves_with_the_meaning(what: str) -> None:
    assert MOVED[what].fingerprint() != CONTRACT.fingerprint()


def test_every_moved_contract_has_a_fingerprint_of_its_own() -> None:
    assert len({contract.fingerprint() for contract in MOVED.values()}) == len(MOVED)


def test_the_fingerprint_moves_with_the_order_of_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    before = CONTRACT.fingerprint()
    swapped = (FRAME_ORDER[0], FRAME_ORDER[2], FRAME_ORDER[1], *FRAME_ORDER[3:])
    monkeypatch.setattr("engine.contracts.contract.FRAME_ORDER", swapped)
    assert CONTRACT.fingerprint() != before


def test_the_order_of_the_map_and_the_name_mean_nothing() -> None:
    names = list(IDS)
    for seed in range(20):
        random.Random(seed).shuffle(names)
        shuffled = replace(CONTRACT, added_tokens={name: IDS[name] for name in names})
        assert shuffled.fingerprint() == CONTRACT.fingerprint()
    assert replace(CONTRACT, name="else").fingerprint() == CONTRACT.fingerprint()


def test_the_fingerprints_of_this_build_stand() -> None:
    """Records hold them: a change of the canonical form would orphan every one."""
    assert CONTRACT.fingerprint() == "bb77cc627c5b4285"
    assert re.fullmatch("[0-9a-f]{16}", CONTRACT.fingerprint())


def test_the_starters_fingerprint_is_over_its_own_table(starter: Pack) -> None:
    contract = starter.text_side.contract
    assert contract.fingerprint() == "7d885b0ff84fa295"
    table = json.loads((starter.root / "tokens.json").read_text(encoding="utf-8"))
    assert dict(contract.added_tokens) == table["ids"]
    assert len(set(contract.added_tokens.values())) == len(contract.added_tokens)


def test_ids_of_another_contract_are_refused_by_both_names() -> None:
    CONTRACT.require(CONTRACT.fingerprint(), "part-00000.parquet")
    other = MOVED["an id"].fingerprint()
    with pytest.raises(ContractMismatchError) as refusal:
        CONTRACT.require(other, "part-00000.parquet")
    told = str(refusal.value)
    assert told.startswith("part-00000.parquet was made under")
    assert other in told
    assert CONTRACT.fingerprint() in told
    assert refusal.value.code == "contract_mismatch"
    for near in ("", CONTRACT.fingerprint()[:-1], CONTRACT.fingerprint().upper()):
        with pytest.raises(ContractMismatchError):
            CONTRACT.require(near, "a ledger")


@pytest.mark.parametrize("position", range(7))
def test_bands_tile_the_audio_ids(starter: Pack, position: int) -> None:
    assert CONTRACT.band(position) == (8 + 8 * position, 16 + 8 * position)
    contract = starter.text_side.contract
    first, past = contract.band(position)
    assert (first, past) == (76 + 512 * position, 76 + 512 * (position + 1))
    others = [contract.band(at) for at in range(7)]
    assert [after[0] for _, after in itertools.pairwise(others)] == [
        band[1] for band in others[:-1]
    ]
    assert past <= contract.vocabulary_size
    assert not [name for name, token in contract.added_tokens.items() if first <= token < past]


def test_an_unknown_contract_is_refused_with_what_is_known(starter: Pack) -> None:
    with pytest.raises(ManifestError, match=r"^token_contract\.name: 'lavendel'.*arpabet"):
        load_text_side("lavendel", starter.root)
