"""`make demo-rebuild`: a roster on a real S3 server, one text changed, rebuilt and verified.

Every step is the command line as a user types it. The server is a SeaweedFS on loopback, with a
folder of its own, and gone at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.s3_server import S3Server, running_weed, weed_program

_CATALOG = {
    "catalog": "roster",
    "pack": "starter",
    "defaults": {"seed": 7, "language": "en", "format": "flac"},
    "voices": [
        {
            "name": name,
            "display_name": name.title(),
            "speaker": name,
            "source": {
                "name": "The starter pack",
                "url": "https://example.org/starter",
                "license": "Apache-2.0",
                "consent": "a machine has none to give",
            },
        }
        for name in ("slt", "rms")
    ],
    "passages": [
        {"id": "short", "text": "Good morning. Take a moment to settle in."},
        {"id": "long", "text": "The room was quiet when she opened the letter, and she smiled."},
    ],
}


def main() -> int:
    """All steps; the exit code of the first that does not end as it should."""
    with running_weed(weed_program()) as server, tempfile.TemporaryDirectory() as scratch:
        return _Demo(server, Path(scratch)).run()


class _Demo:
    def __init__(self, server: S3Server, folder: Path) -> None:
        self._environment = {**os.environ, **server.environment()}
        self._endpoint = ("--endpoint-url", server.endpoint_url)
        self._published = f"s3://{server.new_bucket()}/roster"
        self._catalog, self._out = folder / "catalog.yaml", folder / "work"

    def run(self) -> int:
        """Publish, change one text, rebuild, verify."""
        catalog, out, published = str(self._catalog), str(self._out), self._published
        rebuild = ("rebuild", catalog, "--published", published, "--out", out, *self._endpoint)
        plan = ("plan", catalog, "--published", published, *self._endpoint)
        self._write(_CATALOG)
        steps = [
            ("render", catalog, "--out", out),
            ("publish", out, published, *self._endpoint),
            rebuild,
        ]
        changed = json.loads(json.dumps(_CATALOG))
        changed["passages"][0]["text"] = "Good evening. Take a moment to settle in."
        after = [
            plan,
            rebuild,
            ("verify", published, "--rerender", "1", *self._endpoint),
            plan,
        ]
        for step in steps:
            if code := self._step(*step):
                return code
        self._write(changed)
        print("\n# the text of one passage is changed", flush=True)
        for step in after:
            if code := self._step(*step):
                return code
        return 0

    def _write(self, catalog: object) -> None:
        self._catalog.write_text(json.dumps(catalog, indent=1), encoding="utf-8")  # JSON is YAML

    def _step(self, *arguments: str) -> int:
        print(f"\n$ loudkit-batch {' '.join(arguments)}", flush=True)
        command = [sys.executable, "-m", "jobs.cli", *arguments]
        return subprocess.run(command, env=self._environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
