"""One thread with a short queue, for background computations."""

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
    """Runs one job at a time; jobs cancelled before their turn leave the queue.

    The thread is a daemon, so a hung job does not keep the server from stopping.

    Args:
        name: Name of the thread.
        max_waiting: Maximum queued jobs.
        stuck_after_s: Nothing is queued behind a job that has run for longer.
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
        """Queue a job; return None if the queue is full or stuck.

        Call it from an event loop, which receives the result; cancelling it drops the job unless it
        has started.
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
        """Drop queued jobs, and stop the thread once its current job is done."""
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
