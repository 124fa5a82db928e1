"""Which names voices and passages may carry, so that `audio/<voice>/<passage>` works everywhere."""

from __future__ import annotations

import re
from unicodedata import normalize

MAX_NAME_BYTES = 200
"""Of UTF-8: leaves room for an extension within the 255 bytes that file systems allow."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # control, line separators, lone surrogates
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"  # direction marks, byte order mark
)


def name_fault(name: str) -> str | None:
    """What is wrong with the name, or None when it can be a folder or a file of the output."""
    if _PLAIN.fullmatch(name) and len(name) <= MAX_NAME_BYTES:
        return None
    if not name:
        return "a name must not be empty"
    if found := _CONTROL.search(name):
        return f"a name must not contain the control character U+{ord(found.group()):04X}"
    for char, called in (("/", "a slash"), ("\\", "a backslash")):
        if char in name:
            return f"a name must not contain {called}, for it names a file of the output"
    if name.startswith("."):
        return "a name must not start with a dot"
    if name != name.strip() or name.endswith("."):
        return "a name must not start or end with a space, nor end with a dot"
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        return f"a name has at most {MAX_NAME_BYTES} bytes of UTF-8, this one has {size}"
    return None


def folded(name: str) -> str:
    """The name as a file system sees it that ignores case and Unicode normal form."""
    if name.isascii():
        return name.lower()
    return normalize("NFC", normalize("NFC", name).casefold())
