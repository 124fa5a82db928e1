"""What the roles may do in the bucket: what the code does there, and no more."""

from __future__ import annotations

import ast
import fnmatch
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name

from tests.infra.files import INFRA, ROOT, Document, kubernetes_objects, kustomization, settings
from tests.infra.place import Place

if TYPE_CHECKING:
    from tests.s3_server import S3Server

IAM = INFRA / "aws" / "iam"
POLICIES = ("reader", "publisher", "gc")
BUCKET = "arn:aws:s3:::example-bucket"

ACTIONS = {
    "put_object": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "upload_part": "s3:PutObject",
    "complete_multipart_upload": "s3:PutObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "list_objects_v2": "s3:ListBucket",
    "delete_object": "s3:DeleteObject",
}
"""What each call of boto3 needs, as AWS lists it in its table of actions for S3."""


def policy(name: str) -> Document:
    """A policy of the room."""
    document: Document = json.loads((IAM / f"{name}.json").read_text(encoding="utf-8"))
    return document


def listed(value: Any) -> list[str]:
    """One or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def actions_of(name: str) -> set[str]:
    """Every action of a policy."""
    return {each for part in policy(name)["Statement"] for each in listed(part["Action"])}


def allows(name: str, action: str, resource: str) -> bool:
    """Whether a policy of Allow statements without conditions allows it."""
    return any(
        action in listed(part["Action"])
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in listed(part["Resource"]))
        for part in policy(name)["Statement"]
    )


def calls_in_the_code() -> set[str]:
    """The methods that are called on a client of S3, anywhere in the rooms."""
    found = set()
    for room in ("catalog", "jobs", "workers", "engine"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "boto3" not in text and "s3_" not in path.name:
                continue
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and ast.unparse(node.func.value).endswith("client")
                    and node.func.attr != "client"
                ):
                    found.add(node.func.attr)
    return found


def test_the_policies_allow_what_the_code_calls_and_nothing_else() -> None:
    called = calls_in_the_code()
    assert called == set(ACTIONS)
    needed = {ACTIONS[call] for call in called}
    assert set().union(*(actions_of(name) for name in POLICIES)) == needed
    assert actions_of("publisher") == needed


def test_a_reader_changes_nothing_and_only_gc_deletes_what_is_published() -> None:
    assert actions_of("reader") == {"s3:GetObject", "s3:ListBucket"}
    for key in ("current.json", "objects/abc", "releases/1/catalog.json"):
        assert not allows("publisher", "s3:DeleteObject", f"{BUCKET}/previews/{key}")
        gone = allows("gc", "s3:DeleteObject", f"{BUCKET}/previews/{key}")
        assert gone == (key != "current.json")
        assert allows("gc", "s3:PutObject", f"{BUCKET}/previews/{key}") == (not gone)
        assert allows("publisher", "s3:PutObject", f"{BUCKET}/previews/{key}")
    assert allows("gc", "s3:DeleteObject", f"{BUCKET}/previews/.tmp-probe-0-a")


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_names_one_bucket_and_no_wildcard_action(name: str) -> None:
    document = policy(name)
    assert set(document) == {"Version", "Statement"}
    assert document["Version"] == "2012-10-17"
    for part in document["Statement"]:
        assert set(part) == {"Sid", "Effect", "Action", "Resource"}
        assert part["Effect"] == "Allow"
        assert not [action for action in listed(part["Action"]) if "*" in action]
        for resource in listed(part["Resource"]):
            of_bucket = listed(part["Action"]) == ["s3:ListBucket"]
            assert resource == BUCKET if of_bucket else resource.startswith(f"{BUCKET}/")
            assert resource != f"{BUCKET}/*"
    assert len({part["Sid"] for part in document["Statement"]}) == len(document["Statement"])


def test_the_bucket_is_the_one_that_is_published_to() -> None:
    published = settings(kustomization())["PUBLISHED"]
    key = published.removeprefix("s3://")
    for action in ("s3:GetObject", "s3:PutObject"):
        assert allows("publisher", action, f"arn:aws:s3:::{key}/current.json")


class Watched:
    """A client of boto3 that notes what is asked of the server, and of which key."""

    def __init__(self, client: Any) -> None:
        self.asked: list[tuple[str, str]] = []
        client.meta.events.register("provide-client-params.s3", self._note)

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.asked.append((xform_name(model.name), params.get("Key", "")))

    def needs(self) -> Iterator[tuple[str, str]]:
        """Action and resource of every request."""
        for call, key in self.asked:
            action = ACTIONS[call]
            yield action, BUCKET if action == "s3:ListBucket" else f"{BUCKET}/{key}"


@pytest.fixture
def watched(moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watched]]:
    """Every client that stores are opened with, watched."""
    from catalog import s3_opening

    seen: list[Watched] = []
    original = s3_opening._client

    def client(*arguments: Any) -> Any:
        made = original(*arguments)
        seen.append(Watched(made))
        return made

    monkeypatch.setattr(s3_opening, "_client", client)
    with moto_s3.credentials():
        yield seen


def refused(name: str, watched: list[Watched]) -> list[tuple[str, str]]:
    """What a policy would not have allowed."""
    return sorted({need for each in watched for need in each.needs() if not allows(name, *need)})


def test_a_publisher_may_do_all_that_a_store_does(
    moto_s3: S3Server, watched: list[Watched]
) -> None:
    bucket = moto_s3.new_bucket()
    work = moto_s3.open(f"s3://{bucket}/work/previews")
    work.put("audio/slt/short.flac", b"sound")
    work.put_new("ledger/segment-0.arrow", b"rows")
    work.put("tokens/part-00001.parquet", bytes(33 << 20))  # in parts
    work.delete("tokens/part-00001.parquet")
    etag = work.compare_and_swap("ledger/lease.json", b"one", None)
    assert work.compare_and_swap("ledger/lease.json", b"two", etag)
    work.delete("ledger/lease.json")
    published = moto_s3.open(f"s3://{bucket}/previews")
    published.put_new("objects/abc", b"sound")
    assert published.exists("objects/abc")
    assert published.get("objects/abc").data == b"sound"
    assert list(published.list("objects/"))
    assert published.compare_and_swap("current.json", b"{}", None)
    assert len({call for each in watched for call, _ in each.asked}) == len(ACTIONS) - 1
    assert refused("publisher", watched) == []
    assert refused("reader", watched)


def test_a_reader_may_look(moto_s3: S3Server, watched: list[Watched]) -> None:
    bucket = moto_s3.new_bucket()
    store = moto_s3.open(f"s3://{bucket}/previews", unconditional=True)
    assert not store.exists("current.json")
    assert list(store.list("")) == []
    assert refused("reader", watched) == []


def test_gc_may_open_look_and_delete(moto_s3: S3Server, watched: list[Watched]) -> None:
    bucket = moto_s3.new_bucket()
    store = moto_s3.open(f"s3://{bucket}/previews")
    assert list(store.list("releases/")) == []
    store.delete("releases/1/catalog.json")
    store.delete("objects/abc")
    assert refused("gc", watched) == []
    store.delete("current.json")
    assert refused("gc", watched) == [("s3:DeleteObject", f"{BUCKET}/previews/current.json")]


@pytest.mark.ray
def test_the_commands_need_no_more(place: Place, moto_s3: S3Server, watched: list[Watched]) -> None:
    bucket = moto_s3.new_bucket()
    server = ["--endpoint-url", moto_s3.endpoint_url]
    work, previews = f"s3://{bucket}/work/previews", f"s3://{bucket}/previews"
    place.invoke("render", str(place.catalog), "--workers", "1", "--out", work, *server)
    assert watched
    assert refused("publisher", watched) == []
    watched.clear()
    place.invoke("status", work, *server)
    assert refused("reader", watched) == []
    watched.clear()
    place.invoke("publish", str(place.work), previews, *server)
    assert refused("publisher", watched) == []
    watched.clear()
    place.invoke("verify", previews, *server)
    assert watched
    assert refused("reader", watched) == []
    moto_s3.client().put_object(Bucket=bucket, Key="previews/objects/" + "0" * 64, Body=b"old")
    watched.clear()
    time.sleep(2)  # the object is older than 0.00001 days, in the whole seconds of S3
    place.invoke("publish", previews, "--gc", "--older-than", "0.00001", "--yes", *server)
    assert "delete_object" in {call for each in watched for call, key in each.asked if "000" in key}
    assert refused("gc", watched) == []


def test_roles_are_taken_by_the_head_and_by_the_workflow_only() -> None:
    namespace = kustomization()["namespace"]
    heads = {
        each["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["serviceAccountName"]
        for each in kubernetes_objects().values()
        if each["kind"] == "RayJob"
    }
    [irsa] = policy("trust-irsa")["Statement"]
    [github] = policy("trust-github")["Statement"]
    subjects = {}
    for statement in (irsa, github):
        assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
        issuer = statement["Principal"]["Federated"].partition(":oidc-provider/")[2]
        equals = statement["Condition"]["StringEquals"]
        assert set(statement["Condition"]) == {"StringEquals"}
        assert equals[f"{issuer}:aud"] == "sts.amazonaws.com"
        assert set(equals) == {f"{issuer}:aud", f"{issuer}:sub"}
        subjects[issuer] = equals[f"{issuer}:sub"]
        assert "*" not in subjects[issuer]
    assert set(subjects.values()) == {
        *(f"system:serviceaccount:{namespace}:{head}" for head in heads),
        "repo:example-org/example-repo:ref:refs/heads/main",
    }


def test_the_bucket_forgets_uploads_that_never_ended() -> None:
    path = INFRA / "aws" / "bucket-lifecycle.json"
    [rule] = json.loads(path.read_text(encoding="utf-8"))["Rules"]
    assert rule["Status"] == "Enabled"
    assert set(rule) == {"ID", "Status", "Filter", "AbortIncompleteMultipartUpload"}
