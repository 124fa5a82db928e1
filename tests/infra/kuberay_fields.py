"""The fields of KubeRay's resources, without the schemas: names and types, to refuse misspellings.

The resources' schemas are KubeRay's own and lie in `shared/kuberay`, where somebody put them beside
a checkout. `python -m tests.infra.kuberay_fields` reads them and writes `kuberay_fields.json`, so
that a bare clone refuses unknown fields, too. What is Kubernetes' own (pods, metadata, environment,
resources) is left out: `kubernetes-validate` knows it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.infra.files import ROOT, Document

FIELDS = Path(__file__).parent / "kuberay_fields.json"
SCHEMAS = ("rayclusters", "rayjobs", "raycronjobs")
KINDS = {"RayCluster": "rayclusters", "RayJob": "rayjobs", "RayCronJob": "raycronjobs"}

OF_KUBERNETES = {
    "metadata",
    "template",
    "submitterPodTemplate",
    "headService",
    "env",
    "envFrom",
    "volumeMounts",
    "securityContext",
    "ingressRules",
    "egressRules",
    "tls",
    "valueFrom",
}
"""Fields that hold what Kubernetes defines."""

_CLUSTER_OF_JOB = ("RayJob", "rayClusterSpec", "RayCluster")

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def schemas_folder() -> Path | None:
    """`shared/kuberay` in or above the checkout, where there is one."""
    for folder in (ROOT, ROOT.parent):
        found = folder / "shared" / "kuberay"
        if found.is_dir():
            return found
    return None


def schema_of(kind: str, folder: Path) -> Document:
    """The schema of a kind of resource."""
    path = folder / f"{KINDS[kind]}.v1.schema.json"
    schema: Document = json.loads(path.read_text(encoding="utf-8"))
    return schema


def reduced(schema: Document, name: str = "") -> Any:
    """Names and types of a schema: a type's name, a list of one, or a dict by field."""
    if name in OF_KUBERNETES or (name == "resources" and "limits" in schema.get("properties", {})):
        return "kubernetes"
    if "properties" in schema:
        return {key: reduced(value, key) for key, value in sorted(schema["properties"].items())}
    if schema.get("type") == "array":
        return [reduced(schema["items"])]
    if isinstance(schema.get("additionalProperties"), dict):
        return {"*": reduced(schema["additionalProperties"])}
    return schema.get("type", "any")


def generated(folder: Path) -> Document:
    """What `kuberay_fields.json` holds: of every kind all but its status.

    A spec within another is told once, and named as `=Kind` where it comes again.
    """
    found = {}
    for kind in KINDS:
        fields = reduced(schema_of(kind, folder))
        fields.pop("status")
        found[kind] = fields
    for outer, field, inner in (("RayCronJob", "jobTemplate", "RayJob"), _CLUSTER_OF_JOB):
        if found[outer]["spec"][field] != found[inner]["spec"]:
            raise SystemExit(f"{outer}.spec.{field} is not the spec of a {inner} any more")
        found[outer]["spec"][field] = f"={inner}"
    return found


def problems(document: Document) -> list[str]:
    """Fields of a RayCluster, RayJob or RayCronJob that are unknown, or of another type."""
    kinds = json.loads(FIELDS.read_text(encoding="utf-8"))
    return _compared(document, kinds[document["kind"]], document["kind"], kinds)


def _compared(value: Any, fields: Any, where: str, kinds: Document) -> list[str]:
    if fields in ("kubernetes", "any"):
        return []
    if isinstance(fields, str) and fields.startswith("="):
        fields = kinds[fields[1:]]["spec"]
    if isinstance(fields, str):
        wrong = not isinstance(value, _JSON_TYPES[fields])
        wrong |= isinstance(value, bool) and fields != "boolean"
        return [f"{where}: {value!r} is no {fields}"] if wrong else []
    if isinstance(fields, list):
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no array"]
        found = [_compared(each, fields[0], f"{where}[{i}]", kinds) for i, each in enumerate(value)]
        return [problem for each in found for problem in each]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    found = []
    for key, inner in value.items():
        known = fields.get(key, fields.get("*"))
        if known is None:
            found.append([f"{where}.{key}: there is no such field"])
        else:
            found.append(_compared(inner, known, f"{where}.{key}", kinds))
    return [problem for each in found for problem in each]


def main() -> None:
    """Write `kuberay_fields.json` anew."""
    folder = schemas_folder()
    if folder is None:
        raise SystemExit("there is no shared/kuberay in or beside this checkout")
    text = json.dumps(generated(folder), indent=1, sort_keys=True) + "\n"
    FIELDS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
