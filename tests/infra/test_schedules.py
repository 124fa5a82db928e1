"""The lighter schedules, the cluster file for EC2 and the machines: what holds of each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.infra import cron, rules
from tests.infra.commands import document_of, unit
from tests.infra.files import INFRA, Document, kubernetes_objects, text_files

SERVICE = INFRA / "systemd" / "loudkit-rebuild.service"
TIMER = INFRA / "systemd" / "loudkit-rebuild.timer"
DAY_S = 86400


def only(section: list[tuple[str, str]]) -> dict[str, str]:
    """A section in which no key but Environment comes twice."""
    keys = [key for key, _ in section if key != "Environment"]
    assert len(keys) == len(set(keys))
    return dict(section)


# -- systemd ---------------------------------------------------------------------------------------


def seconds(span: str) -> int:
    """A time span of systemd, in seconds."""
    [(number, name)] = re.findall(r"(\d+)(h|min|s)", span)
    return int(number) * {"h": 3600, "min": 60, "s": 1}[name]


def test_the_timer_is_in_utc_and_makes_up_for_a_night_that_was_missed() -> None:
    timer = only(unit(TIMER)["Timer"])
    assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:\d\d UTC", timer["OnCalendar"])
    assert timer["Persistent"] == "true"
    assert (TIMER.parent / timer["Unit"]).is_file()
    assert only(unit(TIMER)["Install"])["WantedBy"] == "timers.target"


def test_the_service_has_a_deadline_and_few_rights() -> None:
    service = only(unit(SERVICE)["Service"])
    assert service["Type"] == "oneshot"
    assert 0 < seconds(service["TimeoutStartSec"]) < DAY_S
    assert "RuntimeMaxSec" not in service  # of no effect on a oneshot
    assert service["SuccessExitStatus"] == "130"
    assert "Restart" not in service  # it would start again after its deadline
    assert service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict"
    for key in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictSUIDSGID"):
        assert service[key] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    state = f"/var/lib/{service['StateDirectory']}"
    assert service["WorkingDirectory"] == state
    assert f"--out {state}/" in service["ExecStart"]
    environment = " ".join(v for k, v in unit(SERVICE)["Service"] if k == "Environment")
    assert {"TZ=UTC", "RAY_USAGE_STATS_ENABLED=0"} <= set(environment.split())


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on PATH: what systemd says of the units")
    for path in (SERVICE, TIMER):
        text = path.read_text(encoding="utf-8")
        # A program that is there, or systemd says that it is not.
        text = text.replace("/opt/loudkit-batch/bin/loudkit-batch", shutil.which("true") or "")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", TIMER.name, SERVICE.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    said = [line for line in done.stderr.splitlines() if "loudkit" in line]
    assert (done.returncode, said) == (0, []), done.stderr


# -- GitHub Actions --------------------------------------------------------------------------------


def workflow_problems(workflow: Document) -> list[str]:
    """What is wrong with the workflow."""
    found = []
    # YAML 1.1 reads the key `on` as true.
    triggers: Any = workflow.get("on", workflow.get(True))  # type: ignore[call-overload]
    for each in triggers["schedule"]:
        if cron.shortest_gap(each["cron"]).total_seconds() < DAY_S:
            found.append("more than once a day")
    if set(triggers) != {"schedule", "workflow_dispatch"}:
        found.append("started by somebody else's change")
    if workflow.get("permissions") != {}:
        found.append("permissions for every job")
    if workflow.get("concurrency", {}).get("cancel-in-progress") is not False:
        found.append("two at once, or one cut off")
    for job in workflow["jobs"].values():
        if not 0 < job.get("timeout-minutes", 0) <= 360:
            found.append("no deadline")
        if job.get("permissions") != {"contents": "read", "id-token": "write"}:
            found.append("more permissions than it needs")
        for step in job["steps"]:
            if "uses" in step and not re.fullmatch(
                r"[\w.-]+/[\w.-]+@(?:v\d+(?:\.\d+)*|[0-9a-f]{40})", step["uses"]
            ):
                found.append(f"{step['uses']} is not pinned")
            if "${{" in step.get("run", ""):
                found.append("a shell reads what an expression says")
            if "role-to-assume" in step.get("with", {}):
                lasts = step["with"]["role-duration-seconds"]
                if lasts < 60 * job["timeout-minutes"]:
                    found.append("the role ends before the job")
    if "secrets." in json.dumps({str(key): value for key, value in workflow.items()}):
        found.append("a secret")
    return found


def test_the_workflow_has_no_problems() -> None:
    assert workflow_problems(document_of("github-actions/rebuild.yml")) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("concurrency", {}, "two at once"),
        ("permissions", {"contents": "write"}, "every job"),
        ("jobs/rebuild/timeout-minutes", 0, "no deadline"),
        ("jobs/rebuild/steps/3/with/role-duration-seconds", 3600, "ends before"),
        ("jobs/rebuild/permissions", {"id-token": "write", "contents": "write"}, "more"),
        ("jobs/rebuild/steps/0/uses", "actions/checkout@main", "not pinned"),
        ("jobs/rebuild/steps/0/run", "echo ${{ github.event.head_commit.message }}", "shell"),
        ("jobs/rebuild/env", {"KEY": "${{ secrets.KEY }}"}, "secret"),
    ],
)
def test_a_broken_workflow_is_found(path: str, value: Any, said: str) -> None:
    workflow = document_of("github-actions/rebuild.yml")
    *way, last = path.split("/")
    at: Any = workflow
    for name in way:
        at = at[int(name) if name.isdigit() else name]
    at[last] = value
    assert any(said in problem for problem in workflow_problems(workflow))


# -- the Ray cluster on EC2 ------------------------------------------------------------------------


def test_the_cluster_file_fits_rays_schema() -> None:
    schema = json.loads((files("ray") / "autoscaler" / "ray-schema.json").read_text("utf-8"))
    cluster = document_of("ray-cluster-aws.yaml")
    jsonschema.Draft7Validator(schema).validate(cluster)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({**cluster, "idle_timeout_minute": 5})


def test_the_head_is_on_demand_and_the_workers_are_not() -> None:
    cluster = document_of("ray-cluster-aws.yaml")
    assert cluster["provider"]["type"] == "aws"
    assert 0 < cluster["idle_timeout_minutes"] <= 15
    types = cluster["available_node_types"]
    head = types.pop(cluster["head_node_type"])
    assert head["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in head["node_config"]
    assert ":instance-profile/" in head["node_config"]["IamInstanceProfile"]["Arn"]
    assert types
    for name, each in types.items():
        config = each["node_config"]
        assert config["InstanceMarketOptions"] == {"MarketType": "spot"}, name
        assert "IamInstanceProfile" not in config, name
        assert each["min_workers"] == 0, name
    for each in (head, *types.values()):
        assert each["node_config"]["MetadataOptions"]["HttpTokens"] == "required"
    assert sum(each["max_workers"] for each in types.values()) <= cluster["max_workers"]
    options = cluster["docker"]["run_options"]
    assert {"--env=RAY_AUTH_MODE=token", "--env=RAY_USAGE_STATS_ENABLED=0"} <= set(options)
    assert "~/.ray/auth_token" in cluster["file_mounts"]
    starts = " ".join(cluster["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in starts
    assert "--num-cpus=0" in starts
    for source in cluster["file_mounts"].values():
        assert source.startswith("~") or (INFRA.parent / source).exists()


# -- machines --------------------------------------------------------------------------------------


def test_there_is_a_group_of_machines_for_every_pod() -> None:
    groups = document_of("aws/eks-nodegroups.yaml")["managedNodeGroups"]
    pools = {each["labels"]["loudkit-batch/pool"]: each for each in groups}
    asked = set()
    for where, template in rules.pod_templates(kubernetes_objects()):
        pool = template["spec"]["nodeSelector"]["loudkit-batch/pool"]
        asked.add(pool)
        taints = {(each["key"], each["effect"]) for each in pools[pool].get("taints", [])}
        tolerated = {
            (each["key"], each["effect"]) for each in template["spec"].get("tolerations", [])
        }
        assert taints == tolerated, where
        assert pools[pool].get("spot", False) == pool.endswith("-spot"), where
    assert asked == set(pools)
    for each in groups:
        assert each["minSize"] == each["desiredCapacity"] == 0


def test_the_groups_hold_as_many_machines_as_there_may_be_workers() -> None:
    groups = document_of("aws/eks-nodegroups.yaml")["managedNodeGroups"]
    sizes = {each["labels"]["loudkit-batch/pool"]: each["maxSize"] for each in groups}
    for _, spec in rules.rayjob_specs(kubernetes_objects()):
        for group in spec["rayClusterSpec"]["workerGroupSpecs"]:
            assert sizes[group["groupName"]] >= group["maxReplicas"]


# -- secrets ---------------------------------------------------------------------------------------

SECRETS = re.compile(
    r"(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|aws_secret_access_key\s*[=:]\s*\S"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}"
    r"|(?:password|auth_token|api_key)\s*[=:]\s*[\"']?[A-Za-z0-9+/]{16}",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", text_files(), ids=lambda path: path.name)
def test_no_file_holds_a_secret(path: Path) -> None:
    assert SECRETS.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "AWS_ACCESS_KEY_ID=" + "AKIA" + "ABCDEFGHIJKLMNOP",
        "aws_secret_access_key = " + "abcdefgh",
        "-----BEGIN " + "RSA PRIVATE KEY-----",
        "token: ghp_" + "a" * 36,
        'password: "' + "abcdefgh01234567",
    ],
)
def test_a_secret_is_found(text: str) -> None:
    assert SECRETS.search(text)


@pytest.mark.parametrize(
    ("expression", "gap_s"),
    [
        ("0 2 * * *", DAY_S),
        ("*/15 * * * *", 900),
        ("0 2 * * 1-5", DAY_S),
        ("0 2 * * 0", 7 * DAY_S),
        ("0 2 1,15 * 1", 3 * DAY_S),  # a Friday the 15th, then a Monday
        ("5-10/5 3 * * *", 300),
    ],
)
def test_gaps_between_runs(expression: str, gap_s: int) -> None:
    assert cron.shortest_gap(expression).total_seconds() == gap_s


@pytest.mark.parametrize(
    "expression",
    ["", "@daily", "0 2 * * 7", "60 2 * * *", "a b c d e", "0 2 * * * *", "*/0 * * * *"],
)
def test_a_bad_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        cron.parse(expression)
