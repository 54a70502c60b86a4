"""The queue of one receiver: its order, its limit, its circuit breaker; nothing is shared.

What a receiver does or fails to do delays its own notifications alone: connections and threads are
its own as well.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
from sqlalchemy.exc import SQLAlchemyError

from evenkeel.slo.receiver import Receiver, ReceiverType, receiver_at
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.attempt import TIMEOUT_S, DeliveryResult, deliver

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT = 8
# Each is a process that imports a large library.
_MAX_PROCESSES = 2
FAILURES_TO_OPEN = 5
OPEN_UNITS = 30.0


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How hard to try.

    Attributes:
        timeout_s: For one attempt, from the connection to the answer.
        unit_s: What the back-off counts in; a second except in tests.
        poll_s: How often the outbox is looked at.
    """

    timeout_s: float = TIMEOUT_S
    unit_s: float = 1.0
    poll_s: float = 0.25


def backoff_s(num_failures: int, jitter: float, unit_s: float = 1.0) -> float:
    """Return min(2^n + jitter, 60) units after n + 1 failures; `jitter` is from 0 to 1."""
    return min(2.0 ** min(num_failures - 1, 10) + jitter, 60.0) * unit_s


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a queue needs of the worker: the receivers in force, the policy, where to count."""

    find_receivers: Callable[[], Mapping[str, Receiver]]
    policy: DeliveryPolicy
    count: Callable[[str], None]
    record_error: Callable[[BaseException], None]


class Clock:
    """The wall clock; a step back of more than a second is noticed."""

    def __init__(self, read_ns: Callable[[], int] = time.time_ns) -> None:
        self._read_ns = read_ns
        self._last_ns = 0

    def was_set_back(self) -> bool:
        """Return whether it was set back since the last call."""
        now_ns, last_ns = self._read_ns(), self._last_ns
        self._last_ns = now_ns
        return last_ns - now_ns > 10**9


@dataclass(slots=True)
class Breaker:
    """A circuit breaker: after five failures in a row it lets one attempt through per 30 units.

    While open, notifications wait without being attempted, and without counting as failed.
    """

    unit_s: float = 1.0
    num_failures: int = 0
    closed_from_ns: int = 0

    @property
    def is_open(self) -> bool:
        """Return whether the receiver is left alone but for an attempt now and then."""
        return self.num_failures >= FAILURES_TO_OPEN

    def may_try(self, now_ns: int) -> bool:
        """Return whether an attempt may be made, without taking the chance."""
        return not self.is_open or now_ns >= self.closed_from_ns

    def lets_through(self, now_ns: int) -> bool:
        """Return whether an attempt may be made; while open, asking takes the one chance."""
        if not self.is_open:
            return True
        if not self.may_try(now_ns):
            return False
        self.closed_from_ns = now_ns + int(OPEN_UNITS * self.unit_s * 1e9)
        return True

    def record(self, is_reached: bool, now_ns: int) -> None:
        """Take in how an attempt ended: whether the receiver takes notifications."""
        self.num_failures = 0 if is_reached else self.num_failures + 1
        if self.is_open:
            self.closed_from_ns = now_ns + int(OPEN_UNITS * self.unit_s * 1e9)


class ReceiverQueue:
    """Delivers what one receiver is owed until it is cancelled.

    Args:
        name: The receiver's.
        book: Of the thread in which the loop runs.
        around: What the worker lends.
    """

    def __init__(self, name: str, book: AlertBook, around: Surroundings) -> None:
        self._name = name
        self._book = book
        self._around = around
        self._breaker = Breaker(around.policy.unit_s)
        self._busy_until_ns = 0
        self._clock = Clock()
        self._in_flight: dict[asyncio.Task[None], Notification] = {}

    async def run(self) -> None:
        """Deliver; attempts under way are cut off on cancellation, and made again later."""
        policy = self._around.policy
        threads = ThreadPoolExecutor(_MAX_IN_FLIGHT, f"alerts-{self._name}")
        try:
            async with httpx.AsyncClient(timeout=policy.timeout_s) as client:
                while True:
                    try:
                        if self._clock.was_set_back():
                            self._book.hasten(self._name, time.time_ns())
                        self._drop_ended()
                        self._give_up()
                        self._start_due(client, threads)
                    except SQLAlchemyError as error:
                        self._around.record_error(error)
                    await self._pause(policy.poll_s)
        finally:
            for task in self._in_flight:
                task.cancel()
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            threads.shutdown(wait=False, cancel_futures=True)

    async def _pause(self, longest_s: float) -> None:
        """Wait a moment; with all places taken, until one is free."""
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
                self._around.record_error(error)

    def _give_up(self) -> None:
        busy = {notification.number for notification in self._in_flight.values()}
        now_ns = time.time_ns()
        for notification in self._book.overdue(self._name, now_ns):
            if notification.number not in busy:
                state = self._book.give_up(notification, now_ns)
                self._around.count(state)
                self._log_given_up(notification, state, notification.last_error or "never tried")

    def _start_due(self, client: httpx.AsyncClient, threads: ThreadPoolExecutor) -> None:
        now_ns = time.time_ns()
        receiver = receiver_at(self._name, self._around.find_receivers())
        if receiver is None:
            self._refuse_all(now_ns)
            return
        is_slow = receiver.type is ReceiverType.APPRISE
        num_free = (_MAX_PROCESSES if is_slow else _MAX_IN_FLIGHT) - len(self._in_flight)
        # How long it is left alone is no matter of the wall clock, which may be set.
        steady_ns = time.monotonic_ns()
        is_held = steady_ns < self._busy_until_ns or receiver.is_muted(now_ns)
        if is_held or num_free <= 0 or not self._breaker.may_try(steady_ns):
            return
        # One that is withdrawn while it is under way does not wait any more, and is still first.
        busy = {notification.fingerprint for notification in self._in_flight.values()}
        due = self._book.due(now_ns, num_free + len(busy), self._name)
        for notification in [
            notification for notification in due if notification.fingerprint not in busy
        ][:num_free]:
            if not self._breaker.lets_through(steady_ns):
                return
            attempt = self._deliver(client, threads, receiver, notification)
            self._in_flight[asyncio.create_task(attempt)] = notification

    def _refuse_all(self, now_ns: int) -> None:
        error = "the SLO file no longer has this receiver"
        for notification in self._book.due(2**62, receiver=self._name):
            self._book.mark_dead(notification.number, error, now_ns)
            self._around.count("dead")
            self._log_given_up(notification, "dead", error)

    async def _deliver(
        self,
        client: httpx.AsyncClient,
        threads: ThreadPoolExecutor,
        receiver: Receiver,
        notification: Notification,
    ) -> None:
        outcome = await deliver(
            client, receiver, notification, self._around.policy.timeout_s, threads
        )
        self._record(notification, outcome)

    def _record(self, notification: Notification, outcome: DeliveryResult) -> None:
        now_ns, steady_ns, policy = time.time_ns(), time.monotonic_ns(), self._around.policy
        was_open = self._breaker.is_open
        if not outcome.is_busy:
            self._breaker.record(outcome.is_delivered or outcome.is_about_notification, steady_ns)
        if outcome.is_delivered:
            self._book.mark_delivered(notification.number, now_ns, notification.alerts)
            self._around.count("delivered")
            if was_open:
                self._book.hasten(self._name, now_ns)
            return
        asked_ns = int((outcome.retry_after_s or 0.0) * 1e9)
        if outcome.is_busy:
            self._busy_until_ns = max(self._busy_until_ns, steady_ns + asked_ns)
        wait_s = backoff_s(notification.num_attempts + 1, random.random(), policy.unit_s)
        next_ns = now_ns + max(int(wait_s * 1e9), asked_ns)
        self._book.mark_failed(
            notification.number, outcome.error, next_ns, now_ns, outcome.is_refused
        )
        self._around.count("failed")
        if outcome.is_refused and notification.num_attempts == 0:
            logger.warning(
                "notification refused, trying again receiver=%s id=%s error=%r",
                notification.receiver,
                notification.notification_id,
                outcome.error,
            )

    def _log_given_up(self, notification: Notification, state: str, error: str) -> None:
        logger.error(
            "notification given up receiver=%s id=%s state=%s attempts=%d error=%r",
            notification.receiver,
            notification.notification_id,
            state,
            notification.num_attempts,
            error,
        )
