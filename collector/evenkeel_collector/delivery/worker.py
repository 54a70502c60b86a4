"""Deliver the outbox: one queue per receiver, and groups when they are due."""

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
from evenkeel_collector.delivery.receiver_queue import (
    DeliveryPolicy,
    PartlyDelivered,
    QueueContext,
    ReceiverQueue,
)

__all__ = ["DeliveryPolicy", "DeliveryWorker"]

logger = logging.getLogger(__name__)


class DeliveryWorker:
    """Delivers the outbox until it is stopped; receivers do not delay each other.

    Args:
        book_path: The alert book; the worker opens its own connection.
        find_receivers: Returns the receivers of the SLO file in force, by name.
        policy: Timing of deliveries.
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
        self._in_part: dict[int, PartlyDelivered] = {}
        # A full disk must not stop delivery: notifications wait and are sent under the same id.
        self._errors = ErrorGuard(
            logger.error,
            "cannot use the outbox, retrying error=%r",
            expected=SQLAlchemyError,
            count=partial(count, "error"),
        )

    async def run(self, stop: threading.Event) -> None:
        """Deliver until `stop` is set; attempts in flight are aborted then, and repeated later."""
        book = AlertBook(self._book_path)
        grouper = Grouper(book, self._in_part.keys())
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while not stop.is_set():
                try:
                    grouper.flush(self._find_receivers(), time.time_ns())
                    self._start_queues(book, tasks)
                except SQLAlchemyError as error:
                    self._errors.record(error)
                await asyncio.to_thread(stop.wait, self._policy.poll_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            book.close()

    def _start_queues(self, book: AlertBook, tasks: dict[str, asyncio.Task[None]]) -> None:
        """Run a queue for each receiver with waiting notifications; restart those that failed."""
        context = QueueContext(
            self._find_receivers, self._policy, self._count, self._errors.record, self._in_part
        )
        for name, task in list(tasks.items()):
            if task.done():
                del tasks[name]
                error = None if task.cancelled() else task.exception()
                if error is not None:
                    self._errors.record(error)
        waiting = set(book.waiting_receivers())
        for name in waiting - set(tasks):
            tasks[name] = asyncio.create_task(ReceiverQueue(name, book, context).run())
        for name in set(tasks) - waiting - set(self._find_receivers()):
            tasks[name].cancel()
