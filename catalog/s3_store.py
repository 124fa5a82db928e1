"""A store in a bucket of S3, or of a server that speaks S3.

Every write carries a mark of its own and the sha256 of the whole content as metadata. A conditional
write whose answer was lost is repeated, and then refused because of itself: the mark tells it from
somebody else's. The sha256 is compared on every read, next to the checksums that the server gives,
which for an object of several parts say nothing about the whole.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from catalog.files import write_atomic_stream
from catalog.s3_calls import CORRUPT, FAILURES, BrokenAnswer, Calls, Retries, fault_of, required
from catalog.s3_upload import MARK, MULTIPART_THRESHOLD_BYTES, PART_BYTES, SHA256, Sender, Upload
from catalog.store import (
    CHUNK_BYTES,
    Content,
    ObjectFacts,
    Stored,
    is_key,
    require_key,
    require_list_prefix,
)
from catalog.store_errors import ObjectMissingError, StoreRefusedError, StoreUnreachableError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, ListObjectsV2OutputTypeDef

PAGE_KEYS = 1000
"""Keys in one answer of a listing; S3 gives no more."""

_NO_OBJECT, _CONDITION_FAILED = 404, (404, 409, 412)
_NO_UPLOAD = "NoSuchUpload"

T = TypeVar("T")


class _Head(NamedTuple):
    size_bytes: int
    etag: str
    modified_at_s: float
    mark: str | None
    """Of the write that made the object; None where somebody else did, or the server dropped it."""


class S3Store:
    """`Store` below `prefix`, which is empty or ends with a slash.

    Without `conditional` the server is never asked to compare: `put_new` and `compare_and_swap`
    look first and then write, and two writers at once may both believe that they were first.
    Without `lists_in_key_order` a listing is read to its end and sorted before its first object.
    Safe to use from several threads.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        prefix: str,
        *,
        conditional: bool = True,
        lists_in_key_order: bool = True,
        retries: Retries | None = None,
        multipart_threshold_bytes: int = MULTIPART_THRESHOLD_BYTES,
        part_bytes: int = PART_BYTES,
        page_keys: int = PAGE_KEYS,
    ) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix
        self._conditional, self._lists_in_key_order = conditional, lists_in_key_order
        self._calls, self._page_keys = Calls(self.address, retries or Retries()), page_keys
        self._sender = Sender(
            client,
            bucket,
            self._calls,
            multipart_threshold_bytes=multipart_threshold_bytes,
            part_bytes=part_bytes,
        )

    def __repr__(self) -> str:
        return f"S3Store({self.address!r})"

    @property
    def address(self) -> str:
        """s3://bucket/prefix."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def exists(self, key: str) -> bool:
        """As `Store.exists`."""
        return self._head(key) is not None

    def stat(self, key: str) -> ObjectFacts | None:
        """As `Store.stat`."""
        head = self._head(key)
        if head is None:
            return None
        return ObjectFacts(key, head.size_bytes, head.etag, head.modified_at_s)

    def get(self, key: str) -> Stored:
        """As `Store.get`."""
        return Stored(*self._read(key, b"".join))

    def get_to(self, key: str, path: Path) -> None:
        """As `Store.get_to`; after a lost connection from the start."""
        self._read(key, partial(write_atomic_stream, path))

    def put(self, key: str, content: Content) -> None:
        """As `Store.put`."""
        self._write(key, Upload(content), {})

    def put_new(self, key: str, content: Content) -> bool:
        """As `Store.put_new`; an unconditional store looks first, and then overwrites what came
        meanwhile."""
        upload = Upload(content)
        if self._conditional:
            return self._write(key, upload, {"IfNoneMatch": "*"}) is not None
        return not self.exists(key) and self._write(key, upload, {}) is not None

    def compare_and_swap(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        """As `Store.compare_and_swap`; an unconditional store looks first, and then overwrites
        what came meanwhile.

        Where the answer was lost and another writer has replaced our version since, it is told as
        a lost race.
        """
        upload = Upload(data)
        if not self._conditional:
            found = self.stat(key)
            holds = (found.etag if found else None) == expected_etag
            return self._write(key, upload, {}) if holds else None
        if expected_etag is None:
            return self._write(key, upload, {"IfNoneMatch": "*"})
        return self._write(key, upload, {"IfMatch": expected_etag})

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        """As `Store.list`."""
        require_list_prefix(prefix)
        if self._lists_in_key_order:
            yield from self._listed(prefix)
        else:
            yield from sorted(self._listed(prefix), key=lambda facts: facts.key)

    def delete(self, key: str) -> None:
        """As `Store.delete`."""
        name = self._name(key)
        self._calls.run(lambda: self._client.delete_object(Bucket=self._bucket, Key=name))

    def _name(self, key: str) -> str:
        require_key(key)
        return self._prefix + key

    def _head(self, key: str) -> _Head | None:
        name = self._name(key)

        def request() -> _Head:
            answer = self._client.head_object(Bucket=self._bucket, Key=name)
            mark = answer["Metadata"].get(MARK)
            etag = required(answer, "ETag")
            return _Head(answer["ContentLength"], etag, _modified_at_s(answer), mark)

        try:
            return self._calls.run(request)
        except StoreRefusedError as refused:
            if refused.status != _NO_OBJECT:
                raise
            return None

    def _read(self, key: str, take: Callable[[Iterator[bytes]], T]) -> tuple[T, str]:
        """What `take` makes of the object's bytes, anew in every attempt, and the etag."""
        name = self._name(key)

        def request() -> tuple[T, str]:
            answer = self._client.get_object(Bucket=self._bucket, Key=name)
            with closing(answer["Body"]):
                return take(_verified_chunks(answer)), required(answer, "ETag")

        try:
            return self._calls.run(request)
        except StoreRefusedError as refused:
            if refused.status != _NO_OBJECT:
                raise
        raise ObjectMissingError(f"{self.address}: there is no object {key}")

    def _write(self, key: str, upload: Upload, condition: Mapping[str, Any]) -> str | None:
        """The etag of the object that was made; None if `condition` did not hold."""
        try:
            return self._sender.send(self._name(key), upload, condition)
        except StoreRefusedError as error:
            refused = error
        vanished = refused.server_code == _NO_UPLOAD
        if not vanished and not (condition and refused.status in _CONDITION_FAILED):
            raise refused
        if refused.after_failures and (etag := self._own_etag(key, upload)) is not None:
            return etag
        if not vanished or ("IfNoneMatch" in condition and self.exists(key)):
            return None
        raise StoreUnreachableError(
            f"{self.address}: the parts of {key} vanished before they were put together; "
            "the same again may work"
        )

    def _own_etag(self, key: str, upload: Upload) -> str | None:
        """The etag of the object that is there if it is this upload's."""
        head = self._head(key)
        if head is None:
            return None
        if head.mark is not None:
            return head.etag if head.mark == upload.mark else None
        # A server that drops metadata; the same bytes are the next best evidence.
        try:
            sha256, etag = self._read(key, _sha256)
        except ObjectMissingError:
            return None
        return etag if sha256 == upload.sha256 else None

    def _listed(self, prefix: str) -> Iterator[ObjectFacts]:
        """The objects in the server's order, one page in memory."""
        token = ""
        while True:
            page = self._page(prefix, {"ContinuationToken": token} if token else {})
            for found in page.get("Contents", []):
                key = found["Key"].removeprefix(self._prefix)
                if is_key(key):
                    modified_at_s = _modified_at_s(found)
                    yield ObjectFacts(key, found["Size"], found["ETag"], modified_at_s)
            if not page["IsTruncated"]:
                return
            last, token = token, page.get("NextContinuationToken", "")
            if token in ("", last):
                raise StoreRefusedError(
                    f"{self.address}: the server says that its listing goes on, and not where",
                    status=200,
                    server_code="",
                    after_failures=0,
                )

    def _page(self, prefix: str, position: dict[str, Any]) -> ListObjectsV2OutputTypeDef:
        return self._calls.run(
            lambda: self._client.list_objects_v2(
                Bucket=self._bucket,
                Prefix=self._prefix + prefix,
                MaxKeys=self._page_keys,
                **position,
            )
        )


def _verified_chunks(answer: GetObjectOutputTypeDef) -> Iterator[bytes]:
    """The bytes of an answer; BrokenAnswer if they end early or are not those that were stored."""
    digest = hashlib.sha256()
    try:
        while chunk := answer["Body"].read(CHUNK_BYTES):
            digest.update(chunk)
            yield chunk
    except FAILURES as error:
        fault = fault_of(error)
    else:
        if answer["Metadata"].get(SHA256, digest.hexdigest()) == digest.hexdigest():
            return
        fault = CORRUPT
    raise BrokenAnswer(fault)


def _modified_at_s(answer: Mapping[str, Any]) -> float:
    """Of an object of which the server does not say it, the future: nobody takes it for old."""
    modified_at = answer.get("LastModified")
    return modified_at.timestamp() if modified_at is not None else math.inf


def _sha256(chunks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
