"""A store in memory, with a clock that tests set: the contract of `Store` and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from catalog.store import Content, ObjectFacts, Stored, content_chunks, require_key
from catalog.store_errors import ObjectMissingError


class MemoryStore:
    """Objects in a dictionary, each with the second at which it was last written."""

    address = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.now_s = 0.0

    def exists(self, key: str) -> bool:
        return self.stat(key) is not None

    def stat(self, key: str) -> ObjectFacts | None:
        require_key(key)
        if key not in self.objects:
            return None
        data, at_s = self.objects[key]
        return ObjectFacts(key, len(data), _etag(data), at_s)

    def get(self, key: str) -> Stored:
        require_key(key)
        if key not in self.objects:
            raise ObjectMissingError(f"memory: there is no object {key}")
        data, _ = self.objects[key]
        return Stored(data, _etag(data))

    def get_to(self, key: str, path: Path) -> None:
        path.write_bytes(self.get(key).data)

    def put(self, key: str, content: Content) -> None:
        require_key(key)
        self.objects[key] = (b"".join(content_chunks(content)), self.now_s)

    def put_new(self, key: str, content: Content) -> bool:
        if self.exists(key):
            return False
        self.put(key, content)
        return True

    def compare_and_swap(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        found = self.stat(key)
        if (found.etag if found else None) != expected_etag:
            return None
        self.put(key, data)
        return _etag(data)

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        for key in sorted(self.objects):
            if key.startswith(prefix) and (found := self.stat(key)):
                yield found

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
