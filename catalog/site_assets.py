"""The style and the script of the listening page; both stand inside the page, nothing is fetched.

The script filters, switches views and draws over a picture what was heard of its clip. Without it
the page is whole: every clip, text, picture and player.
"""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --ink: #1f1d1a; --quiet: #67625a; --line: #e4e0d8; --raised: #ffffff;
  --accent: #1b6a58; --warn: #8f5200; --warn-paper: #fbf0dd; --mark: #eef4f1;
  --edge: #8c867b; --wave: #8f897e;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  --serif: ui-serif, Charter, "Iowan Old Style", Georgia, Cambria, "Noto Serif", serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #171614; --ink: #ebe7df; --quiet: #a39d92; --line: #33302b; --raised: #201e1b;
    --accent: #7cc7b0; --warn: #e6b066; --warn-paper: #2e2417; --mark: #1d2622;
    --edge: #7a746a; --wave: #7d776d;
  }
}
*, *::before, *::after { box-sizing: border-box; }
[hidden] { display: none !important; }
html {
  -webkit-text-size-adjust: 100%; text-size-adjust: 100%;
  scroll-padding-top: calc(var(--bar, 0px) + 1rem);
}
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 400 1rem/1.55 var(--sans); overflow-wrap: anywhere;
}
h1, h2, h3, p, dl, dd, blockquote { margin: 0; }
a { color: var(--accent); text-underline-offset: .18em; text-decoration-thickness: 1px; }
code { font: .9em var(--mono); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
main:focus { outline: none; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; z-index: 3; padding: .5rem .9rem; background: var(--raised); }
.top, .filters, main, .foot {
  max-width: 70rem; margin-inline: auto;
  padding-inline: max(clamp(1.25rem, 4vw, 3rem), env(safe-area-inset-left));
}
.top { padding-block: clamp(2.5rem, 7vw, 5rem) clamp(1.5rem, 4vw, 2.5rem); }
.kind { color: var(--quiet); font-size: .875rem; letter-spacing: .02em; }
h1 {
  font: 400 clamp(2.1rem, 6vw, 3.25rem)/1.1 var(--serif);
  letter-spacing: -.015em; margin-block: .35rem 1rem;
}
.sums { color: var(--quiet); display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; }
.note {
  margin-top: 1.25rem; padding: .7rem 1rem; border-radius: 8px; max-width: 46rem;
  background: var(--warn-paper); color: var(--warn); font-size: .9375rem;
}
.note + .note { margin-top: .5rem; }

.bar {
  position: sticky; top: 0; z-index: 2; border-block: 1px solid var(--line);
  background: var(--paper);
}
.filters {
  padding-block: .75rem; display: flex; flex-wrap: wrap; gap: .75rem 1rem; align-items: end;
}
.filters label, .filters output { font-size: .75rem; color: var(--quiet); }
.filters label { display: grid; gap: .2rem; }
.filters .search {
  flex: 1 1 14rem; display: grid; grid-template-columns: 1fr auto; gap: .2rem 1rem;
}
.filters .search input { grid-column: 1 / -1; }
.filters .on {
  display: flex; gap: .45rem; align-items: center; min-height: 2.5rem; font-size: .875rem;
}
.filters input[type=checkbox] {
  width: 1.05rem; height: 1.05rem; margin: 0; accent-color: var(--accent);
}
.filters select, .filters input[type=search], button {
  font: inherit; font-size: 1rem; color: var(--ink); background: var(--raised);
  border: 1px solid var(--edge); border-radius: 8px; min-height: 2.5rem; padding: .3rem .7rem;
  width: 100%; min-width: 0; margin: 0;
}
::placeholder { color: var(--quiet); opacity: 1; }
.filters select { max-width: 13rem; text-overflow: ellipsis; }
.views { display: flex; }
button { width: auto; cursor: pointer; font-size: .9375rem; }
.views button { border-radius: 8px 0 0 8px; }
.views button + button { border-radius: 0 8px 8px 0; margin-left: -1px; }
button[aria-pressed=true] {
  background: var(--ink); color: var(--paper); border-color: var(--ink);
}

.voice {
  display: grid; grid-template-columns: minmax(0, 15rem) minmax(0, 1fr);
  gap: 1.5rem clamp(2rem, 5vw, 4.5rem); padding-block: clamp(2.25rem, 5vw, 3.5rem);
}
.voice + .voice { border-top: 1px solid var(--line); }
.who {
  align-self: start; position: sticky; top: calc(var(--bar, 0px) + 1.5rem); font-size: .875rem;
}
.who h2 { font: 400 1.625rem/1.2 var(--serif); letter-spacing: -.01em; }
.tags { color: var(--quiet); display: flex; flex-wrap: wrap; gap: 0 .8rem; margin-top: .3rem; }
.about { margin-top: .8rem; white-space: pre-line; }
.source { margin-top: 1.1rem; display: grid; gap: .55rem; }
.source dt, .facts dt, .unknown { color: var(--quiet); font-size: .75rem; }
.none { color: var(--quiet); margin-top: 1.1rem; }

.clip {
  display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: .8rem 1rem;
  padding: 1.4rem 1rem; margin-inline: -1rem; border-radius: 10px;
  content-visibility: auto; contain-intrinsic-size: auto 18rem;
}
.clip:first-child { margin-top: -1rem; padding-top: 1rem; }
.clip.playing { background: var(--mark); }
.clip h3 { font: 600 .9375rem/1.5 var(--sans); }
[data-view=cards] .of {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
}
.player { grid-column: 1 / -1; min-width: 0; display: grid; gap: .4rem; }
.wave { display: block; width: 100%; height: 3rem; fill: var(--wave); cursor: pointer; }
.wave svg { fill: var(--accent); }
.clip audio { width: 100%; height: 2.75rem; display: block; }
.clip blockquote {
  grid-column: 1 / -1; font: 400 1.125rem/1.6 var(--serif); max-width: 40rem;
  white-space: pre-line;
}
.clip summary { list-style: none; cursor: pointer; border-radius: 3px; }
.clip summary::-webkit-details-marker { display: none; }
.clip summary .more { color: var(--accent); font: .875rem var(--sans); white-space: nowrap; }
.clip details[open] .start, .clip details[open] .all { display: none; }
.clip details:not([open]) .less { display: none; }
.cut { color: var(--quiet); font: .875rem var(--sans); }
.state { font-size: .8125rem; line-height: 1.7; color: var(--accent); text-align: right; }
.state::before {
  content: ""; display: inline-block; width: .5rem; height: .5rem; border-radius: 50%;
  background: currentColor; margin-right: .45rem; vertical-align: .06em;
}
.state.other { color: var(--warn); }
.state.other::before { background: none; border: 2px solid currentColor; }
.facts { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: .5rem 1.75rem; }
.facts dd { font-size: .8125rem; font-variant-numeric: tabular-nums; }
.facts .unknown, .source .unknown { font-size: inherit; }
.fault { color: var(--warn); font-size: .875rem; }
.columns { display: none; }
.empty { padding-block: 4rem; text-align: center; color: var(--quiet); }
.empty button { margin-top: 1rem; }
.foot {
  border-top: 1px solid var(--line); padding-block: 2rem 4rem; font-size: .8125rem;
  color: var(--quiet);
}

[data-view=table] main, [data-view=table] .filters, [data-view=table] .top { max-width: 100rem; }
[data-view=table] .voice { display: block; padding-block: 0 1.5rem; border: 0; }
[data-view=table] .who {
  position: static; display: flex; flex-wrap: wrap; align-items: baseline; gap: .15rem 1.25rem;
  padding-block: 1.75rem .5rem; border-bottom: 1px solid var(--line); font-size: .8125rem;
}
[data-view=table] .who h2 { font-size: 1.25rem; }
[data-view=table] .tags, [data-view=table] .none { margin: 0; }
[data-view=table] .about { margin: 0; }
[data-view=table] .source {
  margin: 0; flex-basis: 100%; display: flex; flex-wrap: wrap; gap: .1rem 1.5rem;
}
[data-view=table] .source div { display: flex; gap: .4rem; align-items: baseline; }
[data-view=table] .source dt { flex: none; }
[data-view=table] .clip, [data-view=table] .who, [data-view=table] .columns {
  margin: 0 -.6rem; padding-inline: .6rem;
}
[data-view=table] .clip {
  gap: .3rem 1rem; padding-block: .6rem; contain-intrinsic-size: auto 9rem;
  border-bottom: 1px solid var(--line); border-radius: 0;
  align-items: center;
}
[data-view=table] .clip audio { height: 2.25rem; }
[data-view=table] .player { gap: .2rem; }
[data-view=table] .wave { height: 1.5rem; }
[data-view=table] .clip h3, [data-view=table] .clip blockquote { font-size: .875rem; }
[data-view=table] .clip blockquote { line-height: 1.45; max-width: none; }
[data-view=table] .clip:not(.playing, :focus-within) blockquote {
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2;
  overflow: hidden; white-space: normal;
}
[data-view=table] .of { color: var(--quiet); font-weight: 400; }
[data-view=table] .facts { gap: .1rem 1.1rem; }
[data-view=table] .facts div { display: flex; gap: .35rem; align-items: baseline; }

@media (min-width: 70rem) {
  [data-view=table] .clip, [data-view=table] .columns {
    display: grid; column-gap: .9rem;
    grid-template-columns:
      minmax(5rem, 7rem) 12rem minmax(9rem, 1fr) 4.3rem 3.6rem 4rem 7.4rem 7.4rem 6.2rem;
  }
  [data-view=table] .columns {
    position: sticky; top: var(--bar, 4rem); z-index: 1; background: var(--paper);
    padding-block: .5rem; border-bottom: 1px solid var(--line);
    font-size: .75rem; color: var(--quiet);
  }
  [data-view=table] .clip { contain-intrinsic-size: auto 5rem; }
  [data-view=table] .player, [data-view=table] .clip blockquote { grid-column: auto; }
  [data-view=table] .clip .state {
    order: 1; text-align: left; line-height: 1.35; font-size: .75rem;
  }
  [data-view=table] .of { display: block; font-size: .75rem; }
  [data-view=table] .facts { display: contents; }
  [data-view=table] .facts dt {
    position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  }
  [data-view=table] .facts dd { font-size: .75rem; }
}
@media (max-width: 48rem) {
  .bar { position: static; }
  .voice { grid-template-columns: minmax(0, 1fr); }
  .who { position: static; }
  .source { grid-template-columns: 1fr; }
  .filters > label:not(.on) { flex: 1 1 8rem; }
  .filters .search { flex-basis: 100%; }
  .views { margin-left: auto; }
  html { scroll-padding-top: 1rem; }
  .filters select { max-width: none; padding-inline: .4rem; }
  .clip blockquote { font-size: 1.0625rem; }
  .clip:first-child { margin-top: 0; }
}
@media (forced-colors: active) { .wave { fill: CanvasText; } .wave svg { fill: Highlight; } }
@media print { .bar, .skip, audio { display: none; } }
"""

SCRIPT = """
(() => {
  "use strict";
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const fold = (text) => text.normalize("NFD").replace(/\\p{M}/gu, "").toLowerCase();
  const bar = one(".bar"), search = one("#q"), language = one("#language");
  const state = one("#state"), onward = one("#onward"), shown = one("output");
  const voices = all(".voice").map((section) => ({
    section,
    clips: all(".clip", section).map((clip) => ({ clip, text: null })),
    about: null,
  }));
  const total = voices.reduce((sum, voice) => sum + voice.clips.length, 0);

  function matches(voice, entry, words) {
    const { clip } = entry;
    if (language.value && clip.dataset.language !== language.value) return false;
    if (state.value && clip.dataset.state !== state.value) return false;
    if (!words.length) return true;
    voice.about ??= fold(voice.section.querySelector(".who").textContent);
    entry.text ??= fold(clip.textContent) + " " + voice.about;
    return words.every((word) => entry.text.includes(word));
  }

  function filter() {
    const words = fold(search.value).split(/\\s+/).filter(Boolean);
    let count = 0;
    for (const voice of voices) {
      let here = 0;
      for (const entry of voice.clips) {
        const keep = matches(voice, entry, words);
        entry.clip.hidden = !keep;
        here += keep;
      }
      voice.section.hidden = !here;
      count += here;
    }
    one("#nothing").hidden = count > 0;
    const [few, whole] = [count, total].map((number) => number.toLocaleString("en"));
    shown.value = count === total ? `All ${whole} clips` : `${few} of ${whole} clips`;
  }

  function view(name) {
    document.body.dataset.view = name;
    for (const button of all(".views button")) {
      button.setAttribute("aria-pressed", String(button.value === name));
    }
  }

  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 120);
  });
  language.addEventListener("change", filter);
  state.addEventListener("change", filter);
  one(".filters").addEventListener("submit", (event) => event.preventDefault());
  one("#nothing button").addEventListener("click", () => {
    search.value = language.value = state.value = "";
    filter();
    search.focus();
  });
  for (const button of all(".views button")) {
    button.addEventListener("click", () => view(button.value));
  }
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    }
  });

  // What was heard of a clip is drawn over its picture: a copy of it that is just as wide.
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  function draw(audio) {
    const wave = audio.parentElement.querySelector(".wave");
    if (!wave || !Number.isFinite(audio.duration)) return;
    const box = wave.viewBox.baseVal;
    let copy = wave.querySelector("svg");
    if (!copy) {
      copy = wave.cloneNode(true);
      copy.removeAttribute("class");
      copy.querySelector("path").removeAttribute("id");
      copy.setAttribute("y", box.y);
      wave.append(copy);
    }
    const width = box.width * audio.currentTime / audio.duration;
    copy.setAttribute("viewBox", `0 ${box.y} ${width} ${box.height}`);
    copy.setAttribute("width", width);
  }
  function follow(audio) {
    draw(audio);
    if (!still.matches && !audio.paused) requestAnimationFrame(() => follow(audio));
  }
  for (const name of ["timeupdate", "seeked"]) {
    document.addEventListener(name, (event) => draw(event.target), true);
  }
  document.addEventListener("click", (event) => {
    const wave = event.target.closest(".wave");
    if (!wave) return;
    const audio = wave.parentElement.querySelector("audio");
    const box = wave.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    const seek = () => {
      if (!Number.isFinite(audio.duration)) return;
      audio.removeEventListener("loadeddata", seek);
      audio.currentTime = share * audio.duration;
    };
    audio.addEventListener("loadeddata", seek);
    if (audio.readyState > 1) seek();
    audio.play().catch(() => {});
  });

  // From a server without ranges of bytes the end of an Ogg file, and so its length, stays unknown:
  // such a clip is taken as a whole, once, and goes on from there.
  document.addEventListener("durationchange", (event) => {
    const audio = event.target;
    if (audio.duration !== Infinity || audio.dataset.taken) return;
    audio.dataset.taken = "yes";
    fetch(audio.src).then((answer) => answer.blob()).then((clip) => {
      const at = audio.currentTime, goes = !audio.paused;
      audio.src = URL.createObjectURL(clip);
      if (at) audio.currentTime = at;
      if (goes) audio.play().catch(() => {});
    }).catch(() => {});
  }, true);

  // Media events do not bubble, so they are taken on their way down. One clip plays at a time.
  document.addEventListener("play", (event) => {
    for (const clip of all(".clip.playing")) {
      if (clip.contains(event.target)) continue;
      clip.querySelector("audio").pause();
      clip.classList.remove("playing");
    }
    event.target.closest(".clip").classList.add("playing");
    follow(event.target);
  }, true);
  document.addEventListener("ended", (event) => {
    const clip = event.target.closest(".clip");
    clip.classList.remove("playing");
    if (!onward.checked) return;
    const list = all(".voice:not([hidden]) .clip:not([hidden])");
    const next = list[list.indexOf(clip) + 1];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("audio").play().catch(() => {});
  }, true);
  document.addEventListener("error", (event) => {
    const clip = event.target.closest && event.target.closest(".clip");
    if (!clip) return;
    clip.classList.remove("playing");
    if (clip.querySelector(".fault")) return;
    const fault = document.createElement("p");
    fault.className = "fault";
    fault.setAttribute("role", "status");
    fault.textContent = "This clip cannot be played: the file is missing, "
      + "or this browser does not know its format.";
    clip.querySelector("audio").after(fault);
  }, true);

  bar.hidden = false;
  const measure = () => {
    document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
  };
  measure();
  addEventListener("resize", measure);
  filter();  // a browser that goes back or reloads keeps what was typed
})();
"""
