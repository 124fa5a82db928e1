"""A store that counts its calls, and one of whose calls does not come back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from catalog.store_errors import StoreUnreachableError

if TYPE_CHECKING:
    from catalog.store import Store

ADDRESS = "s3://bucket/prefix"


class CountedStore:
    """A store whose n-th call does not come back: it never arrived, or its answer was lost.

    After that nothing comes back, as for a process that died there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.calls: list[str] = []
        self.fails_at, self.arrives, self.stays_dead = 0, False, False

    @property
    def address(self) -> str:
        return ADDRESS

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self.calls.append(name)
                number = len(self.calls)
            is_dead = self.stays_dead and 0 < self.fails_at < number
            if number != self.fails_at and not is_dead:
                return method(*arguments, **options)
            if self.arrives and not is_dead:
                method(*arguments, **options)
            raise StoreUnreachableError(f"{ADDRESS}: no answer to {name}")

        return call
