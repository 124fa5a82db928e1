"""Fixtures of the room's tests."""

from __future__ import annotations

import os

import pytest

from jobs.cli import main
from tests.infra import commands as found_in
from tests.infra.place import OURS, Place


@pytest.fixture(scope="session")
def place(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """With the catalog rendered and, where this build can, published, by the files' commands."""
    here = Place(tmp_path_factory.mktemp("place"))
    by_name = {found_in.first_word(command): command for command in OURS}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "RAY_ADDRESS"))]:
            patch.delenv(name)
        here.run(by_name["render"])
        assert (here.work / "audio" / "slt" / "short.flac").is_file()
        if "rebuild" in main.commands:
            here.run(by_name["rebuild"])
    return here
