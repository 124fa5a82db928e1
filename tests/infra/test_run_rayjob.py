"""The script of the CronJob's pod against an API server that remembers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.kuberay import run_rayjob
from infra.kuberay.run_rayjob import Api, ApiError, BadTemplateError, Runner
from tests.infra.files import KUBERAY, Document, read_yaml

RAYJOBS = "/apis/ray.io/v1/namespaces/loudkit/rayjobs"
POD = {"apiVersion": "v1", "kind": "Pod", "name": "a-pod", "uid": "a-uid"}
SUCCEEDED = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
RUNNING = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}


def failed(message: str = "", **more: str) -> Document:
    """The status of a run that failed."""
    told = {"reason": "AppFailed", "jobStatus": "FAILED", "message": message}
    return {"jobDeploymentStatus": "Failed", **told, **more}


@dataclass
class Cluster:
    """RayJobs, and what becomes of those that are created."""

    jobs: dict[str, Document] = field(default_factory=dict)
    fates: list[Document] = field(default_factory=lambda: [RUNNING, SUCCEEDED])
    """The statuses of a run, one a look; the last one stays."""
    refusals: list[tuple[str, int]] = field(default_factory=list)
    """Methods that are refused, in turn, with a status; -1 carries the request out before."""
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def answer(self, method: str, target: str, body: Document | None) -> tuple[int, Document]:
        """Status and document for a request."""
        self.requests.append(f"{method} {target}")
        lost = False
        if self.refusals and self.refusals[0][0] == method:
            status = self.refusals.pop(0)[1]
            if status != -1:
                return status, {"message": f"refused with {status}"}
            lost = True
        parts = urlsplit(target)
        answered = self._carried_out(method, parts.path, parts.query, body)
        return (504, {"message": "the answer is lost"}) if lost else answered

    def _carried_out(
        self, method: str, path: str, query: str, body: Document | None
    ) -> tuple[int, Document]:
        if not path.startswith(RAYJOBS):
            return 403, {"message": "another resource"}
        name = path[len(RAYJOBS) :].strip("/")
        if method == "POST" and body is not None:
            made = {**body, "status": {}}
            made["metadata"] = {**body["metadata"], "name": body["metadata"]["generateName"] + "x7"}
            self.jobs[made["metadata"]["name"]] = made
            return 201, made
        if name:
            if name not in self.jobs:
                return 404, {"message": f'rayjobs "{name}" not found'}
            found = self.jobs[name]
            if name.endswith("x7") and self.fates:
                found["status"] = self.fates[0] if len(self.fates) == 1 else self.fates.pop(0)
            return 200, found
        key, _, value = parse_qs(query)["labelSelector"][0].partition("=")
        items = [
            job for job in self.jobs.values() if job["metadata"].get("labels", {}).get(key) == value
        ]
        return 200, {"items": items}

    @property
    def created(self) -> list[Document]:
        """The runs."""
        return [job for name, job in self.jobs.items() if name.endswith("x7")]

    def count(self, method: str) -> int:
        """How many requests of a method came."""
        return sum(each.startswith(f"{method} ") for each in self.requests)


def template() -> Document:
    """The real one, as the operator leaves it."""
    [document] = read_yaml(KUBERAY / "rayjob.yaml")
    document["metadata"] |= {
        "finalizers": ["ray.io/rayjob-finalizer"],
        "resourceVersion": "1",
        "uid": "of-the-template",
        "namespace": "loudkit",
    }
    document["status"] = {"jobDeploymentStatus": "Suspended"}
    return document


@pytest.fixture
def cluster() -> Cluster:
    """With the template in it."""
    return Cluster(jobs={"loudkit-rebuild": template()})


@pytest.fixture
def api(cluster: Cluster, tmp_path: Path) -> Iterator[Api]:
    """The script's side of a server on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            cluster.tokens.add(self.headers["Authorization"])
            status, document = cluster.answer(self.command, self.path, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_PATCH = _serve

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    yield Api(f"http://127.0.0.1:{server.server_port}", "loudkit", token, None)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def runner(api: Api) -> Runner:
    """Whose pauses take no time, and whose clock tells them all the same."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Runner(api, "loudkit-rebuild", owner=POD, sleep=sleep, clock=lambda: now[0])


def test_a_run_is_a_copy_that_is_not_suspended(cluster: Cluster, runner: Runner) -> None:
    assert runner.run() == 0
    [run] = cluster.created
    original = template()
    assert run["spec"] == {**original["spec"], "suspend": False}
    assert run["kind"] == "RayJob"
    assert run["metadata"]["ownerReferences"] == [POD]
    assert run["metadata"]["generateName"] == "loudkit-rebuild-"
    assert run["metadata"]["labels"] == {
        **original["metadata"]["labels"],
        run_rayjob.RUN_OF: "loudkit-rebuild",
    }
    assert set(run["metadata"]) == {"generateName", "name", "labels", "ownerReferences"}
    assert len(run["metadata"]["name"]) <= 47  # KubeRay adds a suffix for the cluster
    assert cluster.jobs["loudkit-rebuild"]["spec"]["suspend"] is True


def test_nothing_but_what_the_role_allows_is_asked_for(cluster: Cluster, runner: Runner) -> None:
    runner.run()
    assert {each.split()[0] for each in cluster.requests} == {"GET", "POST"}
    assert cluster.tokens == {"Bearer first"}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (SUCCEEDED, 0),
        (failed("Job entrypoint command failed with exit code 3, last available logs: ..."), 3),
        (failed("Job entrypoint command failed with exit code 4. No logs available."), 4),
        (failed("Job entrypoint command failed with exit code 130. No logs available."), 130),
        (failed("Job entrypoint command failed with exit code -9. No logs available."), 1),
        (failed("Job entrypoint command failed with exit code 0. No logs available."), 1),
        (failed("Job entrypoint command failed with exit code 999. No logs available."), 1),
        (failed("the head is gone", reason="JobStatusCheckTimeoutExceeded"), 1),
        (failed("", reason="DeadlineExceeded"), 124),
        (failed("", reason="PreRunningDeadlineExceeded"), 124),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, 130),
        ({"jobDeploymentStatus": "Failed", "reason": "SubmissionFailed"}, 1),
        ({"jobDeploymentStatus": "ValidationFailed", "message": "no such thing"}, 2),
    ],
)
def test_it_ends_as_the_run_ended(
    cluster: Cluster, runner: Runner, status: Document, code: int
) -> None:
    cluster.fates = [{}, {"jobDeploymentStatus": "Initializing"}, RUNNING, status]
    assert runner.run() == code


def a_run(**metadata: Any) -> Document:
    """A run of the template."""
    labels = {run_rayjob.RUN_OF: "loudkit-rebuild"}
    return {"metadata": {"name": "loudkit-rebuild-x7", "labels": labels, **metadata}, "status": {}}


def test_a_run_that_is_on_is_joined(cluster: Cluster, runner: Runner) -> None:
    cluster.jobs["loudkit-rebuild-x7"] = a_run()
    assert runner.run() == 0
    assert cluster.count("POST") == 0


def test_runs_that_are_over_and_those_of_others_are_left_alone(
    cluster: Cluster, runner: Runner
) -> None:
    cluster.jobs["over"] = {**a_run(name="over"), "status": failed()}
    cluster.jobs["other"] = a_run(name="other", labels={run_rayjob.RUN_OF: "another"})
    assert runner.run() == 0
    assert [job["metadata"]["name"] for job in cluster.created] == ["loudkit-rebuild-x7"]


def test_a_run_that_is_being_deleted_is_waited_for(cluster: Cluster, runner: Runner) -> None:
    cluster.jobs["going"] = a_run(name="going", deletionTimestamp="2027-01-01T02:00:00Z")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            assert cluster.count("POST") == 0
            del cluster.jobs["going"]

    runner.sleep = sleep
    assert runner.run() == 0
    assert cluster.count("POST") == 1


def test_a_run_that_is_deleted_is_a_failure(cluster: Cluster, runner: Runner) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        cluster.jobs.pop("loudkit-rebuild-x7", None)

    cluster.fates = [RUNNING]
    runner.sleep = sleep
    assert runner.run() == run_rayjob.FAILED


def test_a_creation_whose_answer_is_lost_is_not_repeated(cluster: Cluster, runner: Runner) -> None:
    cluster.refusals = [("POST", -1)]
    assert runner.run() == 0
    assert cluster.count("POST") == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_that_is_busy_is_asked_again(cluster: Cluster, runner: Runner, status: int) -> None:
    cluster.refusals = [("GET", status), ("GET", status), ("POST", status), ("GET", status)]
    assert runner.run() == 0
    assert len(cluster.created) == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refusal_is_final(cluster: Cluster, runner: Runner, method: str) -> None:
    cluster.refusals = [(method, 403)]
    with pytest.raises(ApiError, match="403: refused with 403"):
        runner.run()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_api_that_stays_away_is_given_up(cluster: Cluster, runner: Runner, method: str) -> None:
    cluster.refusals = [(method, 503)] * 200
    with pytest.raises(ApiError, match="503"):
        runner.run()
    assert cluster.created == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda job: job.update(status={"jobDeploymentStatus": "ValidationFailed"}), "rebuild: "),
        (lambda job: job["spec"].pop("suspend"), "is no template"),
    ],
)
def test_a_template_that_cannot_be_run_is_refused(
    cluster: Cluster, runner: Runner, spoil: Callable[[Document], Any], said: str
) -> None:
    spoil(cluster.jobs["loudkit-rebuild"])
    with pytest.raises(BadTemplateError, match=said):
        runner.run()
    assert cluster.created == []


def test_a_token_that_was_replaced_is_used(cluster: Cluster, runner: Runner) -> None:
    pause = runner.sleep

    def sleep(seconds: float) -> None:
        runner.api.token_path.write_text("second", encoding="utf-8")
        pause(seconds)

    runner.sleep = sleep
    assert runner.run() == 0
    assert cluster.tokens == {"Bearer first", "Bearer second"}


def test_no_server_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token", encoding="utf-8")
    api = Api("http://127.0.0.1:9", "loudkit", tmp_path / "token", None)
    with pytest.raises(ApiError, match="no answer") as refused:
        api.get("loudkit-rebuild")
    assert refused.value.passing


def test_the_command_line(
    cluster: Cluster,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Api, "of_this_pod", lambda: api)
    monkeypatch.setenv("POD_NAME", "a-pod")
    monkeypatch.setenv("POD_UID", "a-uid")
    arguments = ["--template", "loudkit-rebuild", "--poll-seconds", "0.01"]
    assert run_rayjob.main(arguments) == 0
    assert cluster.created[0]["metadata"]["ownerReferences"] == [POD]
    assert capsys.readouterr().out.splitlines()[-1] == "loudkit-rebuild-x7: done"
    assert run_rayjob.main(["--template", "missing"]) == run_rayjob.FAILED
    assert "404" in capsys.readouterr().err
    cluster.jobs["loudkit-rebuild"]["spec"]["suspend"] = False
    assert run_rayjob.main(arguments) == run_rayjob.BAD_TEMPLATE


def test_without_a_pod_a_run_belongs_to_nobody() -> None:
    assert run_rayjob.pod_reference({}) is None
    assert run_rayjob.pod_reference({"POD_NAME": "a-pod", "POD_UID": "a-uid"}) == POD
