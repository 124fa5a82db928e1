"""Fixtures of the whole suite: one loaded engine, one Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.s3_server import moto_s3 as moto_s3
from tests.s3_server import weed_s3 as weed_s3

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.pack import Pack

ROOT = Path(__file__).parent.parent

# Ray reads these when it is imported, whichever test imports it first.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", "a-token-of-this-test-session-only")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests with Ray run in one process, one after the other, however many there are."""
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="session")
def starter() -> Pack:
    """The embedded pack, opened."""
    from engine.pack import open_pack

    return open_pack("starter")


@pytest.fixture(scope="session")
def engine(starter: Pack) -> Engine:
    """The embedded pack, loaded as a worker loads it."""
    from engine.engine import load_engine
    from engine.execution import ExecutionConfig

    return load_engine(starter, ExecutionConfig(), slots=16)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One Ray for the whole session: fleets join it and leave it running."""
    import ray

    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
    )
    yield
    ray.shutdown()
