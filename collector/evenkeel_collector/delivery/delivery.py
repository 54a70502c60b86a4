"""Delivers what the outbox owes: a queue a receiver, and groups that are told when it is time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from evenkeel.guard import ErrorGuard
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.outbox import Outbox
from evenkeel_collector.delivery.queue import DeliveryPolicy, ReceiverQueue, Surroundings

__all__ = ["DeliveryPolicy", "DeliveryWorker"]

logger = logging.getLogger(__name__)


class DeliveryWorker:
    """Empties the outbox until it is stopped; no receiver holds up another.

    Args:
        book_path: The alert book; the worker opens its own connection.
        find_receivers: Returns the receivers of the SLO file in force, by name.
        policy: How hard to try.
        count: Called with delivered, failed, dead, withdrawn or error.
    """

    def __init__(
        self,
        book_path: Path,
        find_receivers: Callable[[], Mapping[str, Receiver]],
        policy: DeliveryPolicy,
        count: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._book_path = book_path
        self._find_receivers = find_receivers
        self._policy = policy
        self._count = count
        # A full disk must not end delivery: the notification waits, and is sent under the same id.
        self._errors = ErrorGuard(
            logger.error,
            "the outbox cannot be used, retrying error=%r",
            expected=sqlite3.Error,
            count=partial(count, "error"),
        )

    async def run(self, stop: threading.Event) -> None:
        """Deliver until `stop` is set; attempts under way are cut off, and made again later."""
        book = AlertBook(self._book_path)
        outbox, grouper = Outbox(book), Grouper(book)
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while not stop.is_set():
                try:
                    grouper.flush(self._find_receivers(), time.time_ns())
                    self._start_queues(outbox, tasks)
                except sqlite3.Error as error:
                    self._errors.record(error)
                await asyncio.sleep(self._policy.poll_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            book.close()

    def _start_queues(self, outbox: Outbox, tasks: dict[str, asyncio.Task[None]]) -> None:
        """Keep a queue for each who is owed something; one that ended by an error begins anew."""
        around = Surroundings(self._find_receivers, self._policy, self._count, self._errors.record)
        for name, task in list(tasks.items()):
            if task.done():
                del tasks[name]
                error = None if task.cancelled() else task.exception()
                if error is not None:
                    self._errors.record(error)
        owed = set(outbox.receivers())
        for name in owed - set(tasks):
            tasks[name] = asyncio.create_task(ReceiverQueue(name, outbox, around).run())
        for name in set(tasks) - owed - set(self._find_receivers()):
            tasks[name].cancel()
