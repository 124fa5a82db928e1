"""Packs: opened by name or folder, verified file by file, sealed, and shipped in the wheel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine, load_engine
from engine.errors import (
    ContractMismatchError,
    DecodeOnlyError,
    EngineError,
    ManifestError,
    PackMismatchError,
    PackNotFoundError,
)
from engine.execution import ExecutionConfig
from engine.pack import (
    MANIFEST,
    Pack,
    bundled_packs,
    file_sha256,
    open_pack,
    seal_pack,
    verify_pack,
)

ROOT = Path(__file__).parent.parent.parent
STARTER_FILES = (
    "NOTICE",
    "codec.safetensors",
    "codec_config.json",
    "config.json",
    "lexicon.tsv.gz",
    "lts.tsv.gz",
    "model.safetensors",
    "tokens.json",
)

Manifest = dict[str, Any]
Change = Callable[[Manifest], object]


@pytest.fixture
def folder(starter: Pack, tmp_path: Path) -> Path:
    """The starter as a pack folder of its own: the files are links, the manifest is a copy."""
    root = tmp_path / "my-pack"
    root.mkdir()
    for name in starter.manifest.files:
        (root / name).symlink_to(starter.root / name)
    shutil.copy(starter.root / MANIFEST, root)
    return root


def rewrite(root: Path, change: Change) -> None:
    """Change the manifest of a pack folder."""
    manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    change(manifest)
    (root / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of a link."""
    path.unlink()
    path.write_bytes(content)


# -- opening --------------------------------------------------------------------------------------


def test_the_starter_opens_by_its_name(starter: Pack) -> None:
    assert "starter" in bundled_packs()
    assert starter.manifest.name == "starter"
    assert starter.sha256 == hashlib.sha256((starter.root / MANIFEST).read_bytes()).hexdigest()
    assert set(starter.manifest.files) == set(STARTER_FILES)
    assert starter.checkpoint_sha256 == file_sha256(starter.root / "model.safetensors")
    assert starter.codec_sha256 == file_sha256(starter.root / "codec.safetensors")
    verify_pack(starter)


def test_the_starter_lists_every_file_that_lies_in_its_folder(starter: Pack) -> None:
    assert {path.name for path in starter.root.iterdir()} == {*STARTER_FILES, MANIFEST}


def test_a_bundled_name_wins_over_a_folder_of_that_name(starter: Pack, tmp_path: Path) -> None:
    (tmp_path / "starter").mkdir()
    (tmp_path / "starter" / MANIFEST).write_text("{}", encoding="utf-8")
    assert open_pack("starter", base=tmp_path).root == starter.root


def test_a_folder_opens_absolute_and_relative_to_its_base(
    starter: Pack, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absolute = open_pack(folder)
    assert absolute.sha256 == starter.sha256
    assert absolute.root == folder.resolve()
    assert open_pack("my-pack", base=folder.parent).root == absolute.root
    assert open_pack("../my-pack", base=folder).root == absolute.root
    monkeypatch.chdir(folder)
    assert open_pack(".").root == absolute.root
    assert absolute.algorithm == starter.algorithm
    assert absolute.text_side.contract == starter.text_side.contract


def test_a_pack_can_be_read_where_nothing_can_be_written(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    folder.chmod(0o555)
    try:
        opened = open_pack(folder)
        verify_pack(opened)
        assert opened.text_side.speakers
    finally:
        folder.chmod(0o755)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (
            "no-such-pack",
            r"'no-such-pack' is neither a folder nor a bundled pack; bundled: .*starter",
        ),
        ("", "not a pack's name or folder"),
        ("nul\x00byte", "not a pack's name or folder"),
        ("half\ud800", "is neither a folder nor"),
        ("long" * 2000, "name too long"),
        ("starter/", "is neither a folder nor a bundled pack"),
        ("empty", "'empty' holds no manifest.json"),
        ("a-file", "is neither a folder nor a bundled pack"),
    ],
)
def test_what_is_no_pack_is_refused_in_one_line(tmp_path: Path, reference: str, told: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    with pytest.raises(PackNotFoundError, match=told) as refusal:
        open_pack(reference, base=tmp_path)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_pack_is_pinned_by_the_sha256_of_its_manifest(starter: Pack, folder: Path) -> None:
    assert open_pack("starter", sha256=starter.sha256).sha256 == starter.sha256
    assert open_pack("starter", sha256=starter.sha256.upper()).sha256 == starter.sha256
    wrong = "0" * 64
    with pytest.raises(PackMismatchError, match=f"is pack {starter.sha256}, .* asks for {wrong}"):
        open_pack("starter", sha256=wrong)
    rewrite(folder, lambda manifest: manifest.update(description="another word"))
    with pytest.raises(PackMismatchError):
        open_pack(folder, sha256=starter.sha256)


# -- manifests that cannot be read ----------------------------------------------------------------


def set_at(*path: str, to: object) -> Change:
    def change(manifest: Manifest) -> None:
        inner: Any = manifest
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


def without(key: str) -> Change:
    return lambda manifest: manifest.pop(key)


LISTED = {"bytes": 1, "sha256": "0" * 64}
LONG_NAME = "a" * 300
LONG_KEY = f"files.'{'a' * 37}...{'a' * 38}'"


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("format", set_at("format", to="loudkit-checkpoint")),
        ("format", set_at("format", to=1)),
        ("format", without("format")),
        ("format_version", set_at("format_version", to=2)),
        ("format_version", set_at("format_version", to=0)),
        ("format_version", set_at("format_version", to="1")),
        ("format_version", set_at("format_version", to=True)),
        ("name", set_at("name", to="My Pack")),
        ("name", set_at("name", to="../starter")),
        ("name", set_at("name", to="pack\n")),
        ("languages", set_at("languages", to="en")),
        ("languages", set_at("languages", to=[])),
        ("languages.0", set_at("languages", to=[1])),
        ("supported_tags", without("supported_tags")),
        ("licence", set_at("licence", to={})),
        ("licence.data", set_at("licence", "data", to=None)),
        ("provenance", without("provenance")),
        ("token_contract.name", set_at("token_contract", "name", to=7)),
        ("token_contract.fingerprint", set_at("token_contract", "fingerprint", to="short")),
        ("token_contract.digest", set_at("token_contract", "digest", to="x")),
        ("weights.encoder", set_at("weights", "encoder", to="maybe")),
        ("weights.model", set_at("weights", "model", to="other.safetensors")),
        ("weights.codec", set_at("weights", "codec", to="../codec.safetensors")),
        ("weights.codec_config_file", set_at("weights", "codec_config_file", to="")),
        ("files", set_at("files", to=[])),
        ("files", set_at("files", to={})),
        ("files.NOTICE.bytes", set_at("files", "NOTICE", "bytes", to="4218")),
        ("files.NOTICE.bytes", set_at("files", "NOTICE", "bytes", to=-1)),
        ("files.NOTICE.bytes", set_at("files", "NOTICE", "bytes", to=1.5)),
        ("files.NOTICE.sha256", set_at("files", "NOTICE", "sha256", to="0" * 63)),
        ("files.NOTICE.sha256", set_at("files", "NOTICE", "sha256", to="G" * 64)),
        ("files.NOTICE.md5", set_at("files", "NOTICE", "md5", to="x")),
        ("files./etc/passwd", set_at("files", "/etc/passwd", to=LISTED)),
        ("files.../model", set_at("files", "../model", to=LISTED)),
        ("files.a/../../b", set_at("files", "a/../../b", to=LISTED)),
        ("files...", set_at("files", "..", to=LISTED)),
        ("files..", set_at("files", ".", to=LISTED)),
        ("files.", set_at("files", "", to=LISTED)),
        ("files.a\\b", set_at("files", "a\\b", to=LISTED)),
        ("files.'a\\x00b'", set_at("files", "a\x00b", to=LISTED)),
        ("files.'a\\nb'", set_at("files", "a\nb", to=LISTED)),
        ("files.'a\\ud800'", set_at("files", "a\ud800", to=LISTED)),
        ("files.manifest.json", set_at("files", MANIFEST, to=LISTED)),
        ("files../manifest.json", set_at("files", f"./{MANIFEST}", to=LISTED)),
        ("sampling_defaults.temperature", set_at("sampling_defaults", "temperature", to=-1)),
        ("description", set_at("description", to="\ud800")),
        ("licence.data", set_at("licence", "data", to="CC0\udcff")),
        ("licence.'\\ud800'", set_at("licence", "\ud800", to="CC0")),
        ("measured.'\\udcff'", set_at("measured", "\udcff", to={"a": "b"})),
        ("weights.'\\x1b[2J'", set_at("weights", "\x1b[2J", to="")),
        (f"weights.'{'k' * 37}...{'k' * 38}'", set_at("weights", "k" * 10**5, to="")),
        ("token_contract.name", set_at("token_contract", "name", to="a" * 10**5)),
        ("postprocess.mode", set_at("postprocess", "mode", to="a" * 10**5)),
        ("sample_rate", set_at("sample_rate", to=10**400)),
        ("files.NOTICE.bytes", set_at("files", "NOTICE", "bytes", to=10**400)),
        (LONG_KEY, set_at("files", LONG_NAME, to=LISTED)),
    ],
)
def test_a_manifest_is_refused_by_the_key_that_is_wrong(
    folder: Path, key: str, change: Change
) -> None:
    rewrite(folder, change)
    with pytest.raises(ManifestError) as refusal:
        open_pack(folder)
    assert refusal.value.key == key
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"a": 1, "a": 2}'])
def test_a_manifest_that_is_no_strict_json_is_refused(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(ManifestError):
        open_pack(folder)


def test_a_contract_that_the_files_do_not_define_is_refused(folder: Path) -> None:
    rewrite(folder, set_at("token_contract", "fingerprint", to="0123456789abcdef"))
    opened = open_pack(folder)
    with pytest.raises(ContractMismatchError, match=r"0123456789abcdef.*7d885b0ff84fa295"):
        _ = opened.text_side
    with pytest.raises(ContractMismatchError):
        load_engine(opened, ExecutionConfig(), slots=4)


def test_an_unknown_contract_is_refused_with_what_is_known(folder: Path) -> None:
    rewrite(folder, set_at("token_contract", "name", to="lavendel"))
    opened = open_pack(folder)
    with pytest.raises(ManifestError, match=r"^token_contract\.name: 'lavendel'.*arpabet"):
        _ = opened.text_side


def test_a_file_that_is_not_listed_is_not_the_packs(folder: Path) -> None:
    (folder / "extra.json").write_text("{}", encoding="utf-8")
    with pytest.raises(PackMismatchError, match=r"'extra\.json' is used, not listed"):
        open_pack(folder).path("extra.json")


@pytest.mark.parametrize("which", ["start", "stop"])
def test_speech_tokens_that_are_not_the_contracts_are_refused(folder: Path, which: str) -> None:
    rewrite(folder, set_at("speech_tokens", which, to=5))
    with pytest.raises(
        ManifestError, match=rf"^speech_tokens\.{which}: is 5, the pack's files say"
    ):
        load_engine(open_pack(folder), ExecutionConfig(), slots=4)


# -- files that are not what the manifest says ----------------------------------------------------


@pytest.mark.parametrize("name", STARTER_FILES)
def test_a_flipped_bit_in_any_file_is_found(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    for at in (0, len(content) // 2, len(content) - 1):
        content[at] ^= 1
        replace_file(folder / name, bytes(content))
        with pytest.raises(PackMismatchError, match=f"{name}: sha256 is"):
            verify_pack(open_pack(folder))
        content[at] ^= 1
    replace_file(folder / name, bytes(content))
    verify_pack(open_pack(folder))


@pytest.mark.parametrize("name", STARTER_FILES)
def test_a_file_cut_short_grown_or_gone_is_found(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for other in (content[:-1], content + b"\0", b""):
        replace_file(folder / name, other)
        with pytest.raises(PackMismatchError, match=f"{name}: has {len(other)} bytes, .* says"):
            verify_pack(open_pack(folder))
    (folder / name).unlink()
    with pytest.raises(PackMismatchError, match=f"{name}: cannot be read"):
        verify_pack(open_pack(folder))
    (folder / name).mkdir()
    with pytest.raises(PackMismatchError, match=name):
        verify_pack(open_pack(folder))


@pytest.mark.parametrize("name", ["extra.json", "sub/extra.json"])
def test_a_stray_file_is_refused_because_a_contract_could_read_it(folder: Path, name: str) -> None:
    stray = folder / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("{}", encoding="utf-8")
    with pytest.raises(PackMismatchError, match=f"{name}: is not listed under files"):
        verify_pack(open_pack(folder))
    stray.rename(stray.with_name(".extra.json"))  # an editor's or a file manager's own
    verify_pack(open_pack(folder))


def test_a_table_of_the_contract_that_is_no_longer_listed_is_refused(folder: Path) -> None:
    """Else the same sha256 would stand for any lexicon that lies there."""
    rewrite(folder, lambda manifest: manifest["files"].pop("lexicon.tsv.gz"))
    with pytest.raises(PackMismatchError, match=r"lexicon\.tsv\.gz: is not listed under files"):
        verify_pack(open_pack(folder))


def test_a_damaged_pack_never_becomes_an_engine(folder: Path) -> None:
    content = bytearray((folder / "NOTICE").read_bytes())
    content[0] ^= 1
    replace_file(folder / "NOTICE", bytes(content))
    with pytest.raises(PackMismatchError):
        load_engine(open_pack(folder), ExecutionConfig(), slots=4)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x04K\x01.", b"\xff" * 64])
def test_weights_that_are_no_safetensors_are_refused(folder: Path, content: bytes) -> None:
    replace_file(folder / "model.safetensors", content)
    seal_pack(folder)
    with pytest.raises(PackMismatchError, match=r"model\.safetensors: not a safetensors file"):
        load_engine(open_pack(folder), ExecutionConfig(), slots=4)


# -- sealing --------------------------------------------------------------------------------------


def test_sealing_makes_a_pack_that_verifies_and_changes_nothing_twice(
    starter: Pack, folder: Path
) -> None:
    replace_file(folder / "NOTICE", b"another notice\n")
    with pytest.raises(PackMismatchError):
        verify_pack(open_pack(folder))
    sealed = seal_pack(folder)
    opened = open_pack(folder, sha256=sealed)
    verify_pack(opened)
    assert opened.sha256 == sealed != starter.sha256
    assert opened.manifest.files["NOTICE"].bytes == 15
    assert opened.algorithm.fingerprint() == starter.algorithm.fingerprint()
    assert seal_pack(folder) == sealed


def test_sealing_the_starter_as_it_is_gives_the_starter(starter: Pack, folder: Path) -> None:
    assert seal_pack(folder) == starter.sha256


def test_sealing_fills_in_what_was_only_listed(starter: Pack, folder: Path) -> None:
    def forget(manifest: Manifest) -> None:
        manifest["files"] = dict.fromkeys(manifest["files"])

    rewrite(folder, forget)
    seal_pack(folder)
    opened = open_pack(folder)
    assert opened.manifest.files == starter.manifest.files


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (without("files"), "files"),
        (set_at("files", to=["NOTICE"]), "files"),
        (set_at("files", "gone.bin", to=None), "files.gone.bin"),
        (set_at("files", "../NOTICE", to=None), "files.../NOTICE"),
        (set_at("files", MANIFEST, to=None), "files.manifest.json"),
        (set_at("files", LONG_NAME, to=None), LONG_KEY),
        (set_at("files", "NOTICE/x", to=None), "files.NOTICE/x"),
        (set_at("files", "a\ud800", to=None), "files.'a\\ud800'"),
        (set_at("description", to="\ud800"), "description"),
        (set_at("licence", "data", to="\udcff"), "licence.data"),
        (set_at("notes", to=[{"a": "\ud800"}]), "notes[0].a"),
    ],
)
def test_what_cannot_be_sealed_is_refused_and_left_as_it_is(
    folder: Path, change: Change, key: str
) -> None:
    (folder.parent / "NOTICE").write_text("outside", encoding="utf-8")
    rewrite(folder, change)
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(ManifestError) as refusal:
        seal_pack(folder)
    assert refusal.value.key == key
    assert (folder / MANIFEST).read_bytes() == before


def test_an_empty_folder_cannot_be_sealed(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / ("a" * 300)):
        with pytest.raises(PackNotFoundError):
            seal_pack(folder)


def test_a_manifest_that_cannot_be_written_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(PackNotFoundError, match=r"manifest\.json: cannot be written: Permission"):
        seal_pack(folder)


# -- what the pack can do, and where it is --------------------------------------------------------


def test_the_starters_codec_only_decodes(engine: Engine) -> None:
    assert engine.pack.manifest.weights.encoder == "untrained"
    with pytest.raises(DecodeOnlyError) as refusal:
        engine.codec.encode(np.zeros(4800, np.float32))
    assert refusal.value.code == "decode_only"
    assert isinstance(refusal.value, EngineError)


def test_an_installed_wheel_holds_the_code_and_the_starter(starter: Pack, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("engine", "catalog", "workers", "jobs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Without isolation nothing is fetched; too old a setuptools cannot read our pyproject.toml.
    new_enough = int(version("setuptools").split(".")[0]) >= 77
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    built = subprocess.run(
        [*command, *(["--no-build-isolation"] if new_enough else []), "-w", tmp_path, source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = tmp_path.glob("loudkit_batch-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(installed)
    ours = [path for room in ("engine", "catalog", "workers", "jobs")
            for path in (source / room).rglob("*") if path.is_file()]  # fmt: skip
    assert {path.relative_to(source).as_posix() for path in ours} <= names
    assert not [name for name in names if name.startswith("tests/")]
    code = (
        "import engine.pack as p\n"
        "pack = p.open_pack('starter')\n"
        "p.verify_pack(pack)\n"
        "print(p.__file__, pack.sha256, len(pack.text_side.text_tokens('Good morning.')))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    where, sha256, count = run.stdout.split()
    assert Path(where).is_relative_to(installed)
    assert sha256 == starter.sha256
    assert int(count) == len(starter.text_side.text_tokens("Good morning."))
