"""Clips that are published and current: a rebuild counts them as reused, and makes none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands outside of the output folder."""

    executions: Mapping[str, str] = field(default_factory=dict)
    """Digest of the execution identity by `voice/passage`; empty where the record has none."""
    may_mix: bool = False
    """Leave a voice with clips of several execution identities. Otherwise, where some clips of a
    voice are made now, those made under another identity are made again."""

    def __contains__(self, render_key: str) -> bool:
        return render_key in self.executions

    def execution_of(self, render_key: str) -> str:
        """The digest, or nothing."""
        return self.executions[render_key]

    def executions_of(self, voice: str) -> Counter[str]:
        """How many standing clips of a voice were made under each execution identity."""
        found = Counter(
            digest for key, digest in self.executions.items() if key.startswith(f"{voice}/")
        )
        del found[""]
        return found


NOTHING_STANDS = Standing()
