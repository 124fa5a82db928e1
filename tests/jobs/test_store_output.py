"""A job whose output is a store: the same objects as a folder's files, after any failing call.

The calls are counted and failed between the job and the store; what a store does with servers that
fail is tested with the store.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from catalog.errors import CatalogError
from catalog.folder_store import FolderStore
from catalog.store import Store
from jobs.errors import JobError, OutputBusyError
from jobs.lease import Lease, StoreLease
from jobs.output_lock import OutputLock
from jobs.segments import read_rows
from tests.jobs.conftest import Outcome
from tests.jobs.test_job import render_to, tree, write
from tests.s3_server import S3Server
from tests.store_calls import ADDRESS, CountedStore

PASSAGES = 2


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedStore:
    """What s3://bucket/prefix is in this test, over a folder; runs start in an empty folder."""
    counted = CountedStore(FolderStore(tmp_path / "bucket"))
    monkeypatch.setattr("catalog.store.open_store", lambda *_, **__: counted)
    # A lease that a failed run leaves names this very process, which lives: it is watched.
    monkeypatch.setattr("jobs.render.OutputLock", partial(OutputLock, stale_after_s=0.1))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return counted


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the same job in a folder."""
    folder = tmp_path_factory.mktemp("undisturbed")
    render_to(write(folder, passages=PASSAGES), str(folder / "out"))
    return tree(folder / "out")


def test_a_store_holds_what_a_folder_would(
    tmp_path: Path, store: CountedStore, undisturbed: dict[str, bytes]
) -> None:
    catalog = write(tmp_path, passages=PASSAGES)
    first = render_to(catalog, ADDRESS)
    assert (first.counts.rendered, first.out) == (2 * PASSAGES, ADDRESS)
    assert tree(tmp_path / "bucket") == undisturbed
    report = json.loads((tmp_path / "bucket" / "report.json").read_text())
    assert report == first.report
    again = render_to(catalog, ADDRESS)
    assert (again.counts.rendered, again.counts.reused) == (0, 2 * PASSAGES)
    # Another machine has no mirror, and needs none.
    shutil.rmtree("out")
    elsewhere = render_to(catalog, ADDRESS)
    assert (elsewhere.counts.rendered, elsewhere.counts.reused) == (0, 2 * PASSAGES)
    # A clip that is gone from the store is made again, and nothing else.
    (tmp_path / "bucket" / "audio" / "slt" / "p01.flac").unlink()
    mended = render_to(catalog, ADDRESS)
    assert (mended.counts.rendered, mended.counts.reused) == (1, 2 * PASSAGES - 1)
    assert tree(tmp_path / "bucket") == undisturbed


def test_a_mirror_of_a_store_that_was_emptied_is_not_believed(
    tmp_path: Path, store: CountedStore, undisturbed: dict[str, bytes]
) -> None:
    catalog = write(tmp_path, passages=PASSAGES)
    render_to(catalog, ADDRESS)
    shutil.rmtree(tmp_path / "bucket")
    again = render_to(catalog, ADDRESS)
    assert again.counts.rendered == 2 * PASSAGES
    assert tree(tmp_path / "bucket") == undisturbed


@pytest.mark.parametrize("arrives", [False, True], ids=["never arrived", "answer lost"])
def test_every_call_may_fail_once(
    tmp_path: Path, store: CountedStore, undisturbed: dict[str, bytes], arrives: bool
) -> None:
    catalog = write(tmp_path, passages=PASSAGES)
    render_to(catalog, ADDRESS)
    count = len(store.calls)
    assert {"put", "put_new", "compare_and_swap", "list", "get", "delete"} <= set(store.calls)
    refused = 0
    for at in range(1, count + 1):
        shutil.rmtree(tmp_path / "bucket")
        shutil.rmtree("out")
        store.calls.clear()
        store.fails_at, store.arrives = at, arrives
        refused += _is_refused(lambda: render_to(catalog, ADDRESS))
        failed_call = store.calls[at - 1]
        store.fails_at = 0
        resumed = render_to(catalog, ADDRESS)
        assert resumed.counts.failed == 0
        assert tree(tmp_path / "bucket") == undisturbed, (at, failed_call)
        finished = [
            row["render_key"]
            for row in read_rows(tmp_path / "bucket" / "ledger")
            if row["kind"] == "finished"
        ]
        assert len(set(finished)) == 2 * PASSAGES
    assert refused > count / 2


def _is_refused(run: Callable[[], object]) -> bool:
    """Whether a run was refused, which it may only be by a typed error of one line."""
    told = None
    try:
        run()
    except (CatalogError, JobError) as error:
        told = str(error)
    assert told is None or "\n" not in told
    return told is not None


def _machines(store: Store) -> Iterator[OutputLock]:
    for name in ("here", "there"):
        yield OutputLock(
            StoreLease(store), address=ADDRESS, machine=name, heartbeat_s=0.01, stale_after_s=2.0
        )


def test_two_machines_do_not_render_into_one_store(tmp_path: Path) -> None:
    here, there = _machines(FolderStore(tmp_path / "bucket"))
    with here, pytest.raises(OutputBusyError, match=r"s3://bucket/prefix: job \d+ on"), there:
        pass


def test_a_lease_whose_process_is_gone_is_taken_at_once(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "bucket")
    dead = Lease(owner="dead", machine="here", host="here", pid=2**22 + 1, beat=1)
    assert StoreLease(store).write(dead)
    slept: list[float] = []
    lock = OutputLock(StoreLease(store), address=ADDRESS, machine="here", sleep=slept.append)
    with lock:
        lock.require_held()
    assert slept == []


@pytest.mark.parametrize("pid", [10**30, -(10**30)])
def test_a_lease_of_no_process_that_can_be_is_watched(store: CountedStore, pid: int) -> None:
    lease = Lease(owner="another", machine="here", host="a-machine", pid=pid, beat=5)
    assert not StoreLease(store).is_dead(lease, "here")


def test_plan_and_status_of_a_store_leave_no_trace(
    tmp_path: Path, store: CountedStore, loudkit: Callable[..., Outcome]
) -> None:
    catalog = write(tmp_path, passages=PASSAGES)
    render_to(catalog, ADDRESS)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    planned = loudkit("plan", str(catalog), "--out", ADDRESS, "--summary")
    assert planned.stdout.startswith(f"0 of {2 * PASSAGES} renders to make"), planned
    status = loudkit("status", ADDRESS, "--json")
    assert status.last_json["finished"] == 2 * PASSAGES
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_real_server_holds_what_a_folder_would(
    tmp_path: Path,
    weed_s3: S3Server,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through boto3 and a server that was not written for this."""
    monkeypatch.chdir(tmp_path)
    for name, value in weed_s3.environment().items():
        monkeypatch.setenv(name, value)
    address = f"s3://{weed_s3.new_bucket()}/roster"
    catalog = write(tmp_path, passages=PASSAGES)
    first = render_to(catalog, address, endpoint_url=weed_s3.endpoint_url)
    assert (first.counts.rendered, first.out) == (2 * PASSAGES, address)
    store = weed_s3.open(address)
    for facts in store.list():
        store.get_to(facts.key, tmp_path / "copy" / facts.key)
    assert tree(tmp_path / "copy") == undisturbed
    shutil.rmtree("out")
    again = render_to(catalog, address, endpoint_url=weed_s3.endpoint_url)
    assert (again.counts.rendered, again.counts.reused) == (0, 2 * PASSAGES)
