"""What holds of the Kubernetes objects of the room: each rule finds problems, in one line each.

A rule is given every object, so that a test may also give it broken ones and see what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from tests.infra import cron
from tests.infra.files import Document

Objects = dict[str, Document]
Problems = Iterator[str]

UTC_NAMES = {"Etc/UTC", "UTC"}
RAY_CONTAINERS = {"ray-head", "ray-worker"}


def of_kind(objects: Objects, kind: str) -> Iterator[tuple[str, Document]]:
    """The objects of a kind."""
    return ((key, each) for key, each in objects.items() if each.get("kind") == kind)


def rayjob_specs(objects: Objects) -> Iterator[tuple[str, Document]]:
    """The specs of RayJobs, and of those that a RayCronJob makes."""
    for key, each in of_kind(objects, "RayJob"):
        yield key, each["spec"]
    for key, each in of_kind(objects, "RayCronJob"):
        yield key, each["spec"]["jobTemplate"]


def pod_templates(objects: Objects) -> Iterator[tuple[str, Document]]:
    """Every pod template, with a name for it."""
    for key, each in of_kind(objects, "CronJob"):
        yield f"{key} pod", each["spec"]["jobTemplate"]["spec"]["template"]
    for key, spec in rayjob_specs(objects):
        yield f"{key} submitter", spec["submitterPodTemplate"]
        yield f"{key} head", spec["rayClusterSpec"]["headGroupSpec"]["template"]
        for group in spec["rayClusterSpec"]["workerGroupSpecs"]:
            yield f"{key} {group['groupName']}", group["template"]


def containers(objects: Objects) -> Iterator[tuple[str, Document]]:
    """Every container, the autoscaler that the operator adds among them."""
    for where, template in pod_templates(objects):
        for each in template["spec"]["containers"]:
            yield f"{where} {each['name']}", each
    for key, spec in rayjob_specs(objects):
        yield f"{key} autoscaler", spec["rayClusterSpec"]["autoscalerOptions"]


def _get(document: Any, *path: str) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def restricted(objects: Objects) -> Problems:
    """Pods run as somebody, and with nothing that the restricted profile forbids."""
    for where, template in pod_templates(objects):
        spec = template["spec"]
        security = spec.get("securityContext", {})
        if security.get("runAsNonRoot") is not True or not security.get("runAsUser", 0) > 0:
            yield f"{where}: runs as root"
        if _get(security, "seccompProfile", "type") != "RuntimeDefault":
            yield f"{where}: no seccomp profile"
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(name):
                yield f"{where}: {name}"
        for volume in spec.get("volumes", []):
            if not {"emptyDir", "configMap", "persistentVolumeClaim"} & set(volume):
                yield f"{where}: volume {volume['name']} is of a kind nobody needs here"
        if spec.get("restartPolicy") != "Never":
            yield f"{where}: restartPolicy is not Never"
    for where, container in containers(objects):
        security = container.get("securityContext", {})
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{where}: may escalate"
        if security.get("readOnlyRootFilesystem") is not True:
            yield f"{where}: may write anywhere"
        if _get(security, "capabilities", "drop") != ["ALL"]:
            yield f"{where}: has capabilities"
        if security.get("privileged") or "runAsUser" in security or "runAsNonRoot" in security:
            yield f"{where}: says otherwise than its pod"


def sized(objects: Objects) -> Problems:
    """Containers ask for what they need and have a limit."""
    for where, container in containers(objects):
        for what in ("requests", "limits"):
            if not {"cpu", "memory"} <= set(_get(container, "resources", what) or {}):
                yield f"{where}: no {what}"


def writes_where_it_may(objects: Objects) -> Problems:
    """What runs Ray has a /tmp, which is its home as well: the rest is read-only."""
    for where, container in containers(objects):
        if container.get("name") == "run-rayjob":
            continue
        mounts = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
        home = [env["value"] for env in container.get("env", []) if env["name"] == "HOME"]
        if "/tmp" not in mounts or home != ["/tmp"]:
            yield f"{where}: HOME is not a /tmp of its own"


def scheduled(objects: Objects) -> Problems:
    """Schedules are in UTC, never two runs at once, and every run ends before the next."""
    found = [*of_kind(objects, "CronJob"), *of_kind(objects, "RayCronJob")]
    if not any(each["kind"] == "CronJob" for _, each in found):
        yield "there is no CronJob"
    for key, each in found:
        spec = each["spec"]
        if spec.get("timeZone") not in UTC_NAMES:
            yield f"{key}: not in UTC"
        try:
            gap = cron.shortest_gap(spec.get("schedule", ""))
        except ValueError as error:
            yield f"{key}: schedule: {error}"
            continue
        if each["kind"] == "CronJob":
            if spec.get("concurrencyPolicy") != "Forbid":
                yield f"{key}: two at once are not forbidden"
            if not 0 < spec.get("startingDeadlineSeconds", 0) <= gap.total_seconds():
                yield f"{key}: no deadline for its start"
        deadline = _get(spec, "jobTemplate", "spec", "activeDeadlineSeconds")
        deadline = deadline or _get(spec, "jobTemplate", "activeDeadlineSeconds")
        if not deadline:
            yield f"{key}: no deadline"
        elif timedelta(seconds=deadline) >= gap:
            yield f"{key}: its deadline is later than its next run"


def ended(objects: Objects) -> Problems:
    """A run ends, with its cluster, before whoever waits for it gives up."""
    waits = [
        _get(each, "spec", "jobTemplate", "spec", "activeDeadlineSeconds") or 0
        for _, each in of_kind(objects, "CronJob")
    ]
    for key, spec in rayjob_specs(objects):
        deadline = spec.get("activeDeadlineSeconds", 0)
        if not 0 < deadline < min(waits, default=1 << 30):
            yield f"{key}: no deadline, or one after that of the CronJob's Job"
        if not 0 < spec.get("preRunningDeadlineSeconds", 0) < max(deadline, 1):
            yield f"{key}: it may wait for its cluster forever"
        if not isinstance(spec.get("backoffLimit"), int):
            yield f"{key}: no backoffLimit"
        if spec.get("shutdownAfterJobFinishes") is not True:
            yield f"{key}: the cluster stays"
        if not 0 < spec.get("ttlSecondsAfterFinished", 0) <= 600:
            yield f"{key}: the cluster stays for long, or goes before its logs are read"


def hidden(objects: Objects) -> Problems:
    """Nothing of Ray is reached from outside, and nobody gets in without the token."""
    for key, spec in rayjob_specs(objects):
        cluster = spec["rayClusterSpec"]
        head = cluster["headGroupSpec"]
        if head.get("serviceType") != "ClusterIP" or head.get("enableIngress") is not False:
            yield f"{key}: the dashboard is exposed"
        if _get(cluster, "authOptions", "mode") != "token":
            yield f"{key}: no token"
    for where, container in containers(objects):
        ports = [port for port in container.get("ports", []) if "hostPort" in port]
        if ports:
            yield f"{where}: a port of the host"
    policies = [each for _, each in of_kind(objects, "NetworkPolicy")]
    covered = {"app.kubernetes.io/part-of": "loudkit-batch"}
    if not any(_get(each, "spec", "podSelector", "matchLabels") == covered for each in policies):
        yield "no network policy covers the pods"
    for each in policies:
        for rule in each["spec"]["ingress"]:
            if not rule.get("from") or {} in rule["from"]:
                yield "a network policy lets everybody in"
    for where, template in pod_templates(objects):
        if not covered.items() <= template["metadata"].get("labels", {}).items():
            yield f"{where}: not covered by the network policy"


def quiet(objects: Objects) -> Problems:
    """Ray reports its usage to nobody."""
    for where, container in containers(objects):
        if container.get("name") in RAY_CONTAINERS or where.endswith(" autoscaler"):
            env = {each["name"]: each.get("value") for each in container.get("env", [])}
            if env.get("RAY_USAGE_STATS_ENABLED") != "0":
                yield f"{where}: usage is reported"


def placed(objects: Objects) -> Problems:
    """No actor on the head, one a core or a GPU elsewhere, nothing idle at the start."""
    for key, spec in rayjob_specs(objects):
        cluster = spec["rayClusterSpec"]
        head = cluster["headGroupSpec"]
        if head["rayStartParams"].get("num-cpus") != "0":
            yield f"{key}: actors may land on the head"
        if head["template"]["spec"].get("tolerations"):
            yield f"{key}: the head may land on spot machines"
        if cluster.get("enableInTreeAutoscaling") is not True:
            yield f"{key}: workers do not come when they are asked for"
        for group in cluster["workerGroupSpecs"]:
            where = f"{key} {group['groupName']}"
            pod = group["template"]["spec"]
            [container] = pod["containers"]
            limits, parameters = container["resources"]["limits"], group["rayStartParams"]
            if limits != container["resources"]["requests"]:
                yield f"{where}: asks for less than it may use"
            if parameters.get("num-cpus") != limits["cpu"]:
                yield f"{where}: Ray is told of other CPUs than there are"
            if parameters.get("num-gpus") != limits.get("nvidia.com/gpu"):
                yield f"{where}: Ray is told of other GPUs than there are"
            if group.get("replicas") or group["minReplicas"] or int(group["maxReplicas"]) < 1:
                yield f"{where}: workers that nobody asked for, or none at all"
            keys = {each["key"] for each in pod.get("tolerations", [])}
            if "loudkit-batch/spot" not in keys:
                yield f"{where}: spot machines would not take it"
            if ("nvidia.com/gpu" in limits) != ("nvidia.com/gpu" in keys):
                yield f"{where}: GPU machines would not take it, or take it without need"
        if not any(
            "nvidia.com/gpu" in group["template"]["spec"]["containers"][0]["resources"]["limits"]
            for group in cluster["workerGroupSpecs"]
        ):
            yield f"{key}: no group has GPUs"


RULES: tuple[Callable[[Objects], Problems], ...] = (
    restricted,
    sized,
    writes_where_it_may,
    scheduled,
    ended,
    hidden,
    quiet,
    placed,
)
