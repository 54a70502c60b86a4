"""Posts what the outbox owes, again and again under one id, until it is accepted or given up."""

from __future__ import annotations

import asyncio
import logging
import random
import smtplib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from collector.alert_address import AddressRefused, Target, find_target
from collector.alert_apprise import AppriseFailed, send_apprise
from collector.alert_book import AlertBook
from collector.alert_breaker import Breaker
from collector.alert_email import send_email
from collector.alert_groups import Grouper
from collector.alert_outbox import Letter, Outbox
from collector.alert_payloads import Posting, make_posting
from evenkeel.errors import ConfigurationError
from evenkeel.slo_receiver import Receiver, ReceiverType

logger = logging.getLogger(__name__)
# It logs every address at INFO, and a webhook's address is often its secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

_MAX_IN_FLIGHT = 16
_LONGEST_WAIT_S = 3600.0
# What a receiver may answer tomorrow; any other 4xx is an answer that will not change.
_RETRIED_4XX = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How hard to try.

    Attributes:
        timeout_s: For one attempt, from the connection to the answer.
        max_attempts: After this many failures a notification is a dead letter.
        unit_s: What the back-off counts in; a second except in tests.
        poll_s: How often the outbox is looked at.
    """

    timeout_s: float = 10.0
    max_attempts: int = 20
    unit_s: float = 1.0
    poll_s: float = 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt; `retry_after_s` is what the receiver asked for."""

    is_delivered: bool = False
    is_final: bool = False
    error: str = ""
    retry_after_s: float | None = None


def backoff_s(num_failures: int, jitter: float, unit_s: float = 1.0) -> float:
    """Return min(2^n + jitter, 60) units after n + 1 failures; `jitter` is from 0 to 1."""
    return min(2.0 ** min(num_failures - 1, 10) + jitter, 60.0) * unit_s


def read_outcome(status: int, retry_after: str | None, now: datetime) -> Outcome:
    """Return what an HTTP answer means: 2xx accepted; 3xx and most 4xx final; the rest retried.

    Redirects are not followed: the address in the file is the one that was agreed to.
    """
    if 200 <= status < 300:
        return Outcome(is_delivered=True)
    is_final = 300 <= status < 500 and status not in _RETRIED_4XX
    return Outcome(
        is_final=is_final,
        error=f"answered {status}",
        retry_after_s=None if is_final else _parse_retry_after_s(retry_after, now),
    )


def _parse_retry_after_s(text: str | None, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header, a count or a date; None if there is none."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return min(float(text), _LONGEST_WAIT_S)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((moment - now).total_seconds(), 0.0), _LONGEST_WAIT_S)


async def deliver(
    client: httpx.AsyncClient, receiver: Receiver, letter: Letter, timeout_s: float
) -> Outcome:
    """Make one attempt; never raises for what a receiver, its address or the network does."""
    try:
        async with asyncio.timeout(timeout_s):
            if receiver.type is ReceiverType.APPRISE:
                await send_apprise(receiver, letter)
                return Outcome(is_delivered=True)
            target = await find_target(receiver.address(), receiver.allow_private)
            if receiver.type is ReceiverType.EMAIL:
                await asyncio.to_thread(send_email, receiver, letter, target, timeout_s)
                return Outcome(is_delivered=True)
            posting = make_posting(receiver, letter, time.time_ns())
            return await _post(client, posting, letter, target)
    except (TimeoutError, httpx.TimeoutException):
        return Outcome(error=f"no answer within {timeout_s:g} s")
    except (AddressRefused, AppriseFailed) as error:
        return Outcome(is_final=error.is_final, error=str(error))
    except smtplib.SMTPResponseException as error:
        # 5xx is for good; the text may repeat what was sent, the code does not.
        is_final = error.smtp_code >= 500
        return Outcome(is_final=is_final, error=f"answered {error.smtp_code}")
    except ConfigurationError as error:
        return Outcome(error=str(error))
    except OSError as error:
        return Outcome(error=f"{type(error).__name__}: {error}")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # An address that is a secret might be part of the message.
        said = "" if receiver.url_secret else f": {error}"
        return Outcome(error=f"{type(error).__name__}{said}")


async def _post(
    client: httpx.AsyncClient, posting: Posting, letter: Letter, target: Target
) -> Outcome:
    url = httpx.URL(posting.url)
    headers = {
        "Content-Type": "application/json",
        # The first is the IETF draft's name, the second that of Standard Webhooks.
        "Idempotency-Key": letter.notification_id,
        "webhook-id": letter.notification_id,
        "User-Agent": "evenkeel",
        "Host": url.netloc.decode("ascii"),
        **posting.headers,
    }
    # Streamed and left unread: a receiver's answer may have any length. The connection goes to the
    # address that was checked; the certificate is checked for the name.
    async with client.stream(
        "POST",
        url.copy_with(host=target.address),
        content=posting.body.encode(),
        headers=headers,
        extensions={"sni_hostname": target.host},
    ) as response:
        return read_outcome(
            response.status_code, response.headers.get("retry-after"), datetime.now(UTC)
        )


class DeliveryWorker:
    """Empties the outbox until it is stopped; one slow receiver does not hold up the others.

    Args:
        book_path: The alert book; the worker opens its own connection.
        find_receivers: Returns the receivers of the SLO file in force, by name.
        policy: How hard to try.
        count: Called with delivered, failed, dead or error after each attempt.
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
        self._has_logged_error = False
        self._breakers: dict[str, Breaker] = {}

    async def run(self, stop: threading.Event) -> None:
        """Deliver until `stop` is set; attempts under way are cut off, and made again later."""
        book = AlertBook(self._book_path)
        outbox, grouper = Outbox(book), Grouper(book)
        tasks: dict[int, asyncio.Task[None]] = {}
        async with httpx.AsyncClient(timeout=self._policy.timeout_s) as client:
            try:
                while not stop.is_set():
                    self._drop_ended(tasks)
                    self._flush(grouper)
                    self._start_due(outbox, client, tasks)
                    await asyncio.sleep(self._policy.poll_s)
            finally:
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)
                book.close()

    def _drop_ended(self, tasks: dict[int, asyncio.Task[None]]) -> None:
        for number, task in list(tasks.items()):
            if task.done():
                del tasks[number]
                error = task.exception()
                if error is not None:
                    self._note_error(error)

    def _flush(self, grouper: Grouper) -> None:
        try:
            grouper.flush(self._find_receivers(), time.time_ns())
        except sqlite3.Error as error:
            self._note_error(error)

    def _start_due(
        self, outbox: Outbox, client: httpx.AsyncClient, tasks: dict[int, asyncio.Task[None]]
    ) -> None:
        try:
            letters = outbox.due(time.time_ns()) if len(tasks) < _MAX_IN_FLIGHT else []
        except sqlite3.Error as error:
            self._note_error(error)
            return
        receivers, now_ns = self._find_receivers(), time.time_ns()
        for letter in letters:
            if letter.number in tasks or len(tasks) >= _MAX_IN_FLIGHT:
                continue
            receiver = receivers.get(letter.receiver)
            is_muted = receiver is not None and receiver.is_muted(now_ns)
            if not is_muted and self._breaker(letter.receiver).lets_through(now_ns):
                tasks[letter.number] = asyncio.create_task(self._deliver(outbox, client, letter))

    def _breaker(self, receiver: str) -> Breaker:
        return self._breakers.setdefault(receiver, Breaker(self._policy.unit_s))

    def _note_error(self, error: BaseException) -> None:
        """A full disk must not end delivery: the letter waits, and is sent under the same id."""
        self._count("error")
        if not self._has_logged_error:
            logger.error("the outbox cannot be used, retrying error=%r", error)
        self._has_logged_error = True

    async def _deliver(self, outbox: Outbox, client: httpx.AsyncClient, letter: Letter) -> None:
        receiver = self._find_receivers().get(letter.receiver)
        if receiver is None:
            outcome = Outcome(is_final=True, error="the SLO file no longer has this receiver")
        else:
            outcome = await deliver(client, receiver, letter, self._policy.timeout_s)
        self._note(outbox, letter, outcome)

    def _note(self, outbox: Outbox, letter: Letter, outcome: Outcome) -> None:
        now_ns, num_failures = time.time_ns(), letter.num_attempts + 1
        self._breaker(letter.receiver).note(outcome.is_delivered or outcome.is_final, now_ns)
        if outcome.is_delivered:
            outbox.mark_delivered(letter.number, now_ns, letter.body)
            self._count("delivered")
        elif outcome.is_final or num_failures >= self._policy.max_attempts:
            outbox.mark_dead(letter.number, outcome.error, now_ns)
            self._count("dead")
            logger.error(
                "notification given up receiver=%s id=%s attempts=%d error=%r",
                letter.receiver,
                letter.notification_id,
                num_failures,
                outcome.error,
            )
        else:
            wait_s = backoff_s(num_failures, random.random(), self._policy.unit_s)
            wait_s = max(wait_s, outcome.retry_after_s or 0.0)
            outbox.mark_failed(letter.number, outcome.error, now_ns + int(wait_s * 1e9))
            self._count("failed")
