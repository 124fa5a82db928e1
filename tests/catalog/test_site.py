"""The listening page: every clip can be heard and read, nothing is fetched, nothing is trusted."""

from __future__ import annotations

import itertools
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import site, site_listing
from catalog.loader import load_catalog
from catalog.records import ClipRecord, ConditioningRecord
from catalog.site import build_page
from catalog.site_listing import (
    CURRENT,
    OTHER,
    STALE,
    Listing,
    State,
    VoiceClips,
    by_path,
    by_sha256,
    clips_of,
    listing_of,
)
from catalog.site_waveform import LEVELS, waveform_svg
from tests.catalog.record_lists import catalog_list

NOW = "7cd75498ad4e7531"
BEFORE = "e5303ba243087222"
CONTRACT = "c0b13d2f4a5e6f70"
SOURCE = {
    "name": "An invented speaker",
    "url": "https://example.org/voice?a=1&b=2",
    "license": "CC0-1.0",
    "consent": "Written & signed",
}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\"quoted\" 'text' & &amp; <b>",
    '" onmouseover="alert(1)',
    "<!-- not a comment --> ]]> LANGUAGES {name}",
    "</blockquote></article></main>",
]
VOID = frozenset(("meta", "link", "input", "br", "img", "hr"))
BLOCKS = frozenset(
    ("p", "div", "dl", "section", "article", "header", "h1", "h2", "h3", "blockquote", "details")
)


class Element:
    """One element: its own text and that of what it holds, in order."""

    def __init__(self, tag: str, attributes: dict[str, str], parent: Element | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.children: list[Element] = []
        self.pieces: list[str | Element] = []

    @property
    def text(self) -> str:
        return "".join(p if isinstance(p, str) else p.text for p in self.pieces)

    def all(self, tag: str, cls: str = "") -> list[Element]:
        found = []
        for child in self.children:
            classes = child.attributes.get("class", "").split()
            if child.tag == tag and (not cls or cls in classes):
                found.append(child)
            found += child.all(tag, cls)
        return found

    def one(self, tag: str, cls: str = "") -> Element:
        (found,) = self.all(tag, cls)
        return found


class Page(HTMLParser):
    """Builds the tree, and fails on what a browser would have to repair."""

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.open = Element("", {}, None)
        self.ids: list[str] = []
        self.feed(data.decode("utf-8"))
        self.close()
        assert self.open is self.root, f"<{self.open.tag}> is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        assert len(attributes) == len(attrs), f"an attribute of <{tag}> is given twice"
        if tag in BLOCKS:
            above: Element | None = self.open
            while above is not None:
                assert above.tag not in ("p", "h1", "h2", "h3", "span", "summary", "label"), (
                    f"<{tag}> inside <{above.tag}>"
                )
                above = above.parent
        if "id" in attributes:
            self.ids.append(attributes["id"])
        element = Element(tag, attributes, self.open)
        self.open.children.append(element)
        self.open.pieces.append(element)
        if tag not in VOID:
            self.open = element

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.tag, f"</{tag}> closes <{self.open.tag}>"
        assert self.open.parent is not None
        self.open = self.open.parent

    def handle_data(self, data: str) -> None:
        self.open.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def everything(self) -> list[Element]:
        found, waiting = [], [self.root]
        while waiting:
            element = waiting.pop()
            found.append(element)
            waiting += element.children
        return found


def sample(voice: str, passage: str, text: str = "Good morning.", **more: Any) -> dict[str, Any]:
    return {
        "audio": f"audio/{voice}/{passage}.flac",
        "text": text,
        "seed": 7,
        "algorithm_fingerprint": NOW,
        "token_contract_fingerprint": CONTRACT,
        "duration_seconds": 1.25,
    } | more


def voice(name: str, samples: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "display_name": name.title(),
        "language": "English",
        "language_id": "en",
        "description": "",
        "status": "available",
        "source": SOURCE,
        "sample": samples,
    } | more


def listing(*voices: dict[str, Any], name: str = "previews", **more: Any) -> Listing:
    """What the page is told of the voices of a catalog.json."""
    return listing_of(voices, name=name, algorithm_fingerprint=NOW, **more)


def page(*voices: dict[str, Any], name: str = "previews", **more: Any) -> Page:
    return Page(b"".join(build_page(listing(*voices, name=name, **more))))


def facts(article: Element) -> dict[str, str]:
    return {row.one("dt").text: row.one("dd").text for row in article.one("dl").all("div")}


def roster() -> list[dict[str, Any]]:
    return [
        voice("slt", {"short": sample("slt", "short"), "story": sample("slt", "story", "A lamp.")}),
        voice(
            "freja",
            {
                "hilsen": sample("freja", "hilsen", "Godmorgen.", algorithm_fingerprint=BEFORE),
                "a b#c?d%41": sample("freja", "a b#c?d%41", "Æbler & pærer.", seed=2**64 - 1),
                "engelsk": sample("freja", "engelsk", "Hello.", conditioning={"language_id": "en"}),
            },
            language="Danish",
            language_id="da",
            source=None,
        ),
    ]


def test_every_clip_has_a_player_of_its_file() -> None:
    found = page(*roster())
    players = found.root.all("audio")
    expected = [each["audio"] for about in roster() for each in about["sample"].values()]
    base = "file:///out/site/index.html"
    assert [unquote(urljoin(base, player.attributes["src"])) for player in players] == [
        f"file:///out/{audio}" for audio in expected
    ]
    for player in players:
        assert "controls" in player.attributes
        assert player.attributes["preload"] == "none"
        assert player.attributes["aria-label"]
        assert not re.search(r"[#?\s]", player.attributes["src"])


def test_a_clip_tells_what_it_is() -> None:
    _, _, stale, odd, english = page(*roster()).root.all("article")
    assert odd.one("h3").text == "Freja a b#c?d%41"
    assert odd.one("blockquote").text == "Æbler & pærer."
    assert odd.one("blockquote").attributes["lang"] == "da"
    assert facts(odd) == {
        "Language": "Danish",
        "Length": "1.2 s",
        "Seed": str(2**64 - 1),
        "Algorithm": NOW,
        "Token contract": CONTRACT,
    }
    assert facts(stale)["Algorithm"] == BEFORE
    assert english.attributes["data-language"] == "en"
    assert facts(english)["Language"] == "English"


def test_state_is_told_in_words_and_for_the_filter() -> None:
    found = page(*roster())
    states = [
        (a.one("p", "state").text, a.attributes["data-state"]) for a in found.root.all("article")
    ]
    assert states[0] == ("Current", "current")
    assert states[2] == ("Made under another algorithm", "other")
    assert "1 clip was made under another algorithm." in found.root.one("header", "top").text
    assert NOW in found.root.one("header", "top").text
    values = {option.attributes["value"] for option in found.root.all("option")}
    assert values == {"", "current", "other", "en", "da"}


def test_a_publisher_s_states_go_before_those_of_records() -> None:
    gone = State("orphaned", "recorded for a voice that is gone")
    told = {"slt/story": STALE, "freja/hilsen": STALE, "freja/engelsk": gone}
    found = page(*roster(), states=told)
    shown = [
        (a.one("p", "state").text, a.attributes["data-state"]) for a in found.root.all("article")
    ]
    assert shown == [
        ("Current", "current"),
        ("Kept although stale", "stale"),
        ("Kept although stale", "stale"),
        ("Current", "current"),
        ("Recorded for a voice that is gone", "orphaned"),
    ]
    notes = [note.text for note in found.root.all("p", "note")]
    assert notes == [
        "1 clip was recorded for a voice that is gone.",
        "2 clips were kept although stale.",
    ]
    options = {each.attributes["value"]: each.text for each in found.root.all("option")}
    assert options["stale"] == "Kept although stale"
    assert {"", "current", "other", "orphaned"} <= options.keys()
    counts = listing(*roster(), states=told).states()
    assert counts == {CURRENT: 2, OTHER: 0, STALE: 2, gone: 1}


def test_audio_lies_where_the_listing_says() -> None:
    about = voice("slt", {"a b": sample("slt", "a b", sha256="f" * 64)})
    base = "https://host.invalid/b/releases/7/index.html"
    places = {
        by_sha256("../../objects/"): "https://host.invalid/b/objects/" + "f" * 64,
        by_path("./"): "https://host.invalid/b/releases/7/audio/slt/a%20b.flac",
        by_path("../"): "https://host.invalid/b/releases/audio/slt/a%20b.flac",
    }
    for audio_url, expected in places.items():
        player = page(about, audio_url=audio_url).root.one("audio")
        assert urljoin(base, player.attributes["src"]) == expected
    hostile = voice("slt", {"a": sample("slt", "a", audio="//evil.invalid/x", sha256='"//x?#')})
    for audio_url in places:
        player = page(hostile, audio_url=audio_url).root.one("audio")
        assert urljoin(base, player.attributes["src"]).startswith("https://host.invalid/b/")
    for make in (by_path, by_sha256):
        with pytest.raises(ValueError, match="ends with a slash"):
            make("")


def test_a_release_says_which_one_it_is() -> None:
    assert (
        "Release 7 <of>" in page(*roster(), edition="Release 7 <of>").root.one("header", "top").text
    )
    assert "Release" not in page(*roster()).root.one("header", "top").text


def test_clips_of_loudkit_are_shown_as_other() -> None:
    """Of the shapes that loudkit publishes, with no field but the audio."""
    keyed = voice("x", {"short": {"audio": "audio/x.opus"}, "long": {"audio": "audio/y.opus"}})
    keyed["sample_turbo"] = {"audio": "audio/t.opus", "algorithm_fingerprint": BEFORE}
    single = voice("y", {"audio": "audio/z.opus", "text": "Hi."})
    single["sample_turbo"] = {"short": {"audio": "audio/u.opus"}, "long": None, "n": {"audio": 1}}
    found = page(keyed, single)
    assert [article.one("h3").text for article in found.root.all("article")] == [
        *("X short", "X long", "X sample-turbo", "Y sample", "Y short-turbo")
    ]
    assert {a.attributes["data-state"] for a in found.root.all("article")} == {"other"}
    assert [player.attributes["src"] for player in found.root.all("audio")] == [
        f"../audio/{name}.opus" for name in "xytzu"
    ]
    assert "5 clips were made under another algorithm." in found.root.one("p", "note").text
    assert not found.root.all("svg")
    (named_audio,) = clips_of(voice("z", {"audio": {"audio": "audio/a.flac"}}))
    assert named_audio[0] == "audio"
    assert list(clips_of({"name": "w"})) == []


def heights(svg: Element) -> list[int]:
    """The heights of the parts of a picture, from its path."""
    drawn = svg.one("path").attributes["d"]
    assert drawn.startswith("M0 0l")
    steps = [int(step) for step in re.findall(r"(?:^| )1 ?(-?\d+)(?= |$)", drawn[5:])]
    assert drawn == "M0 0l" + " ".join(f"1{s}" if s < 0 else f"1 {s}" for s in steps)
    found = list(itertools.accumulate(steps))
    assert found[-1] == 0
    return [-height for height in found[:-1]]


def test_a_clip_has_a_picture_of_its_waveform() -> None:
    parts = bytes([0, 255, 1, 128, 0])
    clips = {n: sample("slt", n, waveform=b64encode(parts).decode()) for n in "ab"}
    found = page(voice("slt", clips | {"c": sample("slt", "c")}))
    first, second, none = found.root.all("article")
    svg = first.one("svg", "wave")
    assert heights(svg) == [1, LEVELS, 1, 13, 1]
    assert svg.attributes["viewbox"] == f"0 -{LEVELS} 6 {2 * LEVELS}"
    assert svg.attributes["aria-hidden"] == "true"
    for article in (first, second):
        mirrored = article.one("use").attributes
        assert mirrored["href"] == "#" + article.one("path").attributes["id"]
        assert mirrored["transform"] == "scale(1,-1)"
    assert not none.all("svg")
    assert len(set(found.ids)) == len(found.ids)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(parts=st.binary(min_size=1, max_size=200))
def test_a_picture_rises_where_the_clip_is_loud(parts: bytes) -> None:
    markup = waveform_svg(b64encode(parts).decode(), "w0")
    drawn = heights(Page(markup.encode()).root.one("svg"))
    assert len(drawn) == len(parts)
    assert all(1 <= height <= LEVELS for height in drawn)
    assert all(
        drawn[i] >= drawn[j]
        for i in range(len(parts))
        for j in range(len(parts))
        if parts[i] >= parts[j]
    )
    assert max(parts) == 0 or max(drawn) == LEVELS
    assert len(markup) < 220 + 6 * len(parts)


@pytest.mark.parametrize(
    "waveform",
    [None, 7, [1, 2], "", "é", "no base64!", "A", "AID/" * 400, '"><script>', {"parts": 1}],
)
def test_what_is_no_picture_is_not_drawn(waveform: object) -> None:
    assert waveform_svg(waveform, "w0") == ""
    found = page(voice("slt", {"a": sample("slt", "a", waveform=waveform)}))
    assert not found.root.all("svg")
    assert found.root.one("audio")


def test_a_clip_costs_the_page_little() -> None:
    """5,000 clips are shown on one page; a picture may not double it."""
    loud = b64encode(bytes(n * 89 % 256 for n in range(120))).decode()
    with_one = page_bytes(voice("slt", {"a": sample("slt", "a", waveform=loud)}))
    without = page_bytes(voice("slt", {"a": sample("slt", "a")}))
    two = page_bytes(voice("slt", {n: sample("slt", n) for n in "ab"}))
    assert len(with_one) - len(without) < 900
    assert len(two) - len(without) < 1300


def page_bytes(*voices: dict[str, Any]) -> bytes:
    return b"".join(build_page(listing(*voices)))


def test_a_voice_tells_whose_it_is() -> None:
    with_source, without = page(*roster()).root.all("section")
    rows = {row.one("dt").text: row.one("dd") for row in with_source.one("dl", "source").all("div")}
    assert {key: row.text for key, row in rows.items()} == {
        "Source": SOURCE["name"],
        "Address": SOURCE["url"],
        "Licence": SOURCE["license"],
        "Consent": SOURCE["consent"],
    }
    assert rows["Address"].one("a").attributes["href"] == SOURCE["url"]
    assert "No source is recorded." in without.text
    labelled = with_source.attributes["aria-labelledby"]
    assert with_source.one("h2").attributes["id"] == labelled


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "http://[", "n/a"]
)
def test_an_address_that_is_no_web_page_is_only_text(url: str) -> None:
    found = page(voice("slt", {"a": sample("slt", "a")}, source=SOURCE | {"url": url}))
    assert [link.attributes["href"] for link in found.root.all("a")] == ["#clips"]
    assert url in found.root.one("dl", "source").text


def test_what_is_not_recorded_is_said_so() -> None:
    bare = {"audio": "audio/joe.flac", "text": "Hi.", "seed": 7, "algorithm_fingerprint": NOW}
    found = page(voice("joe", {"only": bare}, language=None, language_id=None))
    (article,) = found.root.all("article")
    assert article.one("audio").attributes["src"] == "../audio/joe.flac"
    assert facts(article) == {
        "Language": "not recorded",
        "Length": "not recorded",
        "Seed": "7",
        "Algorithm": NOW,
        "Token contract": "not recorded",
    }


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str) -> None:
    plain = page(*[voice("slt", {"a": sample("slt", "a")})], name="previews")
    about = voice(
        "slt",
        {text: sample("slt", "a", text, seed=text, token_contract_fingerprint=text)},
        display_name=text,
        description=text,
        language=text,
        language_id=text,
        status=text,
        source=dict.fromkeys(SOURCE, text),
    )
    found = page(about, name=text)
    for tag in ("script", "style", "img", "article", "section", "b", "audio", "blockquote"):
        assert len(found.root.all(tag)) == len(plain.root.all(tag))
    assert found.root.one("blockquote").text == text
    assert found.root.one("h1").text == text
    assert found.root.one("h2").text == text
    assert found.root.one("article").attributes["data-language"] == text
    for element in found.everything():
        assert not any(key.startswith("on") or key == "style" for key in element.attributes)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(text=st.text(st.characters(codec="utf-8"), max_size=300))
def test_any_text_comes_back(text: str) -> None:
    found = page(voice("slt", {"a": sample("slt", "a", text)}))
    assert found.root.one("blockquote").text == text.strip()


def test_nothing_is_fetched() -> None:
    found = page(*roster())
    loads = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping"}
    for element in found.everything():
        for key in loads & element.attributes.keys():
            assert element.attributes[key].startswith("../audio/")
        if element.tag == "link":
            assert element.attributes["href"] == "data:,"
    inline = found.root.one("style").text + found.root.one("script").text
    assert not re.search(
        r"https?:|//[a-z]|url\(|@import|fetch\((?!audio\.src\))|XMLHttp|import\(|WebSocket", inline
    )
    assert not found.root.all("iframe")
    assert not found.root.all("img")


def test_the_policy_allows_this_style_and_this_script_alone() -> None:
    found = page(*roster())
    (policy,) = [
        meta.attributes["content"]
        for meta in found.root.all("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    for tag in ("style", "script"):
        digest = sha256(found.root.one(tag).text.encode()).digest()
        assert f"{tag}-src 'sha256-{b64encode(digest).decode()}';" in policy
    assert "unsafe" not in policy
    assert "connect-src 'self'" in policy  # a clip from its own server, where that has no ranges


def test_ids_are_there_once_and_labels_find_their_fields() -> None:
    found = page(*roster())
    assert len(found.ids) == len(set(found.ids))
    script = found.root.one("script").text
    for wanted in re.findall(r'one\("#(\w+)', script):
        assert wanted in found.ids
    for label in found.root.all("label"):
        nested = label.all("select") + label.all("input")
        assert nested or label.attributes["for"] in found.ids
    assert [button.attributes["type"] for button in found.root.all("button")] == ["button"] * 3


def test_bytes_repeat() -> None:
    first, again = (b"".join(build_page(listing(*roster()))) for _ in range(2))
    assert first == again


def test_an_empty_catalog_is_a_page_that_says_so() -> None:
    found = page()
    assert "No clip has been rendered yet." in found.root.one("main").text
    assert not found.root.all("form")


def test_a_long_text_is_folded_and_whole() -> None:
    text = "One word after another. " * 60
    quoted = page(voice("slt", {"a": sample("slt", "a", text)})).root.one("blockquote")
    details = quoted.one("details")
    assert details.one("p").text == text.strip()
    opening = details.one("span", "start").text.removesuffix("… ")
    assert text.startswith(opening + " ")
    assert "open" not in details.attributes


def test_a_text_without_end_is_cut_and_says_so() -> None:
    text = "x" * (site.MAX_TEXT_CHARS + 1234)
    quoted = page(voice("slt", {"a": sample("slt", "a", text)})).root.one("blockquote")
    assert quoted.one("p", "cut").text == "1,234 characters more in catalog.json"
    assert "x" * site.MAX_TEXT_CHARS in quoted.text
    assert text not in quoted.text


def test_two_thousand_clips_have_two_thousand_players() -> None:
    voices = [
        voice(f"v{n}", {f"p{i}": sample(f"v{n}", f"p{i}") for i in range(100)}) for n in range(20)
    ]
    found = page(*voices)
    assert len({player.attributes["src"] for player in found.root.all("audio")}) == 2000
    assert "2,000 clips" in found.root.one("p", "sums").text
    assert not found.root.all("p", "note")


def test_more_clips_than_a_page_holds_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_listing, "MAX_CLIPS", 10)
    large = voice("large", {f"p{i}": sample("large", f"p{i}") for i in range(40)})
    small = voice("small", {f"p{i}": sample("small", f"p{i}") for i in range(2)})
    found = page(large, small)
    of_large, of_small = (len(section.all("audio")) for section in found.root.all("section"))
    assert of_small == 2
    assert of_large == 8
    assert "plays the first 10 of 42 clips" in found.root.one("p", "note").text


@settings(deadline=None, derandomize=True, max_examples=200)
@given(counts=st.lists(st.integers(1, 12), max_size=8), room=st.integers(1, 20))
def test_every_voice_has_its_share_of_the_page(counts: list[int], room: int) -> None:
    voices = [VoiceClips({}, count, ()) for count in counts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_listing, "MAX_CLIPS", room)
        each = replace(listing(), voices=voices).played_each()
    places = sorted(place for count in counts for place in range(count))
    end = places[room] if len(places) > room else len(places)
    shown = [min(count, each) for count in counts]
    assert shown == [min(count, max(end, 1)) for count in counts]
    assert sum(shown) <= max(room, len(counts))


def test_no_more_is_read_than_the_page_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_listing, "MAX_CLIPS", 10)
    endless = ((f"p{n}", sample("slt", f"p{n}")) for n in itertools.count())
    told = replace(listing(voice("slt", {})), voices=[VoiceClips(voice("slt", {}), 99, endless)])
    assert len(Page(b"".join(build_page(told))).root.all("audio")) == 10
    assert next(endless)[0] == "p10"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.84, "0.8 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min 00 s"),
        (125, "2 min 05 s"),
        (7260, "2 h 01 min"),
    ],
)
def test_lengths_are_read_by_people(seconds: float, told: str) -> None:
    found = page(voice("slt", {"a": sample("slt", "a", duration_seconds=seconds)}))
    assert facts(found.root.one("article"))["Length"] == told


def test_it_reads_what_records_build(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text(
        "catalog: c\npack: starter\nvoices: [{name: slt, language: en}]\n"
        "passages: [{id: hej, text: Hej., language: da}]\n"
    )
    clip = ClipRecord(
        voice="slt",
        passage="hej",
        language="Danish",
        language_id="da",
        audio="audio/slt/hej.flac",
        sha256="0" * 64,
        text="Hej.",
        seed=7,
        model="starter",
        checkpoint_sha256="0" * 64,
        edge_fade_seconds=0.02,
        algorithm_fingerprint=NOW,
        backend="test",
        conditioning=ConditioningRecord(language_id="da"),
    )
    article = page(*catalog_list(load_catalog(path), [clip])).root.one("article")
    assert article.one("audio").attributes["src"] == "../audio/slt/hej.flac"
    assert article.attributes["data-language"] == "da"
    assert article.one("blockquote").text == "Hej."
