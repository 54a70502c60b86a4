"""Deliver the notifications of one receiver, in order, with its own limit and circuit breaker.

Queues share neither connections nor threads, so a slow or failing receiver delays only its own
notifications.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import httpx
from sqlalchemy.exc import SQLAlchemyError

from evenkeel.slo.receiver import Receiver, ReceiverType, receiver_at
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.delivery_health import FAILING_AFTER_NS
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.attempt import (
    TIMEOUT_S,
    DeliveryResult,
    deliver,
    open_client,
)
from evenkeel_collector.delivery.breaker import Breaker
from evenkeel_collector.delivery.email import addresses_of, describe_refusals

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT = 8
# Maximum number of apprise processes: each imports a large library.
_MAX_PROCESSES = 2
# About an hour: until then, an e-mail that some recipients have is retried for the others, which a
# server may have greylisted.
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
class PartlyDelivered:
    """A notification that some e-mail recipients have.

    Attributes:
        notification: As they got it.
        since_ns: When they got it, on the monotonic clock.
        refused: The other recipients, with the server's last answers.
    """

    notification: Notification
    since_ns: int
    refused: Mapping[str, int]

    @property
    def left(self) -> list[str]:
        """The addresses that the server may accept later."""
        return [address for address, code in self.refused.items() if code < 500]

    @property
    def for_good(self) -> dict[str, int]:
        """Those that it will not accept, with its answers."""
        return {address: code for address, code in self.refused.items() if code >= 500}

    def after(self, outcome: DeliveryResult, addresses: Collection[str]) -> PartlyDelivered:
        """Return it after an attempt for those left; the file may name fewer addresses by now."""
        answers = outcome.refused
        if not outcome.is_delivered and not answers:
            answers = {address: self.refused[address] for address in self.left}
        refused = {**self.for_good, **answers}
        return replace(self, refused={a: code for a, code in refused.items() if a in addresses})


@dataclass(frozen=True, slots=True)
class QueueContext:
    """What all queues share: the receivers in force, the policy, counters and error handling.

    `in_part` has what some recipients have, by number.
    """

    find_receivers: Callable[[], Mapping[str, Receiver]]
    policy: DeliveryPolicy
    count: Callable[[str], None]
    record_error: Callable[[BaseException], None]
    in_part: dict[int, PartlyDelivered] = field(default_factory=dict)


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
        self._in_part = context.in_part
        # What was delivered while the book cannot say so: it would be sent again with each poll.
        self._unrecorded: dict[int, Notification] = {}
        # When e-mail recipients were first refused that have not been accepted since.
        self._refused_since_ns: dict[str, int] = {}

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
                        self._end_overtaken()
                        self._give_up()
                        self._start_due(client, threads)
                        self._record_delivered()
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

    def _occupied(self) -> list[Notification]:
        """Return what is in flight, or delivered and not recorded yet."""
        return [*self._in_flight.values(), *self._unrecorded.values()]

    def _busy(self) -> set[int]:
        return {notification.number for notification in self._occupied()}

    def _end_overtaken(self) -> None:
        """End what some recipients have, once it was withdrawn or they wait for something newer."""
        own = {n for n, part in self._in_part.items() if part.notification.receiver == self._name}
        if own:
            for number in own - self._book.newest_waiting(own) - self._busy():
                part = self._in_part[number]
                # Everybody reads them again: not each time because one mailbox is full.
                if not self._failing().issuperset(part.left):
                    self._book.pass_on_ends(part.notification)
                self._end_in_part(number)

    def _end_in_part(self, number: int) -> bool:
        """End what some recipients have, if it is that; return whether it is."""
        part = self._in_part.get(number)
        if part is None:
            return False
        # Others get what is newer, or it is over; repetitions count from when most had it.
        ago_ns = time.monotonic_ns() - part.since_ns if part.refused else 0
        error = self._reported(part)
        self._book.mark_delivered(number, time.time_ns() - ago_ns, part.notification.alerts, error)
        del self._in_part[number]
        if part.refused:
            self._warn("delivered in part", part.notification, describe_refusals(part.refused))
        self._context.count("delivered")
        return True

    def _failing(self) -> set[str]:
        """Return the recipients that have been refused for long."""
        long_ago_ns = time.monotonic_ns() - FAILING_AFTER_NS
        return {a for a, since_ns in self._refused_since_ns.items() if since_ns <= long_ago_ns}

    def _reported(self, part: PartlyDelivered) -> str | None:
        """Return what is wrong with recipients; servers refuse new senders at first."""
        failing = self._failing()
        reported = {a: code for a, code in part.refused.items() if code >= 500 or a in failing}
        return describe_refusals(reported) if reported else None

    def _give_up(self) -> None:
        busy, now_ns = self._busy(), time.time_ns()
        for notification in self._book.overdue(self._name, now_ns):
            if notification.number not in busy and not self._end_in_part(notification.number):
                state = self._book.give_up(notification, now_ns)
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
        busy = {notification.fingerprint for notification in self._occupied()}
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
        busy = self._busy()
        for notification in self._book.due(2**62, receiver=self._name):
            if notification.number in busy or self._end_in_part(notification.number):
                continue
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
        addresses = addresses_of(receiver.recipients)
        part = self._in_part.get(notification.number)
        left = addresses if part is None else tuple(a for a in addresses if a in part.left)
        outcome = DeliveryResult(is_delivered=True)
        # None, if the file no longer has those who are left.
        if part is None or left:
            to = receiver if part is None else replace(receiver, recipients=left)
            timeout_s = self._context.policy.timeout_s
            outcome = await deliver(client, to, notification, timeout_s, threads)
            self._record_refusals(left, outcome)
        if part is None and outcome.is_in_part:
            part = PartlyDelivered(notification, time.monotonic_ns(), {})
        if part is not None:
            part = part.after(outcome, addresses)
            self._in_part[notification.number] = part
            outcome = self._settle(part, receiver, notification, outcome)
        self._record(notification, outcome)

    def _record_refusals(self, addresses: Collection[str], outcome: DeliveryResult) -> None:
        if not outcome.is_delivered and not outcome.refused:
            return
        for address in addresses:
            if address in outcome.refused:
                self._refused_since_ns.setdefault(address, time.monotonic_ns())
            else:
                self._refused_since_ns.pop(address, None)

    def _record(self, notification: Notification, outcome: DeliveryResult) -> None:
        now_ns, steady_ns, policy = time.time_ns(), time.monotonic_ns(), self._context.policy
        was_open = self._breaker.is_open
        if not outcome.is_busy:
            self._breaker.record(outcome.is_delivered or outcome.is_about_notification, steady_ns)
        if outcome.is_delivered:
            self._unrecorded[notification.number] = notification
            self._record_delivered()
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

    def _record_delivered(self) -> None:
        for number, notification in list(self._unrecorded.items()):
            if not self._end_in_part(number):
                self._book.mark_delivered(number, time.time_ns(), notification.alerts)
                self._context.count("delivered")
            del self._unrecorded[number]

    def _warn(self, what: str, notification: Notification, error: str) -> None:
        logger.warning(
            "notification %s receiver=%s id=%s error=%r",
            what,
            notification.receiver,
            notification.notification_id,
            error,
        )

    def _settle(
        self,
        part: PartlyDelivered,
        receiver: Receiver,
        notification: Notification,
        outcome: DeliveryResult,
    ) -> DeliveryResult:
        """Return the result, delivered if nobody is left, or the others waited for long enough."""
        if not outcome.is_delivered and not outcome.refused:
            return outcome
        num_attempts = notification.num_attempts - part.notification.num_attempts
        # Nothing is repeated to the others meanwhile.
        waited_ns, repeat_ns = time.monotonic_ns() - part.since_ns, receiver.repeat_s * 10**9
        is_over = num_attempts >= _MOST_ATTEMPTS_FOR_SOME or 0 < repeat_ns <= waited_ns
        return replace(
            outcome,
            is_delivered=is_over or not part.left,
            is_refused=bool(part.for_good),
            is_about_notification=True,
            error=describe_refusals(part.refused) if part.refused else "",
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
