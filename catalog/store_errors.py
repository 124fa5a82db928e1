"""What can be wrong with a store of objects, a folder or a bucket: one line each."""

from __future__ import annotations

from catalog.errors import CatalogError


class StoreError(CatalogError):
    """Base: an object cannot be read or written as asked."""

    code = "store"


class StoreAddressError(StoreError):
    """What was given is neither a folder nor s3://bucket/prefix, or its endpoint is no address."""

    code = "store_address"


class StoreKeyError(StoreError):
    """A key is no relative path with slashes that every store can hold."""

    code = "store_key"


class StoreSourceError(StoreError):
    """The file whose bytes should be stored cannot be read, or changed while it was sent."""

    code = "store_source"


class StoreMissingBucketError(StoreError):
    """There is no such bucket at that endpoint."""

    code = "store_missing_bucket"


class StoreDeniedError(StoreError):
    """The store does not let us in: no credentials, wrong ones, or ones that may not do this."""

    code = "store_denied"


class StoreUnreachableError(StoreError):
    """The store did not answer, or only with errors of its own, however often it was asked."""

    code = "store_unreachable"
    retryable = True


class StoreRefusedError(StoreError):
    """The server understood the request and does not do it, for a reason that has no other name."""

    code = "store_refused"

    def __init__(self, problem: str, *, status: int, server_code: str, after_failures: int) -> None:
        super().__init__(problem)
        self.status = status
        """The HTTP status; 0 where nothing was sent."""
        self.server_code = server_code
        self.after_failures = after_failures
        """Attempts of the same request that failed before; their outcome is not known."""


class StoreUnconditionalError(StoreError):
    """The server ignores conditions on a write, so two writers would not notice each other."""

    code = "store_unconditional"


class ObjectMissingError(StoreError):
    """There is no object of that key."""

    code = "object_missing"


class ObjectCorruptError(StoreError):
    """The bytes that arrive are not those that were stored, however often they are read."""

    code = "object_corrupt"
