"""What pydantic refused -> lines that name the place, the key, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError

from catalog.errors import CatalogInvalidError, cut, show
from catalog.schema import (
    FORMATS,
    MAX_RULES,
    MAX_SEED,
    Catalog,
    Defaults,
    PackPath,
    Passage,
    PassageSource,
    RenderRule,
    Source,
    Turn,
    Voice,
)
from catalog.yaml_tree import Node

Loc = tuple[int | str, ...]

_SORTED_AT_MOST = 1000
_KNOWN_AT_MOST = 1000
_LONGEST_NEAR = 400

_EXPECTED = {
    "string_type": "string",
    "int_type": "integer",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "greater_than_equal": f"an integer from 0 to {MAX_SEED}",
    "less_than_equal": f"an integer from 0 to {MAX_SEED}",
    "too_short": "at least one item",
    "too_long": f"at most {MAX_RULES} rules",
}
_LITERALS = {"format": "one of " + ", ".join(FORMATS), "renders": "all, or a list of rules"}


def schema_error(error: ValidationError, tree: Node, where: str) -> CatalogInvalidError:
    """What pydantic found, in the order of the file; of very many problems the first it found."""
    # An echo says that a list is empty, only because its items were refused.
    items = [
        item
        for item in error.errors(include_url=False)
        if item["type"] != "too_short" or not item["input"]
    ]
    found = []
    for item in items[:_SORTED_AT_MOST]:
        loc = _loc_in_file(item["loc"]) + _deeper(item)
        if item["type"] == "missing":
            node, path, told = tree.find(loc), loc[:-1], f'missing key "{loc[-1]}"'
        elif item["type"] == "extra_forbidden":
            node, path, told = _key_node(tree, loc), loc, _unknown_key(item["loc"], loc)
        else:
            node, path, told = tree.find(loc), loc, _told(item, loc)
        found.append((node.line, node.column, problem_line(where, node, path, told)))
    lines = (line for _, _, line in sorted(found))
    return CatalogInvalidError(*lines, more=len(items) - len(found))


def problem_line(where: str, node: Node, loc: Loc, told: str) -> str:
    """`catalog.yaml:12:5: voices[2].seed: expected integer, got "x"`."""
    path = dotted(loc)
    return f"{where}:{node.line}:{node.column}: " + (f"{path}: {told}" if path else told)


def dotted(loc: Loc) -> str:
    """`voices[2].seed` for ("voices", 2, "seed")."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{cut(step)}" for step in loc)
    return "".join(steps).removeprefix(".")


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "voice"?`, or nothing when no known name is close."""
    close = difflib.get_close_matches(name[:_LONGEST_NEAR], islice(known, _KNOWN_AT_MOST), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def _loc_in_file(loc: Loc) -> Loc:
    """The location without the steps that pydantic adds for the branch of a union."""
    if loc[:1] in (("pack",), ("renders",)):
        return loc[:1] + loc[2:]
    return loc[:2] + loc[3:] if loc[:1] == ("passages",) else loc


def _deeper(item: Mapping[str, Any]) -> Loc:
    """The key that a check of a whole model complains about, when it says so."""
    key = item.get("ctx", {}).get("key")
    return (key,) if key else ()


def _key_node(tree: Node, loc: Loc) -> Node:
    return tree.find(loc[:-1]).key(str(loc[-1]))


def _told(item: Mapping[str, Any], loc: Loc) -> str:
    kind, given = item["type"], item["input"]
    if kind == "catalog":
        return str(item["ctx"]["told"])
    expected = _EXPECTED.get(kind)
    if kind == "literal_error" and loc:
        expected = _LITERALS.get(str(loc[-1]))
    if loc == ("pack",):
        expected = "a bundled name, a folder, or {path, sha256}"
    if not loc:
        expected = "a mapping with catalog, pack, voices and passages"
    if expected is None:
        return f"{item['msg']}, got {show(given)}"
    quotes = isinstance(given, bool | int | float) and kind == "string_type"
    return f"expected {expected}, got {show(given)}" + ("; put it in quotes" if quotes else "")


def _unknown_key(raw: Loc, loc: Loc) -> str:
    name = str(loc[-1])
    model = _model_at(raw)
    known = [field.alias or key for key, field in model.model_fields.items()]
    close = nearest(name, known)
    return "unknown key" + (close or f"; expected one of {', '.join(known)}")


def _model_at(raw: Loc) -> type[BaseModel]:
    if raw[0] == "voices":
        return Source if "source" in raw[2:-1] else Voice
    if raw[0] == "passages":
        if "turns" in raw[3:-1]:
            return Turn
        return PassageSource if raw[2] == "source" else Passage
    if raw[0] == "defaults" and len(raw) > 1:
        return Defaults
    if raw[0] == "pack" and len(raw) > 1:
        return PackPath
    return RenderRule if raw[0] == "renders" and len(raw) > 1 else Catalog
