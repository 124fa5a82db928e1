"""The checks can fail: manifests with one thing wrong, and what is said of each."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import kubernetes_validate
import pytest

from tests.infra import kuberay_fields, references, rules
from tests.infra.files import Document, kubernetes_objects, kustomization, settings
from tests.infra.test_kubernetes import as_pod, autoscaler_pod, validate

Objects = dict[str, Document]

JOB = "rayjob.yaml RayJob loudkit-rebuild"
ALPHA = "raycronjob-alpha.yaml RayCronJob loudkit-rebuild"
CRON = "cronjob.yaml CronJob loudkit-rebuild"
ROLE = "access.yaml Role loudkit-scheduler"
BINDING = "access.yaml RoleBinding loudkit-scheduler"
POLICY = "network-policy.yaml NetworkPolicy loudkit-ray"
CRON_POD = f"{CRON}/spec/jobTemplate/spec/template/spec"
CLUSTER = f"{JOB}/spec/rayClusterSpec"
HEAD = f"{CLUSTER}/headGroupSpec"
CPU = f"{CLUSTER}/workerGroupSpecs/0"
GPU = f"{CLUSTER}/workerGroupSpecs/1"
HEAD_BOX = f"{HEAD}/template/spec/containers/0"
DROP = object()


def set_at(objects: Objects, path: str, value: Any) -> None:
    """Put a value at a path of keys and indices, or remove what is there."""
    key, *names = path.split("/")
    at: Any = objects[key]
    *way, last = [int(name) if name.isdigit() else name for name in names]
    for name in way:
        at = at[name]
    if value is DROP:
        del at[last]
    else:
        at[last] = value


def all_problems(objects: Objects) -> list[str]:
    """What every check of the manifests says, schemas and rules."""
    changed = kustomization()
    found = [problem for rule in rules.RULES for problem in rule(objects)]
    found += references.least_rights(objects)
    found += references.one_template(objects)
    found += references.waits_for_its_run(objects)
    found += references.names_resolve(objects, changed)
    found += references.one_image(objects, changed)
    found += references.enough_room(objects, settings(changed))
    for document in objects.values():
        if document["apiVersion"] == "ray.io/v1":
            found += kuberay_fields.problems(document)
        else:
            found += _refused(document)
    for _, template in rules.pod_templates(objects):
        found += _refused(as_pod(template))
    for _, spec in rules.rayjob_specs(objects):
        found += _refused(autoscaler_pod(spec["rayClusterSpec"]["autoscalerOptions"]))
    return found


def _refused(document: Document) -> list[str]:
    return _refused_text(json.dumps(document, sort_keys=True))


@cache
def _refused_text(document: str) -> list[str]:
    """Most documents are the same in every test."""
    try:
        validate(json.loads(document))
    except kubernetes_validate.ValidationError as error:
        return [f"invalid: {str(error).splitlines()[0]}"]
    return []


def broken(path: str, value: Any) -> Callable[[Objects], None]:
    """A change of one place, in the alpha variant as well where it is one of the RayJob's spec."""

    def change(objects: Objects) -> None:
        set_at(objects, path, value)
        if path.startswith(f"{JOB}/spec/") and not path.endswith("/suspend"):
            set_at(objects, path.replace(f"{JOB}/spec", f"{ALPHA}/spec/jobTemplate"), value)

    return change


CHANGES: list[tuple[str, Any, str]] = [
    # schedules and deadlines
    (f"{CRON}/spec/concurrencyPolicy", DROP, "not forbidden"),
    (f"{CRON}/spec/concurrencyPolicy", "Allow", "not forbidden"),
    (f"{CRON}/spec/concurrencyPolicy", "Forbidden", "not forbidden"),
    (f"{CRON}/spec/timeZone", DROP, "not in UTC"),
    (f"{CRON}/spec/timeZone", "Europe/Berlin", "not in UTC"),
    (f"{ALPHA}/spec/timeZone", "Europe/Berlin", "not in UTC"),
    (f"{CRON}/spec/schedule", "0 2 * *", "has 4 fields"),
    (f"{CRON}/spec/schedule", "0 24 * * *", "not within 0-23"),
    (f"{CRON}/spec/schedule", "0 */4 * * *", "later than its next run"),
    (f"{ALPHA}/spec/schedule", "0 */6 * * *", "later than its next run"),
    (f"{CRON}/spec/startingDeadlineSeconds", DROP, "no deadline for its start"),
    (f"{CRON}/spec/jobTemplate/spec/activeDeadlineSeconds", DROP, "no deadline"),
    (f"{CRON}/spec/jobTemplate/spec/activeDeadlineSeconds", 3600, "after that of the CronJob"),
    (f"{JOB}/spec/activeDeadlineSeconds", DROP, "no deadline"),
    (f"{JOB}/spec/preRunningDeadlineSeconds", DROP, "wait for its cluster forever"),
    (f"{JOB}/spec/backoffLimit", DROP, "no backoffLimit"),
    (f"{JOB}/spec/shutdownAfterJobFinishes", DROP, "the cluster stays"),
    (f"{JOB}/spec/ttlSecondsAfterFinished", 86400, "stays for long"),
    # misspelt fields, and fields of another type
    (f"{JOB}/spec/activeDeadlineSecond", 60, "no such field"),
    (f"{CLUSTER}/workerGroupSpec", [], "no such field"),
    (f"{CPU}/maxReplica", 4, "no such field"),
    (f"{CPU}/maxReplicas", "4", "is no integer"),
    (f"{HEAD}/rayStartParams/num-cpus", 0, "is no string"),
    (f"{ALPHA}/spec/concurrencyPolicy", "Forbid", "no such field"),
    (f"{CRON}/spec/concurencyPolicy", "Forbid", "invalid"),
    (f"{HEAD_BOX}/resource", {}, "invalid"),
    (f"{HEAD}/template/spec/toleration", [], "invalid"),
    (f"{CLUSTER}/autoscalerOptions/securityContext/readOnlyRootFileSystem", True, "invalid"),
    # who it runs as
    (f"{CRON_POD}/securityContext/runAsNonRoot", DROP, "runs as root"),
    (f"{HEAD}/template/spec/securityContext/runAsUser", 0, "runs as root"),
    (f"{CPU}/template/spec/securityContext", DROP, "runs as root"),
    (f"{JOB}/spec/submitterPodTemplate/spec/securityContext", DROP, "runs as root"),
    (f"{HEAD_BOX}/securityContext/readOnlyRootFilesystem", False, "write anywhere"),
    (f"{HEAD_BOX}/securityContext/allowPrivilegeEscalation", DROP, "may escalate"),
    (f"{HEAD_BOX}/securityContext/capabilities", DROP, "capabilities"),
    (f"{CLUSTER}/autoscalerOptions/securityContext", DROP, "may escalate"),
    (f"{GPU}/template/spec/hostNetwork", True, "hostNetwork"),
    (f"{HEAD}/template/spec/volumes/0", {"name": "scratch", "hostPath": {"path": "/"}}, "kind"),
    (f"{HEAD_BOX}/resources/limits", DROP, "no limits"),
    (f"{HEAD_BOX}/env/0/value", "/home/loudkit", "not a /tmp"),
    # who may do what
    (f"{ROLE}/rules/0/verbs", ["*"], "is not"),
    (f"{ROLE}/rules/0/verbs", ["get", "list", "create", "delete"], "is not"),
    (f"{ROLE}/rules/0/resources", ["*"], "more than RayJobs"),
    (f"{ROLE}/kind", "ClusterRole", "nothing here needs one"),
    (f"{BINDING}/subjects/0/name", "loudkit-head", "somebody else"),
    (f"{CPU}/template/spec/serviceAccountName", "loudkit-head", "is not loudkit-worker"),
    (f"{CPU}/template/spec/automountServiceAccountToken", DROP, "a token of the cluster"),
    (f"{HEAD}/template/spec/serviceAccountName", "loudkit", "no such service account"),
    # what it names
    (f"{HEAD}/template/spec/volumes/2/configMap/name", "catalog", "no such map"),
    (f"{HEAD}/template/spec/volumes/1/persistentVolumeClaim/claimName", "work", "no such claim"),
    (f"{HEAD_BOX}/volumeMounts/0/name", "tmp", "mounts volumes"),
    (f"{HEAD_BOX}/envFrom/0/configMapRef/name", "settings", "no such map"),
    (f"{CRON_POD}/containers/0/args/1", "loudkit", "no such template"),
    (f"{CRON_POD}/containers/0/name", "run", "another container"),
    (f"{CRON_POD}/containers/0/env/2/valueFrom", DROP, "belong to nobody"),
    (f"{CRON_POD}/containers/0/image", "busybox:latest", "changed nowhere"),
    (f"{JOB}/spec/suspend", False, "not suspended"),
    (f"{ALPHA}/spec/jobTemplate/entrypoint", "loudkit-batch --help", "not the spec of the RayJob"),
    # Ray
    (f"{HEAD}/rayStartParams/num-cpus", DROP, "land on the head"),
    (f"{HEAD}/serviceType", "LoadBalancer", "exposed"),
    (f"{HEAD}/enableIngress", True, "exposed"),
    (f"{CLUSTER}/authOptions", DROP, "no token"),
    (f"{CLUSTER}/enableInTreeAutoscaling", False, "asked for"),
    (f"{HEAD_BOX}/env/2/value", "1", "usage is reported"),
    (f"{CPU}/template/spec/tolerations", DROP, "spot machines"),
    (f"{GPU}/template/spec/tolerations/1", DROP, "GPU machines"),
    (f"{GPU}/rayStartParams/num-gpus", "2", "other GPUs"),
    (f"{CPU}/rayStartParams/num-cpus", "8", "other CPUs"),
    (f"{CPU}/maxReplicas", 2, "have a place"),
    (f"{CPU}/minReplicas", 1, "nobody asked for"),
    (f"{POLICY}/spec/ingress/0", {}, "lets everybody in"),
    (f"{POLICY}/spec/podSelector/matchLabels", {"app": "other"}, "no network policy"),
    (f"{CPU}/template/metadata/labels", {}, "not covered"),
]


def test_the_manifests_have_no_problems() -> None:
    assert all_problems(kubernetes_objects()) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [pytest.param(*each, id=f"{i}-{each[0].rpartition('/')[2]}") for i, each in enumerate(CHANGES)],
)
def test_a_broken_manifest_is_found(path: str, value: Any, said: str) -> None:
    objects = copy.deepcopy(kubernetes_objects())
    broken(path, value)(objects)
    found = all_problems(objects)
    assert any(re.search(said, problem) for problem in found), found
