"""Opening a bucket: who asks, what the server can do, and whether the bucket is there at all."""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3.session
from botocore.config import Config

from catalog.errors import show
from catalog.s3_calls import CONNECT_TIMEOUT_S, FAILURES, READ_TIMEOUT_S, Calls, Retries
from catalog.s3_store import S3Store
from catalog.store import is_key
from catalog.store_errors import (
    StoreAddressError,
    StoreRefusedError,
    StoreUnconditionalError,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_POOL_CONNECTIONS = 32
"""Threads that use a store at once without waiting for each other's connection."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_REGION = re.compile(r"[A-Za-z0-9-]{1,63}")
_NO_SUCH_ETAG = '"00000000000000000000000000000000"'
_CONDITION_FAILED = (409, 412)


def open_s3_store(
    uri: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    unconditional: bool = False,
    retries: Retries | None = None,
) -> S3Store:
    """The store at s3://bucket/prefix, after the questions of `open_store`."""
    bucket, prefix = _parsed(uri)
    if endpoint_url is not None:
        _require_endpoint(endpoint_url)
    if region is not None and not _REGION.fullmatch(region):
        raise StoreAddressError(f"store: region {show(region)} is none; one is like eu-west-1")
    calls = Calls(f"s3://{bucket}/{prefix}".rstrip("/"), retries or Retries())
    client = calls.run(lambda: _client(endpoint_url, region))
    if unconditional:
        calls.run(lambda: client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1))
        ordered = False
    else:
        ordered = _Probe(client, bucket, prefix, calls).run()
    return S3Store(
        client,
        bucket,
        prefix,
        conditional=not unconditional,
        lists_in_key_order=ordered,
        retries=retries,
    )


def _parsed(uri: str) -> tuple[str, str]:
    """Bucket and prefix, which is empty or ends with a slash."""
    bucket, _, prefix = uri[len("s3:") :].removeprefix("//").partition("/")
    prefix = prefix.strip("/")
    # Shown only when they cannot be an access key in front of an @.
    if "@" in bucket or ":" in bucket:
        raise StoreAddressError(
            "store: an s3:// address holds no credentials; give s3://bucket/prefix, "
            "and the credentials where boto3 looks for them"
        )
    if not uri[len("s3:") :].startswith("//") or not _BUCKET.fullmatch(bucket):
        raise StoreAddressError(
            f"store: {show(uri)} names no bucket; give s3://bucket/prefix, "
            "a bucket of 3 to 63 letters, digits, dots and dashes"
        )
    if prefix and not is_key(prefix):
        raise StoreAddressError(
            f"store: the prefix {show(prefix)} is no path like runs/2026 with plain names"
        )
    return bucket, prefix + "/" if prefix else ""


def _require_endpoint(endpoint_url: str) -> None:
    """Raises StoreAddressError, which does not show it: it may hold a password."""
    try:
        parts = urlsplit(endpoint_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username or parts.password or parts.query or parts.fragment:
        raise StoreAddressError(
            "store: the endpoint is no address; give https://host:port and nothing else, "
            "the credentials where boto3 looks for them"
        )


def _client(endpoint_url: str | None, region: str | None) -> S3Client:
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=LARGEST_POOL_CONNECTIONS,
        # We send the checksums ourselves; older servers stumble over any other.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_supported",
        s3={"addressing_style": "path"} if endpoint_url else None,
    )
    session = boto3.session.Session(region_name=region)
    return session.client("s3", endpoint_url=endpoint_url, config=config)


class _Probe:
    """Two objects that no listing of ours shows, to learn what the server does."""

    def __init__(self, client: S3Client, bucket: str, prefix: str, calls: Calls) -> None:
        self._client, self._bucket, self._calls = client, bucket, calls
        self._name = f"{prefix}.tmp-probe-{uuid.uuid4().hex}"

    def run(self) -> bool:
        """Whether the server lists in the order of keys. Raises StoreUnconditionalError."""
        beside, below = self._name + "-a", self._name + "/a"
        try:
            # The first puts it there, unless an attempt whose answer was lost did so already.
            self._compares(beside, IfNoneMatch="*")
            if not self._compares(beside, IfNoneMatch="*"):
                raise self._unconditional("If-None-Match")
            if not self._compares(beside, IfMatch=_NO_SUCH_ETAG):
                raise self._unconditional("If-Match")
            self._put(below)
            # SeaweedFS goes folder by folder: `a/b` before `a-b`.
            return self._listed() == [beside, below]
        finally:
            # Once: what stays is small and hidden, and an absent server is waited for no longer.
            for name in (beside, below):
                with contextlib.suppress(*FAILURES):
                    self._client.delete_object(Bucket=self._bucket, Key=name)

    def _compares(self, name: str, **condition: str) -> bool:
        """Whether the server refuses to write since the condition does not hold."""
        try:
            self._put(name, **condition)
        except StoreRefusedError as refused:
            if refused.status in _CONDITION_FAILED:
                return True
            if refused.status != 501 and refused.server_code != "NotImplemented":
                raise
        return False

    def _put(self, name: str, **condition: Any) -> None:
        self._calls.run(
            lambda: self._client.put_object(
                Bucket=self._bucket, Key=name, Body=b"a probe", **condition
            )
        )

    def _listed(self) -> list[str]:
        page = self._calls.run(
            lambda: self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._name)
        )
        return [found["Key"] for found in page.get("Contents", [])]

    def _unconditional(self, header: str) -> StoreUnconditionalError:
        return StoreUnconditionalError(
            f"s3://{self._bucket}: the server ignores {header}, so two writers at once would "
            "overwrite each other unnoticed; use a server that compares, or open the store with "
            "unconditional=True if only one job ever writes there"
        )
