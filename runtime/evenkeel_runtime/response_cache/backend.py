"""Where entries are kept: what the cache asks of memory or Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class BackendError(Exception):
    """The backend did not answer; the model does."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a backend holds."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What others did to a shared backend since it was asked last.

    Attributes:
        added: Ids of new entries.
        removed: Ids of entries that were evicted or deleted.
        is_complete: Whether `added` is all there is, because changes were missed: the index starts
            anew.
    """

    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    is_complete: bool = False


class Backend(Protocol):
    """Keeps bytes by id within a bound, the least recently read going first.

    Each method raises BackendError where the backend does not answer.
    """

    async def read(self, entry_ids: Sequence[str]) -> list[bytes | None]:
        """Return what is kept under each id; None where nothing is, or it has expired."""
        ...

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        """Keep an entry; returns the ids of those that had to go for it."""
        ...

    async def delete(self, entry_ids: Sequence[str]) -> int:
        """Remove entries; returns how many there were."""
        ...

    async def find_tagged(self, tag: str) -> list[str]:
        """Return the ids of the entries that were written with this tag."""
        ...

    async def read_changes(self) -> Changes:
        """Return what others changed."""
        ...

    async def measure(self) -> Size:
        """Return what is held."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
