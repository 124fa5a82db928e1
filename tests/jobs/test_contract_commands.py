"""`contract show` and `contract check`: what ids mean, and files whose ids mean something else."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.export import TokenRow, write_token_parts
from engine.contracts.contract import TokenContract
from engine.contracts.loudr import LOUDR
from engine.contracts.registry import load_text_side
from engine.pack import Pack, open_pack
from jobs.contracts import contract_of_pack, describe_lines, meaning_for_file
from tests.jobs.conftest import Outcome

ROOT = Path(__file__).parents[2]
LOUDR_1 = ROOT / "tests" / "engine" / "data" / "manifest-loudr-1.json"
FRAME = [76 + 512 * position + 5 for position in range(7)]
Loudkit = Callable[..., Outcome]


def row(tokens: Sequence[int], number: int = 0) -> TokenRow:
    return TokenRow("slt", f"p{number}", 0, 0, 7, "Good morning.", tuple(tokens))


def write(
    folder: Path, pack: Pack, rows: Sequence[TokenRow], *, explained: bool = True, per_part: int = 9
) -> Path:
    """Token Parquet as a job leaves it; the first part."""
    contract = pack.text_side.contract
    write_token_parts(
        folder,
        iter(rows),
        algorithm_fingerprint=pack.algorithm.fingerprint(),
        token_contract_fingerprint=contract.fingerprint(),
        pack_sha256=pack.sha256,
        token_contract=meaning_for_file(contract) if explained else "",
        rows_per_part=per_part,
    )
    return folder / "part-00000.parquet"


def altered(part: Path, **changes: str | None) -> Path:
    """The part with other metadata; None takes a field away."""
    table = pq.read_table(part)
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    kept = {key: value for key, value in (metadata | changes).items() if value is not None}
    columns = table.schema.with_metadata(kept)
    pq.write_table(pa.Table.from_arrays(table.columns, schema=columns), part)
    return part


def sibling(folder: Path, **changes: int) -> Path:
    """The starter with other ids for these spellings, and a manifest that agrees."""
    starter = open_pack("starter").root
    folder.mkdir()
    for name in ("manifest.json", "tokens.json", "lexicon.tsv.gz", "lts.tsv.gz"):
        shutil.copy(starter / name, folder / name)
    table = json.loads((folder / "tokens.json").read_text("utf-8"))
    table["vocab_size"] = changes.pop("vocab_size", table["vocab_size"])
    table["audio_base"] = changes.pop("audio_base", table["audio_base"])
    table["ids"] |= changes
    (folder / "tokens.json").write_text(json.dumps(table), encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    contract = load_text_side("arpabet", folder).contract
    manifest["token_contract"]["fingerprint"] = contract.fingerprint()
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def refused(outcome: Outcome, *parts: str, exit_code: int = 4) -> None:
    assert outcome.exit_code == exit_code, outcome
    assert outcome.stdout == ""
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert outcome.stderr.strip().isprintable()
    for part in parts:
        assert part in outcome.stderr


# --- show ------------------------------------------------------------------------------------


def test_show_tells_name_fingerprint_bands_and_specials(loudkit: Loudkit, starter: Pack) -> None:
    contract = starter.text_side.contract
    told = loudkit("contract", "show", "starter", "--json").last_json
    assert told["name"] == "arpabet"
    assert told["fingerprint"] == contract.fingerprint()
    assert told["vocabulary_size"] == 3682
    assert (told["start_of_speech"], told["end_of_speech"]) == (67, 68)
    assert told["specials"] == dict(contract.added_tokens)
    assert list(told["specials"].values()) == sorted(told["specials"].values())
    assert told["prompt_layout"] == list(contract.prompt_layout)
    assert [(band["first"], band["last"] + 1) for band in told["bands"]] == [
        contract.band(at) for at in range(7)
    ]
    assert [band["code"] for band in told["bands"]] == list(contract.frame_order)


def test_show_for_a_person_says_the_same(loudkit: Loudkit, starter: Pack) -> None:
    lines = loudkit("contract", "show", "starter").stdout.splitlines()
    assert lines[:3] == [
        "name: arpabet",
        f"fingerprint: {starter.text_side.contract.fingerprint()}",
        "vocabulary: 3682 ids",
    ]
    assert "band 0 c0[i] (76..587)" in lines
    assert "band 6 c2[4i+3] (3148..3659)" in lines
    assert '68 "<|end_of_speech|>"' in lines
    assert r'46 "\n"' in lines


def test_show_knows_a_loudr_pack(loudkit: Loudkit, tmp_path: Path) -> None:
    (tmp_path / "loudr-1").mkdir()
    shutil.copy(LOUDR_1, tmp_path / "loudr-1" / "manifest.json")
    told = loudkit("contract", "show", "loudr-1", "--json").last_json
    assert (told["name"], told["fingerprint"]) == ("loudr", LOUDR.fingerprint())
    assert told["bands"] == [{"position": 0, "code": None, "first": 0, "last": 6560}]
    assert told["pairs_under"] == ["fusion_mtp2"]
    assert "band 0 (0..6560)" in loudkit("contract", "show", "loudr-1").stdout.splitlines()
    assert contract_of_pack("loudr-1").algorithm_fingerprint == "7cd75498ad4e7531"


def test_show_refuses_a_loudr_pack_with_other_ids(loudkit: Loudkit, tmp_path: Path) -> None:
    manifest = json.loads(LOUDR_1.read_text("utf-8"))
    manifest["speech_tokens"] = {"start": 6560, "stop": 6562}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    refused(loudkit("contract", "show", "other"), "speech_tokens.start", "6561", exit_code=2)


def test_spellings_of_audio_ids_are_no_specials() -> None:
    from jobs.contracts import describe

    spelled = {f"<custom_token_{n}>": n for n in range(10, 66)}
    contract = TokenContract("toy", 80, {"<|s|>": 1, **spelled}, 10, 8, 1, 2, ())
    assert describe(contract)["specials"] == {"<|s|>": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "no-such-pack"],
        ["check", "none.parquet", "starter"],
        ["check", "none.parquet", "no-such-pack"],
        ["check", ".", "starter"],
        ["show"],
        ["check", "none.parquet"],
    ],
)
def test_what_is_not_there_is_exit_2(loudkit: Loudkit, arguments: list[str]) -> None:
    outcome = loudkit("contract", *arguments)
    assert outcome.exit_code == 2
    assert outcome.stderr
    assert "Traceback" not in outcome.stderr


# --- check -----------------------------------------------------------------------------------


@pytest.mark.parametrize("explained", [True, False])
def test_tokens_of_the_packs_own_contract_are_in_order(
    loudkit: Loudkit, tmp_path: Path, starter: Pack, explained: bool
) -> None:
    rows = [row(FRAME * n, n) for n in range(5)]
    write(tmp_path / "tokens", starter, rows, explained=explained, per_part=2)
    part = loudkit("contract", "check", "tokens/part-00000.parquet", "starter")
    assert part.exit_code == 0, part
    assert "2 windows with 7 ids" in part.stdout
    whole = loudkit("contract", "check", "tokens", "starter")
    assert whole.exit_code == 0, whole
    assert "5 windows with 70 ids in 3 parts" in whole.stdout


def test_a_part_without_rows_is_in_order(loudkit: Loudkit, tmp_path: Path, starter: Pack) -> None:
    part = write(tmp_path / "tokens", starter, [])
    assert loudkit("contract", "check", str(part), "starter").exit_code == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"aa": 1, "ae": 0}, 'added_tokens: id 0 is "aa" there, "ae" here'),
        ({"<|unused_0|>": 3681}, 'id 51 is "<|unused_0|>" there, nothing here'),
        ({"vocab_size": 3690}, "vocabulary_size is 3682 there, 3690 here"),
        ({"audio_base": 77}, "audio_base is 76 there, 77 here"),
        ({"<|end_of_speech|>": 66, "<|reserved_0|>": 68}, "end_of_speech is 68 there, 66 here"),
    ],
)
def test_another_contract_is_exit_4_with_both_fingerprints_and_what_differs_first(
    loudkit: Loudkit, tmp_path: Path, starter: Pack, changes: dict[str, int], told: str
) -> None:
    part = write(tmp_path / "tokens", starter, [row(FRAME)])
    other = sibling(tmp_path / "other", **changes)
    theirs = contract_of_pack(str(other)).contract.fingerprint()
    ours = starter.text_side.contract.fingerprint()
    assert theirs != ours
    refused(loudkit("contract", "check", str(part), str(other)), ours, theirs, told)


def test_a_file_that_explains_nothing_is_told_apart_by_fingerprint_and_first_id(
    loudkit: Loudkit, tmp_path: Path, starter: Pack
) -> None:
    part = write(tmp_path / "tokens", starter, [row(FRAME), row(FRAME, 1)], explained=False)
    same_bands = sibling(tmp_path / "same", aa=1, ae=0)
    ours = starter.text_side.contract.fingerprint()
    refused(loudkit("contract", "check", str(part), str(same_bands)), ours, "only the fingerprint")
    shifted = sibling(tmp_path / "shifted", audio_base=90)
    refused(
        loudkit("contract", "check", str(part), str(shifted)),
        ours,
        contract_of_pack(str(shifted)).contract.fingerprint(),
        'row 0 ("slt/p0", chunk 0): tokens[0]: id 81 is outside band 0 c0[i] (90..601)',
    )


@pytest.mark.parametrize("position", range(7))
def test_an_id_outside_its_band_is_named_by_row_index_id_and_band(
    loudkit: Loudkit, tmp_path: Path, starter: Pack, position: int
) -> None:
    first, past = starter.text_side.contract.band(position)
    for wrong in (first - 1, past):
        tokens = FRAME * 3
        tokens[7 + position] = wrong
        rows = [row(FRAME), row(FRAME, 1), row(tokens, 2), row([0], 3)]
        part = write(tmp_path / "tokens", starter, rows)
        refused(
            loudkit("contract", "check", str(part), "starter"),
            f'part-00000.parquet: row 2 ("slt/p2", chunk 0): tokens[{7 + position}]: '
            f"id {wrong} is outside band {position} ",
            f"({first}..{past - 1})",
        )


def test_half_a_frame_is_named(loudkit: Loudkit, tmp_path: Path, starter: Pack) -> None:
    part = write(tmp_path / "tokens", starter, [row(FRAME), row(FRAME[:3], 1)])
    refused(loudkit("contract", "check", str(part), "starter"), "row 1", "3 over")


ALTERED: dict[str, tuple[dict[str, str | None], str]] = {
    "no fingerprint": ({"token_contract_fingerprint": None}, "names no token contract"),
    "an empty fingerprint": ({"token_contract_fingerprint": ""}, "token_contract_fingerprint"),
    "no digest": ({"token_contract_fingerprint": "\x1b[31mred\n"}, "token_contract_fingerprint"),
    "another fingerprint": (
        {"token_contract_fingerprint": "0123456789abcdef"},
        "token_contract_fingerprint is 0123456789abcdef",
    ),
    "another contract": ({"token_contract": '{"audio_base":1}'}, "token_contract is"),
    "a torn contract": ({"token_contract": '{"audio_base":'}, "token_contract is"),
    "no base64": ({"token_contract": "?"}, "token_contract is"),
    "no deflate": ({"token_contract": "YWJj"}, "token_contract is"),
    "algorithm": ({"algorithm_fingerprint": "0123456789abcdef"}, "algorithm_fingerprint"),
    "no algorithm": ({"algorithm_fingerprint": None}, "algorithm_fingerprint is missing"),
    "a short algorithm": ({"algorithm_fingerprint": "0123"}, "algorithm_fingerprint"),
    "no pack": ({"pack_sha256": None}, "pack_sha256 is missing"),
    "no sha256": ({"pack_sha256": "ab"}, "pack_sha256"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_field_of_the_metadata_is_caught_by_name(
    loudkit: Loudkit, tmp_path: Path, starter: Pack, name: str
) -> None:
    changes, told = ALTERED[name]
    part = altered(write(tmp_path / "tokens", starter, [row(FRAME)]), **changes)
    refused(loudkit("contract", "check", str(part), "starter"), str(part), told)


def test_an_altered_format_is_caught_by_name(
    loudkit: Loudkit, tmp_path: Path, starter: Pack
) -> None:
    part = altered(write(tmp_path / "tokens", starter, [row(FRAME)]), format="tokens-2")
    refused(loudkit("contract", "check", str(part), "starter"), "tokens-2", exit_code=2)


def test_tokens_of_another_pack_with_the_same_contract_are_in_order(
    loudkit: Loudkit, tmp_path: Path, starter: Pack
) -> None:
    part = altered(
        write(tmp_path / "tokens", starter, [row(FRAME)]),
        pack_sha256="ab" * 32,
        algorithm_fingerprint="0123456789abcdef",
    )
    assert loudkit("contract", "check", str(part), "starter").exit_code == 0


def test_a_pack_whose_files_make_another_contract_is_exit_4(
    loudkit: Loudkit, tmp_path: Path, starter: Pack
) -> None:
    part = write(tmp_path / "tokens", starter, [row(FRAME)])
    other = sibling(tmp_path / "other", aa=1, ae=0)
    manifest = json.loads((other / "manifest.json").read_text("utf-8"))
    manifest["token_contract"]["fingerprint"] = starter.text_side.contract.fingerprint()
    (other / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for arguments in (["show", str(other)], ["check", str(part), str(other)]):
        refused(loudkit("contract", *arguments), starter.text_side.contract.fingerprint())


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all", b"PAR1" + b"\0" * 64])
def test_a_file_that_is_no_parquet_is_refused(
    loudkit: Loudkit, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "torn.parquet").write_bytes(content)
    refused(loudkit("contract", "check", "torn.parquet", "starter"), "torn.parquet", exit_code=2)


def test_loudr_tokens_are_held_against_a_loudr_pack(loudkit: Loudkit, tmp_path: Path) -> None:
    (tmp_path / "loudr-1").mkdir()
    shutil.copy(LOUDR_1, tmp_path / "loudr-1" / "manifest.json")
    pack = contract_of_pack("loudr-1")
    for name, tokens in (("good", [0, 6560, 17]), ("bad", [0, 6560, 6562])):
        write_token_parts(
            tmp_path / name,
            iter([row(tokens)]),
            algorithm_fingerprint=pack.algorithm_fingerprint,
            token_contract_fingerprint=LOUDR.fingerprint(),
            pack_sha256=pack.pack_sha256,
            token_contract=meaning_for_file(LOUDR),
        )
    assert loudkit("contract", "check", "good", "loudr-1").exit_code == 0
    refused(
        loudkit("contract", "check", "bad", "loudr-1"), "tokens[2]: id 6562", "band 0 (0..6560)"
    )
    refused(loudkit("contract", "check", "good", "starter"), LOUDR.fingerprint(), "vocabulary_size")


# --- what a file carries ---------------------------------------------------------------------


def test_a_long_contract_is_deflated_and_still_explains(
    loudkit: Loudkit, tmp_path: Path, starter: Pack
) -> None:
    spelled = {f"<custom_token_{n}>": 128_256 + n for n in range(28_682)}
    long = TokenContract("long", 156_940, spelled, 128_266, 4096, 128_257, 128_258, ())
    held = meaning_for_file(long)
    assert len(held) < len(long.canonical_form()) / 4
    assert zlib.decompress(base64.b64decode(held)).decode() == long.canonical_form()
    write_token_parts(
        tmp_path / "tokens",
        iter([row([128_266 + 4096 * position for position in range(7)])]),
        algorithm_fingerprint="0123456789abcdef",
        token_contract_fingerprint=long.fingerprint(),
        pack_sha256="ab" * 32,
        token_contract=held,
    )
    refused(
        loudkit("contract", "check", "tokens", "starter"),
        long.fingerprint(),
        "vocabulary_size is 156940 there, 3682 here",
    )


def test_a_short_contract_stays_readable(starter: Pack) -> None:
    held: dict[str, Any] = json.loads(meaning_for_file(starter.text_side.contract))
    assert held == starter.text_side.contract.meaning()


@pytest.mark.parametrize("arguments", [["show", "starter"], ["check", "none.parquet", "starter"]])
def test_neither_torch_nor_ray_is_needed(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "jobs.cli", "contract", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "engine.contracts.contract" in imported
    assert not imported & {"torch", "ray"}


def test_runs_of_reserved_specials_are_one_line() -> None:
    added = {f"<|reserved_{n}|>": 100 + n for n in range(40)} | {"<|stop|>": 1, "<|a_1|>": 2}
    contract = TokenContract("many", 10_000, added, 200, 64, 0, 1, ("text",))
    lines = describe_lines(contract)
    assert '100..139 "<|reserved_0|>".."<|reserved_39|>"' in lines
    assert '1 "<|stop|>"' in lines
    assert '2 "<|a_1|>"' in lines
    assert len(lines) < 20


def test_an_output_folder_stands_for_its_tokens(
    loudkit: Loudkit, tmp_path: Path, starter: Pack
) -> None:
    (tmp_path / "out" / "tokens").mkdir(parents=True)
    refused = loudkit("contract", "check", "out", "starter")
    assert refused.exit_code == 2
    assert "out/tokens: holds no part-*.parquet" in refused.stderr
