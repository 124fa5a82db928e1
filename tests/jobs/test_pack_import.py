"""`loudkit-batch pack import`, from folders as Hugging Face serves them to rendered clips."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from catalog.export import read_token_part
from engine.contracts.bands import require_bands
from engine.pack import Pack, open_pack, verify_pack
from tests.hugging_face_folders import (
    starter_codec,
    starter_model,
    starter_tokenizer,
    tiny_llama,
    tiny_snac,
)
from tests.jobs.conftest import Outcome, write_catalog
from tests.tokenizers_small import write_tokenizer

STATED = ("--licence", "CC0-1.0", "--source", "a test")


def _starter_folders(folder: Path) -> tuple[str, ...]:
    """The starter taken apart in `folder`, as arguments."""
    starter_model(folder / "model")
    starter_codec(folder / "codec")
    starter_tokenizer(folder / "tokenizer")
    return ("--model", "model", "--codec", "codec", "--tokenizer", "tokenizer")


def test_an_imported_pack_can_be_inspected_verified_and_planned(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    arguments = _starter_folders(tmp_path)
    outcome = loudkit("pack", "import", *arguments, "--out", "My.Pack", *STATED)
    assert outcome.exit_code == 0, outcome.stderr
    digest = outcome.stdout.strip()
    assert open_pack(tmp_path / "My.Pack").sha256 == digest
    assert "measure_pack My.Pack" in outcome.stderr
    assert loudkit("pack", "verify", "My.Pack").exit_code == 0
    facts = loudkit("pack", "inspect", "My.Pack", "--json").last_json
    assert facts["name"] == "my.pack"
    assert facts["token_contract"]["name"] == "arpabet"
    assert facts["licence"] == {"weights": "CC0-1.0"}
    assert facts["provenance"]["source"] == "a test"
    head = f"catalog: mine\npack: {{path: ./My.Pack, sha256: {digest}}}\n"
    write_catalog(tmp_path, head=head, voices="voices: [{name: slt}]\n")
    assert loudkit("plan", "catalog.yaml").exit_code == 0


def test_json_output_and_a_name_of_its_own(loudkit: Callable[..., Outcome], tmp_path: Path) -> None:
    arguments = _starter_folders(tmp_path)
    outcome = loudkit(
        "pack", "import", *arguments, "--out", "out", "--name", "mine", "--json", *STATED
    )
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.stderr == ""
    assert open_pack(tmp_path / "out", sha256=outcome.last_json["sha256"]).manifest.name == "mine"


def _is_refused(outcome: Outcome, told: str, *, exit_code: int = 2) -> None:
    assert outcome.exit_code == exit_code, outcome
    assert outcome.stdout == ""
    lines = outcome.stderr.strip().splitlines()
    assert len(lines) == 1
    assert told in lines[0]


class Boom:
    """A pickle that makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return _make_folder, ("ran",)


def _make_folder(name: str) -> None:
    Path(name).mkdir()


def _break(folder: Path, part: str) -> None:
    if part == "shard":
        (folder / "model" / "model-00002-of-00003.safetensors").unlink()
    elif part == "pickle":
        torch.save({"boom": Boom()}, folder / "codec" / "pytorch_model.bin")
    elif part == "config":
        (folder / "model" / "config.json").write_text("[]")
    elif part == "codec":
        (folder / "codec" / "config.json").write_text("{}")
    elif part == "tokenizer":
        (folder / "tokenizer" / "tokens.json").unlink()
    else:
        (folder / "out").mkdir()
        (folder / "out" / "mine").write_text("mine")


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("shard", "model-00002-of-00003.safetensors"),
        ("pickle", "_make_folder"),
        ("config", "model/config.json"),
        ("codec", "codec/config.json"),
        ("tokenizer", "tokenizer: holds"),
        ("out", "out: is there already"),
    ],
)
def test_a_broken_folder_is_one_line_and_exit_2(
    loudkit: Callable[..., Outcome], tmp_path: Path, part: str, told: str
) -> None:
    arguments = _starter_folders(tmp_path)
    _break(tmp_path, part)
    before = sorted(path.name for path in tmp_path.iterdir())
    outcome = loudkit("pack", "import", *arguments, "--out", "out", *STATED)
    _is_refused(outcome, told)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("left_out", ["--model", "--codec", "--out", "--licence", "--source"])
def test_what_a_pack_must_say_is_asked_for(loudkit: Callable[..., Outcome], left_out: str) -> None:
    given = {"--model": "a", "--codec": "b", "--out": "c", "--licence": "d", "--source": "e"}
    del given[left_out]
    outcome = loudkit("pack", "import", *(text for pair in given.items() for text in pair))
    assert outcome.exit_code == 2
    assert left_out in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "nowhere"), "nowhere: is no folder"),
        (("--name", "Not A Name"), "name"),
        (("--language", "xx"), "the text funnel cannot read xx"),
        (("--licence", ""), "licence"),
    ],
)
def test_refusals_before_torch(tmp_path: Path, arguments: tuple[str, str], told: str) -> None:
    starter_model(tmp_path / "model")
    starter_codec(tmp_path / "codec")
    given = ["--model", "model", "--codec", "codec", "--out", "out", *STATED, *arguments]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "jobs.cli", "pack", "import", *given],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parent.parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"torch", "ray"}
    assert told in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("text", ["\udcff", "a\nb", "\x1b[2J", ""])
@pytest.mark.parametrize(
    "given",
    [
        ("--licence",),
        ("--source",),
        ("--language",),
        ("--verbatim", "--language"),
        ("--contract",),
        ("--speaker",),
        ("--model",),
        ("--codec",),
        ("--tokenizer",),
    ],
)
def test_arguments_that_are_no_line_of_text_are_one_line_and_exit_2(
    loudkit: Callable[..., Outcome], tmp_path: Path, given: tuple[str, ...], text: str
) -> None:
    """Python hands bytes that are no UTF-8 on as halves of surrogate pairs."""
    arguments = _starter_folders(tmp_path)
    outcome = loudkit("pack", "import", *arguments, "--out", "out", *STATED, *given, text)
    _is_refused(outcome, "")
    assert outcome.stderr.strip().isprintable() or text == "\udcff"
    assert not (tmp_path / "out").exists()


def test_what_a_manifest_says_stays_on_its_line(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    arguments = _starter_folders(tmp_path)
    assert loudkit("pack", "import", *arguments, "--out", "out", *STATED).exit_code == 0
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["description"] = "\x1b[2Jmine\nsha256: 0000"
    manifest["provenance"] = {"source\n": "here\rthere"}
    path.write_text(json.dumps(manifest))
    assert loudkit("pack", "seal", "out").exit_code == 0
    outcome = loudkit("pack", "inspect", "out")
    assert outcome.exit_code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert "description: \\x1b[2Jmine\\nsha256: 0000" in lines
    assert "provenance: source\\n: here\\rthere" in lines
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("command", ["inspect", "seal", "verify"])
@pytest.mark.parametrize("key", ["description", "licence", "files"])
def test_a_manifest_that_is_no_text_is_one_line_and_exit_2(
    loudkit: Callable[..., Outcome], tmp_path: Path, command: str, key: str
) -> None:
    folder = Path(shutil.copytree(open_pack("starter").root, tmp_path / "mine"))
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = {"bytes": 0, "sha256": "0" * 64}
    wrong = {"description": "\ud800", "licence": {"a": "\udcff"}, "files": {"a" * 300: entry}}
    (folder / "manifest.json").write_text(json.dumps(manifest | {key: wrong[key]}))
    _is_refused(loudkit("pack", command, "mine"), key)


def test_a_plain_llama_tokenizer_is_a_mismatch_by_its_first_id(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    model = tiny_llama(tmp_path / "model", vocabulary=156_960)
    tiny_snac(tmp_path / "codec")
    write_tokenizer(model, "llama-3-audio")
    document = json.loads((model / "tokenizer.json").read_text())
    document["added_tokens"] = document["added_tokens"][:256]
    (model / "tokenizer.json").write_text(json.dumps(document))
    given = ("--model", "model", "--codec", "codec", "--out", "out", *STATED)
    outcome = loudkit("pack", "import", *given, "--contract", "llama-3-audio")
    told = "model/tokenizer.json: 128256 entries are not llama-3-audio (156960, f628225ff00a311b): "
    _is_refused(outcome, told + "id 128256 is nothing here and '<|reserved_0|>' there", exit_code=4)


def test_a_tokenizer_that_changes_text_is_refused(
    loudkit: Callable[..., Outcome], tmp_path: Path
) -> None:
    model = tiny_llama(tmp_path / "model", vocabulary=156_960)
    tiny_snac(tmp_path / "codec")
    write_tokenizer(model, "llama-3-audio", ('"normalizer": null', '"normalizer": {"type": "NFC"}'))
    given = ("--model", "model", "--codec", "codec", "--out", "out", *STATED)
    outcome = loudkit("pack", "import", *given, "--contract", "llama-3-audio")
    _is_refused(
        outcome, "model/tokenizer.json: normalizer must be null, as Llama-3's is, got {'typ"
    )


def test_a_sibling_tokenizer_is_a_mismatch(loudkit: Callable[..., Outcome], tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", vocabulary=156_960)
    tiny_snac(tmp_path / "codec")
    write_tokenizer(model, "trimmed-156942")
    given = ("--model", "model", "--codec", "codec", "--out", "out", *STATED)
    outcome = loudkit("pack", "import", *given, "--contract", "llama-3-audio")
    _is_refused(outcome, "156942", exit_code=4)
    unnamed = loudkit("pack", "import", *given)
    _is_refused(unnamed, "holds the tokenizer of no contract", exit_code=4)


DIALOGUE = """\
  - id: chat
    turns:
      - {voice: tara, text: Hi there.}
      - {voice: leo, text: "Is that a <sigh>?"}
"""


@pytest.mark.ray
@pytest.mark.parametrize(
    ("family", "vocabulary", "speakers"),
    [("llama-3-audio", 156_960, ()), ("orpheus", 156_940, ("tara", "leo"))],
)
def test_imported_contracts_render(
    loudkit: Callable[..., Outcome],
    tmp_path: Path,
    ray_session: None,
    family: Any,
    vocabulary: int,
    speakers: tuple[str, ...],
) -> None:
    """Random weights ramble; but every id is in its band, and records name the contract."""
    model = tiny_llama(tmp_path / "model", vocabulary=vocabulary)
    tiny_snac(tmp_path / "codec")
    write_tokenizer(model, family)
    named = [text for name in speakers for text in ("--speaker", name)]
    given = ("--model", "model", "--codec", "codec", "--out", "pack", *STATED, *named)
    imported = loudkit("pack", "import", *given)
    assert imported.exit_code == 0, imported.stderr
    pack = open_pack(tmp_path / "pack")
    verify_pack(pack)
    _is_structurally_complete(pack, family, vocabulary, speakers)

    dialogues = DIALOGUE if family == "llama-3-audio" else ""
    write_catalog(
        tmp_path,
        head="catalog: tiny\npack: ./pack\n",
        voices=f"voices: [{{name: tara{', style: calm' if dialogues else ''}}}, {{name: leo}}]\n",
        passages='passages:\n  - {id: hello, text: "Hello <laugh> world."}\n' + dialogues,
    )
    rendered = loudkit("render", "catalog.yaml", "--out", "out", "--workers", "1", "--json")
    assert rendered.exit_code == 0, rendered.stderr
    assert rendered.last_json["rendered"] == (3 if dialogues else 2)
    fingerprint = pack.manifest.token_contract.fingerprint
    told = {}
    for entry in json.loads((tmp_path / "out" / "provenance.json").read_text()):
        assert entry["sample"]["token_contract_fingerprint"] == fingerprint
        told[entry["name"], entry["passage"]] = entry["sample"]["conditioning"]
    if dialogues:
        # A dialogue's prompt names its speakers: the voice's style never reached the model.
        assert told["tara", "chat"] == {"speaker": "tara, leo", "language_id": "en"}
        assert told["tara", "hello"]["style"] == "calm"
    rows = [
        row
        for part in sorted((tmp_path / "out" / "tokens").glob("part-*.parquet"))
        for row in read_token_part(part, token_contract_fingerprint=fingerprint)
    ]
    assert {row.voice for row in rows} == {"tara", "leo"}
    assert {row.passage for row in rows} == ({"hello", "chat"} if dialogues else {"hello"})
    if dialogues:
        entries = json.loads((tmp_path / "out" / "catalog.json").read_text())
        assert "tara: Hi there.\\nleo: Is that a <sigh>?" in json.dumps(entries)
    for row in rows:
        assert len(row.tokens) > 0
        require_bands(pack.text_side.contract, row.tokens)


def _is_structurally_complete(
    pack: Pack, family: str, vocabulary: int, speakers: tuple[str, ...]
) -> None:
    contract = pack.text_side.contract
    assert contract.name == family
    assert contract.vocabulary_size == vocabulary
    assert pack.text_side.speakers == speakers
    assert "laugh" in pack.manifest.supported_tags
    assert pack.algorithm.window.max_speech_tokens == (2048 - 512) // 7
    assert round(pack.algorithm.token_rate_hz, 2) == 82.03
    config = json.loads(pack.path("config.json").read_text())
    assert config["rope_scaling"]["rope_type"] == "llama3"
