"""One thread with a short queue, for computations that nobody may have to wait for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs one piece of work at a time; what is cancelled before its turn leaves the queue.

    The thread is a daemon: one that hangs keeps no server from stopping.

    Args:
        name: Of the thread.
        max_waiting: Most pieces of work that may wait.
        stuck_after_s: Nothing is queued behind a piece that has run for longer.
    """

    def __init__(self, name: str, max_waiting: int, stuck_after_s: float) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._stuck_after_s = stuck_after_s
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._began_s: float | None = None
        self._is_closed = False

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T] | None:
        """Queue a piece of work; None where the queue is full or stuck.

        To be called in an event loop, which the result comes to; cancelling it drops the work
        unless it has begun.
        """
        future: Future[T] = Future()
        with self._changed:
            self._waiting = deque(item for item in self._waiting if not item[0].cancelled())
            if self._is_closed or self._is_stuck() or len(self._waiting) >= self._max_waiting:
                return None
            self._waiting.append((future, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop what waits, and end the thread once its work is done."""
        with self._changed:
            self._is_closed = True
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._changed.notify()

    def _is_stuck(self) -> bool:
        return self._began_s is not None and monotonic() - self._began_s > self._stuck_after_s

    def _run(self) -> None:
        while True:
            with self._changed:
                self._began_s = None
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
                future, work = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                self._began_s = monotonic()
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
