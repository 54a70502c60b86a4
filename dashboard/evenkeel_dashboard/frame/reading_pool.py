"""Runs a page's queries in a bounded number of threads; drops those no longer awaited."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class ReadingPool:
    """A thread pool for the pages' queries.

    Args:
        at_once: How many queries run at the same time.
        at_most: How many may run or wait. Beyond that, the page runs the query itself when it needs
            the result.
    """

    def __init__(self, at_once: int, at_most: int) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="reading")
        self._places = threading.BoundedSemaphore(at_most)
        self._lock = threading.Lock()
        self._begun: dict[str, set[Future[Any]]] = {}

    def begin(
        self, page: str, is_open: Callable[[], bool], read: Callable[[], _T]
    ) -> Callable[[], _T]:
        """Start a query for a page, and return a function that waits for the result.

        A query that has not started when the page closes, or when `leave` is called, is dropped.
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
        """Drop a page's queries that have not started, and return how many there were."""
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
