"""Publishing, going back and collecting in any order, with kills anywhere, by any clocks.

A reader who got a release within the grace period finds all of it, whoever did what meanwhile.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from catalog.collect import Collector
from catalog.errors import CatalogError
from catalog.publish import Publisher
from catalog.publish_folder import FolderChoice, facts_of_voices, newest_algorithm, open_source
from catalog.releases import require_objects, roll_back
from catalog.roster import object_key, read_records_of, read_roster, release_key, release_of
from catalog.store_errors import StoreError
from tests.memory_store import MemoryStore
from tests.outputs import write_output
from tests.store_calls import CountedStore

GRACE_DAYS = 7
START = datetime(2030, 1, 1, tzinfo=UTC)
_DAY_S = 24 * 60 * 60.0
_CLIPS = ("ann/short", "ann/long", "bob/short")
_MAKES = st.dictionaries(st.sampled_from(_CLIPS), st.sampled_from((b"1", b"2", b"3")), min_size=1)
_KILLED = st.one_of(st.none(), st.tuples(st.integers(1, 40), st.booleans()))
_SLOW_DAYS = st.sampled_from((0, 0, 20))


class Publishing(RuleBasedStateMachine):
    """What people and schedulers do to one place."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.folder = Path(tempfile.mkdtemp())
        self.count = 0
        self.day = 0
        self.read: dict[str, int] = {}
        """The last day on which readers got a release."""

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def today(self) -> datetime:
        return START + timedelta(days=self.day)

    def see(self) -> None:
        """Readers come all the time."""
        with contextlib.suppress(CatalogError):
            roster = read_roster(self.store)
            if roster.release:
                self.read[roster.release.id] = self.day

    def mortal(self, killed: tuple[int, bool] | None) -> Any:
        store = CountedStore(self.store)
        if killed is not None:
            (store.fails_at, store.arrives), store.stays_dead = killed, True
        return store

    @initialize()
    def begin(self) -> None:
        self.store.now_s = START.timestamp()
        self.make(dict.fromkeys(_CLIPS, b"0"), None, 0, False, False)

    @rule(days=st.integers(1, 12))
    def wait(self, days: int) -> None:
        self.day += days
        self.store.now_s = START.timestamp() + self.day * _DAY_S
        self.see()

    @rule(
        clips=_MAKES,
        killed=_KILLED,
        slow=_SLOW_DAYS,
        copies=st.booleans(),
        remove=st.booleans(),
    )
    def make(
        self,
        clips: dict[str, bytes],
        killed: tuple[int, bool] | None,
        slow: int,
        copies: bool,
        remove: bool,
    ) -> None:
        """Somebody publishes, perhaps by a slow clock, and is perhaps killed."""
        self.count += 1
        source = open_source(write_output(self.folder / str(self.count), clips))
        store = self.mortal(killed)
        choose = FolderChoice(store, source, remove, facts_of_voices(source.records))
        publisher = Publisher(
            store,
            source,
            catalog="roster",
            algorithm_fingerprint=newest_algorithm(source.records),
            copies=copies,
            now=lambda: self.today - timedelta(days=slow),
        )
        try:
            publisher.publish(choose)
        except StoreError:
            assert killed is not None
        self.see()

    @rule(data=st.data(), killed=_KILLED, slow=_SLOW_DAYS)
    def go_back(self, data: st.DataObject, killed: tuple[int, bool] | None, slow: int) -> None:
        known = sorted({key.split("/")[1] for key in self.store.objects if "releases/" in key})
        release = data.draw(st.sampled_from(known))
        with contextlib.suppress(CatalogError):
            roll_back(self.mortal(killed), release, now=self.today - timedelta(days=slow))
        self.see()

    @rule(killed=_KILLED, grace=st.sampled_from((GRACE_DAYS, 30)))
    def collect(self, killed: tuple[int, bool] | None, grace: int) -> None:
        collector = Collector(self.mortal(killed), timedelta(days=grace), now=lambda: self.today)
        try:
            collector.collect()
        except StoreError:
            assert killed is not None

    @invariant()
    def readers_find_all_of_what_they_got_lately(self) -> None:
        current = read_roster(self.store).release
        lately = {name for name, day in self.read.items() if self.day - day < GRACE_DAYS}
        for name in lately | ({current.id} if current else set()):
            release = release_of(self.store, name)
            require_objects(self.store, release)
            records = read_records_of(self.store, release_key(name, ""), required=True)
            for clip in records.clips.values():
                assert self.store.exists(object_key(clip.record.sha256))
            assert len(records.clips) == release.clips


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
