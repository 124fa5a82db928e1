"""The files of the room, read more strictly than their readers do."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
INFRA = ROOT / "infra"
KUBERAY = INFRA / "kuberay"

Document = dict[str, Any]


class DuplicateKeyError(ValueError):
    """PyYAML keeps the last of two equal keys; the other one was meant, too."""


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise DuplicateKeyError(f"{key_node.start_mark}: {key!r} a second time")
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> list[Any]:
    """The documents of a YAML stream. Raises `DuplicateKeyError`."""
    return list(yaml.load_all(text, _StrictLoader))


def read_yaml(path: Path) -> list[Document]:
    """The documents of a file."""
    return parse_yaml(path.read_text(encoding="utf-8"))


def yaml_files() -> list[Path]:
    """Every YAML file of the room."""
    return sorted(path for path in INFRA.rglob("*") if path.suffix in {".yaml", ".yml"})


def text_files() -> list[Path]:
    """Every file of the room."""
    return sorted(
        path for path in INFRA.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


def kubernetes_objects() -> dict[str, Document]:
    """What Kubernetes is given, by file and kind and name, as it is written."""
    found = {}
    for path in sorted(KUBERAY.glob("*.yaml")):
        if path.name in {"kustomization.yaml", "catalog.yaml"}:
            continue
        for document in read_yaml(path):
            key = f"{path.name} {document['kind']} {document['metadata']['name']}"
            assert key not in found, key
            found[key] = document
    return found


def kustomization() -> Document:
    """What a reader changes."""
    [document] = read_yaml(KUBERAY / "kustomization.yaml")
    return document


def settings(document: Document) -> dict[str, str]:
    """The literals of the settings map in a kustomization."""
    [literals] = [
        each["literals"]
        for each in document["configMapGenerator"]
        if each["name"] == "loudkit-settings"
    ]
    return dict(literal.split("=", 1) for literal in literals)
