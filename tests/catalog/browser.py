"""A headless Chromium for pages, and a small web server that behaves as one is told to."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_S = 20
"""How long anything may take that a test waits for; nothing takes a tenth of it."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    # No name has an address: a request that leaves this machine is an error on the console.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Started once for many pages. Skips the test where there is none; in CI it must be there."""
    program = chromium_program()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _do_without("playwright, of the dev extra, is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


def chromium_program() -> str:
    """The program; skips the test where there is none, except in CI, where it must be there."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    return program or _do_without(f"there is no {', '.join(PROGRAMS)} on PATH")


def _do_without(missing: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must open the page in a browser: {missing}")
    pytest.skip(missing)


@contextmanager
def visit(
    browser: Browser, address: str, *, expected: str | None = None, **options: Any
) -> Iterator[Page]:
    """The page at an address, in a context of its own with those options.

    Fails at the end if anything was said on the console (but what `expected` matches), any policy
    was broken, or anything was asked for outside of the address's own server or folder.
    """
    context = browser.new_context(**options)
    page = context.new_page()
    faults: list[str] = []
    asked: list[str] = []
    page.on("console", lambda said: faults.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))
    page.on("request", lambda request: asked.append(request.url))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', (event) =>"
        " console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"
    )
    try:
        page.goto(address)
        yield page
    finally:
        context.close()
    own = re.match(r"https?://[^/]+/|file:///", address)
    assert own is not None, address
    elsewhere = [url for url in asked if not url.startswith((own[0], "data:", "blob:"))]
    assert not elsewhere, elsewhere
    faults = [told for told in faults if not (expected and re.search(expected, told))]
    assert not faults, faults


def until(page: Page, expression: str, given: Any = None) -> None:
    """Wait for an expression to be true. (Playwright's own way evaluates a text within the page,
    which the page's policy forbids.)"""
    last = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression, given):
        assert time.monotonic() < last, f"never came true: {expression}"
        page.wait_for_timeout(20)


# -- a web server ----------------------------------------------------------------------------------

TypeOf = Callable[[Path], str | None]
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".flac": "audio/flac",
    ".wav": "audio/wav",
    ".opus": "audio/ogg",
    ".mp3": "audio/mpeg",
}


def by_suffix(path: Path) -> str | None:
    """What a careful server says of a file."""
    return _TYPES.get(path.suffix, "application/octet-stream")


@contextmanager
def served(
    folder: Path,
    *,
    ranges: bool,
    type_of: TypeOf = by_suffix,
    headers: tuple[tuple[str, str], ...] = (),
) -> Iterator[str]:
    """The address under which a folder is served on loopback, with or without ranges of bytes."""
    handler = partial(_Handler, folder, ranges, type_of, headers)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(
        self,
        folder: Path,
        ranges: bool,
        type_of: TypeOf,
        headers: tuple[tuple[str, str], ...],
        *arguments: Any,
    ) -> None:
        self._folder, self._ranges, self._type_of = folder, ranges, type_of
        self._headers = headers
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = self._folder / unquote(urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data, size = path.read_bytes(), path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked and self._ranges:
            first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
            if first >= size:
                self.send_error(416)
                return
            data = data[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        else:
            self.send_response(200)
        if self._ranges:
            self.send_header("Accept-Ranges", "bytes")
        if told := self._type_of(path):
            self.send_header("Content-Type", told)
        for name, value in self._headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self) -> None:
        with suppress(ConnectionError):  # a player that has heard enough hangs up
            super().handle()

    def log_message(self, format: str, *arguments: Any) -> None:
        """In silence."""
