"""The listening page: one file that plays every clip of the output folder it lies in.

Everything that comes from a catalog is escaped here and nothing is trusted: a text may hold
markup, an address may be a script. The page's own policy allows this style and this script alone.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from itertools import count, islice
from urllib.parse import urlsplit

from catalog.canonical import JsonObject
from catalog.records import spoken_language_id
from catalog.site_assets import SCRIPT, STYLE
from catalog.site_listing import Listing, State, VoiceClips, seconds_of
from catalog.site_waveform import waveform_svg

MAX_TEXT_CHARS = 4000
_OPENING_CHARS = 320
"""What shows of a text that is folded away; one that is little longer is not folded."""

_COLUMNS = "Voice, passage|Player|Text|Language|Length|Seed|Algorithm|Token contract|State"
_UNKNOWN = '<span class="unknown">not recorded</span>'


@dataclass(frozen=True, slots=True)
class _Clip:
    number: int
    passage: str
    sample: JsonObject
    language_id: str
    state: State
    audio_url: str


def build_page(listing: Listing) -> Iterator[bytes]:
    """`site/index.html`, in pieces: the same bytes for the same records."""
    return (piece.encode("utf-8", "replace") for piece in _page(listing))


def _page(listing: Listing) -> Iterator[str]:
    each = listing.played_each()
    languages = _language_names(listing)
    options = "\n".join(
        f'<option value="{escape(tag)}">{escape(said)}</option>'
        for tag, said in sorted(languages.items(), key=lambda each: (each[1], each[0]))
    )
    states = "\n".join(
        f'<option value="{escape(state.key)}">{escape(_sentence(state.words))}</option>'
        for state in listing.states()
    )
    bar = _BAR.replace("STATES", states).replace("LANGUAGES", options)
    columns = "".join(f"<span>{column}</span>" for column in _COLUMNS.split("|"))
    yield f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<meta http-equiv="Content-Security-Policy" content="{escape(_policy())}">
<meta name="referrer" content="no-referrer">
<title>{escape(listing.name)}: listening page</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body data-view="cards">
<a class="skip" href="#clips">Skip to the clips</a>
{_top(listing, each)}
{bar if listing.voices else ""}
<main id="clips" tabindex="-1">
<div class="columns" aria-hidden="true">{columns}</div>
"""
    numbers = count()
    for number, voice in enumerate(listing.voices):
        clips = _clips_of(listing, voice, each, numbers)
        yield from _section(number, voice.about, clips, languages)
    if not listing.voices:
        yield '<p class="empty">No clip has been rendered yet.</p>'
    yield f"""
<div class="empty" id="nothing" hidden>
<p>No clip matches.</p>
<button type="button">Show all clips</button>
</div>
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


_BAR = """<div class="bar" hidden>
<form class="filters" role="search">
<div class="search">
<label for="q">Search</label>
<output for="q language state"></output>
<input type="search" id="q" autocomplete="off" spellcheck="false"
 placeholder="Voice, passage, text, seed, licence">
</div>
<label>Language
<select id="language"><option value="">Any language</option>
LANGUAGES
</select></label>
<label>State
<select id="state"><option value="">Any state</option>
STATES
</select></label>
<label class="on"><input type="checkbox" id="onward"> Keep playing</label>
<div class="views" role="group" aria-label="View">
<button type="button" value="cards" aria-pressed="true">Cards</button>
<button type="button" value="table" aria-pressed="false">Table</button>
</div>
</form>
</div>"""


def _clips_of(
    listing: Listing, voice: VoiceClips, most: int, numbers: Iterator[int]
) -> Iterator[_Clip]:
    for passage, sample in islice(voice.samples, most):
        yield _Clip(
            next(numbers),
            passage,
            sample,
            spoken_language_id(voice.about, sample),
            listing.state_of(voice, passage, sample),
            listing.audio_url(sample),
        )


def _language_names(listing: Listing) -> dict[str, str]:
    """Names for people of the tags of all clips; a tag that no voice names stands for itself."""
    named = {
        str(voice.about.get("language_id")): str(voice.about.get("language"))
        for voice in listing.voices
    }
    return {tag: named.get(tag) or tag for tag in listing.language_ids}


def _policy() -> str:
    """Style and script by their hashes, and nothing from elsewhere; media is left open, for file:
    addresses, and says no more to a server than which clip is played."""
    style, script = (
        b64encode(sha256(source.encode()).digest()).decode() for source in (STYLE, SCRIPT)
    )
    return (
        f"style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "font-src 'none'; connect-src 'self'; frame-src 'none'; object-src 'none'; "
        "worker-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _top(listing: Listing, each: int) -> str:
    clips, shown = listing.count, listing.played(each)
    sums = [escape(listing.edition)] if listing.edition else []
    sums += [_count(len(listing.voices), "voice"), _count(clips, "clip")]
    sums += [f"{_length(listing.seconds)} of audio"] if listing.seconds else []
    notes = [
        f"{_count(number, 'clip')} {'was' if number == 1 else 'were'} {escape(state.words)}."
        for state, number in listing.states().items()
        if number and not state.is_current
    ]
    if shown < clips:
        notes.append(
            f"This page plays the first {shown:,} of {clips:,} clips, "
            "some of every voice; catalog.json lists them all."
        )
    return f"""<header class="top">
<p class="kind">Listening page</p>
<h1>{escape(listing.name)}</h1>
<p class="sums">{"".join(f"<span>{each}</span> " for each in sums)}
<span>Algorithm <code>{escape(listing.algorithm_fingerprint)}</code></span></p>
{"".join(f'<p class="note">{note}</p>' for note in notes)}
</header>"""


def _section(
    number: int, about: JsonObject, clips: Iterable[_Clip], languages: dict[str, str]
) -> Iterator[str]:
    title = str(about.get("display_name") or about["name"])
    tags = [f"<code>{escape(str(about['name']))}</code>"]
    tags += [escape(str(about[key])) for key in ("language", "status") if about.get(key)]
    description = str(about.get("description") or "").strip()
    yield f"""<section class="voice" aria-labelledby="voice-{number}">
<header class="who">
<h2 id="voice-{number}">{escape(title)}</h2>
<p class="tags">{"".join(f"<span>{tag}</span> " for tag in tags)}</p>
{f'<p class="about">{escape(description)}</p>' if description else ""}
{_source(about.get("source"))}
</header>
<div class="clips">
"""
    for clip in clips:
        yield _article(title, clip, languages) + "\n"
    yield "</div>\n</section>\n"


def _source(source: object) -> str:
    if not source or not isinstance(source, dict):
        return '<p class="none">No source is recorded.</p>'
    name, url = str(source.get("name") or ""), str(source.get("url") or "")
    links = _is_web(url)
    address = f'<a href="{escape(url)}" rel="noopener noreferrer">{escape(url)}</a>'
    rows = [("Source", escape(name)), ("Address", address if links else escape(url))]
    rows += [("Licence", escape(str(source.get("license") or "")))]
    rows += [("Consent", escape(str(source.get("consent") or "")))]
    told = "\n".join(
        f"<div><dt>{key}</dt><dd>{value or _UNKNOWN}</dd></div>" for key, value in rows
    )
    return f'<dl class="source">\n{told}\n</dl>'


def _article(voice: str, clip: _Clip, languages: dict[str, str]) -> str:
    sample, state = clip.sample, clip.state
    language = languages.get(clip.language_id) or _UNKNOWN
    length = seconds_of(sample)
    facts = [
        ("Language", escape(language) if clip.language_id else _UNKNOWN),
        ("Length", _UNKNOWN if length is None else _length(length)),
        ("Seed", _fact(sample.get("seed"))),
        ("Algorithm", _fact(sample.get("algorithm_fingerprint"), code=True)),
        ("Token contract", _fact(sample.get("token_contract_fingerprint"), code=True)),
    ]
    rows = "\n".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in facts)
    source, label = escape(clip.audio_url), escape(f"{voice}, {clip.passage}")
    tag = escape(clip.language_id)
    picture = waveform_svg(sample.get("waveform"), f"w{clip.number}")
    return f"""<article class="clip" data-language="{tag}" data-state="{escape(state.key)}">
<h3><span class="of">{escape(voice)} </span>{escape(clip.passage)}</h3>
<p class="state{"" if state.is_current else " other"}">{escape(_sentence(state.words))}</p>
<div class="player">
{picture}
<audio controls preload="none" src="{source}" aria-label="{label}">
</audio>
</div>
<blockquote lang="{tag}" dir="auto">{_text(str(sample.get("text") or ""))}</blockquote>
<dl class="facts">
{rows}
</dl>
</article>"""


def _text(text: str) -> str:
    """The text, folded away behind its opening when it is long."""
    text = text.strip()
    if len(text) <= _OPENING_CHARS * 4 // 3:
        return f"<p>{escape(text)}</p>"
    opening = text[:_OPENING_CHARS].rsplit(None, 1)[0]
    whole = f"<p>{escape(text[:MAX_TEXT_CHARS])}</p>"
    if len(text) > MAX_TEXT_CHARS:
        rest = _count(len(text) - MAX_TEXT_CHARS, "character")
        whole += f'<p class="cut">{rest} more in catalog.json</p>'
    return (
        f'<details><summary><span class="start">{escape(opening)}… </span>'
        f'<span class="more all">Show all</span><span class="more less">Show less</span>'
        f"</summary>{whole}</details>"
    )


def _fact(value: object, *, code: bool = False) -> str:
    if value is None:
        return _UNKNOWN
    return f"<code>{escape(str(value))}</code>" if code else escape(str(value))


def _sentence(words: str) -> str:
    """Words as they stand alone."""
    return words[:1].upper() + words[1:]


def _is_web(url: str) -> bool:
    """Whether it leads to a web page; anything else, a `javascript:` above all, is only text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _length(seconds: float) -> str:
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
