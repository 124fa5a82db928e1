"""YAML 1.2 text -> a tree of values that know their line and column, within hard bounds.

PyYAML only parses here; its own readings are YAML 1.1 (`no` is false, 1:30 is ninety, the last of
two equal keys wins). We take its events and read them by the 1.2 core schema: no recursion, so deep
nesting cannot exhaust the stack, and aliases are counted before anything is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from catalog.errors import CatalogSyntaxError, cut, show
from catalog.yaml_scalars import core_value

MAX_DEPTH = 32
"""Levels of nesting; a catalog needs five."""
MAX_NODES = 200_000
"""Keys and values, each alias counted as all that it stands for: 40,000 passages. What all of them
cost, every one refused, is a second and some 300 MB."""

Event = Any  # the stubs of PyYAML do not know the attributes of its events

FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]",
)
_SURROGATE = re.compile("[\ud800-\udfff]")

_TAG = "tag:yaml.org,2002:"
_TAGGED_SCALARS = {
    _TAG + "null": type(None),
    _TAG + "bool": bool,
    _TAG + "int": int,
    _TAG + "float": float,
}

_HINTS = {
    "a tab": "indent with spaces, not tabs",
    "mapping values are not allowed": 'put a text that contains ": " in quotes',
    "expected ':'": "write `key: value`, and put a text of several lines in quotes or after |",
    "while scanning a quoted": "close the quote",
    "unknown escape": 'use single quotes for a text with backslashes, or write "\\\\"',
    "cannot start any token": "put the text in quotes",
    "escape code": "write the character itself",
    "nesting depth": "a catalog needs five levels",
}
_GENERAL_HINT = "check indentation, colons and quotes here"


class Node:
    """A value with its place, 1-based; `fields` of a mapping, `items` of a list."""

    __slots__ = ("column", "fields", "items", "line", "size", "value")

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column
        self.value: object = None
        self.size = 1
        self.fields: dict[str, tuple[Node, Node]] | None = None
        self.items: list[Node] | None = None

    def find(self, loc: Iterable[int | str]) -> Node:
        """The node at that path, or the deepest one on the way there."""
        node = self
        for step in loc:
            if isinstance(step, int) and node.items is not None and step < len(node.items):
                node = node.items[step]
            elif isinstance(step, str) and node.fields is not None and step in node.fields:
                node = node.fields[step][1]
            else:
                break
        return node

    def key(self, name: str) -> Node:
        """The node of the key itself, or this mapping when it has no such key."""
        return self.fields[name][0] if self.fields is not None and name in self.fields else self


def read_tree(text: str, where: str, *, loader: Any = FAST_LOADER) -> Node:
    """The root of the only document in `text`; `where` names the file in every refusal.

    Merge keys (`<<`) and tags beyond the core schema are refused. Raises CatalogSyntaxError.
    """
    _refuse_forbidden(text, where)
    builder = _Builder(where)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, where) from None
    except yaml.YAMLError as error:
        raise CatalogSyntaxError(f"{where}: not valid YAML: {error}") from None
    if builder.root is None:
        raise CatalogSyntaxError(
            f"{where}:1:1: the file is empty; expected `catalog:`, `pack:`, `voices:`, `passages:`"
        )
    return builder.root


def _refuse_forbidden(text: str, where: str) -> None:
    found = _FORBIDDEN.search(text)
    if not found:
        return
    start, code = found.start(), ord(found.group())
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    raise CatalogSyntaxError(
        f"{where}:{line}:{column}: character U+{code:04X} is not allowed in YAML; "
        f'leave it out, or write "\\x{code:02x}" in double quotes'
    )


def _syntax_error(error: yaml.MarkedYAMLError, text: str, where: str) -> CatalogSyntaxError:
    mark = error.problem_mark or error.context_mark
    place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
    told = ", ".join(part for part in (error.context, error.problem) if part)
    if mark and "cannot start any token" in told and text[mark.index : mark.index + 1] == "\t":
        told = "a tab cannot start a value"  # the C parser does not say which character it met
    hint = next((hint for sign, hint in _HINTS.items() if sign in told), _GENERAL_HINT)
    return CatalogSyntaxError(f"{place}: not valid YAML: {told}; {hint}")


class _Frame:
    """A list or a mapping that is still open, and the key that waits for its value."""

    __slots__ = ("anchor", "key", "name", "node")

    def __init__(self, node: Node, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: Node | None = None
        self.name = ""


class _Builder:
    """Takes the events of one file in order and builds the tree."""

    def __init__(self, where: str) -> None:
        self.root: Node | None = None
        self._where = where
        self._documents = 0
        self._nodes = 0
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node] = {}

    def take(self, event: Event) -> None:
        kind = type(event)
        if kind is ScalarEvent:
            node = self._scalar(event)
            self._keep(event.anchor, node)
            self._attach(node, merge=event.value == "<<" and event.implicit[0])
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            self._open(event, is_mapping=kind is MappingStartEvent)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            self._close()
        elif kind is AliasEvent:
            self._attach(self._aliased(event))
        elif kind is DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise self._refuse(event, "a second document starts here; a catalog has only one")

    def _refuse(self, at: Event | Node, message: str) -> CatalogSyntaxError:
        if not isinstance(at, Node):
            at = Node(at.start_mark.line + 1, at.start_mark.column + 1)
        return CatalogSyntaxError(f"{self._where}:{at.line}:{at.column}: {message}")

    def _node(self, event: Event) -> Node:
        self._count(event, 1)
        return Node(event.start_mark.line + 1, event.start_mark.column + 1)

    def _count(self, event: Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._refuse(
                event,
                f"more than {MAX_NODES:,} values, aliases expanded; "
                "put a corpus of passages in a Parquet file (from: corpus.parquet)",
            )

    def _scalar(self, event: Event) -> Node:
        node = self._node(event)
        text, tag = event.value, event.tag
        if _SURROGATE.search(text):
            raise self._refuse(event, "half a surrogate pair is no character; write the whole one")
        if tag in ("!", _TAG + "str") or (tag is None and not event.implicit[0]):
            node.value = text
            return node
        try:
            node.value = core_value(text)
        except ValueError as error:
            raise self._refuse(event, str(error)) from None
        if tag in _TAGGED_SCALARS:
            if type(node.value) is not _TAGGED_SCALARS[tag]:
                short = tag.removeprefix(_TAG)
                raise self._refuse(event, f"expected a value of !!{short}, got {show(text)}")
        elif tag is not None:
            raise self._refuse_tag(event)
        return node

    def _open(self, event: Event, *, is_mapping: bool) -> None:
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            raise self._refuse_tag(event)
        if len(self._stack) == MAX_DEPTH:
            raise self._refuse(
                event, f"nested more than {MAX_DEPTH} levels deep; a catalog needs five"
            )
        node = self._node(event)
        if is_mapping:
            node.fields = {}
        else:
            node.items = []
        self._anchors.pop(event.anchor, None)
        self._stack.append(_Frame(node, event.anchor))

    def _close(self) -> None:
        frame = self._stack.pop()
        node = frame.node
        if node.items is not None:
            node.value = tuple(item.value for item in node.items)
            node.size += sum(item.size for item in node.items)
        elif node.fields is not None:
            node.value = {name: value.value for name, (_, value) in node.fields.items()}
            node.size += sum(1 + value.size for _, value in node.fields.values())
        self._keep(frame.anchor, node)
        self._attach(node)

    def _keep(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _aliased(self, event: Event) -> Node:
        name = event.anchor
        if name in self._anchors:
            node = self._anchors[name]
            self._count(event, node.size)
            return node
        if any(frame.anchor == name for frame in self._stack):
            told = f"alias *{cut(name)} stands inside its own anchor; write it out"
            raise self._refuse(event, told)
        raise self._refuse(event, f"alias *{cut(name)} has no anchor; write &{cut(name)} above it")

    def _attach(self, node: Node, *, merge: bool = False) -> None:
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        parent = frame.node
        if parent.items is not None:
            parent.items.append(node)
        elif frame.key is None:
            self._take_key(frame, node, merge=merge)
        elif parent.fields is not None:
            parent.fields[frame.name] = (frame.key, node)
            frame.key = None

    def _take_key(self, frame: _Frame, node: Node, *, merge: bool) -> None:
        name = node.value
        if not isinstance(name, str):
            raise self._refuse(node, f"expected a name before the colon, got {show(name)}")
        if merge:
            raise self._refuse(node, "merge keys (<<) are not YAML 1.2; write the keys out")
        if frame.node.fields and name in frame.node.fields:
            first = frame.node.fields[name][0]
            raise self._refuse(
                node,
                f"key {show(name)} is already given at {first.line}:{first.column}; keep one",
            )
        frame.key, frame.name = node, name

    def _refuse_tag(self, event: Event) -> CatalogSyntaxError:
        tag = event.tag.replace(_TAG, "!!")
        return self._refuse(event, f"tag {show(tag)} is not read here; write the plain value")
