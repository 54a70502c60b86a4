"""The storage interface of the cache, implemented by memory, Redis and Qdrant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

# Back-off after a failure of a shared backend, so that no request waits for it twice. What no
# request waits for has a guard of its own, whose failures make no request go without the backend.
_PAUSE_S = 5.0


class BackendError(Exception):
    """The backend did not respond; the model answers instead."""


class RefusedError(BackendError):
    """The backend responded, but with an error: it is full, or only read from."""


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


class CallGuard:
    """Limits each call to a shared backend, and backs off after a failure.

    Args:
        name: The backend's name, for messages.
        timeout_s: Longest that a call takes.
        errors: What its client raises.
        on_failure: Called after each failure.
        refusals: What its client raises for an answer that is an error; no failure.
    """

    def __init__(
        self,
        name: str,
        timeout_s: float,
        errors: tuple[type[Exception], ...],
        on_failure: Callable[[], None] = lambda: None,
        refusals: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._errors: tuple[type[Exception], ...] = (*errors, TimeoutError)
        self._on_failure = on_failure
        self._refusals = refusals
        self._paused_until_s = 0.0

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Enclose one call; raise BackendError if it fails, or follows a failure."""
        if monotonic() < self._paused_until_s:
            raise BackendError(f"backing off after a recent {self._name} failure")
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except self._errors as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            if isinstance(error, self._refusals):
                # It may well do what it is asked next.
                raise RefusedError(what) from error
            self._paused_until_s = monotonic() + _PAUSE_S
            self._on_failure()
            raise BackendError(what) from error


class Backend(Protocol):
    """Stores bytes by id within a size limit, evicting the least recently read first.

    Each method raises BackendError if the backend does not respond.
    """

    async def read(self, entry_ids: Sequence[str], *, is_use: bool = True) -> list[bytes | None]:
        """Return the entry for each id; None if missing or expired.

        Args:
            entry_ids: The ids.
            is_use: Whether a request reads them: they are evicted later then.
        """
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
