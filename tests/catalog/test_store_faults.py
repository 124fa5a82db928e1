"""A bucket on a bad day: every request fails in turn, and in every way a request can fail."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    FlexibleChecksumError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from urllib3.exceptions import ProtocolError

from catalog.s3_calls import (
    BACKOFF_CAP_S,
    RETRY_ATTEMPTS,
    Calls,
    Kind,
    Retries,
    fault_of,
)
from catalog.s3_store import S3Store
from catalog.store import Stored
from catalog.store_errors import (
    ObjectCorruptError,
    ObjectMissingError,
    StoreDeniedError,
    StoreError,
    StoreRefusedError,
    StoreSourceError,
    StoreUnreachableError,
)
from tests.s3_server import S3Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 1000
SMALL, LARGE = b"small", bytes(range(250)) * 10
"""One request, and three parts."""

OLD, RIVAL = b"the old one", b"the rival's"


# -- the wire -------------------------------------------------------------------------------------


class Raw(io.BytesIO):
    """The body of an answer, which may break off."""

    def __init__(self, body: bytes, *, breaks_off: bool = False) -> None:
        super().__init__(body)
        self.breaks_off = breaks_off

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if not data and self.breaks_off:
            raise ProtocolError("Connection broken: IncompleteRead")
        return data

    def stream(self, *_: object) -> Iterator[bytes]:
        yield self.read()


def answer(
    status: int, body: bytes = b"", headers: dict[str, str] | None = None, **raw: bool
) -> AWSResponse:
    return AWSResponse(
        "http://server/", status, HTTPHeaders.from_dict(headers or {}), Raw(body, **raw)
    )


def refusal(status: int, code: str) -> AWSResponse:
    """What a server says, with what must not be passed on."""
    told = f"<Error><Code>{code}</Code><Message>hidden</Message><Key>hidden</Key></Error>"
    return answer(status, told.encode())


class Wire:
    """Stands between a client and its server; counts requests and lets some fail."""

    def __init__(self, client: S3Client) -> None:
        self.client, self.sent = client, list[str]()
        self.faults: dict[int, Fault] = {}
        """By the number of the request, from 1; 0 is every request without one of its own."""
        client.meta.events.register("before-send.s3", self._before_send)

    def _before_send(self, request: Any, **_: object) -> Any:
        self.sent.append(request.method)
        fault = self.faults.get(len(self.sent), self.faults.get(0))
        return fault(self, request) if fault else None

    def reset(self, **faults: Fault) -> None:
        """Count from 1 again; `request3=` is the fault of the third."""
        self.sent.clear()
        self.faults = {int(name.removeprefix("request")): fault for name, fault in faults.items()}

    def deliver(self, request: Any) -> None:
        """Let the server do what it is asked, whatever becomes of its answer."""
        delivered = self.client._endpoint.http_session.send(request)  # type: ignore[attr-defined]
        assert isinstance(delivered.content, bytes)


Fault = Callable[[Wire, Any], AWSResponse | None]


def _raises(error: type[Exception]) -> Fault:
    def fault(_: Wire, request: Any) -> AWSResponse | None:
        raise error(endpoint_url=request.url)  # type: ignore[call-arg]

    return fault


def _answers(status: int, code: str) -> Fault:
    return lambda _, __: refusal(status, code)


def _after_delivery(fault: Fault) -> Fault:
    def after(wire: Wire, request: Any) -> AWSResponse | None:
        wire.deliver(request)
        return fault(wire, request)

    return after


FAULTS = {
    "500": _answers(500, "InternalError"),
    "503": _answers(503, "SlowDown"),
    "502 of a proxy": lambda _, __: answer(502, b"<html>Bad Gateway</html>"),
    "400 timeout": _answers(400, "RequestTimeout"),
    "reset": _raises(ConnectionClosedError),
    "no connection": _raises(EndpointConnectionError),
    "read timeout": _raises(ReadTimeoutError),
    "lost answer": _after_delivery(_raises(ReadTimeoutError)),
    "500 though done": _after_delivery(_answers(500, "InternalError")),
}


@pytest.fixture(scope="module")
def small_parts(moto_s3: S3Server) -> Iterator[S3Server]:
    """moto without S3's bound on the size of a part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
        yield moto_s3


class Bench:
    """A store whose requests fail as told, and a client that sees what is really there."""

    def __init__(self, server: S3Server) -> None:
        self.bucket, self.plain = server.new_bucket(), server.client()
        self.wire, self.pauses = Wire(server.client()), list[float]()
        self.used = 0
        self.empty()

    def empty(self, **faults: Fault) -> None:
        """A store with nothing in it, and the faults of its requests."""
        self.used += 1
        self.prefix = f"{self.used}/"
        self.store = S3Store(
            self.wire.client,
            self.bucket,
            self.prefix,
            retries=Retries(sleep=self.pauses.append),
            multipart_threshold_bytes=PART_BYTES,
            part_bytes=PART_BYTES,
            page_keys=2,
        )
        self.wire.reset(**faults)
        self.pauses.clear()

    def there(self, key: str) -> bytes | None:
        """What the object holds."""
        try:
            body = self.plain.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"]
        except self.plain.exceptions.NoSuchKey:
            return None
        return body.read()

    def place(self, key: str, data: bytes) -> str:
        """Another job puts an object there; its etag."""
        rival = S3Store(self.plain, self.bucket, self.prefix)
        rival.put(key, data)
        return rival.get(key).etag

    def unfinished(self) -> list[str]:
        """Uploads in parts that wait for more."""
        found = self.plain.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [each["Key"] for each in found if each["Key"].startswith(self.prefix)]


@pytest.fixture(scope="module")
def bench(small_parts: S3Server) -> Bench:
    return Bench(small_parts)


# -- every request, every fault -------------------------------------------------------------------


class Operation(NamedTuple):
    """What is done to a store, and how it must have ended; `before` and `after` are the object."""

    act: Callable[[Bench, Path], Any]
    result: Any
    after: bytes | None
    before: bytes | None = None


def _get_to(bench: Bench, folder: Path) -> bytes:
    bench.store.get_to("one", folder / "file")
    return (folder / "file").read_bytes()


def _swap(bench: Bench, _: Path) -> bool:
    etag = '"' + hashlib.md5(OLD).hexdigest() + '"'
    new = bench.store.compare_and_swap("one", SMALL, etag)
    assert new == '"' + hashlib.md5(SMALL).hexdigest() + '"'
    return new is not None


def _list(bench: Bench, _: Path) -> list[str]:
    for name in ("x/1", "x/2", "x/3", "x/4", "x/5"):
        bench.place(name, b"")
    return [facts.key for facts in bench.store.list("x/")]


OPERATIONS = {
    "put": Operation(lambda b, _: b.store.put("one", SMALL), None, SMALL, OLD),
    "put in parts": Operation(lambda b, _: b.store.put("one", LARGE), None, LARGE, OLD),
    "put_new": Operation(lambda b, _: b.store.put_new("one", SMALL), True, SMALL),
    "put_new in parts": Operation(lambda b, _: b.store.put_new("one", LARGE), True, LARGE),
    "put_new too late": Operation(lambda b, _: b.store.put_new("one", SMALL), False, OLD, OLD),
    "put_new too late, same": Operation(lambda b, _: b.store.put_new("one", OLD), False, OLD, OLD),
    "put_new in parts too late": Operation(
        lambda b, _: b.store.put_new("one", LARGE), False, OLD, OLD
    ),
    "swap for none": Operation(
        lambda b, _: b.store.compare_and_swap("one", SMALL, None) is not None, True, SMALL
    ),
    "swap": Operation(_swap, True, SMALL, OLD),
    "swap too late": Operation(
        lambda b, _: b.store.compare_and_swap("one", SMALL, '"0"'), None, OLD, OLD
    ),
    "swap of none": Operation(
        lambda b, _: b.store.compare_and_swap("one", SMALL, '"0"'), None, None
    ),
    "get": Operation(lambda b, _: b.store.get("one").data, OLD, OLD, OLD),
    "get_to": Operation(_get_to, OLD, OLD, OLD),
    "exists": Operation(lambda b, _: b.store.exists("one"), True, OLD, OLD),
    "exists not": Operation(lambda b, _: b.store.exists("one"), False, None),
    "list": Operation(_list, ["x/1", "x/2", "x/3", "x/4", "x/5"], OLD, OLD),
    "delete": Operation(lambda b, _: b.store.delete("one"), None, None, OLD),
}


def _run(bench: Bench, operation: Operation, folder: Path, **faults: Fault) -> Any:
    bench.empty(**faults)
    if operation.before is not None:
        bench.place("one", operation.before)
    return operation.act(bench, folder)


@pytest.mark.parametrize("name", OPERATIONS)
def test_any_request_may_fail_once(bench: Bench, tmp_path: Path, name: str) -> None:
    operation = OPERATIONS[name]
    assert _run(bench, operation, tmp_path) == operation.result
    requests = len(bench.wire.sent)
    assert (requests, bench.there("one")) == (max(requests, 1), operation.after)
    for number in range(1, requests + 1):
        for label, fault in FAULTS.items():
            result = _run(bench, operation, tmp_path, **{f"request{number}": fault})
            assert result == operation.result, f"request {number}: {label}"
            assert bench.there("one") == operation.after, f"request {number}: {label}"
            # Of an upload in parts that is lost anyway the last request, to forget it, is not
            # repeated.
            assert len(bench.pauses) == 1 or "too late" in name


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_server_that_stays_broken_is_given_up(bench: Bench, tmp_path: Path, name: str) -> None:
    operation = OPERATIONS[name]
    _run(bench, operation, tmp_path)
    requests = len(bench.wire.sent)
    for label, fault in FAULTS.items():
        with pytest.raises(StoreUnreachableError, match=rf"/\d+: .* {RETRY_ATTEMPTS} times") as e:
            _run(bench, operation, tmp_path, request0=fault)
        assert len(bench.wire.sent) == RETRY_ATTEMPTS, label
        assert len(bench.pauses) == RETRY_ATTEMPTS - 1
        assert "hidden" not in repr(e.value)
        # A request that was done all the same leaves the old object or the whole new one.
        assert bench.there("one") in (operation.before, operation.after)
    assert requests <= 6


def test_pauses_double_up_to_a_bound_and_are_spread() -> None:
    highest: list[float] = []
    pauses: list[float] = []

    def uniform(low: float, high: float) -> float:
        assert low == 0.0
        highest.append(high)
        return high / 4

    def request() -> None:
        raise ReadTimeoutError(endpoint_url="http://server")

    with pytest.raises(StoreUnreachableError, match="12 times"):
        Calls("s3://b", Retries(attempts=12, sleep=pauses.append, uniform=uniform)).run(request)
    assert highest == pytest.approx([min(0.2 * 2**n, BACKOFF_CAP_S) for n in range(11)])
    assert pauses == pytest.approx([high / 4 for high in highest])
    assert {Retries().uniform(0.0, 1.0) for _ in range(50)} != {0.0}


# -- whose object it is ---------------------------------------------------------------------------


def _rival(bench: Bench, data: bytes, then: Fault) -> Fault:
    """Somebody else is faster, and the answer to ours says nothing."""

    def fault(wire: Wire, request: Any) -> AWSResponse | None:
        bench.place("one", data)
        return then(wire, request)

    return fault


@pytest.mark.parametrize("label", ["500", "reset", "lost answer", "500 though done"])
@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_an_unclear_put_new_is_not_taken_for_a_rivals(
    bench: Bench, label: str, content: bytes
) -> None:
    last = 1 if content is SMALL else 5
    for rivals in (RIVAL, content):  # whose bytes may be the same as ours
        bench.empty(**{f"request{last}": _rival(bench, rivals, FAULTS[label])})
        assert bench.store.put_new("one", content) is False
        assert bench.there("one") == rivals
    assert bench.unfinished() == []


@pytest.mark.parametrize("label", ["500", "lost answer"])
def test_an_unclear_swap_is_not_taken_for_a_rivals(bench: Bench, label: str) -> None:
    bench.empty()
    etag = bench.place("one", OLD)
    bench.wire.reset(request1=_rival(bench, RIVAL, FAULTS[label]))
    assert bench.store.compare_and_swap("one", SMALL, etag) is None
    assert bench.there("one") == RIVAL

    def replaced(wire: Wire, request: Any) -> AWSResponse | None:
        wire.deliver(request)
        bench.place("one", RIVAL)
        return FAULTS["reset"](wire, request)

    etag = bench.place("one", OLD)
    bench.wire.reset(request1=replaced)
    assert bench.store.compare_and_swap("one", SMALL, etag) is None
    assert bench.there("one") == RIVAL


def test_an_unclear_write_that_was_deleted_since_is_lost(bench: Bench) -> None:
    bench.empty()

    def deleted(wire: Wire, request: Any) -> AWSResponse | None:
        wire.deliver(request)
        return FAULTS["reset"](wire, request)

    def refused(wire: Wire, _: Any) -> AWSResponse | None:
        bench.plain.delete_object(Bucket=bench.bucket, Key=bench.prefix + "one")
        return refusal(412, "PreconditionFailed")

    bench.wire.reset(request1=deleted, request2=refused)
    assert bench.store.put_new("one", SMALL) is False
    assert bench.wire.sent == ["PUT", "PUT", "HEAD"]


@pytest.mark.parametrize(
    ("theirs", "won"), [(None, True), (RIVAL, False)], ids=["ours", "a rival's"]
)
def test_a_server_that_drops_metadata_has_the_bytes_compared(
    small_parts: S3Server, theirs: bytes | None, won: bool
) -> None:
    bench = Bench(small_parts)

    def drop(params: Any, **_: object) -> None:
        for name in [name for name in params["headers"] if name.startswith("x-amz-meta-")]:
            del params["headers"][name]

    bench.wire.client.meta.events.register("before-call.s3", drop)

    def fault(wire: Wire, request: Any) -> AWSResponse | None:
        if theirs is not None:
            bench.plain.put_object(Bucket=bench.bucket, Key=f"{bench.prefix}one", Body=theirs)
        return FAULTS["lost answer"](wire, request)

    bench.wire.reset(request1=fault)
    assert bench.store.put_new("one", SMALL) is won
    assert bench.wire.sent == ["PUT", "PUT", "HEAD", "GET"]
    bench.wire.reset()
    assert bench.store.get("one").data == (theirs or SMALL)


def test_two_writes_at_once_are_asked_again(bench: Bench) -> None:
    bench.empty(request1=_answers(409, "ConditionalRequestConflict"))
    assert bench.store.put_new("one", SMALL)
    bench.wire.reset(request1=_answers(409, "ConditionalRequestConflict"))
    assert not bench.store.put_new("one", SMALL)
    bench.wire.reset(request1=_answers(409, "SomethingThere"))
    assert not bench.store.put_new("one", SMALL)


def test_parts_that_vanish_are_told_or_found_put_together(bench: Bench) -> None:
    gone = _answers(404, "NoSuchUpload")
    bench.empty(request5=FAULTS["lost answer"], request6=gone)
    assert bench.store.put_new("one", LARGE)
    bench.wire.reset(request5=FAULTS["lost answer"], request6=gone)
    bench.store.put("one", LARGE)
    bench.wire.reset(request5=gone)
    assert not bench.store.put_new("one", LARGE)
    for send in ("put", "put_new"):
        bench.empty(request3=gone)
        with pytest.raises(StoreUnreachableError, match="the parts of one vanished"):
            getattr(bench.store, send)("one", LARGE)
        assert bench.there("one") is None
    assert bench.unfinished() == []


def test_a_source_that_changes_while_it_is_sent_is_refused(bench: Bench, tmp_path: Path) -> None:
    bench.empty()
    source = tmp_path / "source"
    source.write_bytes(LARGE)

    def change(_: Wire, __: Any) -> AWSResponse | None:
        source.write_bytes(LARGE[::-1])
        return None

    bench.wire.reset(request1=change)
    with pytest.raises(StoreSourceError, match="changed while it was sent"):
        bench.store.put("one", source)
    assert bench.there("one") is None
    assert bench.unfinished() == []


# -- reading --------------------------------------------------------------------------------------


def _breaks_off(length: str) -> Fault:
    headers = {"ETag": '"0"', "Content-Length": length}
    return lambda _, __: answer(200, b"half", headers, breaks_off=True)


def test_an_answer_that_breaks_off_is_asked_for_again(bench: Bench, tmp_path: Path) -> None:
    bench.empty()
    etag = bench.place("one", OLD)
    (tmp_path / "file").write_bytes(b"before")
    for fault in (_breaks_off("11"), lambda _, __: answer(200, b"half", {"Content-Length": "11"})):
        bench.wire.reset(request1=fault, request2=fault)
        assert bench.store.get("one") == Stored(OLD, etag)
        bench.wire.reset(request1=fault, request2=fault)
        bench.store.get_to("one", tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == OLD
    bench.wire.reset(request0=_breaks_off("11"))
    with pytest.raises(StoreUnreachableError):
        bench.store.get_to("one", tmp_path / "file")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [OLD]


@pytest.mark.parametrize(
    "header", [{"x-amz-checksum-sha256": "AAAA"}, {"x-amz-meta-loudkit-sha256": "00"}], ids=repr
)
def test_bytes_that_are_not_those_stored_are_refused(
    bench: Bench, tmp_path: Path, header: dict[str, str]
) -> None:
    bench.empty()
    bench.place("one", OLD)
    (tmp_path / "file").write_bytes(b"before")
    headers = {"ETag": '"0"', "Content-Length": "5", **header}
    corrupt: Fault = lambda _, __: answer(200, b"wrong", headers)  # noqa: E731
    bench.wire.reset(request1=corrupt)
    assert bench.store.get("one").data == OLD
    for read in (lambda: bench.store.get("one"), lambda: _get_to(bench, tmp_path)):
        bench.wire.reset(request0=corrupt)
        with pytest.raises(ObjectCorruptError, match="another checksum than it was stored") as e:
            read()
        assert (e.value.code, e.value.retryable) == ("object_corrupt", False)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_bytes_that_rot_on_the_server_are_refused(bench: Bench) -> None:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    for content in (SMALL, LARGE):
        bench.empty()
        bench.store.put("one", content)
        stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_object(
            bench.bucket, bench.prefix + "one"
        )
        assert stored is not None
        stored.value = content[:-1] + b"?"  # type: ignore[misc]
        with pytest.raises(ObjectCorruptError):
            bench.store.get("one")


# -- other answers --------------------------------------------------------------------------------


def test_an_answer_without_an_etag_is_no_answer(bench: Bench) -> None:
    bench.empty(request1=lambda _, __: answer(200, b"<html>Log in</html>"))
    assert bench.store.put_new("one", SMALL)
    bench.wire.reset(request0=lambda _, __: answer(200))
    for write in (SMALL, LARGE):
        with pytest.raises(StoreUnreachableError, match="an answer of the server has no"):
            bench.store.put("one", write)


def test_a_listing_that_says_it_goes_on_and_not_where_is_refused(bench: Bench) -> None:
    told = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated>%s"
        b"<Contents><Key>x</Key><Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>"
    )
    for more in (b"", b"<NextContinuationToken>same</NextContinuationToken>"):
        bench.wire.reset(request0=lambda _, __, more=more: answer(200, told % more))  # type: ignore[misc]
        with pytest.raises(StoreRefusedError, match="its listing goes on"):
            list(bench.store.list())


@pytest.mark.parametrize(
    ("status", "code", "expected", "told"),
    [
        (403, "AccessDenied", StoreDeniedError, "answered 403 AccessDenied; give credentials"),
        (400, "ExpiredToken", StoreDeniedError, "answered 400 ExpiredToken; give credentials"),
        (400, "AuthorizationHeaderMalformed", StoreRefusedError, "give the region"),
        (400, "InvalidArgument", StoreRefusedError, "answered 400 InvalidArgument$"),
        (400, "KeyTooLongError", StoreRefusedError, "answered 400 KeyTooLongError$"),
        (501, "NotImplemented", StoreRefusedError, "answered 501 NotImplemented$"),
        (412, "PreconditionFailed", StoreRefusedError, "answered 412 PreconditionFailed$"),
        (400, "B\n\u202ead" + "x" * 999, StoreRefusedError, r"answered 400 B\\n\\u202ead"),
    ],
)
def test_other_refusals_are_told_at_once_by_their_code(
    bench: Bench, status: int, code: str, expected: type[StoreError], told: str
) -> None:
    bench.wire.reset(request1=_answers(status, code))
    with pytest.raises(expected, match=told) as caught:
        bench.store.put("one", SMALL)
    assert len(bench.wire.sent) == 1
    assert "hidden" not in repr(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_bucket_of_another_region_is_found_or_told(bench: Bench) -> None:
    bench.empty(request1=_answers(301, "PermanentRedirect"))
    bench.store.put("one", SMALL)
    assert bench.there("one") == SMALL
    bench.wire.reset(request0=_answers(301, "PermanentRedirect"))
    with pytest.raises(StoreRefusedError, match="redirects every request; give the region of the"):
        bench.store.put("one", SMALL)


def test_what_boto3_says_itself_has_a_meaning() -> None:
    url = "http://server"
    kinds = [
        (EndpointConnectionError(endpoint_url=url), Kind.TRANSIENT),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), Kind.TRANSIENT),
        (ConnectionResetError(), Kind.TRANSIENT),
        (FlexibleChecksumError(error_msg="hidden"), Kind.CORRUPT),
        (NoCredentialsError(), Kind.DENIED),
        (ParamValidationError(report="hidden"), Kind.REFUSED),
    ]
    for error, kind in kinds:
        fault = fault_of(error)
        assert fault.kind is kind
        assert "hidden" not in fault.reason


def test_a_missing_object_is_asked_for_once(bench: Bench) -> None:
    bench.empty()
    with pytest.raises(ObjectMissingError) as caught:
        bench.store.get("one")
    assert bench.wire.sent == ["GET"]
    assert (caught.value.code, caught.value.retryable) == ("object_missing", False)
    assert re.fullmatch(rf"{bench.store.address}: there is no object one", str(caught.value))
