"""The commands about packs and token contracts: `pack`, `contract`, `fingerprint`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from catalog.errors import one_line
from jobs.cli_options import as_json_option, refusals
from jobs.errors import DONE


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--canonical", is_flag=True, help="The exact string that is hashed, too.")
@refusals
def fingerprint(manifest: Path, canonical: bool) -> int:
    """Print the algorithm fingerprint of a MANIFEST, a pack folder or a bundled pack."""
    from engine.manifest import algorithm_from, read_manifest
    from engine.pack import MANIFEST, bundled_packs, open_pack

    if manifest.is_dir():
        manifest = manifest / MANIFEST
    elif str(manifest) in bundled_packs():
        manifest = open_pack(str(manifest)).root / MANIFEST
    algorithm = algorithm_from(read_manifest(manifest))
    click.echo(algorithm.fingerprint())
    if canonical:
        click.echo(algorithm.canonical_form())
    return DONE


@click.group()
def pack() -> None:
    """Look at packs, check them, make new ones and seal them."""


@pack.command()
@click.argument("reference", metavar="PACK")
@as_json_option
@refusals
def inspect(reference: str, as_json: bool) -> int:
    """Say what PACK (a bundled name or a folder) is."""
    from engine.dialogue import SpeaksDialogue
    from engine.pack import open_pack, verify_pack

    found = open_pack(reference)
    verify_pack(found)
    facts: dict[str, Any] = {
        "name": found.manifest.name,
        "sha256": found.sha256,
        "folder": str(found.root),
        "description": found.manifest.description,
        "algorithm_fingerprint": found.algorithm.fingerprint(),
        "token_contract": found.manifest.token_contract.model_dump(),
        "languages": found.manifest.languages,
        "speakers": list(found.text_side.speakers),
        "dialogue": isinstance(found.text_side, SpeaksDialogue),
        "supported_tags": found.manifest.supported_tags,
        "encoder": found.manifest.weights.encoder,
        "checkpoint_sha256": found.checkpoint_sha256,
        "codec_sha256": found.codec_sha256,
        "sample_rate_hz": found.algorithm.sample_rate,
        "licence": found.manifest.licence,
        "provenance": found.manifest.provenance,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return DONE
    unlisted = {"speakers": "any name", "supported_tags": "none"}
    for key, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        shown = unlisted.get(key, "none") if value == [] else shown
        shown = ("no", "yes")[value] if isinstance(value, bool) else shown
        if isinstance(shown, dict):
            shown = "; ".join(f"{name}: {text}" for name, text in shown.items())
        click.echo(one_line(f"{key}: {shown}"))
    return DONE


@pack.command()
@click.argument("reference", metavar="PACK")
@refusals
def verify(reference: str) -> int:
    """Hash every file of PACK against its manifest."""
    from engine.pack import open_pack, verify_pack

    found = open_pack(reference)
    verify_pack(found)
    found.text_side.contract.require(found.manifest.token_contract.fingerprint, str(found.root))
    click.echo(
        f"{found.manifest.name}: {len(found.manifest.files)} files are as sealed, "
        f"sha256 {found.sha256}"
    )
    return DONE


_folder = click.Path(path_type=Path)


@pack.command("import")
@click.option("--model", type=_folder, required=True, help="Llama: config.json and weights.")
@click.option("--codec", type=_folder, required=True, help="SNAC: config.json and weights.")
@click.option("--tokenizer", type=_folder, help="Default: the model's folder.")
@click.option("--out", type=_folder, required=True, help="A new folder.")
@click.option("--contract", help="What the ids mean. Default: the one that the tokenizer fits.")
@click.option("--name", help="Default: the name of the OUT folder.")
@click.option(
    "--language", "languages", multiple=True, default=("en",), show_default=True, help="Repeatable."
)
@click.option("--speaker", "speakers", multiple=True, help="A trained speaker's name; repeatable.")
@click.option("--licence", "--license", required=True, help="What the weights may be used under.")
@click.option("--source", required=True, help="Where the weights are from.")
@click.option(
    "--decode-only", is_flag=True, help="Leave out the codec's encoder, where it was never trained."
)
@click.option("--verbatim", is_flag=True, help="Speak text as it stands, without the text funnel.")
@as_json_option
@refusals
def import_(
    model: Path,
    codec: Path,
    tokenizer: Path | None,
    out: Path,
    contract: str | None,
    name: str | None,
    languages: tuple[str, ...],
    speakers: tuple[str, ...],
    licence: str,
    source: str,
    decode_only: bool,
    verbatim: bool,
    as_json: bool,
) -> int:
    """Make a pack of a Hugging Face Llama folder and a SNAC folder. Fetches nothing."""
    from engine.importing import import_pack
    from engine.importing_manifest import PackLabel

    label = PackLabel(
        name=name or out.absolute().name.lower(),
        languages=languages,
        licence=licence,
        source=source,
        text_recipe="verbatim" if verbatim else "funnel",
    )
    digest = import_pack(
        model,
        codec,
        out=out,
        label=label,
        tokenizer=tokenizer,
        contract=contract,
        speakers=speakers,
        decode_only=decode_only,
    )
    click.echo(json.dumps({"out": str(out), "sha256": digest}) if as_json else digest)
    if not as_json:
        click.echo(
            f"{out}: detectors only report until their numbers are measured: "
            f"python -m tests.benchmarks.measure_pack {out}",
            err=True,
        )
    return DONE


@pack.command()
@click.argument("folder", type=click.Path(path_type=Path))
@refusals
def seal(folder: Path) -> int:
    """Write sizes and sha256 of the files that FOLDER/manifest.json lists into it."""
    from engine.pack import seal_pack

    click.echo(seal_pack(folder))
    return DONE


@click.group()
def contract() -> None:
    """Say what the token ids of a pack mean, and whether a file's ids mean the same."""


@contract.command("show")
@click.argument("reference", metavar="PACK")
@as_json_option
@refusals
def show_contract(reference: str, as_json: bool) -> int:
    """Name, fingerprint, bands and specials of PACK's token contract."""
    from jobs.contracts import contract_of_pack, describe, describe_lines

    found = contract_of_pack(reference).contract
    lines = [json.dumps(describe(found))] if as_json else describe_lines(found)
    click.echo("\n".join(lines))
    return DONE


@contract.command("check")
@click.argument("parquet", type=click.Path(path_type=Path))
@click.argument("reference", metavar="PACK")
@refusals
def check_contract(parquet: Path, reference: str) -> int:
    """Hold token PARQUET (a part, or a folder of them) against PACK: contract and every id."""
    from jobs.contracts import check_tokens

    found = check_tokens(parquet, reference)
    click.echo(
        f"{parquet}: {found.rows} windows with {found.tokens} ids in {found.parts} parts, "
        "all under the contract of the pack and in its bands"
    )
    return DONE
