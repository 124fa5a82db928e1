"""What the project says of itself: no promise without its terms, no command without its words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jobs.cli import main

ROOT = Path(__file__).parent.parent
ROOMS = ("engine", "catalog", "workers", "jobs")
PROSE_SUFFIXES = {".md", ".txt", ".rst", ".html", ".yaml", ".yml", ".toml"}
NOT_OURS = {".git", ".venv", "out", "build", "node_modules", "data"}

# -- promises -------------------------------------------------------------------------------------

_SOUND = r"(?:wave[\s-]*forms?|audio|sounds?|samples|pcm)"
PROMISE = re.compile(
    rf"\b(?:bit[\s-]*)?identical[\s-]+{_SOUND}\b"
    rf"|\bsame[\s-]+wave[\s-]*forms?\b"
    rf"|\b{_SOUND}\s+(?:is|are|stays?|remains?|will\s+be)\s+(?:bit[\s-]*)?identical\b",
    re.IGNORECASE,
)
TERMS = ("same", "build", "configuration")
"""What two renders must share before their waveforms can be called identical."""


def unqualified(paragraph: str) -> list[str]:
    """The promises of a paragraph that does not name their terms."""
    flat = " ".join(paragraph.split())
    promises = [found[0] for found in PROMISE.finditer(flat)]
    rest = PROMISE.sub(" ", flat).lower()
    return [] if all(re.search(rf"\b{term}s?\b", rest) for term in TERMS) else promises


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs of a text file, list items and table rows apart, with the line each begins on."""
    begun, lines = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        starts = re.match(r"\s*(?:[-*+]|\d+\.)\s|\s*\||\s*#+\s", line)
        if (starts or not line.strip()) and lines:
            yield begun, "\n".join(lines)
            lines = []
        if line.strip():
            if not lines:
                begun = number
            lines.append(re.sub(r"^\s*#+\s?|^\s*//\s?|^\s*<!--", "", line))


def strings_of(source: str) -> Iterator[tuple[int, str]]:
    """String literals, docstrings and comments of a Python source; an f-string is one text."""
    tree = ast.parse(source)
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts = (v.value for v in node.values if isinstance(v, ast.Constant))
            yield node.lineno, " ".join(map(str, texts))
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            text = node.value if isinstance(node.value, str) else ""
            yield from ((node.lineno, part) for _, part in paragraphs(text))
    comments = [line.partition("#")[2] for line in source.splitlines()]
    yield from paragraphs("\n".join(comments))


def spoken_files() -> list[Path]:
    """Every file of the repository that people read, and the sources of the rooms."""
    prose = [
        path
        for path in ROOT.rglob("*")
        if path.suffix in PROSE_SUFFIXES
        and path.is_file()
        and not NOT_OURS.intersection(path.relative_to(ROOT).parts)
        and not any(part.endswith((".egg-info", "_cache")) for part in path.parts)
    ]
    return sorted(prose) + sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_no_waveform_is_called_identical_without_its_terms() -> None:
    files = spoken_files()
    names = {path.name for path in files}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "cli.py", "site.py"} <= names
    broken = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        parts = strings_of(text) if path.suffix == ".py" else paragraphs(text)
        broken += [
            f"{path.relative_to(ROOT)}:{line}: {promise!r}: say what it is the same under"
            for line, part in parts
            for promise in unqualified(part)
        ]
    assert broken == []


def test_the_readme_makes_the_promise_in_full() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = [part for _, part in paragraphs(text) if PROMISE.search(part)]
    assert promised
    assert not [part for part in promised if unqualified(part)]


@pytest.mark.parametrize(
    "text",
    [
        "All renders have an identical waveform.",
        "a BIT-IDENTICAL  waveform on any cluster",
        "bit identical\nwaveforms",
        "It gives identical audio.",
        "Identical-Audio on every machine",
        "identical wave-form, whatever the number of workers",
        "The waveform is identical on one worker and on ten.",
        "The samples stay bit-identical.",
        "the same waveform from any build",  # its own "same" is no term
        "Same build: an identical waveform.",  # and the configuration?
        "Same configuration: an identical waveform.",
        "One build, one configuration: an identical waveform.",
    ],
)
def test_an_unqualified_promise_is_found(text: str) -> None:
    assert unqualified(text)


@pytest.mark.parametrize(
    "text",
    [
        "Same text, voice, seed, pack, build and execution configuration give a bit-identical\n"
        "waveform, whatever the number of workers.",
        "The waveform is identical under the same build and configuration.",
        "identical tokens",
        "The waveforms differ.",
        "audio that is identified by its sha256",
    ],
)
def test_a_qualified_promise_and_other_words_pass(text: str) -> None:
    assert not unqualified(text)


def test_terms_are_looked_for_in_the_same_paragraph_only() -> None:
    text = "# Head\n\nSame build and configuration.\n\n- one\n- An identical waveform,\n  always.\n"
    found = [(line, unqualified(part)) for line, part in paragraphs(text)]
    assert [(line, bool(promises)) for line, promises in found] == [
        (1, False),
        (3, False),
        (5, False),
        (6, True),
    ]


def test_strings_docstrings_comments_and_f_strings_are_read() -> None:
    source = (
        '"""Doc: an identical waveform."""\n'
        "name = 'bit-identical audio'\n"
        "told = f'identical {1 + 1} audio'\n"
        "x = 1  # an identical\n"
        "# waveform of two lines\n"
        "identical_audio = 3\n"
    )
    found = sorted({line for line, part in strings_of(source) if unqualified(part)})
    assert found == [1, 2, 3, 4]


# -- the command line -----------------------------------------------------------------------------

UNIVERSAL = {"--help", "-h", "--version"}
"""What every command line has needs no words."""


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of a click tree that does something, with the words that reach it."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield path, command


def documented(path: tuple[str, ...], readme: str) -> bool:
    """Whether a README has a line `loudkit-batch <path>`, or one that lists it as `a|b|c`."""
    words = "[ ]+".join(rf"(?:[\w-]+\|)*{re.escape(word)}(?:\|[\w-]+)*" for word in path)
    return re.search(rf"^\s*loudkit-batch[ ]+{words}(?:[ ]|$)", readme, re.MULTILINE) is not None


def _mentioned(option: str, readme: str) -> bool:
    return option in UNIVERSAL or bool(
        re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", readme)
    )


def undocumented(root: click.Command, readme: str) -> list[str]:
    """Commands and options of a click tree that a README does not mention.

    Of an option with several spellings one is enough.
    """
    missing = []
    for path, command in commands(root):
        name = " ".join(path)
        if not documented(path, readme):
            missing.append(name)
        missing += [
            f"{name} {' or '.join(parameter.opts)}"
            for parameter in command.params
            if isinstance(parameter, click.Option)
            and not parameter.hidden
            and not any(_mentioned(spelling, readme) for spelling in parameter.opts)
        ]
    return missing


def test_every_command_and_option_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = [path for path, _ in commands(main)]
    assert ("render",) in paths
    assert ("pack", "inspect") in paths
    assert undocumented(main, readme) == []


def test_a_command_without_words_is_found() -> None:
    @click.group()
    def tool() -> None: ...

    @tool.command()
    @click.option("--fast", "--quick", is_flag=True)
    @click.option("--secret", is_flag=True, hidden=True)
    def run() -> None: ...

    @tool.group()
    def pack() -> None: ...

    pack.command("open")(lambda: None)
    pack.command("shut")(lambda: None)
    full = "    loudkit-batch run [--fast]\n    loudkit-batch pack open|shut PACK\n"
    assert undocumented(tool, full) == []
    assert undocumented(tool, full.replace("--fast", "--quick")) == []
    assert undocumented(tool, full.replace("--fast", "--faster")) == ["run --fast or --quick"]
    assert undocumented(tool, full.replace("open|", "")) == ["pack open"]
    assert undocumented(tool, full.replace("run", "runner")) == ["run"]
    assert undocumented(tool, "run and pack open and pack shut, --fast") == [
        "run",
        "pack open",
        "pack shut",
    ]


def test_no_command_of_the_readme_is_made_up() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    known = {path for path, _ in commands(main)}
    groups = {path[0] for path in known if len(path) > 1}
    told = re.findall(r"^\s*loudkit-batch[ ]+([\w|-]+)(?:[ ]+([\w|-]+))?", readme, re.MULTILINE)
    assert told
    for first, second in told:
        for name in first.split("|"):
            if name not in groups:
                assert (name,) in known, name
                continue
            for inner in second.split("|"):
                assert (name, inner) in known, f"{name} {inner}"
