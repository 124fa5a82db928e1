"""What the Kubernetes objects name: whether it is there, and who may do what."""

from __future__ import annotations

from tests.infra.files import Document
from tests.infra.rules import (
    Objects,
    Problems,
    containers,
    of_kind,
    pod_templates,
    rayjob_specs,
)

SCHEDULER_VERBS = {"get", "list", "create"}


def generated_maps(kustomization: Document) -> set[str]:
    """The ConfigMaps that kustomize makes."""
    return {each["name"] for each in kustomization["configMapGenerator"]}


def names_resolve(objects: Objects, kustomization: Document) -> Problems:
    """Service accounts, maps, claims, roles and volumes that are named are there."""
    accounts = {each["metadata"]["name"] for _, each in of_kind(objects, "ServiceAccount")}
    claims = {each["metadata"]["name"] for _, each in of_kind(objects, "PersistentVolumeClaim")}
    roles = {each["metadata"]["name"] for _, each in of_kind(objects, "Role")}
    maps = generated_maps(kustomization)
    for where, template in pod_templates(objects):
        spec = template["spec"]
        if spec.get("serviceAccountName") not in accounts:
            yield f"{where}: no such service account"
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for name, volume in volumes.items():
            if "configMap" in volume and volume["configMap"]["name"] not in maps:
                yield f"{where}: no such map for the volume {name}"
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is not None and claim not in claims:
                yield f"{where}: no such claim for the volume {name}"
        for container in spec["containers"]:
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            if mounted - set(volumes):
                yield f"{where}: mounts volumes that are not there"
            for source in container.get("envFrom", []):
                if source["configMapRef"]["name"] not in maps:
                    yield f"{where}: no such map for its environment"
    for key, spec in rayjob_specs(objects):
        cluster = spec["rayClusterSpec"]
        head = {each["name"] for each in cluster["headGroupSpec"]["template"]["spec"]["volumes"]}
        mounted = {mount["name"] for mount in cluster["autoscalerOptions"]["volumeMounts"]}
        if mounted - head:
            yield f"{key} autoscaler: mounts volumes that the head does not have"
    for key, binding in of_kind(objects, "RoleBinding"):
        if binding["roleRef"]["name"] not in roles:
            yield f"{key}: no such role"
        if {subject["name"] for subject in binding["subjects"]} - accounts:
            yield f"{key}: no such service account"


def least_rights(objects: Objects) -> Problems:
    """The scheduler may create, get and list RayJobs in its namespace; nobody else has a role."""
    for kind in ("ClusterRole", "ClusterRoleBinding", "Secret"):
        for key, _ in of_kind(objects, kind):
            yield f"{key}: nothing here needs one"
    for key, role in of_kind(objects, "Role"):
        for rule in role["rules"]:
            if rule["apiGroups"] != ["ray.io"] or rule["resources"] != ["rayjobs"]:
                yield f"{key}: more than RayJobs"
            if set(rule["verbs"]) != SCHEDULER_VERBS:
                yield f"{key}: {sorted(rule['verbs'])} is not {sorted(SCHEDULER_VERBS)}"
    for key, binding in of_kind(objects, "RoleBinding"):
        if [subject["name"] for subject in binding["subjects"]] != ["loudkit-scheduler"]:
            yield f"{key}: bound to somebody else"
    for where, template in pod_templates(objects):
        spec = template["spec"]
        part = where.rsplit(" ", 1)[1]
        expected = {"pod": "loudkit-scheduler", "head": "loudkit-head"}.get(part, "loudkit-worker")
        if spec.get("serviceAccountName") != expected:
            yield f"{where}: is not {expected}"
        if expected == "loudkit-worker" and spec.get("automountServiceAccountToken") is not False:
            yield f"{where}: has a token of the cluster"


def one_template(objects: Objects) -> Problems:
    """The alpha variant is the RayJob and nothing else; what runs is never the template."""
    jobs = [each["spec"] for _, each in of_kind(objects, "RayJob")]
    if len(jobs) != 1:
        yield f"{len(jobs)} RayJobs, not one"
        return
    if jobs[0].get("suspend") is not True:
        yield "the template is not suspended: it would run when it is applied"
    expected = {key: value for key, value in jobs[0].items() if key != "suspend"}
    for key, each in of_kind(objects, "RayCronJob"):
        if each["spec"]["jobTemplate"] != expected:
            yield f"{key}: its jobTemplate is not the spec of the RayJob without suspend"


def waits_for_its_run(objects: Objects) -> Problems:
    """The CronJob's pod names the template, and is named by its policy for failures."""
    templates = {each["metadata"]["name"] for _, each in of_kind(objects, "RayJob")}
    for key, each in of_kind(objects, "CronJob"):
        job = each["spec"]["jobTemplate"]["spec"]
        [container] = job["template"]["spec"]["containers"]
        arguments = container["args"]
        if arguments[:1] != ["--template"] or arguments[1] not in templates:
            yield f"{key}: no such template"
        names = {
            rule["onExitCodes"]["containerName"]
            for rule in job["podFailurePolicy"]["rules"]
            if "onExitCodes" in rule
        }
        if names != {container["name"]}:
            yield f"{key}: its policy for failures is about another container"
        fields = {env["name"]: env.get("valueFrom") for env in container["env"]}
        if not fields.get("POD_NAME") or not fields.get("POD_UID"):
            yield f"{key}: the run would belong to nobody"


def one_image(objects: Objects, kustomization: Document) -> Problems:
    """All pods run the image that the kustomization names, by a tag that says which."""
    names = {image["name"]: image for image in kustomization["images"]}
    for where, container in containers(objects):
        if where.endswith(" autoscaler"):
            continue
        if container["image"] not in names:
            yield f"{where}: the image {container['image']} is changed nowhere"
    for image in kustomization["images"]:
        if image.get("newTag", "latest") == "latest" and "digest" not in image:
            yield f"{image['name']}: no tag"


def enough_room(objects: Objects, settings: dict[str, str]) -> Problems:
    """As many workers as are asked for find a place in the group of their device."""
    wanted, on_gpu = int(settings["WORKERS"]), settings["DEVICE"] == "cuda"
    for key, spec in rayjob_specs(objects):
        places = 0
        for group in spec["rayClusterSpec"]["workerGroupSpecs"]:
            parameters = group["rayStartParams"]
            has_gpu = "num-gpus" in parameters
            if has_gpu == on_gpu:
                each = parameters["num-gpus" if on_gpu else "num-cpus"]
                places += int(each) * int(group["maxReplicas"])
        if wanted != places:
            yield f"{key}: {wanted} workers are asked for and {places} have a place"
