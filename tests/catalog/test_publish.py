"""Publishing: a reader always sees one whole release, whoever races, dies or comes late."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.collect import Collector
from catalog.errors import CatalogError
from catalog.folder_store import FolderStore
from catalog.json_spans import elements
from catalog.publish import (
    Choice,
    Published,
    Publisher,
    Source,
)
from catalog.publish_errors import (
    NoSuchReleaseError,
    PublishConflictError,
    PublishRaceError,
    PublishSourceError,
    RosterUnreadableError,
)
from catalog.publish_folder import facts_of_voices, open_source
from catalog.release_copies import copy_names
from catalog.releases import require_objects, roll_back, utc
from catalog.roster import object_key, read_roster, release_key
from catalog.roster_files import MAX_HISTORY, POINTER, pointer_bytes, read_pointer
from catalog.store import Store
from catalog.store_errors import StoreDeniedError, StoreError, StoreMissingBucketError
from tests.outputs import NOW, publish, write_output
from tests.s3_server import SLOW, S3Server
from tests.store_calls import CountedStore

RACERS = 8


def whole(store: Store) -> dict[str, bytes]:
    """What a reader gets: every clip's bytes, after looking at all that the release says."""
    roster = read_roster(store)
    assert roster.release is not None
    require_objects(store, roster.release)
    for name, sha256 in roster.release.files.items():
        data = store.get(release_key(roster.release.id, name)).data
        assert hashlib.sha256(data).hexdigest() == sha256, name
    found = {}
    for key, clip in roster.records.clips.items():
        data = store.get(object_key(clip.record.sha256)).data
        assert hashlib.sha256(data).hexdigest() == clip.record.sha256
        found[key] = data
    return found


@dataclass
class Place:
    """Somewhere to publish, opened anew by everybody who comes."""

    open: Callable[[], Store]


@pytest.fixture(params=["folder", "moto", "seaweedfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield Place(lambda: FolderStore(tmp_path / "published"))
        return
    server: S3Server = request.getfixturevalue("moto_s3" if request.param == "moto" else "weed_s3")
    uri = f"s3://{server.new_bucket()}/roster"
    with server.credentials():
        yield Place(lambda: server.open(uri))


ONE = {"ann/short": b"ann short", "ann/long": b"ann long", "bob/short": b"bob short"}
TWO = {**ONE, "ann/short": b"ann short, again"}


def test_what_is_published_can_be_read_and_said_twice(place: Place, tmp_path: Path) -> None:
    first = publish(place.open(), write_output(tmp_path / "one", ONE))
    assert first.is_new
    assert whole(place.open()) == ONE
    again = publish(place.open(), write_output(tmp_path / "again", ONE, tag=" later"))
    assert not again.is_new
    assert again.release.id == first.release.id
    second = publish(place.open(), write_output(tmp_path / "two", TWO))
    assert (second.release.number, second.release.parent) == (2, first.release.id)
    assert set(second.choice.fresh) == {"ann/short"}
    assert whole(place.open()) == TWO


def test_a_clip_that_did_not_change_keeps_its_record(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "published")
    publish(store, write_output(tmp_path / "one", ONE))
    before = entries(store)
    publish(store, write_output(tmp_path / "two", TWO, tag=" later"))
    after = entries(store)
    assert {key for key in before if before[key] != after[key]} == {"ann/short"}


def entries(store: Store) -> dict[str, str]:
    roster = read_roster(store)
    assert roster.release is not None
    data = store.get(release_key(roster.release.id, "provenance.json")).data.decode()
    parsed = {text: json.loads(text) for text in elements(data)}
    return {f"{entry['name']}/{entry['passage']}": text for text, entry in parsed.items()}


def test_orphans_stay_unless_they_are_to_go(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "published")
    publish(store, write_output(tmp_path / "one", ONE))
    part = write_output(tmp_path / "part", {"ann/short": ONE["ann/short"]})
    assert not publish(store, part).is_new
    assert whole(store) == ONE
    assert publish(store, part, remove_orphans=True).release.clips == 1
    assert whole(store) == {"ann/short": ONE["ann/short"]}


def test_copies_lie_in_the_release_under_their_own_names(place: Place, tmp_path: Path) -> None:
    done = publish(place.open(), write_output(tmp_path / "one", ONE), copies=True)
    for key, data in ONE.items():
        assert place.open().get(release_key(done.release.id, f"audio/{key}.flac")).data == data
    second = publish(place.open(), write_output(tmp_path / "two", TWO), copies=True)
    for key, data in TWO.items():
        assert place.open().get(release_key(second.release.id, f"audio/{key}.flac")).data == data


def test_publishers_of_the_same_make_one_release(place: Place, tmp_path: Path) -> None:
    folders = [write_output(tmp_path / f"{n}", ONE, tag=f" by {n}") for n in range(RACERS)]
    done = race(place, folders)
    assert all(isinstance(each, Published) for each in done), done
    assert len({each.release.id for each in done if isinstance(each, Published)}) == 1
    assert whole(place.open()) == ONE
    pointer = read_roster(place.open()).pointer
    assert pointer is not None
    assert pointer.number == 1


def test_of_publishers_of_the_same_clip_one_wins(place: Place, tmp_path: Path) -> None:
    publish(place.open(), write_output(tmp_path / "base", ONE))
    clips = [{**ONE, "ann/short": f"by {n}".encode()} for n in range(RACERS)]
    folders = [write_output(tmp_path / f"{n}", each) for n, each in enumerate(clips)]
    done = race(place, folders)
    winners = [n for n, each in enumerate(done) if isinstance(each, Published)]
    losers = [each for each in done if not isinstance(each, Published)]
    assert winners
    assert all(isinstance(each, PublishConflictError) for each in losers), losers
    assert whole(place.open()) in [clips[n] for n in winners]
    pointer = read_roster(place.open()).pointer
    assert pointer is not None
    assert pointer.number == 1 + len(winners)


def test_publishers_of_different_clips_all_land(place: Place, tmp_path: Path) -> None:
    """Each plans anew on what the others published; whoever gives up may try again."""
    clips = {f"v{n}/short": f"by {n}".encode() for n in range(RACERS)}
    folders = [
        write_output(tmp_path / key.replace("/", "-"), {key: data}) for key, data in clips.items()
    ]
    done = race(place, folders)
    for folder, each in zip(folders, done, strict=True):
        if not isinstance(each, Published):
            assert isinstance(each, PublishRaceError), each
            publish(place.open(), folder)
    assert whole(place.open()) == clips


def race(place: Place, folders: list[Path]) -> list[Published | CatalogError]:
    def run(folder: Path) -> Published | CatalogError:
        try:
            return publish(place.open(), folder)
        except CatalogError as error:
            return error

    with ThreadPoolExecutor(len(folders)) as pool:
        return list(pool.map(run, folders))


def outputs(tmp_path: Path) -> tuple[Path, Path]:
    """The outputs of two runs."""
    return write_output(tmp_path / "one", ONE), write_output(tmp_path / "two", TWO)


def calls_of_a_publish(tmp_path: Path) -> int:
    one, two = outputs(tmp_path)
    store = FolderStore(tmp_path / "counting")
    publish(store, one)
    counted = CountedStore(store)
    publish(counted, two)
    return len(counted.calls)


@pytest.mark.parametrize("arrives", [False, True])
def test_a_kill_at_every_step_leaves_a_whole_release(tmp_path: Path, arrives: bool) -> None:
    """The process dies before a call, or before it hears of its end; then another one comes."""
    steps = calls_of_a_publish(tmp_path)
    assert steps > 12
    for step in range(1, steps + 1):
        folder = tmp_path / f"step-{step}"
        killed_at(FolderStore(folder), tmp_path, step, arrives)
        shutil.rmtree(folder)


def test_a_kill_at_every_step_leaves_a_whole_release_in_a_bucket(
    tmp_path: Path, weed_s3: S3Server
) -> None:
    with weed_s3.credentials():
        for step in range(1, calls_of_a_publish(tmp_path) + 1):
            store = weed_s3.open(f"s3://{weed_s3.new_bucket()}/roster")
            killed_at(store, tmp_path, step, step % 2 == 0)


def killed_at(store: Store, tmp_path: Path, step: int, arrives: bool) -> None:
    publish(store, tmp_path / "one")
    counted = CountedStore(store)
    counted.fails_at, counted.arrives, counted.stays_dead = step, arrives, True
    with contextlib.suppress(StoreError):
        publish(counted, tmp_path / "two")
    assert whole(store) in (ONE, TWO)
    publish(store, tmp_path / "two")
    assert whole(store) == TWO


def test_a_slow_server_is_waited_for(tmp_path: Path, moto_s3: S3Server) -> None:
    uri = f"s3://{SLOW}/{tmp_path.name}"
    with moto_s3.credentials():
        publish(moto_s3.open(uri), write_output(tmp_path / "one", ONE))
        done = race(Place(lambda: moto_s3.open(uri)), [write_output(tmp_path / "two", TWO)] * 2)
        assert all(isinstance(each, Published) for each in done), done
        assert whole(moto_s3.open(uri)) == TWO


def prepared(folder: Path) -> FolderStore:
    """A store with the first release, and the outputs of both beside it."""
    one, _ = outputs(folder.parent)
    store = FolderStore(folder)
    publish(store, one)
    return store


def test_audio_that_is_not_what_its_record_says_is_not_published(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "published")
    folder = write_output(tmp_path / "one", ONE)
    (folder / "audio/ann/long.flac").write_bytes(b"another")
    with pytest.raises(PublishSourceError, match="render again"):
        publish(store, folder)
    assert read_roster(store).pointer is None
    (folder / "audio/ann/long.flac").unlink()
    with pytest.raises(PublishSourceError, match="cannot be read"):
        publish(store, folder)
    with pytest.raises(PublishSourceError, match="give a folder that render left"):
        publish(store, tmp_path / "nothing")


def test_a_record_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write_output(tmp_path / "one", ONE)
    for name in ("provenance.json", "catalog.json"):
        text = (folder / name).read_text(encoding="utf-8")
        told = text.replace("audio/bob/short.flac", "../../etc/passwd")
        (folder / name).write_text(told, encoding="utf-8")
    with pytest.raises(PublishSourceError, match="leads out"):
        publish(FolderStore(tmp_path / "published"), folder)


def test_an_object_that_went_missing_is_put_again(place: Place, tmp_path: Path) -> None:
    folder = write_output(tmp_path / "one", ONE)
    publish(place.open(), folder)
    gone = object_key(hashlib.sha256(ONE["bob/short"]).hexdigest())
    place.open().delete(gone)
    assert publish(place.open(), folder).is_new
    assert whole(place.open()) == ONE


def test_rolling_back_and_on_again(place: Place, tmp_path: Path) -> None:
    first = publish(place.open(), write_output(tmp_path / "one", ONE)).release.id
    second = publish(place.open(), write_output(tmp_path / "two", TWO)).release.id
    pointer = roll_back(place.open(), first, now=NOW)
    assert (pointer.release, pointer.number) == (first, 3)
    assert whole(place.open()) == ONE
    assert [swap.release for swap in pointer.history] == [second, first]
    assert roll_back(place.open(), first, now=NOW).number == 3
    third = publish(place.open(), tmp_path / "two").release
    assert (third.number, third.parent) == (4, first)
    assert whole(place.open()) == TWO


def test_rolling_back_to_nothing_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "published")
    with pytest.raises(NoSuchReleaseError, match="nothing has been published"):
        roll_back(store, "000001-0123456789ab", now=NOW)
    with pytest.raises(RosterUnreadableError, match="one is like"):
        roll_back(store, "../../etc", now=NOW)
    first = publish(store, write_output(tmp_path / "one", ONE)).release
    with pytest.raises(NoSuchReleaseError, match=first.id):
        roll_back(store, "000001-0123456789ab", now=NOW)
    publish(store, write_output(tmp_path / "two", TWO))
    store.delete(object_key(hashlib.sha256(ONE["ann/short"]).hexdigest()))
    with pytest.raises(NoSuchReleaseError, match="is not whole"):
        roll_back(store, first.id, now=NOW)
    assert whole(store) == TWO


def test_collecting_takes_what_nobody_reads(place: Place, tmp_path: Path) -> None:
    first = publish(place.open(), write_output(tmp_path / "one", ONE)).release
    second = publish(place.open(), write_output(tmp_path / "two", TWO)).release
    store = place.open()
    store.put(object_key("f" * 64), b"of a publisher that was killed")
    today = Collector(store, timedelta(days=7))
    assert (today.find().releases, today.find().objects) == ((), ())
    assert today.collect().files == ()
    # A month after the second release: nobody has read the first for longer than the grace period.
    later = Collector(
        store, timedelta(days=7), now=lambda: datetime.now(UTC) + timedelta(days=3650)
    )
    dry = later.find()
    assert dry.releases == (first.id,)
    gone = {object_key(hashlib.sha256(ONE["ann/short"]).hexdigest()), object_key("f" * 64)}
    assert set(dry.objects) == gone
    assert all(store.exists(key) for key in gone)
    assert later.collect() == dry
    assert not any(store.exists(key) for key in gone)
    assert whole(place.open()) == TWO
    assert dry.kept_releases == (second.id,)
    assert (later.find().releases, later.find().objects) == ((), ())
    with pytest.raises(NoSuchReleaseError, match="was collected"):
        roll_back(place.open(), first.id, now=NOW)
    publish(place.open(), tmp_path / "one")
    assert whole(place.open()) == ONE


def test_a_release_that_readers_had_lately_is_kept(tmp_path: Path) -> None:
    """However old it is: it was the one to read until a moment ago."""
    store = FolderStore(tmp_path / "published")
    first = publish(store, write_output(tmp_path / "one", ONE)).release
    publish(store, write_output(tmp_path / "two", TWO))
    made_old(tmp_path / "published", days=100)
    found = Collector(store, timedelta(days=7), now=lambda: NOW + timedelta(days=6)).find()
    assert (found.releases, found.objects) == ((), ())
    found = Collector(store, timedelta(days=7), now=lambda: NOW + timedelta(days=8)).find()
    assert found.releases == (first.id,)


def made_old(folder: Path, *, days: float) -> None:
    for path in folder.rglob("*"):
        at_s = (NOW - timedelta(days=days)).timestamp()
        os.utime(path, (at_s, at_s))


def test_a_kill_at_every_step_of_a_collection_harms_nobody(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=3650)
    step, ended = 0, False
    while not ended:
        step += 1
        folder = tmp_path / f"step-{step}"
        store = prepared(folder)
        publish(store, tmp_path / "two")
        counted = CountedStore(store)
        counted.fails_at, counted.stays_dead = step, True
        collector = Collector(counted, timedelta(days=7), now=lambda: later)
        try:
            collector.collect()
            ended = True
        except StoreError:
            assert whole(store) == TWO
        Collector(store, timedelta(days=7), now=lambda: later).collect()
        assert whole(store) == TWO
        assert len(list(store.list("objects/"))) == len(set(TWO.values()))
        assert len({facts.key.split("/")[1] for facts in store.list("releases/")}) == 1
    assert step > 8


def test_a_collection_that_meets_a_roll_back_gives_way(tmp_path: Path) -> None:
    store = prepared(tmp_path / "published")
    first = read_roster(store).release
    assert first is not None
    publish(store, tmp_path / "two")
    later = datetime.now(UTC) + timedelta(days=3650)
    collector = Collector(store, timedelta(days=7), now=lambda: later)
    assert collector.find().releases == (first.id,)

    class Late(Collector):
        def find(self, roster: Any = None) -> Any:
            garbage = Collector.find(self, roster)
            roll_back(store, garbage.releases[0], now=later)
            return garbage

    with pytest.raises(PublishRaceError):
        Late(store, collector.grace, now=collector.now).collect()
    assert whole(store) == ONE


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "current.json"),
        (b"[]", "current.json"),
        (b'{"number": 0}', "number"),
        (b'{"format": "other", "number": 1, "release": "x", "swapped_at": ""}', "format"),
        (
            b'{"format": "loudkit-roster-1", "number": 1, "release": "../x", "swapped_at": ""}',
            "is no release",
        ),
    ],
)
def test_a_broken_pointer_is_refused_by_name(tmp_path: Path, data: bytes, told: str) -> None:
    store = FolderStore(tmp_path)
    store.put(POINTER, data)
    with pytest.raises(RosterUnreadableError, match=told):
        read_roster(store)
    with pytest.raises(RosterUnreadableError):
        publish(store, write_output(tmp_path / "one", ONE))


def test_wrong_credentials_and_missing_buckets(weed_s3: S3Server, tmp_path: Path) -> None:
    from catalog.store import open_store

    bucket = weed_s3.new_bucket()
    with (
        weed_s3.credentials(AWS_SECRET_ACCESS_KEY="wrong"),
        pytest.raises(StoreDeniedError) as refused,
    ):
        open_store(f"s3://{bucket}/roster", endpoint_url=weed_s3.endpoint_url)
    assert "wrong" not in str(refused.value)
    with weed_s3.credentials(), pytest.raises(StoreMissingBucketError):
        open_store("s3://there-is-none/roster", endpoint_url=weed_s3.endpoint_url)


def test_more_objects_than_a_page_of_a_listing(weed_s3: S3Server, tmp_path: Path) -> None:
    """2,500 clips: three pages."""
    uri = f"s3://{weed_s3.new_bucket()}/roster"
    clips = {f"v{n // 50:02d}/p{n:04d}": f"clip {n}".encode() for n in range(2500)}
    folder = write_output(tmp_path / "many", clips)
    with weed_s3.credentials():
        assert publish(weed_s3.open(uri), folder).release.clips == 2500
        store = weed_s3.open(uri)
        roster = read_roster(store)
        assert roster.release is not None
        require_objects(store, roster.release)
        assert len(list(store.list("objects/"))) == 2500


def test_a_source_needs_its_file(tmp_path: Path) -> None:
    source = Source(tmp_path, open_source(write_output(tmp_path / "one", ONE)).records)
    assert source.audio("ann/short") == tmp_path / "audio/ann/short.flac"


def renamed(folder: Path, *pairs: tuple[str, str]) -> Path:
    """The same output, its records spelt otherwise."""
    for name in ("provenance.json", "catalog.json"):
        text = (folder / name).read_text(encoding="utf-8")
        for old, new in pairs:
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_copy_never_lies_where_another_file_does(tmp_path: Path) -> None:
    """Records of others may name the release's own files, a folder, or one path for two clips."""
    store = FolderStore(tmp_path / "published")
    old = renamed(
        write_output(tmp_path / "old", {"ann/short": b"old", "bob/long": b"bob"}),
        ('"passage": "short"', '"passage": "old"'),
        ('"short": {', '"old": {'),
        ("audio/bob/long.flac", "Release.json"),
    )
    (old / "Release.json").write_bytes(b"bob")
    publish(store, old, copies=True)
    new = renamed(
        write_output(tmp_path / "new", {"ann/short": b"new", "cat/x": b"cat", "dan/x": b"dan"}),
        ("audio/cat/x.flac", "audio/ann"),
        ("audio/dan/x.flac", "audio/ann/short.flac/more"),
    )
    records = open_source(new).records.clips
    names = copy_names({key: clip.record for key, clip in records.items()})
    assert names == {
        "ann/short": "audio/ann/short.flac",
        "cat/x": "audio/cat/x",
        "dan/x": "audio/dan/x",
    }
    done = publish(store, write_output(tmp_path / "newer", {"ann/short": b"new"}), copies=True)
    expected = {"audio/ann/short.flac": b"new", "audio/ann/old.flac": b"old"}
    expected["audio/bob/long.json"] = b"bob"
    for name, data in expected.items():
        assert store.get(release_key(done.release.id, name)).data == data
    assert whole(store).keys() == {"ann/short", "ann/old", "bob/long"}


def test_publishing_a_folder_still_names_what_is_not_renewed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "published")
    one = write_output(tmp_path / "one", ONE)
    source = open_source(one)
    told = {"ann/long": "stale, and could not be made", "eve/long": "gone with its audio"}
    about = facts_of_voices(source.records)
    choice = Choice(frozenset(ONE), about=about, not_renewed=told)
    publisher = Publisher(store, source, catalog="roster", algorithm_fingerprint="a" * 16)
    publisher.publish(lambda roster: choice)
    assert not publish(store, one).is_new
    assert publish(store, write_output(tmp_path / "two", TWO)).release.not_renewed == told
    assert publish(store, tmp_path / "two", remove_orphans=True).release.not_renewed == {
        "ann/long": told["ann/long"]
    }
    three = write_output(tmp_path / "three", {**TWO, "ann/long": b"at last"})
    assert publish(store, three).release.not_renewed == {}


def test_a_longer_grace_period_does_not_bring_back_what_another_collection_takes(
    tmp_path: Path,
) -> None:
    """The first one is still deleting when the second one begins."""
    store = prepared(tmp_path / "published")
    first = read_roster(store).release
    assert first is not None
    publish(store, tmp_path / "two")
    later = datetime.now(UTC) + timedelta(days=3650)
    slow = CountedStore(store)
    slow.fails_at, slow.stays_dead = calls_until_delete(store, later), True
    with pytest.raises(StoreError):
        Collector(slow, timedelta(days=7), now=lambda: later).collect()
    store.put(object_key("f" * 64), b"of a publisher that was killed")
    old_s = (datetime.now(UTC) - timedelta(days=20000)).timestamp()
    os.utime(tmp_path / "published" / object_key("f" * 64), (old_s, old_s))
    longer = Collector(store, timedelta(days=9000), now=lambda: later)
    assert first.id in longer.collect().kept_releases
    with pytest.raises(NoSuchReleaseError, match="was collected"):
        roll_back(store, first.id, now=NOW)


def calls_until_delete(store: Store, later: datetime) -> int:
    """The number of the first call that takes something away, found by one that never does."""
    counted = CountedStore(store)
    collector = Collector(counted, timedelta(days=7), now=lambda: later)
    collector.find()
    return len(counted.calls) + 2  # the pointer is swapped between


def test_a_pointer_that_cannot_remember_the_grace_period_keeps_all(tmp_path: Path) -> None:
    store = prepared(tmp_path / "published")
    first = read_roster(store).release
    assert first is not None
    second = publish(store, tmp_path / "two").release
    for _ in range(MAX_HISTORY // 2):
        publish_pointer(store, "000001-0123456789ab")
        publish_pointer(store, second.id)
    made_old(tmp_path / "published", days=100)
    collector = Collector(store, timedelta(days=7), now=lambda: NOW + timedelta(days=6))
    assert collector.find().releases == ()
    after = Collector(store, timedelta(days=7), now=lambda: NOW + timedelta(days=8))
    assert first.id in after.find().releases


def publish_pointer(store: Store, release: str) -> None:
    """Only the pointer, as somebody who goes back and forth would leave it."""
    stored = store.get(POINTER)
    pointer = read_pointer(stored.data, POINTER).moved(release, utc(NOW))
    assert store.compare_and_swap(POINTER, pointer_bytes(pointer), stored.etag)


def test_a_publisher_whose_clock_is_slow_takes_nothing_from_readers(tmp_path: Path) -> None:
    """It says that readers left the release long ago; the store knows when they got the next."""
    store = prepared(tmp_path / "published")
    releases = [read_roster(store).release]
    for name, data in (("two", TWO), ("three", {**TWO, "bob/short": b"once more"})):
        releases.append(publish(store, write_output(tmp_path / name, data)).release)
    first, second, _ = [release.id for release in releases if release]
    slow = store.get(POINTER).data.replace(b'"2030-', b'"2000-')
    assert store.compare_and_swap(POINTER, slow, store.get(POINTER).etag)
    today = datetime.now(UTC)
    for path in (tmp_path / "published").rglob("*"):
        if first in path.parts or (second in path.parts and path.name != "release.json"):
            os.utime(path, (0, 0))
    collector = Collector(store, timedelta(days=7), now=lambda: today)
    assert collector.find().releases == ()
    made_old(tmp_path / "published", days=365 * 10)
    assert collector.find().releases == (first, second)


@pytest.mark.parametrize("name", ["catalog.json", "provenance.json"])
def test_nobody_goes_back_to_records_that_are_altered(tmp_path: Path, name: str) -> None:
    store = prepared(tmp_path / "published")
    first = read_roster(store).release
    assert first is not None
    publish(store, tmp_path / "two")
    key = release_key(first.id, name)
    store.put(key, store.get(key).data[:-2])
    with pytest.raises(NoSuchReleaseError, match="is not what was published"):
        roll_back(store, first.id, now=NOW)
    assert whole(store) == TWO
