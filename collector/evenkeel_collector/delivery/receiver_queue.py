"""Deliver the notifications of one receiver, in order, with its own limit and circuit breaker.

Queues share neither connections nor threads, so a slow or failing receiver delays only its own
notifications.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import httpx
from sqlalchemy.exc import SQLAlchemyError

from evenkeel.slo.receiver import Receiver, ReceiverType, receiver_at
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.attempt import (
    TIMEOUT_S,
    DeliveryResult,
    deliver,
    open_client,
)
from evenkeel_collector.delivery.breaker import Breaker

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT = 8
# Maximum number of apprise processes: each imports a large library.
_MAX_PROCESSES = 2
# About an hour: until then, an e-mail that some recipients have is retried for the others, which a
# server may have greylisted. Later notifications of the alert wait for that.
_MOST_ATTEMPTS_FOR_SOME = 60


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Timing of deliveries.

    Attributes:
        timeout_s: Limit for one attempt, from the connection to the response.
        unit_s: Unit of the back-off; a second except in tests.
        poll_s: How often the outbox is polled.
    """

    timeout_s: float = TIMEOUT_S
    unit_s: float = 1.0
    poll_s: float = 0.25


def backoff_s(num_failures: int, jitter: float, unit_s: float = 1.0) -> float:
    """Return min(2^n + jitter, 60) units after n + 1 failures; `jitter` is from 0 to 1."""
    return min(2.0 ** min(num_failures - 1, 10) + jitter, 60.0) * unit_s


@dataclass(frozen=True, slots=True)
class QueueContext:
    """What all queues share: the receivers in force, the policy, counters and error handling."""

    find_receivers: Callable[[], Mapping[str, Receiver]]
    policy: DeliveryPolicy
    count: Callable[[str], None]
    record_error: Callable[[BaseException], None]


class Clock:
    """Detects that the wall clock was set back by more than a second."""

    def __init__(self, read_ns: Callable[[], int] = time.time_ns) -> None:
        self._read_ns = read_ns
        self._last_ns = 0

    def was_set_back(self) -> bool:
        """Return whether the clock was set back since the last call."""
        now_ns, last_ns = self._read_ns(), self._last_ns
        self._last_ns = now_ns
        return last_ns - now_ns > 10**9


class ReceiverQueue:
    """Delivers one receiver's notifications until it is cancelled.

    Args:
        name: The receiver's name.
        book: The alert book, opened in the loop's thread.
        context: Shared by all queues.
    """

    def __init__(self, name: str, book: AlertBook, context: QueueContext) -> None:
        self._name = name
        self._book = book
        self._context = context
        self._breaker = Breaker(context.policy.unit_s)
        self._busy_until_ns = 0
        self._clock = Clock()
        self._in_flight: dict[asyncio.Task[None], Notification] = {}
        # The recipients that notifications are still to be sent to, where others have them.
        self._left: dict[int, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Deliver until cancelled; attempts in flight are aborted then, and repeated later."""
        policy = self._context.policy
        threads = ThreadPoolExecutor(_MAX_IN_FLIGHT, f"alerts-{self._name}")
        try:
            async with open_client(policy.timeout_s) as client:
                while True:
                    try:
                        if self._clock.was_set_back():
                            self._book.make_due(self._name, time.time_ns())
                        self._drop_ended()
                        self._give_up()
                        self._start_due(client, threads)
                    except SQLAlchemyError as error:
                        self._context.record_error(error)
                    await self._pause(policy.poll_s)
        finally:
            for task in self._in_flight:
                task.cancel()
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            threads.shutdown(wait=False, cancel_futures=True)

    async def _pause(self, longest_s: float) -> None:
        """Wait for the next poll; if all places are taken, only until one is free."""
        if len(self._in_flight) < _MAX_IN_FLIGHT:
            await asyncio.sleep(longest_s)
        else:
            await asyncio.wait(
                self._in_flight, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED
            )

    def _drop_ended(self) -> None:
        for task in [task for task in self._in_flight if task.done()]:
            del self._in_flight[task]
            error = task.exception()
            if error is not None:
                self._context.record_error(error)

    def _give_up(self) -> None:
        busy = {notification.number for notification in self._in_flight.values()}
        now_ns = time.time_ns()
        for notification in self._book.overdue(self._name, now_ns):
            if notification.number not in busy:
                state = self._book.give_up(notification, now_ns)
                self._left.pop(notification.number, None)
                self._context.count(state)
                self._log_given_up(notification, state, notification.last_error or "never tried")

    def _start_due(self, client: httpx.AsyncClient, threads: ThreadPoolExecutor) -> None:
        now_ns = time.time_ns()
        receiver = receiver_at(self._name, self._context.find_receivers())
        if receiver is None:
            self._refuse_all(now_ns)
            return
        is_slow = receiver.type is ReceiverType.APPRISE
        num_free = (_MAX_PROCESSES if is_slow else _MAX_IN_FLIGHT) - len(self._in_flight)
        # Use the monotonic clock for pauses, since the wall clock may be set.
        steady_ns = time.monotonic_ns()
        is_held = steady_ns < self._busy_until_ns or receiver.is_muted(now_ns)
        if is_held or num_free <= 0 or not self._breaker.may_try(steady_ns):
            return
        # A notification withdrawn while in flight no longer waits, but still comes first.
        busy = {notification.fingerprint for notification in self._in_flight.values()}
        due = self._book.due(now_ns, num_free + len(busy), self._name)
        for notification in [
            notification for notification in due if notification.fingerprint not in busy
        ][:num_free]:
            if not self._breaker.try_acquire(steady_ns):
                return
            attempt = self._deliver(client, threads, receiver, notification)
            self._in_flight[asyncio.create_task(attempt)] = notification

    def _refuse_all(self, now_ns: int) -> None:
        error = "the SLO file no longer has this receiver"
        for notification in self._book.due(2**62, receiver=self._name):
            self._book.mark_dead(notification.number, error, now_ns)
            self._context.count("dead")
            self._log_given_up(notification, "dead", error)

    async def _deliver(
        self,
        client: httpx.AsyncClient,
        threads: ThreadPoolExecutor,
        receiver: Receiver,
        notification: Notification,
    ) -> None:
        left = self._left.get(notification.number, receiver.recipients)
        to = tuple(recipient for recipient in receiver.recipients if recipient in left)
        outcome = DeliveryResult(is_delivered=True)
        # None, if the file no longer has those who are left.
        if to == receiver.recipients or to:
            outcome = await deliver(
                client,
                replace(receiver, recipients=to),
                notification,
                self._context.policy.timeout_s,
                threads,
            )
        self._record(notification, outcome)

    def _record(self, notification: Notification, outcome: DeliveryResult) -> None:
        now_ns, steady_ns, policy = time.time_ns(), time.monotonic_ns(), self._context.policy
        was_open = self._breaker.is_open
        outcome = self._settle_recipients(notification, outcome)
        if not outcome.is_busy:
            self._breaker.record(outcome.is_delivered or outcome.is_about_notification, steady_ns)
        if outcome.is_delivered:
            self._left.pop(notification.number, None)
            self._book.mark_delivered(
                notification.number, now_ns, notification.alerts, outcome.error or None
            )
            if outcome.error:
                self._warn("delivered in part", notification, outcome.error)
            self._context.count("delivered")
            if was_open:
                self._book.make_due(self._name, now_ns)
            return
        asked_ns = int((outcome.retry_after_s or 0.0) * 1e9)
        if outcome.is_busy:
            self._busy_until_ns = max(self._busy_until_ns, steady_ns + asked_ns)
        wait_s = backoff_s(notification.num_attempts + 1, random.random(), policy.unit_s)
        next_ns = now_ns + max(int(wait_s * 1e9), asked_ns)
        self._book.mark_failed(
            notification.number, outcome.error, next_ns, now_ns, outcome.is_refused
        )
        self._context.count("failed")
        if outcome.is_refused and notification.num_attempts == 0:
            self._warn("refused, will retry", notification, outcome.error)

    def _warn(self, what: str, notification: Notification, error: str) -> None:
        logger.warning(
            "notification %s receiver=%s id=%s error=%r",
            what,
            notification.receiver,
            notification.notification_id,
            error,
        )

    def _settle_recipients(
        self, notification: Notification, outcome: DeliveryResult
    ) -> DeliveryResult:
        """Return the result, delivered if all recipients have the notification that can get it."""
        if outcome.left is None or not (outcome.is_in_part or notification.number in self._left):
            return outcome
        self._left[notification.number] = outcome.left
        is_over = not outcome.left or notification.num_attempts >= _MOST_ATTEMPTS_FOR_SOME
        return replace(outcome, is_delivered=is_over, is_about_notification=True)

    def _log_given_up(self, notification: Notification, state: str, error: str) -> None:
        logger.error(
            "notification given up receiver=%s id=%s state=%s attempts=%d error=%r",
            notification.receiver,
            notification.notification_id,
            state,
            notification.num_attempts,
            error,
        )
