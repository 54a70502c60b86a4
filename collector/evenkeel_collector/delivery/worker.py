"""Empties the outbox: a queue for each receiver, and groups that are told when it is time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from evenkeel.error_guard import ErrorGuard
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.delivery.receiver_queue import DeliveryPolicy, ReceiverQueue, Surroundings

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
            expected=SQLAlchemyError,
            count=partial(count, "error"),
        )

    async def run(self, stop: threading.Event) -> None:
        """Deliver until `stop` is set; attempts under way are cut off, and made again later."""
        book = AlertBook(self._book_path)
        grouper = Grouper(book)
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while not stop.is_set():
                try:
                    grouper.flush(self._find_receivers(), time.time_ns())
                    self._start_queues(book, tasks)
                except SQLAlchemyError as error:
                    self._errors.record(error)
                await asyncio.sleep(self._policy.poll_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            book.close()

    def _start_queues(self, book: AlertBook, tasks: dict[str, asyncio.Task[None]]) -> None:
        """Keep a queue for each who is owed something; one that ended by an error begins anew."""
        around = Surroundings(self._find_receivers, self._policy, self._count, self._errors.record)
        for name, task in list(tasks.items()):
            if task.done():
                del tasks[name]
                error = None if task.cancelled() else task.exception()
                if error is not None:
                    self._errors.record(error)
        owed = set(book.owed_receivers())
        for name in owed - set(tasks):
            tasks[name] = asyncio.create_task(ReceiverQueue(name, book, around).run())
        for name in set(tasks) - owed - set(self._find_receivers()):
            tasks[name].cancel()
