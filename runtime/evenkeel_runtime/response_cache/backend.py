"""The storage interface of the cache, implemented by memory and Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class BackendError(Exception):
    """The backend did not respond; the model answers instead."""


@dataclass(frozen=True, slots=True)
class Size:
    """The contents of a backend, in numbers.

    Attributes:
        entries: Number of answers.
        bytes: Their size.
    """

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes by other runtimes to a shared backend since the last call.

    Attributes:
        added: Ids of new entries.
        removed: Ids of entries that were evicted or deleted.
        is_complete: Whether `added` lists all entries, because changes were missed and the index
            must be rebuilt.
    """

    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    is_complete: bool = False


class Backend(Protocol):
    """Stores bytes by id within a size limit, evicting the least recently read first.

    Each method raises BackendError if the backend does not respond.
    """

    async def read(self, entry_ids: Sequence[str]) -> list[bytes | None]:
        """Return the entry for each id; None if missing or expired."""
        ...

    async def write(
        self, entry_id: str, data: bytes, ttl_s: float, tags: Sequence[str]
    ) -> Sequence[str]:
        """Store an entry; return the ids of the entries evicted for it."""
        ...

    async def delete(self, entry_ids: Sequence[str]) -> int:
        """Remove entries; return how many were removed."""
        ...

    async def find_tagged(self, tag: str) -> list[str]:
        """Return the ids of the entries that were written with this tag."""
        ...

    async def find_all(self) -> list[str]:
        """Return the ids of all entries."""
        ...

    async def read_changes(self) -> Changes:
        """Return the changes by other runtimes."""
        ...

    async def measure(self) -> Size:
        """Return the size of the contents."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
