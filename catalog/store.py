"""A place for objects under keys: a folder, or a bucket of S3 or of a server that speaks S3.

Both keep one contract. A key is a relative path with slashes. An object is whole or not there. The
etag changes with the content, so a writer can say which version it means to replace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from catalog.errors import show
from catalog.store_errors import StoreAddressError, StoreKeyError, StoreSourceError

LARGEST_KEY_BYTES = 1024
"""S3's limit, in UTF-8; a prefix of the store counts there as well."""

LARGEST_KEY_PART_BYTES = 255
"""What a file system lets a file's name have."""

RESERVED_PART_PREFIXES = (".tmp-", ".store-lock")
"""Names of files that are not yet objects, of probes and of locks: never keys, never listed."""

CHUNK_BYTES = 1 << 20

_SCHEME = re.compile(r"(s3(?=:)|[a-z][a-z0-9+.-]+(?=:/))", re.IGNORECASE)
# Control characters and halves of surrogate pairs; a backslash separates folders on some systems.
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\\]")

Content = bytes | Path
"""The bytes themselves, or the file that has them."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What a store knows of an object without handing it out."""

    key: str
    size_bytes: int
    etag_source: str | Callable[[], str]
    """The etag, or how to find it: in a folder that means to read the file."""
    modified_at_s: float
    """When the object was last written, by the store's own clock, in seconds since 1970."""

    @property
    def etag(self) -> str:
        """Names the content; only to be compared, never to be parsed."""
        return self.etag_source if isinstance(self.etag_source, str) else self.etag_source()


@dataclass(frozen=True, slots=True)
class Stored:
    """An object's bytes, and the etag to replace just them."""

    data: bytes
    etag: str


class Store(Protocol):
    """Objects under keys. No key may be a folder of another: `a` and `a/b` exclude each other.

    Beside what is said below, every method raises StoreKeyError, StoreDeniedError,
    StoreMissingBucketError, StoreUnreachableError or StoreRefusedError, a folder WriteFailedError.
    An object that could not be written is not there, or unchanged; only after
    StoreUnreachableError may it be either.
    """

    @property
    def address(self) -> str:
        """The folder, or s3://bucket/prefix, for people; it never holds credentials."""

    def exists(self, key: str) -> bool:
        """Whether there is an object of that key."""

    def stat(self, key: str) -> ObjectFacts | None:
        """Size and etag; None where there is no object."""

    def get(self, key: str) -> Stored:
        """The whole object in memory. Raises ObjectMissingError, ObjectCorruptError."""

    def get_to(self, key: str, path: Path) -> None:
        """The whole object as the file `path`, which is the old or the new one at any moment.

        Raises ObjectMissingError, ObjectCorruptError, WriteFailedError.
        """

    def put(self, key: str, content: Content) -> None:
        """Make `content` the object, whatever was there. Raises StoreSourceError."""

    def put_new(self, key: str, content: Content) -> bool:
        """Make `content` the object where there is none; whether this call did.

        Of any number of calls at once exactly one does. Raises StoreSourceError.
        """

    def compare_and_swap(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        """Make `data` the object if the one there has `expected_etag`, or if none is there for
        None; the new etag, or None for a lost race: another version is there, or none.

        An etag names content, not time: who swaps `a` for `b` and back for `a` is not noticed, so
        what must be noticed has a counter or an owner in it.
        """

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        """The objects whose keys begin with `prefix`, in the order of their keys as UTF-8."""

    def delete(self, key: str) -> None:
        """Take the object away; nothing is wrong if there is none."""


def open_store(
    uri: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    unconditional: bool = False,
) -> Store:
    """The store at a folder's path or at s3://bucket/prefix.

    `endpoint_url` is a server other than Amazon's; its buckets are addressed by path. Credentials
    come from where boto3 looks for them. A bucket is probed with objects that are taken away again:
    a server that ignores conditions on writes is refused with StoreUnconditionalError, unless
    `unconditional`, which trades atomicity for it (see `S3Store`).
    Raises StoreAddressError, StoreMissingBucketError, StoreDeniedError, StoreUnreachableError.
    """
    scheme = _SCHEME.match(uri)
    if scheme is not None and scheme[1].lower() == "s3":
        # Each kind is imported when it is opened: boto3 alone takes a third of a second.
        from catalog.s3_opening import open_s3_store

        return open_s3_store(
            uri, endpoint_url=endpoint_url, region=region, unconditional=unconditional
        )
    if scheme is not None or not uri or "\x00" in uri:
        what = f"{scheme[1].lower()}://" if scheme else show(uri)
        raise StoreAddressError(f"store: {what} is unknown; give a folder or s3://bucket/prefix")
    if endpoint_url is not None or region is not None:
        raise StoreAddressError(
            f"store: {show(uri)} is a folder and has no endpoint or region; "
            "for a bucket give s3://bucket/prefix"
        )
    from catalog.folder_store import FolderStore

    return FolderStore(Path(uri))


def require_key(key: str) -> None:
    """Raises StoreKeyError for what is no key."""
    problem = _key_problem(key)
    if problem is not None:
        raise StoreKeyError(f"key {show(key)}: {problem}; a key is like voices/ann/one.flac")


def require_list_prefix(prefix: str) -> None:
    """A prefix is the beginning of a key; StoreKeyError for one that no key can begin with."""
    if prefix and (problem := _key_problem(prefix.removesuffix("/") + "/k")) is not None:
        raise StoreKeyError(f"prefix {show(prefix)}: {problem}; a prefix is like voices/ann/")


def is_key(key: str) -> bool:
    """Whether an object of this key can be there."""
    return _key_problem(key) is None


def _key_problem(key: str) -> str | None:
    if _NOT_IN_KEYS.search(key):
        return "has a control character, a backslash or half a surrogate pair"
    parts = key.split("/")
    if "" in parts:
        return "is empty, begins or ends with a slash, or has two in a row"
    if "." in parts or ".." in parts:
        return "has a . or .. between its slashes"
    if any(part.startswith(RESERVED_PART_PREFIXES) for part in parts):
        return f"has a part that begins with {' or '.join(RESERVED_PART_PREFIXES)}"
    if len(key.encode()) > LARGEST_KEY_BYTES:
        return f"is longer than {LARGEST_KEY_BYTES} bytes"
    if any(len(part.encode()) > LARGEST_KEY_PART_BYTES for part in parts):
        return f"has a part of more than {LARGEST_KEY_PART_BYTES} bytes"
    return None


def content_chunks(content: Content, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The content in order, in pieces of `chunk_bytes` and a last one. Raises StoreSourceError."""
    if isinstance(content, bytes):
        for start in range(0, len(content), chunk_bytes):
            yield content[start : start + chunk_bytes]
        return
    try:
        with content.open("rb") as stream:
            while chunk := stream.read(chunk_bytes):
                yield chunk
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise StoreSourceError(f"{content}: cannot be read: {reason or error}") from None
