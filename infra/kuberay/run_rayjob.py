"""Create one RayJob from a suspended one, wait for it, and end as it ended.

Runs in the CronJob's pod with nothing but Python, and talks to the cluster's API with the rights of
the pod's service account. The run belongs to the pod, so whoever deletes the pod, or its Job, ends
the run. One that is on already is joined and not doubled: a pod that takes another's place, or a
run by hand at the wrong moment, waits for the one there is.

Exit codes: those of the command (0 done, 2 bad usage or catalog, 3 some renders failed, 4 contract
or identity mismatch, 130 stopped), 124 over its deadline, 1 whatever else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RUN_OF = "loudkit-batch/run-of"
"""The label that names the template of a run."""

DONE, FAILED, BAD_TEMPLATE, DEADLINE, STOPPED = 0, 1, 2, 124, 130

_TERMINAL = ("Complete", "Failed", "ValidationFailed")
_DEADLINES = ("DeadlineExceeded", "PreRunningDeadlineExceeded")
_EXIT_CODE = re.compile(r"failed with exit code (\d+)")
"""How Ray's job server tells the exit code of an entrypoint."""

REQUEST_TIMEOUT_S = 30.0
LONGEST_SILENCE_S = 600.0
"""How long the API may be out of reach: an upgrade of the control plane takes minutes."""

Document = dict[str, Any]
T = TypeVar("T")


class ApiError(Exception):
    """The API refused a request; `status` is 0 when it gave no answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status or 'no answer'}: {reason}")
        self.status = status

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in (0, 408, 409, 429) or self.status >= 500


@dataclass(frozen=True)
class Api:
    """The RayJobs of one namespace."""

    server: str
    namespace: str
    token_path: Path
    context: ssl.SSLContext | None

    @classmethod
    def of_this_pod(cls) -> Api:
        """As Kubernetes tells every pod."""
        host = os.environ["KUBERNETES_SERVICE_HOST"]
        port = os.environ["KUBERNETES_SERVICE_PORT"]
        return cls(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            namespace=(ACCOUNT / "namespace").read_text(encoding="utf-8").strip(),
            token_path=ACCOUNT / "token",
            context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
        )

    def get(self, name: str) -> Document:
        """One RayJob."""
        return self._request("GET", f"/{name}")

    def runs_of(self, template: str) -> list[Document]:
        """The runs of a template."""
        query = urllib.parse.urlencode({"labelSelector": f"{RUN_OF}={template}"})
        found: list[Document] = self._request("GET", f"?{query}")["items"]
        return found

    def create(self, document: Document) -> Document:
        """A new RayJob, as it was stored."""
        return self._request("POST", "", document)

    def _request(self, method: str, path: str, body: Document | None = None) -> Document:
        # Tokens are replaced while a pod runs.
        token = self.token_path.read_text(encoding="utf-8").strip()
        request = urllib.request.Request(
            f"{self.server}/apis/ray.io/v1/namespaces/{self.namespace}/rayjobs{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json",
                "Content-Type": "application/json",
            },
        )
        # The API is inside the cluster: no proxy of the environment is between.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context)
        )
        try:
            with opener.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
                document: Document = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _told(error.read(4096))) from None
        except (OSError, ValueError) as error:
            raise ApiError(0, str(error)) from None
        return document


def _told(answer: bytes) -> str:
    """The message of a refusal."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode("utf-8", "replace").strip() or "no reason given"


@dataclass
class Runner:
    """Follows one run of one template from its creation to its end."""

    api: Api
    template: str
    owner: Document | None = None
    """The reference to the pod that the run belongs to."""
    poll_s: float = 10.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def run(self) -> int:
        """The exit code of the run."""
        name = self._started()
        shown = ""
        while True:
            try:
                status = self._patiently(lambda: self.api.get(name)).get("status") or {}
            except ApiError as error:
                if error.status != 404:
                    raise
                say(f"{name}: was deleted before it had ended")
                return FAILED
            state = f"{status.get('jobDeploymentStatus', 'New')} {status.get('jobStatus', '')}"
            if state != shown:
                say(f"{name}: {state.strip()}")
                shown = state
            if status.get("jobDeploymentStatus") in _TERMINAL:
                return ended(name, status)
            self.sleep(self.poll_s)

    def _started(self) -> str:
        """The name of the run that is on, or of a new one.

        A creation whose answer is lost may have been carried out: before each try the runs are
        looked through again.
        """
        refused_since: float | None = None
        while True:
            on = [run for run in self._patiently(self._runs) if not _over(run)]
            going = [run for run in on if "deletionTimestamp" not in run["metadata"]]
            if going:
                name: str = going[0]["metadata"]["name"]
                say(f"{name}: is on already, waiting for it")
                return name
            if on:
                say(f"{on[0]['metadata']['name']}: is being deleted, waiting until it is gone")
                self.sleep(self.poll_s)
                continue
            document = self._patiently(self._new_run)
            try:
                created: str = self.api.create(document)["metadata"]["name"]
            except ApiError as error:
                refused_since = self.clock() if refused_since is None else refused_since
                if not error.passing or self.clock() - refused_since > LONGEST_SILENCE_S:
                    raise
                self.sleep(self.poll_s)
                continue
            say(f"{created}: created")
            return created

    def _runs(self) -> list[Document]:
        return self.api.runs_of(self.template)

    def _new_run(self) -> Document:
        template = self.api.get(self.template)
        status = template.get("status") or {}
        if status.get("jobDeploymentStatus") == "ValidationFailed":
            said = one_line(status.get("message", ""))
            raise BadTemplateError(
                f"{self.template}: {said} (correct it, delete it and apply it again: the operator "
                "does not look at it a second time)"
            )
        if template["spec"].get("suspend") is not True:
            raise BadTemplateError(f"{self.template}: is no template, its spec.suspend is not true")
        metadata: Document = {
            "generateName": f"{self.template}-",
            "labels": {**template["metadata"].get("labels", {}), RUN_OF: self.template},
        }
        if self.owner is not None:
            metadata["ownerReferences"] = [self.owner]
        return {
            "apiVersion": template["apiVersion"],
            "kind": template["kind"],
            "metadata": metadata,
            "spec": {**template["spec"], "suspend": False},
        }

    def _patiently(self, request: Callable[[], T]) -> T:
        """The answer to a request that changes nothing, however often it has to be made."""
        failing_since: float | None = None
        while True:
            try:
                return request()
            except ApiError as error:
                failing_since = self.clock() if failing_since is None else failing_since
                if not error.passing or self.clock() - failing_since > LONGEST_SILENCE_S:
                    raise
            self.sleep(self.poll_s)


class BadTemplateError(Exception):
    """The template cannot be run."""


def _over(run: Document) -> bool:
    return (run.get("status") or {}).get("jobDeploymentStatus") in _TERMINAL


def ended(name: str, status: Document) -> int:
    """The exit code of a run that is over; says how it ended."""
    message = str(status.get("message") or "")
    if status.get("jobStatus") == "SUCCEEDED" and status["jobDeploymentStatus"] == "Complete":
        say(f"{name}: done")
        return DONE
    say(f"{name}: {status['jobDeploymentStatus']} {status.get('reason') or ''}".rstrip())
    print(message, file=sys.stderr, flush=True)
    if status["jobDeploymentStatus"] == "ValidationFailed":
        return BAD_TEMPLATE
    if status.get("reason") in _DEADLINES:
        return DEADLINE
    if status.get("jobStatus") == "STOPPED":
        return STOPPED
    found = _EXIT_CODE.search(message)
    code = int(found[1]) if found else FAILED
    return code if 0 < code < 256 else FAILED


def one_line(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(str(text).split())


def say(line: str) -> None:
    """One line to the pod's log."""
    print(line, flush=True)


def pod_reference(environment: dict[str, str]) -> Document | None:
    """The owner of a run: the pod that its environment names."""
    name, uid = environment.get("POD_NAME"), environment.get("POD_UID")
    if not name or not uid:
        return None
    # Not blocking: the pod may be gone before the cluster that its run has is taken down.
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Create one RayJob and end as it ends.")
    parser.add_argument("--template", required=True, help="The suspended RayJob to copy.")
    parser.add_argument("--poll-seconds", type=float, default=10.0)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line of the CronJob's container."""
    parsed = parse(arguments)
    runner = Runner(
        Api.of_this_pod(),
        parsed.template,
        owner=pod_reference(dict(os.environ)),
        poll_s=parsed.poll_seconds,
    )
    try:
        return runner.run()
    except BadTemplateError as error:
        print(error, file=sys.stderr)
        return BAD_TEMPLATE
    except ApiError as error:
        print(f"the cluster's API: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
