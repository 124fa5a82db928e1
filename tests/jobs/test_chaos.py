"""Kills at random moments over real Ray: actors, the driver, a machine of the cluster.

After each round the same command finishes the job, and what it leaves is the undisturbed run's:
files, hashes and records, moments and the names of workers aside.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.segments import read_rows
from tests.fakes import InProcessFleet
from tests.jobs.chaos import KilledFleet, SlowRenderer, render
from tests.jobs.test_job import tree, write

pytestmark = pytest.mark.ray
PASSAGES = 30
RENDERS = 2 * PASSAGES
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run leaves that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    render(write(folder, passages=PASSAGES), folder / "out", workers=1, fleet=InProcessFleet)
    return tree(folder / "out")


def doubled(out: Path) -> int:
    """Renders that were finished more than once."""
    finished = [row["render_key"] for row in read_rows(out / "ledger") if row["kind"] == "finished"]
    return len(finished) - len(set(finished))


def windows_made_again(out: Path) -> int:
    """Windows that were committed more than once."""
    made = [
        (row["content_key"], row["execution"], row["chunk_index"], row["half"])
        for row in read_rows(out / "ledger")
        if row["kind"] == "window"
    ]
    return len(made) - len(set(made))


def kill_actors(folder: Path, seed: int, undisturbed: dict[str, bytes]) -> int:
    """A run whose workers are killed now and then; how many were."""
    folder.mkdir()
    fleets: list[KilledFleet] = []

    def fleet(spec: object, **given: object) -> KilledFleet:
        fleets.append(KilledFleet(spec, seed=seed, kills=2, renderer=SlowRenderer, **given))
        return fleets[-1]

    catalog = write(folder, passages=PASSAGES)
    result = render(catalog, folder / "out", workers=2, fleet=fleet)
    counts = result.counts
    assert counts.planned == counts.rendered + counts.reused + counts.failed
    # Two kills are not enough to call a passage poisonous: that takes two with it alone, and one
    # before that to be suspected.
    assert counts.failed == 0
    assert tree(folder / "out") == undisturbed
    assert doubled(folder / "out") == 0
    return fleets[0].killed


def kill_driver(folder: Path, seed: int, undisturbed: dict[str, bytes]) -> tuple[int, int]:
    """SIGKILL for a driver on its way, then a resume; kills, and windows that were made again."""
    folder.mkdir()
    write(folder, passages=PASSAGES)
    command = [sys.executable, "-m", "tests.jobs.chaos", "driver", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": ""}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        lease = folder / "out" / "ledger" / "lease.json"
        while process.poll() is None and not any(lease.parent.glob("segment-*")):
            time.sleep(0.02)  # until something is committed
        time.sleep(random.Random(seed).uniform(0.0, 1.0))
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
    render(folder / "catalog.yaml", folder / "out", workers=2, fleet=InProcessFleet)
    assert tree(folder / "out") == undisturbed
    assert doubled(folder / "out") == 0
    return int(killed), windows_made_again(folder / "out")


def lose_node(folder: Path, nodes: int, seed: int, undisturbed: dict[str, bytes]) -> str:
    """A cluster that loses a machine; what the run said."""
    folder.mkdir()
    write(folder, passages=PASSAGES)
    command = [sys.executable, "-m", "tests.jobs.chaos", "nodes", str(folder), str(nodes)]
    # The cluster is its own: it must not be taken for the one that the test session runs.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(
        [*command, str(seed)],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(rf"lost=True deaths=[1-9]\d* rendered={RENDERS}", told), told
    assert tree(folder / "out") == undisturbed
    assert doubled(folder / "out") == 0
    return told


@pytest.mark.parametrize("seed", range(3))
def test_workers_killed_at_random(
    tmp_path: Path, undisturbed: dict[str, bytes], ray_session: None, seed: int
) -> None:
    assert kill_actors(tmp_path / "round", seed, undisturbed) >= 1


def test_a_driver_killed_at_random(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    killed, _ = kill_driver(tmp_path / "round", 1, undisturbed)
    assert killed


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_cluster_that_loses_a_machine(
    tmp_path: Path, undisturbed: dict[str, bytes], nodes: int
) -> None:
    lose_node(tmp_path / "round", nodes, nodes, undisturbed)


@pytest.mark.slow
def test_many_rounds(
    tmp_path: Path,
    undisturbed: dict[str, bytes],
    ray_session: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The long form: its figures are printed."""
    again, kills, nodes = 0, 0, 0
    for seed in range(100, 120):
        kills += kill_actors(tmp_path / f"actors-{seed}", seed, undisturbed)
    drivers = range(200, 210)
    for seed in drivers:
        killed, repeated = kill_driver(tmp_path / f"driver-{seed}", seed, undisturbed)
        kills, again = kills + killed, again + repeated
    for seed in range(300, 306):
        lose_node(tmp_path / f"nodes-{seed}", 2 + seed % 2, seed, undisturbed)
        nodes += 1
    with capsys.disabled():
        print(
            f"\n36 rounds: {kills} processes and {nodes} machines killed; windows made again by "
            f"resumes {again}; lost 0, duplicated 0, differing bytes 0"
        )
