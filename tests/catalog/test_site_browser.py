"""The listening page in a real browser: it plays, filters and is read, from a file and a server.

Texts in the page are not looked at here but by `test_site.py`; this is about what a browser makes
of them. Every visit fails if anything is said on the console or asked for from elsewhere.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from catalog.site import build_page
from catalog.site_listing import STALE, AudioUrl, State, by_path, by_sha256
from engine.audio import FORMATS, Pcm, encode, picture
from tests.catalog.browser import by_suffix, chromium, chromium_program, served, until, visit
from tests.catalog.test_site import BEFORE, HOSTILE, listing, sample, voice

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from engine.engine import Engine

RATE_HZ = 24_000
LENGTH_TOLERANCE_S = 0.1
"""MP3 and Opus come in frames, and a player may count the silence they put before and after."""

TEXTS = {"slt": ("en", "Good morning."), "rms": ("da", "Nobody answered the telephone.")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def spoken(browser: Browser, engine: Engine) -> dict[str, Pcm]:
    """A passage of each of two voices, as the engine speaks it. (After the browser, which may not
    be there: then nothing is rendered.)"""
    from engine.contracts.contract import Conditioning
    from engine.events import PassageEvent, PassageJob
    from engine.session import Session

    session = Session(engine, slots=4)
    for name, (_, text) in TEXTS.items():
        session.submit(PassageJob(name, text, Conditioning(name), 7, "en", "wav"))
    events = []
    while session.in_flight:
        events += session.advance()
    session.close()
    files = {event.key: event.audio for event in events if isinstance(event, PassageEvent)}
    return {name: np.frombuffer(files[name][44:], "<i2").astype(np.int16) for name in TEXTS}


def roster(spoken: dict[str, Pcm], folder: Path, *, as_objects: bool = False) -> list[Any]:
    """Two voices with a clip in every format there is, whose audio is put into `folder`."""
    voices = []
    for name, (language, text) in TEXTS.items():
        clips = {}
        for number, (kind, known) in enumerate(FORMATS.items()):
            pcm = spoken[name]
            data = encode(pcm, sample_rate_hz=RATE_HZ, format=kind)
            digest = hashlib.sha256(data).hexdigest()
            path = f"objects/{digest}" if as_objects else f"audio/{name}/{kind}{known.extension}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            clips[kind] = sample(
                *(name, kind, text),
                audio=f"audio/{name}/{kind}{known.extension}",
                sha256=digest,
                duration_seconds=len(pcm) / RATE_HZ,
                waveform=b64encode(picture(pcm)).decode(),
                seed=1000 + number,
                **({"algorithm_fingerprint": BEFORE} if kind == "mp3" else {}),
            )
        words = {"en": "English", "da": "Danish"}[language]
        voices.append(voice(name, clips, language=words, language_id=language))
    return voices


def write_page(path: Path, voices: list[Any], **more: Any) -> str:
    """The page of these voices as a file; its address."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(build_page(listing(*voices, **more))))
    return path.as_uri()


@dataclass(frozen=True)
class Output:
    """An output folder with a page."""

    folder: Path
    voices: list[Any]

    @property
    def address(self) -> str:
        return (self.folder / "site" / "index.html").as_uri()


@pytest.fixture(scope="module")
def output(spoken: dict[str, Pcm], tmp_path_factory: pytest.TempPathFactory) -> Output:
    folder = tmp_path_factory.mktemp("a folder #1 with é?") / "out"
    voices = roster(spoken, folder)
    write_page(folder / "site" / "index.html", voices)
    return Output(folder, voices)


@contextmanager
def address_of(folder: Path, page: str, how: str, **options: Any) -> Iterator[str]:
    """The address of a page in a folder: as a file, or from a server with ranges or without."""
    if how == "file":
        yield (folder / page).as_uri()
    else:
        with served(folder, ranges=how == "ranges", **options) as root:
            yield f"{root}/{page}"


def test_without_a_browser_tests_are_skipped_by_name_and_ci_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.catalog.browser.shutil.which", lambda _: None)
    for ci, outcome in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="no chromium, chromium-browser, google-chrome on PATH"):
            chromium_program()


# -- players ---------------------------------------------------------------------------------------

LENGTHS = """() => Promise.all([...document.querySelectorAll("audio")].map((audio) =>
  new Promise((done) => {
    const tell = () => {
      if (audio.error) done(`${audio.src}: ${audio.error.code} ${audio.error.message}`);
      else if (Number.isFinite(audio.duration)) done(audio.duration);
    };
    audio.addEventListener("durationchange", tell);
    audio.addEventListener("error", tell);
    setTimeout(() => done(`${audio.src}: a length of ${audio.duration}`), 20000);
    audio.preload = "metadata";
    audio.load();
  })))"""


def lengths(page: Page) -> list[Any]:
    """The length of every clip as its player finds it, or what is wrong with it."""
    found: list[Any] = page.evaluate(LENGTHS)
    return found


def recorded(voices: list[Any]) -> list[Any]:
    """What the lengths should be, as far as formats allow."""
    each = [sample for about in voices for sample in about["sample"].values()]
    return [pytest.approx(clip["duration_seconds"], abs=LENGTH_TOLERANCE_S) for clip in each]


@pytest.mark.parametrize("how", ["file", "ranges", "whole"])
def test_every_player_knows_the_length_of_its_clip(
    browser: Browser, output: Output, how: str
) -> None:
    with (
        address_of(output.folder, "site/index.html", how) as address,
        visit(browser, address) as page,
    ):
        assert page.locator("audio").count() == 2 * len(FORMATS)
        assert lengths(page) == recorded(output.voices)


TYPES = {
    "as it is": by_suffix,
    "as bytes": lambda path: "text/html" if path.suffix else "application/octet-stream",
    "as S3's bytes": lambda path: "text/html" if path.suffix else "binary/octet-stream",
    "as nothing": lambda path: "text/html" if path.suffix else None,
}


@pytest.mark.parametrize(
    ("how", "told"),
    [("file", "as it is"), *((how, told) for how in ("ranges", "whole") for told in TYPES)],
)
def test_a_release_plays_objects_that_are_named_by_their_hash(
    browser: Browser, spoken: dict[str, Pcm], tmp_path: Path, how: str, told: str
) -> None:
    voices = roster(spoken, tmp_path, as_objects=True)
    write_page(
        tmp_path / "releases" / "7" / "index.html", voices, audio_url=by_sha256("../../objects/")
    )
    options = {"type_of": TYPES[told], "headers": (("X-Content-Type-Options", "nosniff"),)}
    with (
        address_of(tmp_path, "releases/7/index.html", how, **options) as address,
        visit(browser, address) as page,
    ):
        assert lengths(page) == recorded(voices)


def test_a_release_plays_copies_beside_its_page(
    browser: Browser, spoken: dict[str, Pcm], tmp_path: Path
) -> None:
    voices = roster(spoken, tmp_path / "releases" / "7")
    address = write_page(
        tmp_path / "releases" / "7" / "index.html", voices, audio_url=by_path("./")
    )
    with visit(browser, address) as page:
        assert lengths(page) == recorded(voices)


def test_a_clip_that_is_missing_is_told_of(
    browser: Browser, output: Output, tmp_path: Path
) -> None:
    write_page(tmp_path / "site" / "index.html", output.voices)
    with (
        served(tmp_path, ranges=True) as root,
        visit(browser, f"{root}/site/index.html", expected="404") as page,
    ):
        page.locator("audio").first.evaluate("audio => { audio.play().catch(() => {}) }")
        page.locator(".fault").wait_for()
        assert "cannot be played" in page.locator(".fault").inner_text()
        assert page.locator(".fault").count() == 1


def test_one_clip_plays_at_a_time_and_the_next_when_asked(browser: Browser, output: Output) -> None:
    with visit(browser, output.address) as page:
        first, second, third = (page.locator("audio").nth(n) for n in range(3))
        first.evaluate("audio => audio.play()")
        second.evaluate("audio => audio.play()")
        assert first.evaluate("audio => audio.paused")
        assert page.locator(".clip.playing").count() == 1
        page.get_by_label("Keep playing").check()
        second.evaluate("audio => { audio.currentTime = audio.duration - 0.05 }")
        until(page, "audio => !audio.paused", third.element_handle())
        assert second.evaluate("audio => audio.paused")


# -- pictures --------------------------------------------------------------------------------------


def test_every_clip_has_a_picture_that_shows_what_was_heard(
    browser: Browser, output: Output
) -> None:
    with visit(browser, output.address) as page:
        assert page.locator(".wave").count() == 2 * len(FORMATS)
        wave = page.locator(".wave").first
        box = wave.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 30
        drawn = wave.locator("path").first.bounding_box()
        assert drawn is not None
        assert drawn["width"] == pytest.approx(box["width"], rel=0.02)
        assert drawn["height"] == pytest.approx(box["height"] / 2, rel=0.05)
        mirrored = wave.locator("use").first.bounding_box()
        assert mirrored is not None
        assert mirrored["y"] == pytest.approx(drawn["y"] + drawn["height"], abs=1)
        assert wave.locator("svg").count() == 0
        wave.click(position={"x": box["width"] * 0.5, "y": box["height"] * 0.5})
        audio = page.locator("audio").first
        until(page, "audio => audio.currentTime > 0", audio.element_handle())
        at, length = audio.evaluate("audio => [audio.currentTime, audio.duration]")
        assert at >= 0.49 * length
        until(page, "audio => audio.ended", audio.element_handle())
        heard = wave.locator("svg")
        assert heard.count() == 1
        assert float(heard.get_attribute("width") or 0) == pytest.approx(121, rel=0.02)
        assert page.evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size")


# -- what is shown ---------------------------------------------------------------------------------


def shown(page: Page) -> list[str]:
    """The clips that can be seen, as voice and passage."""
    texts: list[str] = page.evaluate(
        "[...document.querySelectorAll('.clip')].filter((clip) => clip.getClientRects().length)"
        ".map((clip) => clip.querySelector('h3').textContent)"
    )
    return texts


def test_filters_by_language_state_and_words(browser: Browser, output: Output) -> None:
    kinds = list(FORMATS)
    with visit(browser, output.address) as page:
        language, state = page.get_by_label("Language"), page.get_by_label("State")
        search, count = page.get_by_label("Search"), page.locator("output")
        assert shown(page) == [f"{name} {kind}" for name in ("Slt", "Rms") for kind in kinds]
        assert count.inner_text() == "All 8 clips"
        language.select_option(label="Danish")
        assert shown(page) == [f"Rms {kind}" for kind in kinds]
        assert count.inner_text() == "4 of 8 clips"
        state.select_option(label="Made under another algorithm")
        assert shown(page) == ["Rms mp3"]
        language.select_option(label="Any language")
        assert shown(page) == ["Slt mp3", "Rms mp3"]
        state.select_option(label="Current")
        assert len(shown(page)) == 6
        state.select_option(label="Any state")
        search.fill("TELEPHONE 1001")
        until(page, "document.querySelector('output').value === '1 of 8 clips'")
        assert shown(page) == [f"Rms {kinds[1]}"]
        search.fill("nothing like it")
        page.locator("#nothing").wait_for()
        assert shown(page) == []
        page.get_by_role("button", name="Show all clips").click()
        assert len(shown(page)) == 8
        assert search.evaluate("field => field === document.activeElement")


def test_a_publisher_s_state_is_shown_and_filtered(
    browser: Browser, output: Output, tmp_path: Path
) -> None:
    states: dict[str, State] = {"slt/flac": STALE}
    with visit(browser, write_page(tmp_path / "index.html", output.voices, states=states)) as page:
        page.get_by_label("State").select_option(label="Kept although stale")
        assert shown(page) == ["Slt flac"]


def test_the_table_has_a_row_a_clip(browser: Browser, output: Output) -> None:
    with visit(browser, output.address, viewport={"width": 1400, "height": 900}) as page:
        assert not page.locator(".columns").is_visible()
        page.get_by_role("button", name="Table").click()
        assert page.locator(".columns").is_visible()
        assert page.get_by_role("button", name="Table").get_attribute("aria-pressed") == "true"
        columns = page.evaluate(
            "[...document.querySelectorAll('.columns span')]"
            ".map((column) => [column.textContent, Math.round(column.getBoundingClientRect().x)])"
        )
        assert [name for name, _ in columns] == [
            *("Voice, passage", "Player", "Text", "Language", "Length", "Seed", "Algorithm"),
            *("Token contract", "State"),
        ]
        cells = [
            "h3",
            ".player",
            "blockquote",
            *(f".facts div:nth-child({n})" for n in range(1, 6)),
        ]
        for cell, (name, x) in zip([*cells, ".state"], columns, strict=True):
            found = page.evaluate(
                "(cell) => [...document.querySelectorAll('.clip')].map((clip) =>"
                " Math.round(clip.querySelector(cell).getBoundingClientRect().x))",
                cell,
            )
            assert set(found) == {x}, name
        assert not sideways(page)
        page.get_by_role("button", name="Cards").click()
        assert not page.locator(".columns").is_visible()


def sideways(page: Page) -> bool:
    """Whether the page can be scrolled to the side."""
    found: bool = page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
    return found


# -- by keyboard, on a phone, for everybody --------------------------------------------------------

FOCUSED = """() => {
  const found = document.activeElement, style = getComputedStyle(found);
  const box = found.getBoundingClientRect();
  return {
    tag: found.tagName, id: found.id, text: found.textContent.trim().slice(0, 40),
    value: found.value ?? null,
    ringed: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    seen: box.width > 0 && box.left >= 0 && box.bottom > 0 && box.top < innerHeight,
  };
}"""


def tabbed(page: Page) -> dict[str, Any]:
    """What has the focus after another Tab."""
    page.keyboard.press("Tab")
    found: dict[str, Any] = page.evaluate(FOCUSED)
    return found


def test_everything_is_reached_by_keyboard(browser: Browser, output: Output) -> None:
    with visit(browser, output.address) as page:
        skip = tabbed(page)
        assert (skip["tag"], skip["text"]) == ("A", "Skip to the clips")
        assert skip["seen"]
        stops = [tabbed(page) for _ in range(6)]
        assert [(stop["tag"], stop["id"] or stop["text"]) for stop in stops] == [
            *(("INPUT", "q"), ("SELECT", "language"), ("SELECT", "state"), ("INPUT", "onward")),
            *(("BUTTON", "Cards"), ("BUTTON", "Table")),
        ]
        for stop in [skip, *stops]:
            assert stop["ringed"], stop
            assert stop["seen"], stop
        page.keyboard.press("Enter")
        assert page.evaluate("document.body.dataset.view") == "table"
        link, player = tabbed(page), tabbed(page)
        assert (link["tag"], link["ringed"], link["seen"]) == ("A", True, True)
        assert (player["tag"], player["ringed"], player["seen"]) == ("AUDIO", True, True)
        page.keyboard.press("Space")
        until(page, "!document.activeElement.paused")
        page.keyboard.press("/")
        assert page.evaluate(FOCUSED)["id"] == "q"
        page.keyboard.type("rms")
        until(page, "document.querySelector('output').value === '4 of 8 clips'")
        page.keyboard.press("/")  # within a field it is a character
        assert page.evaluate(FOCUSED)["value"] == "rms/"
        page.keyboard.press("Backspace")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        assert page.evaluate(FOCUSED)["value"] == "da"


def test_the_skip_link_leads_to_the_clips(browser: Browser, output: Output) -> None:
    with visit(browser, output.address) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate(FOCUSED)["id"] == "clips"
        assert tabbed(page)["tag"] == "A"  # the source of the first voice


def test_a_phone_scrolls_one_way(browser: Browser, output: Output, tmp_path: Path) -> None:
    long = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 4
    source = dict.fromkeys(("name", "url", "license", "consent"), long)
    about = voice(
        long,
        {long: sample("x", "x", long, seed=2**64 - 1)},
        display_name=long,
        description=long,
        status=long,
        source=source,
        language=long,
        language_id="x",
    )
    address = write_page(tmp_path / "index.html", [about, *output.voices], name=long)
    phone: dict[str, Any] = {
        "viewport": {"width": 360, "height": 740},
        "is_mobile": True,
        "has_touch": True,
    }
    for url in (output.address, address):
        with visit(browser, url, **phone) as page:
            assert page.evaluate("innerWidth") == 360
            assert not sideways(page)
            page.get_by_role("button", name="Table").tap()
            assert page.evaluate("innerWidth") == 360
            assert not sideways(page)
            small = page.evaluate(
                "[...document.querySelectorAll('button, select, input[type=search], audio')]"
                ".filter((each) => each.getClientRects().length)"
                ".map((each) => each.getBoundingClientRect().height).filter((tall) => tall < 36)"
            )
            assert small == []


CONTRASTS = """() => {
  const channel = (value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [red, green, blue] = parts(color).map(channel);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((parts(color)[3] ?? 1) === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    const style = getComputedStyle(element);
    const isPicture = element.matches(".wave, .wave svg");
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!(says || isPicture || element.matches("input, select"))) continue;
    if (element.closest("script, style, option") || !element.getClientRects().length) continue;
    const inks = [isPicture ? style.fill : style.color];
    if (element.placeholder) inks.push(getComputedStyle(element, "::placeholder").color);
    const name = isPicture ? "picture" : "text";
    for (const ink of inks) {
      const [one, two] = [light(ink), light(behind(element))].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (two + 0.05);
      if (!(ratio >= found[name]?.ratio)) {
        found[name] = { ratio, what: element.outerHTML.slice(0, 80), ink, on: behind(element) };
      }
    }
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(
    browser: Browser, output: Output, scheme: str, tmp_path: Path
) -> None:
    long = sample("long", "story", "One word after another. " * 60, duration_seconds=None)
    address = write_page(
        tmp_path / "index.html", [voice("long", {"story": long}, source=None), *output.voices]
    )
    expected = "404|ERR_FILE_NOT_FOUND"
    with visit(browser, address, expected=expected, color_scheme=scheme) as page:
        page.locator("summary").first.click()
        page.locator("audio").nth(1).evaluate("audio => { audio.play().catch(() => {}) }")
        page.locator(".fault").wait_for()
        page.evaluate("document.querySelectorAll('.clip')[2].classList.add('playing')")
        for view in ("Cards", "Table"):
            page.get_by_role("button", name=view).click()
            found = page.evaluate(CONTRASTS)
            assert found["text"]["ratio"] >= 4.5, found["text"]
            assert found["picture"]["ratio"] >= 3, found["picture"]


def test_everything_has_a_name_and_texts_their_language(browser: Browser, output: Output) -> None:
    with visit(browser, output.address) as page:
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select, button, audio, a, form, section')]"
            ".filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim()"
            " || each.labels?.length || each.getAttribute('aria-labelledby')"
            " || each.getAttribute('role') === 'search')).map((each) => each.outerHTML)"
        )
        assert unnamed == []
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.evaluate("[...document.querySelectorAll('blockquote')].map((e) => e.lang)") == [
            *(["en"] * 4 + ["da"] * 4)
        ]
        names = page.evaluate(
            "[...document.querySelectorAll('audio')].map((e) => e.getAttribute('aria-label'))"
        )
        assert len(set(names)) == len(names)
        assert "Slt, flac" in names
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((e) => e.tagName)")
        assert levels == ["H1", *(["H2"] + ["H3"] * 4) * 2]


def test_nothing_moves_for_who_wants_it_so(browser: Browser, output: Output) -> None:
    """Only the place in a picture moves by itself, frame by frame; then it goes by the player's own
    steps."""
    count = """() => {
      const asked = requestAnimationFrame.bind(window);
      window.frames = 0;
      window.requestAnimationFrame = (call) => { window.frames += 1; return asked(call); };
    }"""
    frames = {}
    for motion in ("reduce", "no-preference"):
        with visit(browser, output.address, reduced_motion=motion) as page:
            page.evaluate(count)
            audio = page.locator("audio").first
            audio.evaluate("audio => audio.play()")
            until(page, "audio => audio.ended", audio.element_handle())
            width = page.locator(".wave svg").first.get_attribute("width")
            assert float(width or 0) == pytest.approx(121, rel=0.02)
            assert page.evaluate("document.getAnimations().length") == 0
            frames[motion] = page.evaluate("window.frames")
    assert frames["reduce"] == 0
    assert frames["no-preference"] > 0


def test_without_script_everything_is_there(browser: Browser, output: Output) -> None:
    with visit(browser, output.address, java_script_enabled=False) as page:
        assert page.locator("audio:visible").count() == 8
        assert page.locator(".wave:visible").count() == 8
        assert page.locator("blockquote:visible").count() == 8
        assert not page.locator(".bar").is_visible()


# -- what a catalog may hold -----------------------------------------------------------------------


def test_hostile_texts_are_texts(browser: Browser, tmp_path: Path) -> None:
    texts = [*HOSTILE, "مرحبا بالعالم", "\u202egnirts\u202c", "x" * 5000, "{{7*7}}", "\x00\x0b\x1b"]
    voices = [
        voice(
            f"v{number}",
            {text[:200]: sample("v", "p", text, seed=text, sha256=text)},
            **dict.fromkeys(("display_name", "description", "language", "language_id"), text),
            source=dict.fromkeys(("name", "url", "license", "consent"), text),
            status=text,
        )
        for number, text in enumerate(texts)
    ]
    address = write_page(tmp_path / "index.html", voices, name=HOSTILE[0])
    with visit(browser, address) as page:
        assert page.locator(".clip").count() == len(texts)
        assert page.locator("h1").inner_text() == HOSTILE[0]
        told = page.locator("blockquote").all_text_contents()
        for text, found in zip(texts[:7], told, strict=False):
            assert found.strip() == text
        assert page.locator("script").count() == 1
        assert page.evaluate("document.querySelectorAll('main img, main a').length") == 0
        assert page.evaluate("getComputedStyle(document.querySelectorAll('blockquote')[6])"
                             ".direction") == "rtl"  # fmt: skip
        page.locator("#language").select_option(value=HOSTILE[3])
        assert len(shown(page)) == 1
        assert not sideways(page)


@pytest.mark.parametrize("audio_url", [by_path("./"), by_path("../"), by_sha256("../../objects/")])
def test_no_record_leads_a_player_to_another_machine(
    browser: Browser, tmp_path: Path, audio_url: AudioUrl
) -> None:
    places = [
        "//evil.invalid/x",
        "https://evil.invalid/x",
        "\\\\evil.invalid\\x",
        "data:audio/wav,",
    ]
    clips = {f"p{n}": sample("v", "p", audio=at, sha256=at) for n, at in enumerate(places)}
    write_page(tmp_path / "a" / "b" / "index.html", [voice("v", clips)], audio_url=audio_url)
    with (
        served(tmp_path, ranges=True) as root,
        visit(browser, f"{root}/a/b/index.html", expected="404") as page,
    ):
        for found in lengths(page):
            assert isinstance(found, str)
            assert found.startswith(root)


def test_a_page_of_5000_clips_is_one_to_work_with(browser: Browser, tmp_path: Path) -> None:
    loud = b64encode(bytes(n * 89 % 256 for n in range(120))).decode()
    voices = [
        voice(
            f"v{number}",
            {
                f"p{n}": sample(f"v{number}", f"p{n}", f"Text {number}-{n}.", waveform=loud)
                | ({"algorithm_fingerprint": BEFORE} if n == 7 else {})
                for n in range(100)
            },
            language="Danish" if number % 2 else "English",
            language_id="da" if number % 2 else "en",
        )
        for number in range(50)
    ]
    address = write_page(tmp_path / "index.html", voices)
    assert (tmp_path / "index.html").stat().st_size < 11 * 2**20
    with visit(browser, address) as page:
        count = page.locator("output")
        assert count.inner_text() == "All 5,000 clips"
        page.get_by_label("Language").select_option(value="da")
        assert count.inner_text() == "2,500 of 5,000 clips"
        page.get_by_label("State").select_option(value="other")
        assert count.inner_text() == "25 of 5,000 clips"
        page.get_by_label("Search").fill("v31 7.")
        until(page, "document.querySelector('output').value === '1 of 5,000 clips'")
        assert shown(page) == ["V31 p7"]
        page.get_by_role("button", name="Table").click()
        assert shown(page) == ["V31 p7"]
