"""`pack import`: the same pack from any layout of the same weights, and nothing of a broken one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engine import engine as main_path
from engine.contracts.bands import require_bands
from engine.contracts.contract import Conditioning
from engine.contracts.lavender import lavender_adapter
from engine.engine import Engine, load_engine
from engine.errors import ContractMismatchError, EngineError, ManifestError
from engine.execution import ExecutionConfig
from engine.importing import import_pack
from engine.importing_errors import PackImportError
from engine.importing_manifest import PROMPT_ROOM_TOKENS, PackLabel
from engine.importing_text import TextSource, take_text_side
from engine.importing_weights import llama_shapes
from engine.llama import load_llama
from engine.llama_config import read_llama_config
from engine.pack import Pack, open_pack, seal_pack, verify_pack
from tests.engine.test_session import job, results, run
from tests.hugging_face_folders import (
    STARTER,
    Layout,
    random_weights,
    starter_codec,
    starter_model,
    starter_tokenizer,
    tiny_llama,
    tiny_snac,
    write_weights,
)
from tests.tokenizers_small import write_tokenizer, write_tokenizer_model

LABEL = PackLabel(name="mine", languages=("en",), licence="CC0-1.0", source="a test")
ALGORITHM_KEYS = (
    *("sampling_defaults", "eos_floor", "window", "chunking", "postprocess"),
    *("silence_token_ids", "silence_render_ids", "quiet_render_ids"),
)


class Folders:
    """The starter taken apart, each part where it may be broken."""

    def __init__(self, root: Path) -> None:
        self.root, self.out = root, root / "pack"
        self.model, self.codec, self.tokenizer = root / "model", root / "codec", root / "tokenizer"

    def fill(self, layout: Layout = "sharded") -> Folders:
        starter_model(self.model, layout)
        starter_codec(self.codec)
        starter_tokenizer(self.tokenizer)
        return self

    def import_pack(self, **changes: Any) -> str:
        arguments: dict[str, Any] = {
            "out": self.out,
            "label": LABEL,
            "tokenizer": self.tokenizer,
            "contract": "arpabet",
            **changes,
        }
        return import_pack(self.model, self.codec, **arguments)


@pytest.fixture(scope="module")
def taken_apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Folders(tmp_path_factory.mktemp("taken-apart")).fill().root


@pytest.fixture
def folders(taken_apart: Path, tmp_path: Path) -> Folders:
    return Folders(Path(shutil.copytree(taken_apart, tmp_path / "sources")))


@pytest.fixture(scope="module")
def imported(taken_apart: Path, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """The starter, taken apart and imported."""
    folders = Folders(taken_apart)
    folders.out = tmp_path_factory.mktemp("imported") / "pack"
    digest = folders.import_pack()
    return open_pack(folders.out, sha256=digest)


def test_an_imported_pack_is_sealed_and_says_what_it_is(imported: Pack) -> None:
    verify_pack(imported)
    manifest = imported.manifest
    assert (manifest.name, manifest.languages) == ("mine", ["en"])
    assert manifest.licence == {"weights": "CC0-1.0"}
    assert manifest.provenance["source"] == "a test"
    assert "model-00003-of-00003.safetensors " in manifest.provenance["model_files"]
    assert imported.text_side.speakers == ("slt", "rms", "awb", "kal")
    assert {path.name for path in imported.root.iterdir()} == {"manifest.json", *manifest.files}
    assert imported.root.stat().st_mode & 0o777 == 0o777 & ~_umask()
    assert [path.name for path in imported.root.parent.iterdir() if path.name[0] == "."] == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_numbers_that_were_not_measured_cut_nothing_and_say_so(imported: Pack) -> None:
    algorithm = imported.algorithm
    assert algorithm.postprocess.mode == "report"
    assert imported.raw["measured"]["how"].startswith("Not measured for this pack")
    assert algorithm.window.max_speech_tokens == 200  # 20 s of 10 frames
    assert algorithm.postprocess.ceiling_slack_tokens == 40
    assert algorithm.postprocess.ceiling_speech_per_text_token == 10.0
    assert algorithm.sampling.silence_token_ids == ()
    assert (algorithm.sampling.temperature, algorithm.sampling.repetition_penalty) == (0.6, 1.1)
    assert algorithm.frame == open_pack("starter").algorithm.frame
    assert algorithm.codec == open_pack("starter").algorithm.codec
    assert algorithm.chunking.chars == 1.25
    assert vars(main_path)["_PROMPT_ROOM_TOKENS"] == PROMPT_ROOM_TOKENS


def test_a_short_model_bounds_the_window(folders: Folders) -> None:
    _edit(folders.model / "config.json", max_position_embeddings=1024)
    folders.import_pack()
    assert open_pack(folders.out).algorithm.window.max_speech_tokens == (1024 - 512) // 7
    shutil.rmtree(folders.out)
    _edit(folders.model / "config.json", max_position_embeddings=570)
    with pytest.raises(PackImportError, match="max_position_embeddings"):
        folders.import_pack()


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_imported_starter_speaks_as_the_starter(
    imported: Pack, engine: Engine, tmp_path: Path
) -> None:
    """Under the starter's numbers: the same tokens, the same samples."""
    root = Path(shutil.copytree(imported.root, tmp_path / "numbered"))
    numbers = {key: open_pack("starter").raw[key] for key in ALGORITHM_KEYS}
    _edit(root / "manifest.json", **numbers)
    seal_pack(root)
    pack = open_pack(root)
    assert pack.algorithm.fingerprint() == open_pack("starter").algorithm.fingerprint()
    mine = load_engine(pack, ExecutionConfig(), slots=4)
    jobs = [job(0), job(3)]
    assert results(run(mine, jobs, slots=4)) == results(run(engine, jobs, slots=4))


@pytest.mark.parametrize("layout", ["single", "pickle", "sharded pickle"])
def test_the_weights_file_does_not_depend_on_how_the_source_lay(
    imported: Pack, tmp_path: Path, layout: Layout
) -> None:
    folders = Folders(tmp_path).fill(layout)
    folders.import_pack()
    assert open_pack(folders.out).checkpoint_sha256 == imported.checkpoint_sha256


def test_the_same_sources_make_the_same_pack(imported: Pack, folders: Folders) -> None:
    assert folders.import_pack(out=folders.root / "deep" / "again") == imported.sha256


def test_values_types_and_layout_are_those_of_the_source(imported: Pack, tmp_path: Path) -> None:
    for name in ("model.safetensors", "codec.safetensors"):
        ours, theirs = load_file(imported.path(name)), load_file(STARTER / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert tensor.dtype == theirs[key].dtype
            assert torch.equal(tensor, theirs[key])
        save_file(theirs, tmp_path / name, metadata={"format": "pt"})
        assert imported.path(name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_encoder_comes_along_unless_it_is_said_to_be_no_use(
    imported: Pack, folders: Folders
) -> None:
    assert imported.manifest.weights.encoder == "trained"
    folders.import_pack(decode_only=True)
    pack = open_pack(folders.out)
    assert pack.manifest.weights.encoder == "absent"
    kept = load_file(pack.path("codec.safetensors"))
    assert {name.split(".")[0] for name in kept} == {"decoder", "quantizer"}


def test_a_codec_without_an_encoder_is_decode_only(folders: Folders) -> None:
    state = load_file(STARTER / "codec.safetensors")
    (folders.codec / "pytorch_model.bin").unlink()
    decoder = {name: tensor for name, tensor in state.items() if not name.startswith("encoder.")}
    save_file(decoder, folders.codec / "snac.safetensors")  # a lone file of any name
    folders.import_pack()
    assert open_pack(folders.out).manifest.weights.encoder == "absent"


def test_licence_files_go_along(folders: Folders) -> None:
    (folders.model / "LICENSE.txt").write_text("Llama")
    (folders.codec / "NOTICE").write_text("SNAC")
    folders.import_pack()
    pack = open_pack(folders.out)
    assert pack.path("model-LICENSE.txt").read_text() == "Llama"
    assert pack.path("codec-NOTICE").read_text() == "SNAC"


def test_a_snapshot_of_the_hugging_face_cache_is_a_folder_of_links(
    imported: Pack, folders: Folders
) -> None:
    """Every file of a snapshot is a link into the blobs beside it, licences too."""
    (folders.model / "LICENSE").write_text("Llama")
    cache = folders.root / "models--org--name"
    snapshot = cache / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, path in enumerate(sorted(folders.model.iterdir())):
        path.rename(cache / "blobs" / str(number))
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", str(number)))
    folders.model = snapshot
    folders.import_pack()
    pack = open_pack(folders.out)
    assert pack.path("model-LICENSE").read_text() == "Llama"
    assert pack.checkpoint_sha256 == imported.checkpoint_sha256


def test_a_licence_may_be_a_link_inside_its_folder(folders: Folders) -> None:
    (folders.codec / "legal").mkdir()
    (folders.codec / "legal" / "mit.txt").write_text("MIT")
    (folders.codec / "LICENSE").symlink_to("legal/mit.txt")
    (folders.codec / "LICENSES").mkdir()
    (folders.codec / "NOTICE").symlink_to("nowhere")
    os.mkfifo(folders.codec / "COPYING")
    folders.import_pack()
    pack = open_pack(folders.out)
    assert pack.path("codec-LICENSE").read_text() == "MIT"
    assert [name for name in pack.manifest.files if name.startswith("codec-")] == ["codec-LICENSE"]


def test_a_view_that_negates_is_written_as_its_values(imported: Pack, folders: Folders) -> None:
    state = load_file(STARTER / "codec.safetensors")
    views = {name: torch._neg_view(-tensor) for name, tensor in state.items()}
    assert all(view.is_neg() for view in views.values())
    torch.save(views, folders.codec / "pytorch_model.bin")
    folders.import_pack()
    assert open_pack(folders.out).codec_sha256 == imported.codec_sha256


def test_a_rotary_buffer_of_an_old_checkpoint_is_left_out(imported: Pack, folders: Folders) -> None:
    buffers = {"model.rotary_emb.inv_freq": torch.ones(3)} | {
        f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(3) for n in range(6)
    }
    _model_tensors(folders, lambda tensors: tensors.update(buffers))
    folders.import_pack()
    assert open_pack(folders.out).checkpoint_sha256 == imported.checkpoint_sha256


def test_the_contract_is_the_one_that_the_files_fit(imported: Pack, folders: Folders) -> None:
    assert folders.import_pack(contract=None) == imported.sha256


def test_expected_tensors_are_those_that_load_llama_places() -> None:
    raw = {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 12,
        "vocab_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    }
    for tied in (True, False):
        config = read_llama_config({**raw, "tie_word_embeddings": tied})
        shapes = llama_shapes(config)
        load_llama(config, random_weights(shapes), device="cpu", dtype=torch.float32)
        assert ("lm_head.weight" in shapes) is not tied


def test_a_lavender_pack_is_imported_and_speaks(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", vocabulary=200_023 + 7 * 4096)
    lavender_adapter().save(model / "tiktoken.json")
    codec = tiny_snac(tmp_path / "codec")
    import_pack(model, codec, out=tmp_path / "pack", label=LABEL, speakers=("joe",))
    pack = open_pack(tmp_path / "pack")
    assert pack.manifest.token_contract.name == "lavender"
    assert pack.text_side.speakers == ("joe",)
    mine = load_engine(pack, ExecutionConfig(), slots=4)
    spoken = job(0, "Hi.", conditioning=Conditioning("joe"))
    [(_, windows)] = results(run(mine, [spoken], slots=4)).values()
    assert windows
    for window in windows:
        require_bands(pack.text_side.contract, window.tokens)


@pytest.mark.parametrize("kind", ["json", "ranks"])
def test_a_tokenizer_is_copied_as_far_as_the_contract_reads_it(tmp_path: Path, kind: str) -> None:
    folder, staged = tmp_path / "tokenizer", tmp_path / "staged"
    write_tokenizer_model(folder, "orpheus")
    (folder / "special_tokens_map.json").write_text("{}")
    (folder / "manifest.json").write_text("{}")
    needed = {"tokenizer.model", "tokenizer_config.json"}
    if kind == "json":
        write_tokenizer(folder, "orpheus")
        needed = {"tokenizer.json"}
    staged.mkdir()
    side = take_text_side(TextSource(folder, "orpheus", ("tara",), 4096), staged)
    assert {path.name for path in staged.iterdir()} == {*needed, "speakers.json"}
    assert (side.contract.name, side.speakers) == ("orpheus", ("tara",))


# -- what is refused ------------------------------------------------------------------------------


class Boom:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def _shard_gone(f: Folders) -> None:
    (f.model / "model-00002-of-00003.safetensors").unlink()


def _index(f: Folders, change: Callable[[dict[str, str]], object]) -> None:
    path = f.model / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def _unlisted(f: Folders) -> None:
    _index(f, lambda entries: entries.pop("model.norm.weight"))


def _wrong_shard(f: Folders) -> None:
    def change(entries: dict[str, str]) -> None:
        files = sorted(set(entries.values()))
        entries["model.norm.weight"] = files[files.index(entries["model.norm.weight"]) - 1]

    _index(f, change)


def _in_no_shard(f: Folders) -> None:
    _index(f, lambda entries: entries.update(ghost="model-00001-of-00003.safetensors"))


def _outside(f: Folders) -> None:
    _index(f, lambda entries: entries.update(ghost="../codec/pytorch_model.bin"))


def _not_an_index(f: Folders) -> None:
    (f.model / "model.safetensors.index.json").write_text('{"weight_map": []}')


def _truncated(f: Folders) -> None:
    path = f.model / "model-00001-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def _no_weights(f: Folders) -> None:
    for path in f.model.glob("model*"):
        path.unlink()


def _model_tensors(f: Folders, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    _no_weights(f)
    tensors = load_file(STARTER / "model.safetensors")
    change(tensors)
    write_weights(f.model, tensors, "single")


def _set(name: str, value: torch.Tensor) -> Callable[[Folders], object]:
    return lambda f: _model_tensors(f, lambda tensors: tensors.update({name: value}))


def _missing_tensor(f: Folders) -> None:
    _model_tensors(f, lambda tensors: tensors.pop("model.layers.3.mlp.up_proj.weight"))


def _infinite(f: Folders) -> None:
    _model_tensors(f, lambda tensors: tensors["model.norm.weight"].fill_(float("inf")))


def _config(**changes: object) -> Callable[[Folders], object]:
    return lambda f: _edit(f.model / "config.json", **changes)


def _codec_config(**changes: object) -> Callable[[Folders], object]:
    return lambda f: _edit(f.codec / "config.json", **changes)


def _pickle(value: Callable[[Folders], object]) -> Callable[[Folders], object]:
    return lambda f: torch.save(value(f), f.codec / "pytorch_model.bin")


def _evil(f: Folders) -> object:
    return {"decoder.bias": torch.zeros(1), "boom": Boom(f.root / "ran")}


def _codec_minus_a_tensor(f: Folders) -> object:
    state = load_file(STARTER / "codec.safetensors")
    del state["quantizer.quantizers.0.codebook.weight"]
    return state


_WEIGHT = "decoder.model.0.parametrizations.weight."


def _codec_state(
    change: Callable[[dict[str, torch.Tensor]], object],
) -> Callable[[Folders], object]:
    """The starter's codec as a pickle with some of its tensors changed."""

    def changed(f: Folders) -> object:
        state = load_file(STARTER / "codec.safetensors")
        change(state)
        return state

    return _pickle(changed)


def _codec_set(name: str, value: torch.Tensor) -> Callable[[Folders], object]:
    return _codec_state(lambda state: state.update({name: value}))


def _spread(state: dict[str, torch.Tensor]) -> None:
    """One value in the file, as many as are asked for by a stride of 0."""
    name = "quantizer.quantizers.0.codebook.weight"
    state[name] = torch.ones(1).expand(state[name].shape)


def _linked_notice(f: Folders) -> None:
    (f.root.parent / "secret").write_text("of this machine")
    (f.model / "LICENSE").symlink_to(f.root.parent / "secret")


def _notice(name: bytes, content: bytes = b"") -> Callable[[Folders], object]:
    return lambda f: (f.model / os.fsdecode(name)).write_bytes(content)


def _named_by_bytes(f: Folders) -> None:
    (f.codec / "pytorch_model.bin").unlink()
    name = f.codec / os.fsdecode(b"snac\xff.safetensors")
    name.write_bytes((STARTER / "codec.safetensors").read_bytes())


def _over(part: str, name: str) -> Callable[[Folders], object]:
    """A file of which forty bytes in the middle are overwritten."""

    def change(f: Folders) -> None:
        path = getattr(f, part) / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 40] = b"\xff" * 40
        path.write_bytes(content)

    return change


def _no_file(part: str, name: str) -> Callable[[Folders], object]:
    return lambda f: (getattr(f, part) / name).unlink()


def _text(part: str, name: str, text: str) -> Callable[[Folders], object]:
    return lambda f: (getattr(f, part) / name).write_text(text)


BROKEN: dict[str, tuple[Callable[[Folders], object], str]] = {
    "missing shard": (_shard_gone, "model-00002-of-00003.safetensors"),
    "tensor listed in no shard": (_unlisted, "does not list: model.norm.weight"),
    "tensor in the wrong shard": (_wrong_shard, "another shard: model.norm.weight"),
    "tensor that no shard has": (_in_no_shard, "no shard has: ghost"),
    "shard outside the folder": (_outside, "ghost"),
    "no weight map": (_not_an_index, "weight_map"),
    "truncated shard": (_truncated, "model-00001-of-00003.safetensors"),
    "no weights": (_no_weights, "model: holds no weights"),
    "tensor too many": (_set("model.extra", torch.ones(3)), "could not be placed: model.extra"),
    "tensor missing": (_missing_tensor, "missing: model.layers.3.mlp.up_proj.weight"),
    "misshapen": (_set("model.norm.weight", torch.ones(3)), "model.norm.weight (3,) instead of"),
    "quantised": (
        _set("model.norm.weight", torch.ones(256, dtype=torch.int8)),
        "model.norm.weight (I8)",
    ),
    "not finite": (_infinite, "model.norm.weight holds values that are not finite"),
    "tied head that differs": (_set("lm_head.weight", torch.ones(3682, 256)), "lm_head.weight"),
    "untied without a head": (_config(tie_word_embeddings=False), "missing: lm_head.weight"),
    "other architecture": (_config(model_type="qwen3"), "model/config.json: model_type"),
    "quantisation config": (_config(quantization_config={"bits": 4}), "quantization_config"),
    "more layers than tensors": (_config(num_hidden_layers=10**9), "1000000000 layers"),
    "rope that is not computed": (_config(rope_scaling={"rope_type": "yarn"}), "rope_type"),
    "config that is no JSON": (_text("model", "config.json", "{,"), "model/config.json:1:2"),
    "no model config": (_no_file("model", "config.json"), "model/config.json"),
    "no codec config": (_no_file("codec", "config.json"), "codec/config.json"),
    "unknown codec field": (_codec_config(speed=2), "codec/config.json: speed"),
    "codec with attention": (_codec_config(attn_window_size=32), "attn_window_size"),
    "no codec weights": (_no_file("codec", "pytorch_model.bin"), "codec: holds no weights"),
    "hostile pickle": (_pickle(_evil), "posix.mkdir"),
    "pickle of a list": (_pickle(lambda f: [torch.ones(1)]), "list"),
    "pickle of other values": (_pickle(lambda f: {"epoch": 3}), "epoch"),
    "not a pickle": (_text("codec", "pytorch_model.bin", "hello"), "pytorch_model.bin"),
    "codec tensor missing": (_pickle(_codec_minus_a_tensor), "quantizers.0.codebook.weight"),
    "tokenizer gone": (_no_file("tokenizer", "tokens.json"), "tokens.json"),
    "lexicon gone": (_no_file("tokenizer", "lexicon.tsv.gz"), "lexicon.tsv.gz"),
    "lexicon that is no gzip": (_text("tokenizer", "lexicon.tsv.gz", "a"), "not what contract"),
    "tokens without ids": (_text("tokenizer", "tokens.json", "{}"), "not what contract arpabet"),
    # Names and texts that no terminal and no manifest should be given as they are.
    "tensor named by escapes": (
        _set("model.\x1b[2J\n", torch.ones(3)),
        "could not be placed: 'model.\\x1b[2J\\n'",
    ),
    "tensor named at length": (_set("x" * 10**5, torch.ones(3)), "could not be placed: 'xxx"),
    "shard named by escapes": (
        lambda f: _index(f, lambda entries: entries.update(ghost="\x1b[2J.safetensors")),
        "weight_map.ghost: must be a .safetensors or .bin file beside the index, got '\\x1b[2J",
    ),
    "shard named at length": (
        lambda f: _index(f, lambda entries: entries.update(ghost="a" * 300 + ".safetensors")),
        "weight_map.ghost: must be",
    ),
    "shard named by half a pair": (
        lambda f: _index(f, lambda entries: entries.update(ghost="\ud800.safetensors")),
        "weight_map.ghost: must be text",
    ),
    "config key of half a pair": (_config(**{"\ud800": 1}), "config.json: '\\ud800': must be text"),
    "weights named by bytes": (_named_by_bytes, "'snac\\udcff.safetensors'"),
    "licence named by bytes": (_notice(b"LICENSE\xff"), "'LICENSE\\udcff'"),
    "licence named in two lines": (_notice(b"NOTICE\nx"), "'NOTICE\\nx'"),
    "licence that leads out": (_linked_notice, "model/LICENSE: is a link out of its folder"),
    "licence that is no text": (_notice(b"COPYING", b"a\0b"), "model/COPYING: is no text"),
    "licence of a megabyte": (_notice(b"LICENSE", b"a" * (1 << 20) + b"a"), "model/LICENSE: is no"),
    # Sizes.
    "positions past all memory": (
        _config(max_position_embeddings=10**15),
        "model/config.json: max_position_embeddings: must be a whole number from 1 to",
    ),
    "base past all floats": (_config(rope_theta=10**400), "model/config.json: rope_theta"),
    "scaling that is a word": (_config(rope_scaling="llama3"), "model/config.json: rope_scaling"),
    "scaling without a type": (_config(rope_scaling={"factor": 8.0}), "rope_type: is missing"),
    "tied by a word": (_config(tie_word_embeddings="false"), "tie_word_embeddings: must be true"),
    "codec of no rate": (
        _codec_config(sampling_rate=10**400),
        "codec/config.json: sampling_rate: must be a whole number from 1 to",
    ),
    "codec past all widths": (_codec_config(decoder_dim=2**40), "codec/config.json: decoder_dim"),
    "latent of another size": (_codec_config(latent_dim=3), "codec/config.json: latent_dim"),
    # Weights.
    "rotary buffer elsewhere": (
        _set("model.evil.rotary_emb.inv_freq", torch.ones(3)),
        "could not be placed: model.evil.rotary_emb.inv_freq",
    ),
    "rotary buffer of no layer": (
        _set("model.layers.6.self_attn.rotary_emb.inv_freq", torch.ones(3)),
        "could not be placed: model.layers.6.self_attn.rotary_emb.inv_freq",
    ),
    "past float32": (
        _set("model.norm.weight", torch.full((256,), 1e300, dtype=torch.float64)),
        "model.norm.weight holds values that are not finite numbers in float32",
    ),
    "codec past float32": (
        _codec_set("decoder.model.0.bias", torch.full((192,), -1e39, dtype=torch.float64)),
        "decoder.model.0.bias holds values that are not finite",
    ),
    "codec norm of nothing": (
        _codec_state(
            lambda state: state.update(
                {f"{_WEIGHT}original{n}": torch.zeros(0, 1, 1) for n in (0, 1)}
            )
        ),
        f"{_WEIGHT}original1 (0, 1, 1) instead of (192, 1, 7)",
    ),
    "codec direction of no dimension": (
        _codec_set(f"{_WEIGHT}original1", torch.tensor(1.0)),
        f"{_WEIGHT}original1 () instead of (192, 1, 7)",
    ),
    "codec tensor too many": (_codec_set("junk", torch.ones(3)), "could not be placed: junk"),
    "codec tensor of one value": (
        _codec_set("junk", torch.ones(1).expand(10**13)),
        "tensors with more values than are stored: junk",
    ),
    "codec tensor of one value, turned": (
        _codec_set("junk", torch.ones(1, 1).expand(10**7, 10**6).t()),
        "tensors with more values than are stored: junk",
    ),
    "codec weight of one value": (
        _codec_state(_spread),
        "more values than are stored: quantizer.quantizers.0.codebook.weight",
    ),
    "pickle keyed by a number": (_pickle(lambda f: {10**300: 3}), "plain tensors: 1000000"),
    # The tokenizer's files.
    "lexicon overwritten": (_over("tokenizer", "lexicon.tsv.gz"), "lexicon.tsv.gz: is not a gzip"),
    "tokens nested": (_text("tokenizer", "tokens.json", "[" * 200_000), "tokens.json: is not the"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_one_line_and_leaves_nothing(folders: Folders, name: str) -> None:
    change, told = BROKEN[name]
    change(folders)
    with pytest.raises(PackImportError) as caught:
        folders.import_pack()
    line = str(caught.value)
    assert told in line
    assert line.isprintable()
    assert len(line) < 1200
    assert ".pack." not in line, "a folder that is gone when the line is read"
    assert {path.name for path in folders.root.iterdir()} == {"model", "codec", "tokenizer"}


def test_a_hostile_legacy_pickle_does_not_run(folders: Folders) -> None:
    path = folders.codec / "pytorch_model.bin"
    torch.save(_evil(folders), path, _use_new_zipfile_serialization=False)
    with pytest.raises(PackImportError, match=r"posix\.mkdir"):
        folders.import_pack()
    assert not (folders.root / "ran").exists()


def test_a_legacy_pickle_of_tensors_is_read(imported: Pack, folders: Folders) -> None:
    state = load_file(STARTER / "codec.safetensors")
    path = folders.codec / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=False)
    folders.import_pack()
    assert open_pack(folders.out).codec_sha256 == imported.codec_sha256


def test_an_environment_variable_does_not_open_pickles(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save(_evil(folders), folders.codec / "pytorch_model.bin")
    with pytest.raises(PackImportError):
        folders.import_pack()
    assert not (folders.root / "ran").exists()


@pytest.mark.parametrize("found", ["file", "full", "dangling link"])
def test_an_out_that_is_taken_is_refused_and_left_alone(folders: Folders, found: str) -> None:
    if found == "file":
        folders.out.write_text("mine")
    elif found == "full":
        folders.out.mkdir()
        (folders.out / "mine").write_text("mine")
    else:
        folders.out.symlink_to(folders.root / "nowhere")
    with pytest.raises(PackImportError, match="is there already"):
        folders.import_pack()
    assert {path.name for path in folders.root.iterdir()} == {
        "model", "codec", "tokenizer", "pack"
    }  # fmt: skip


def test_an_empty_out_is_filled(imported: Pack, folders: Folders) -> None:
    folders.out.mkdir()
    assert folders.import_pack() == imported.sha256


def test_an_interrupted_import_leaves_nothing(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.importing_weights.write_model", interrupt)
    with pytest.raises(KeyboardInterrupt):
        folders.import_pack()
    assert {path.name for path in folders.root.iterdir()} == {"model", "codec", "tokenizer"}


def test_a_full_disk_is_one_line(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.importing_weights.write_codec", full)
    with pytest.raises(PackImportError, match="No space left on device"):
        folders.import_pack()
    assert not folders.out.exists()


def test_parts_that_do_not_belong_together_are_a_mismatch(folders: Folders, tmp_path: Path) -> None:
    small = tiny_llama(tmp_path / "small", vocabulary=3681)
    arguments: dict[str, Any] = {"out": folders.out, "label": LABEL, "contract": "arpabet"}
    with pytest.raises(ContractMismatchError, match=r"3681 ids.* 3682"):
        import_pack(small, folders.codec, tokenizer=folders.tokenizer, **arguments)
    other = tiny_snac(tmp_path / "other")
    with pytest.raises(ContractMismatchError, match=r"4096 .* 512"):
        import_pack(folders.model, other, tokenizer=folders.tokenizer, **arguments)


def test_a_contract_or_speaker_it_cannot_take_is_refused(folders: Folders) -> None:
    with pytest.raises(PackImportError, match="arpabet"):
        folders.import_pack(contract="morse")
    with pytest.raises(EngineError, match="name none"):
        folders.import_pack(speakers=("joe",))


HOSTILE = ("\udcff", "a\nb", "\x1b[2J", "\x00", "\u2028")
"""Undecodable bytes of an argument, and what would make two lines of one."""


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("name", {"name": "My Pack"}),
        ("licence", {"licence": " "}),
        ("source", {"source": ""}),
        ("languages", {"languages": ()}),
        ("languages", {"languages": ("en", "xx")}),
        *(
            (key, {key: text, "text_recipe": recipe})
            for key in ("licence", "source")
            for text in HOSTILE
            for recipe in ("funnel", "verbatim")
        ),
        *(
            ("languages[1]", {"languages": ("en", text), "text_recipe": recipe})
            for text in ("", " ", *HOSTILE)
            for recipe in ("funnel", "verbatim")
        ),
        *(("name", {"name": text}) for text in ("", "a" * 10**5, *HOSTILE)),
    ],
)
def test_a_label_that_says_nothing_is_refused(key: str, changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "name": "mine",
        "languages": ("en",),
        "licence": "MIT",
        "source": "here",
        **changes,
    }
    with pytest.raises(ManifestError) as caught:
        PackLabel(**given)
    assert caught.value.key == key
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("speakers", [("",), (" ",), ("a", "a"), *((text,) for text in HOSTILE)])
@pytest.mark.parametrize("contract", ["arpabet", "llama-3-audio", None])
def test_a_speaker_that_is_no_name_is_refused(
    folders: Folders, speakers: tuple[str, ...], contract: str | None
) -> None:
    with pytest.raises(PackImportError, match=r"^speaker '") as caught:
        folders.import_pack(contract=contract, speakers=speakers)
    assert str(caught.value).isprintable()
    assert not folders.out.exists()


@pytest.mark.parametrize("argument", ["out", "tokenizer", "model", "codec"])
def test_a_path_that_is_too_long_is_one_line(folders: Folders, argument: str) -> None:
    path = folders.root / ("a" * 300)
    changes = {} if argument in ("model", "codec") else {argument: path}
    if not changes:
        setattr(folders, argument, path)
    with pytest.raises(PackImportError, match="File name too long"):
        folders.import_pack(**changes)


def test_any_language_may_be_spoken_verbatim(folders: Folders) -> None:
    label = PackLabel("mine", ("xx",), "MIT", "here", text_recipe="verbatim")
    folders.import_pack(label=label)
    assert open_pack(folders.out).algorithm.text.recipe == "verbatim"


def test_types_are_kept_when_they_are_mixed(folders: Folders, tmp_path: Path) -> None:
    """Wide types go first, so that every tensor is aligned where it is mapped."""
    tensors = load_file(STARTER / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float32)
    kept = tensors["model.layers.0.mlp.up_proj.weight"].to(torch.bfloat16)
    tensors["model.layers.0.mlp.up_proj.weight"] = kept
    _model_tensors(folders, lambda there: there.update(tensors))
    folders.import_pack()
    path = open_pack(folders.out).path("model.safetensors")
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    written = load_file(path)
    assert {str(tensor.dtype) for tensor in written.values()} == {
        "torch.float32", "torch.bfloat16", "torch.float16"
    }  # fmt: skip
    assert all(torch.equal(written[name], tensor) for name, tensor in tensors.items())
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    assert path.read_bytes() == (tmp_path / "theirs").read_bytes()
