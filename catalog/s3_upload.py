"""Sending one content to a bucket, in one request or in parts, with the sha256 of each request."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from catalog.media_types import HEAD_BYTES, media_type
from catalog.s3_calls import FAILURES, Calls, required
from catalog.store import Content, content_chunks
from catalog.store_errors import StoreSourceError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

MULTIPART_THRESHOLD_BYTES = 32 << 20
"""Contents up to this size are sent in one request and held in memory."""

PART_BYTES = 32 << 20
"""The parts of larger ones, of which one is in memory at a time."""

LARGEST_NUMBER_OF_PARTS = 10_000
"""S3's limit; parts grow where `PART_BYTES` would exceed it."""

MARK, SHA256 = "loudkit-write", "loudkit-sha256"
"""Metadata of every object: which write made it, and the sha256 of the whole in hex."""


class Upload:
    """One write of one content."""

    def __init__(self, content: Content) -> None:
        """Reads the content once, for its size and hash. Raises StoreSourceError."""
        self._content = content
        self.size_bytes, digest, self.head = 0, hashlib.sha256(), b""
        for chunk in content_chunks(content):
            self.head = self.head or chunk[:HEAD_BYTES]
            self.size_bytes += len(chunk)
            digest.update(chunk)
        self.sha256 = digest.hexdigest()
        self.mark = uuid.uuid4().hex

    @property
    def metadata(self) -> dict[str, str]:
        """What tells this write from every other."""
        return {MARK: self.mark, SHA256: self.sha256}

    def parts(self, part_bytes: int) -> Iterator[bytes]:
        """The content once more. Raises StoreSourceError if it is another by now."""
        digest = hashlib.sha256()
        for part in content_chunks(self._content, part_bytes):
            digest.update(part)
            yield part
        if digest.hexdigest() != self.sha256:
            raise StoreSourceError(
                f"{self._content!s}: changed while it was sent; store a file that is finished"
            )


class Sender:
    """Sends uploads to one bucket."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        calls: Calls,
        *,
        multipart_threshold_bytes: int = MULTIPART_THRESHOLD_BYTES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._client, self._bucket, self._calls = client, bucket, calls
        self._multipart_threshold_bytes, self._part_bytes = multipart_threshold_bytes, part_bytes

    def send(self, name: str, upload: Upload, condition: Mapping[str, Any]) -> str:
        """The etag of the object that was made; raises what `Calls.run` raises.

        Of a `StoreRefusedError` the `after_failures` are those of the request that makes the
        object, so they tell whether it may be there all the same.
        """
        if upload.size_bytes > self._multipart_threshold_bytes:
            return self._send_parts(name, upload, condition)
        data = b"".join(upload.parts(self._part_bytes))

        def request() -> str:
            answer = self._client.put_object(
                Bucket=self._bucket,
                Key=name,
                Body=data,
                ChecksumSHA256=_base64_sha256(data),
                ContentType=media_type(name, upload.head),
                Metadata=upload.metadata,
                **condition,
            )
            return required(answer, "ETag")

        return self._calls.run(request)

    def _send_parts(self, name: str, upload: Upload, condition: Mapping[str, Any]) -> str:
        upload_id = self._begin(name, upload)
        part_bytes = max(self._part_bytes, -(-upload.size_bytes // LARGEST_NUMBER_OF_PARTS))
        try:
            parts = [
                self._send_part(name, upload_id, number, part)
                for number, part in enumerate(upload.parts(part_bytes), start=1)
            ]
            return self._complete(name, upload_id, parts, condition)
        except BaseException:
            with contextlib.suppress(*FAILURES):
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=name, UploadId=upload_id
                )
            raise

    def _begin(self, name: str, upload: Upload) -> str:
        """The number of an upload in parts; one whose answer is lost is left to the bucket's rule
        for unfinished uploads."""

        def request() -> str:
            answer = self._client.create_multipart_upload(
                Bucket=self._bucket,
                Key=name,
                ChecksumAlgorithm="SHA256",
                ContentType=media_type(name, upload.head),
                Metadata=upload.metadata,
            )
            return required(answer, "UploadId")

        return self._calls.run(request)

    def _send_part(
        self, name: str, upload_id: str, number: int, part: bytes
    ) -> CompletedPartTypeDef:
        checksum = _base64_sha256(part)

        def request() -> CompletedPartTypeDef:
            answer = self._client.upload_part(
                Bucket=self._bucket,
                Key=name,
                UploadId=upload_id,
                PartNumber=number,
                Body=part,
                ChecksumSHA256=checksum,
            )
            etag = required(answer, "ETag")
            return {"PartNumber": number, "ETag": etag, "ChecksumSHA256": checksum}

        return self._calls.run(request)

    def _complete(
        self,
        name: str,
        upload_id: str,
        parts: list[CompletedPartTypeDef],
        condition: Mapping[str, Any],
    ) -> str:
        def request() -> str:
            answer = self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=name,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                **condition,
            )
            return required(answer, "ETag")

        return self._calls.run(request)


def _base64_sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode("ascii")
