"""The manifests: what Kubernetes and KubeRay would say of them, and what this project asks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from infra.kuberay import run_rayjob
from tests.infra import kuberay_fields, references, rules
from tests.infra.files import (
    KUBERAY,
    Document,
    DuplicateKeyError,
    kubernetes_objects,
    kustomization,
    parse_yaml,
    read_yaml,
    settings,
    yaml_files,
)

OBJECTS = kubernetes_objects()
OF_KUBERAY = {key: each for key, each in OBJECTS.items() if each["apiVersion"] == "ray.io/v1"}
OF_KUBERNETES = {key: each for key, each in OBJECTS.items() if key not in OF_KUBERAY}
KUBERNETES_VERSION = "1.29.0"
"""The oldest that README.md speaks of."""


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: path.name)
def test_yaml_parses_and_no_key_comes_twice(path: Any) -> None:
    assert all(read_yaml(path))


def test_a_key_that_comes_twice_is_found() -> None:
    with pytest.raises(DuplicateKeyError):
        parse_yaml("a: {b: 1, b: 2}")


# -- Kubernetes' own schemas -----------------------------------------------------------------------


def validate(document: Document) -> None:
    """Raises kubernetes_validate.ValidationError; unknown fields are errors."""
    kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


@pytest.mark.parametrize("key", OF_KUBERNETES)
def test_an_object_is_valid(key: str) -> None:
    validate(OF_KUBERNETES[key])


def as_pod(template: Document) -> Document:
    """A pod that a template would make."""
    metadata = {**template["metadata"], "name": "a-pod"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def autoscaler_pod(options: Document) -> Document:
    """The autoscaler's options as the container that the operator makes of them."""
    names = ("env", "envFrom", "resources", "securityContext", "volumeMounts")
    container = {name: options[name] for name in names if name in options}
    spec = {"containers": [{"name": "autoscaler", "image": "an-image", **container}]}
    return as_pod({"metadata": {}, "spec": spec})


@pytest.mark.parametrize(
    ("where", "template"),
    [pytest.param(*each, id=each[0]) for each in rules.pod_templates(OBJECTS)],
)
def test_a_pod_template_is_valid(where: str, template: Document) -> None:
    validate(as_pod(template))


def test_the_autoscaler_is_valid() -> None:
    found = [spec["rayClusterSpec"]["autoscalerOptions"] for _, spec in rules.rayjob_specs(OBJECTS)]
    assert len(found) == 2
    for options in found:
        validate(autoscaler_pod(options))


# -- KubeRay's schemas -----------------------------------------------------------------------------


def closed(schema: Any, *, top: bool = True) -> Any:
    """A schema that refuses what it does not name, as the API server warns of and drops."""
    if isinstance(schema, list):
        return [closed(each, top=False) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value, top=False) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    if top:  # of the resource's own metadata the schema says nothing
        found["properties"]["metadata"] = {"type": "object"}
    return found


def schemas() -> Any:
    """The folder of KubeRay's schemas, where there is one."""
    folder = kuberay_fields.schemas_folder()
    if folder is None:
        pytest.skip("shared/kuberay is not in or beside this checkout: KubeRay's own schemas")
    return folder


@pytest.mark.parametrize("key", OF_KUBERAY)
def test_a_resource_fits_kuberays_schema(key: str) -> None:
    document = OF_KUBERAY[key]
    schema = closed(kuberay_fields.schema_of(document["kind"], schemas()))
    jsonschema.Draft7Validator(schema).validate(document)


def test_a_ray_cluster_fits_kuberays_schema() -> None:
    schema = closed(kuberay_fields.schema_of("RayCluster", schemas()))
    for _, spec in rules.rayjob_specs(OBJECTS):
        document = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "a-cluster"},
            "spec": spec["rayClusterSpec"],
        }
        jsonschema.Draft7Validator(schema).validate(document)


def test_the_field_names_are_those_of_the_schemas() -> None:
    kept = json.loads(kuberay_fields.FIELDS.read_text(encoding="utf-8"))
    assert kept == kuberay_fields.generated(schemas()), (
        "python -m tests.infra.kuberay_fields writes them anew"
    )


@pytest.mark.parametrize("key", OF_KUBERAY)
def test_a_resource_has_no_unknown_field(key: str) -> None:
    assert kuberay_fields.problems(OF_KUBERAY[key]) == []


# -- this project's rules --------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds(rule: Any) -> None:
    assert list(rule(OBJECTS)) == []


@pytest.mark.parametrize(
    "rule",
    [references.least_rights, references.one_template, references.waits_for_its_run],
    ids=lambda rule: rule.__name__,
)
def test_a_rule_of_names_and_rights_holds(rule: Any) -> None:
    assert list(rule(OBJECTS)) == []


def test_names_resolve_and_there_is_one_image_and_room() -> None:
    changed = kustomization()
    assert list(references.names_resolve(OBJECTS, changed)) == []
    assert list(references.one_image(OBJECTS, changed)) == []
    assert list(references.enough_room(OBJECTS, settings(changed))) == []
    on_gpus = {**settings(changed), "DEVICE": "cuda", "WORKERS": "4"}
    assert list(references.enough_room(OBJECTS, on_gpus)) == []


def test_kustomize_is_given_every_file_but_the_alpha_variant() -> None:
    named = set(kustomization()["resources"])
    there = {path.name for path in KUBERAY.glob("*.yaml")}
    assert there - named == {"kustomization.yaml", "catalog.yaml", "raycronjob-alpha.yaml"}
    for each in kustomization()["configMapGenerator"]:
        for name in each.get("files", []):
            assert (KUBERAY / name).is_file()


def test_the_script_reads_the_arguments_of_its_container() -> None:
    [(_, cronjob)] = rules.of_kind(OBJECTS, "CronJob")
    [container] = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert run_rayjob.parse(container["args"]).template == "loudkit-rebuild"
    [mount] = container["volumeMounts"]
    assert container["command"] == ["python3", f"{mount['mountPath']}/run_rayjob.py"]
    # What is not tried again is what the script ends with when trying again is in vain.
    [codes] = [
        rule["onExitCodes"]["values"]
        for rule in cronjob["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    ]
    assert codes == [2, 3, 4, run_rayjob.DEADLINE]


def test_kustomize_builds_it(tmp_path: Any) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH: what kustomize makes of the folder")
    done = subprocess.run(
        [kubectl, "kustomize", str(KUBERAY)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    built = parse_yaml(done.stdout)
    objects = {f"{each['kind']} {each['metadata']['name']}": each for each in built}
    images = {
        container["image"]
        for where, container in rules.containers(objects)
        if not where.endswith(" autoscaler")
    }
    assert images == {"registry.example.com/loudkit-batch:0.1.0-cpu"}
    assert objects["Namespace loudkit"]
    spread = {each["metadata"].get("namespace") for each in built if each["kind"] != "Namespace"}
    assert spread == {"loudkit"}
    account = objects["ServiceAccount loudkit-head"]["metadata"]["annotations"]
    assert account["eks.amazonaws.com/role-arn"].endswith(":role/loudkit-batch-publisher")
    for name in ("loudkit-settings", "loudkit-catalog", "loudkit-run-rayjob"):
        assert objects[f"ConfigMap {name}"]["data"]
    for each in built:
        if each["apiVersion"] != "ray.io/v1":
            validate(each)
