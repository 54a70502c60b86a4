"""Reads beside the page that asked: so many readings at once, and none that nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class ReadingPool:
    """Threads that read for pages.

    Args:
        at_once: How many readings run at a time.
        at_most: How many may run or wait; a page whose reading finds no place reads by itself, at
            the moment when it needs the answer.
    """

    def __init__(self, at_once: int, at_most: int) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="reading")
        self._places = threading.BoundedSemaphore(at_most)
        self._lock = threading.Lock()
        self._begun: dict[str, set[Future[Any]]] = {}

    def begin(
        self, page: str, is_open: Callable[[], bool], read: Callable[[], _T]
    ) -> Callable[[], _T]:
        """Begin to read for a page, and return what waits for the answer.

        A reading whose turn comes when the page is closed, or after `leave`, is dropped.
        """
        if not self._places.acquire(blocking=False):
            return read

        def run() -> _T:
            if not is_open():
                raise CancelledError
            return read()

        future = self._pool.submit(run)
        with self._lock:
            self._begun.setdefault(page, set()).add(future)
        future.add_done_callback(lambda done: self._end(page, done))
        return future.result

    def leave(self, page: str) -> int:
        """Drop what a page has begun to read and what has not had its turn; return how many."""
        with self._lock:
            begun = list(self._begun.get(page, ()))
        return sum(future.cancel() for future in begun)

    def _end(self, page: str, future: Future[Any]) -> None:
        self._places.release()
        with self._lock:
            left = self._begun.get(page, set())
            left.discard(future)
            if not left:
                self._begun.pop(page, None)
