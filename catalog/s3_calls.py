"""One request to a server of S3 at a time: what its failures mean, and how often it is repeated.

boto3's own repetitions are off, so that a writer knows whether its request failed before: a request
whose answer is lost may have been carried out. No message of a server or of boto3 is passed on,
since some hold access keys, only the codes; the exceptions themselves are not chained either.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from catalog.errors import cut
from catalog.store_errors import (
    ObjectCorruptError,
    StoreDeniedError,
    StoreError,
    StoreMissingBucketError,
    StoreRefusedError,
    StoreUnreachableError,
)

RETRY_ATTEMPTS = 8
BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 20.0

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0

_TRANSIENT_CODES = {
    "SlowDown",
    "RequestTimeout",
    "InternalError",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "RequestLimitExceeded",
    "OperationAborted",
    "ConditionalRequestConflict",  # two writes at once; the next attempt learns who was first
    "IncompleteBody",
    "BadDigest",  # the bytes did not arrive as they were sent
    "XAmzContentChecksumMismatch",
}
_TRANSIENT_FAILURES = (
    HTTPClientError,
    ConnectionError,
    IncompleteReadError,
    ResponseParserError,
    HTTPError,
    OSError,
)
_DENIED_CODES = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}  # of status 400
_ELSEWHERE_CODES = {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"}
_ELSEWHERE = "give the region of the bucket, or the endpoint it really has"
_NOT_IMPLEMENTED = 501
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    NoAuthTokenError,
    TokenRetrievalError,
    SSOError,
    ProfileNotFound,
)
FAILURES = (BotoCoreError, ClientError, ResponseParserError, HTTPError, OSError, RecursionError)
"""Whatever a request of boto3 may raise, and the reading of its answer.

It looks for a bucket's region where it is redirected; redirected there as well, it never ends."""

T = TypeVar("T")


class Kind(Enum):
    """What a failure means for whoever asked."""

    TRANSIENT = auto()
    CORRUPT = auto()
    DENIED = auto()
    MISSING_BUCKET = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt, in words that may be shown."""

    kind: Kind
    reason: str
    status: int = 0
    server_code: str = ""


CORRUPT = Fault(Kind.CORRUPT, "an object arrives with another checksum than it was stored with")


class BrokenAnswer(Exception):
    """An answer that ended early, or whose bytes are not those that were stored.

    Not one of boto3's own exceptions: some of those are OSErrors, and whoever writes the answer
    into a file would take them for errors of that file.
    """

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


def required(answer: Mapping[str, Any], name: str) -> str:
    """A field that every such answer has; BrokenAnswer for one that no S3 server has given."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise BrokenAnswer(Fault(Kind.TRANSIENT, f"an answer of the server has no {name}"))
    return value


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is made, and the pauses between: full jitter below a doubling bound."""

    attempts: int = RETRY_ATTEMPTS
    base_s: float = BACKOFF_BASE_S
    cap_s: float = BACKOFF_CAP_S
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.Random().uniform

    def pause(self, failures: int) -> None:
        """Wait after that many failures in a row: all who failed together come back apart."""
        self.sleep(self.uniform(0.0, min(self.cap_s, self.base_s * 2 ** (failures - 1))))


class Calls:
    """Makes requests until one is answered; `address` is what an error is about."""

    def __init__(self, address: str, retries: Retries) -> None:
        self._address, self._retries = address, retries

    def run(self, request: Callable[[], T]) -> T:
        """The answer. Raises a StoreError; every `StoreRefusedError` says what failed before."""
        for failures in range(self._retries.attempts):
            if failures:
                self._retries.pause(failures)
            try:
                return request()
            except (*FAILURES, BrokenAnswer) as error:
                fault = fault_of(error)
            if fault.kind not in (Kind.TRANSIENT, Kind.CORRUPT):
                break
        raise self._error(fault, failures)

    def _error(self, fault: Fault, failures: int) -> StoreError:
        said = f"{self._address}: {fault.reason}"
        if fault.kind is Kind.TRANSIENT:
            return StoreUnreachableError(
                f"{said}, {failures + 1} times in a row; the same again may work later"
            )
        if fault.kind is Kind.CORRUPT:
            return ObjectCorruptError(
                f"{said}, {failures + 1} times in a row; the object should be made again"
            )
        if fault.kind is Kind.DENIED:
            return StoreDeniedError(
                f"{said}; give credentials that may list, read, write and delete there"
            )
        if fault.kind is Kind.MISSING_BUCKET:
            return StoreMissingBucketError(
                f"{said}; make the bucket, or name the one that is there and its endpoint"
            )
        return StoreRefusedError(
            said, status=fault.status, server_code=fault.server_code, after_failures=failures
        )


def fault_of(error: Exception) -> Fault:
    """What a failure means, without any of its text."""
    if isinstance(error, ClientError):
        return _server_fault(error)
    if isinstance(error, BrokenAnswer):
        return error.fault
    if isinstance(error, FlexibleChecksumError):
        return CORRUPT
    name = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return Fault(Kind.DENIED, f"boto3 finds no usable credentials ({name})")
    if isinstance(error, _TRANSIENT_FAILURES):
        return Fault(Kind.TRANSIENT, f"no answer from the server ({name})")
    if isinstance(error, RecursionError):
        return Fault(Kind.REFUSED, f"the server redirects every request; {_ELSEWHERE}")
    return Fault(Kind.REFUSED, f"boto3 cannot make the request ({name})")


def _server_fault(error: ClientError) -> Fault:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = cut(error.response.get("Error", {}).get("Code", ""))
    answered = f"the server answered {status}"
    if code and code != str(status):
        answered += f" {code}"
    if code in _TRANSIENT_CODES or status == 429 or (status >= 500 and status != _NOT_IMPLEMENTED):
        kind = Kind.TRANSIENT
    elif code == "NoSuchBucket":
        kind = Kind.MISSING_BUCKET
    elif status in (401, 403) or code in _DENIED_CODES:
        kind = Kind.DENIED
    else:
        kind = Kind.REFUSED
    if code in _ELSEWHERE_CODES:
        answered += f"; {_ELSEWHERE}"
    return Fault(kind, answered, status, code)
