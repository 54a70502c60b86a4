"""Attempt to deliver one notification, and interpret the response."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import httpx

from evenkeel.errors import ConfigurationError
from evenkeel.retry_delay import read_retry_after
from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert, fingerprint
from evenkeel_collector.delivery.address import (
    AddressRefused,
    ResolvedAddress,
    find_proxy,
    find_target,
)
from evenkeel_collector.delivery.apprise import AppriseFailed, send_apprise
from evenkeel_collector.delivery.email import RecipientsRefused, send_email
from evenkeel_collector.delivery.payloads import Posting, make_posting

# httpx logs every address at INFO, and a webhook's address is often its secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

# Limit for one attempt, from the connection to the response.
TIMEOUT_S = 10.0
_LONGEST_WAIT_S = 3600.0
_TOO_MANY = 429
# For SMTP.
_TOO_LARGE = 552
# Temporary errors; any other 4xx needs someone to act.
_PASSING_4XX = (408, 425, _TOO_MANY)
_READ_BY_PEOPLE = (ReceiverType.SLACK, ReceiverType.EMAIL, ReceiverType.APPRISE)
# Errors in this notification, not in the receiver: it may accept others.
_ABOUT_THE_NOTIFICATION = (400, 405, 406, 409, 411, 413, 415, 422)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of one attempt.

    Attributes:
        is_delivered: The receiver accepted it.
        is_refused: The receiver rejected it, and someone has to act before a retry can succeed.
        is_about_notification: It rejected this notification but may accept others.
        is_busy: It works, but asked to retry later.
        error: What went wrong; '' if nothing did.
        retry_after_s: The delay that the receiver asked for.
        refused: The e-mail recipients that were refused, with the server's codes.
        is_in_part: The other recipients have it.
    """

    is_delivered: bool = False
    is_refused: bool = False
    is_about_notification: bool = False
    is_busy: bool = False
    error: str = ""
    retry_after_s: float | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    is_in_part: bool = False


def read_outcome(status: int, retry_after: str | None, now: datetime) -> DeliveryResult:
    """Return the result for an HTTP status: 2xx accepted, 3xx and most 4xx refused, else failed.

    Redirects are not followed: only the address in the file is approved.
    """
    if 200 <= status < 300:
        return DeliveryResult(is_delivered=True)
    is_refused = 300 <= status < 500 and status not in _PASSING_4XX
    return DeliveryResult(
        is_refused=is_refused,
        is_about_notification=status in _ABOUT_THE_NOTIFICATION,
        is_busy=status == _TOO_MANY,
        error=f"answered {status}",
        retry_after_s=None if is_refused else _wait_s(retry_after, now),
    )


def _wait_s(retry_after: str | None, now: datetime) -> float | None:
    wait_s = read_retry_after(retry_after, now)
    return None if wait_s is None else min(wait_s, _LONGEST_WAIT_S)


def open_client(timeout_s: float, proxy: str | None = None) -> httpx.AsyncClient:
    """Return a client that uses this proxy, or none; the environment's is chosen by `find_proxy`.

    httpx would choose by the address, not by the name.
    """
    direct = {"http://": None, "https://": None}
    return httpx.AsyncClient(timeout=timeout_s, proxy=proxy, mounts=direct if proxy is None else {})


async def deliver(
    client: httpx.AsyncClient,
    receiver: Receiver,
    notification: Notification,
    timeout_s: float,
    threads: Executor | None = None,
) -> DeliveryResult:
    """Make one attempt; errors of the receiver, its address or the network are in the result.

    Blocking work (secrets in files, name resolution, SMTP) runs in `threads`; if None, in the
    loop's default executor.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _attempt(client, receiver, notification, timeout_s, threads)
    except (TimeoutError, httpx.TimeoutException):
        return DeliveryResult(error=f"no response within {timeout_s:g} s")
    except (AddressRefused, AppriseFailed) as error:
        return DeliveryResult(is_refused=error.is_final, error=str(error))
    except smtplib.SMTPResponseException as error:
        # 5xx is permanent. Report only the code: the text may quote the message.
        is_refused = error.smtp_code >= 500
        # Its text, after the server had accepted the sender and the recipients, or its size, which
        # servers refuse with the sender (RFC 1870).
        is_about_notification = isinstance(error, smtplib.SMTPDataError) or (
            isinstance(error, smtplib.SMTPSenderRefused) and error.smtp_code == _TOO_LARGE
        )
        return DeliveryResult(
            is_refused=is_refused,
            is_about_notification=is_refused and is_about_notification,
            error=f"answered {error.smtp_code}",
        )
    except RecipientsRefused as error:
        return DeliveryResult(
            is_refused=all(code >= 500 for code in error.codes.values()),
            is_in_part=error.is_in_part,
            error=str(error),
            refused=error.codes,
        )
    except smtplib.SMTPServerDisconnected as error:
        return DeliveryResult(error=f"{type(error).__name__}: {error}")
    except smtplib.SMTPException as error:
        # The server has no login, or none of ours, or takes no such addresses.
        return DeliveryResult(is_refused=True, error=str(error))
    except ConfigurationError as error:
        return DeliveryResult(is_refused=True, error=str(error))
    except OSError as error:
        return DeliveryResult(error=f"{type(error).__name__}: {error}")
    except Exception as error:
        # Anything else counts as an attempt, too, or it would be retried at once, forever.
        # The error message might contain a secret address.
        said = "" if receiver.url_secret else f": {error}"
        is_refused = not isinstance(error, httpx.HTTPError)
        return DeliveryResult(is_refused=is_refused, error=f"{type(error).__name__}{said}")


async def _attempt(
    client: httpx.AsyncClient,
    receiver: Receiver,
    notification: Notification,
    timeout_s: float,
    threads: Executor | None,
) -> DeliveryResult:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    address = await loop.run_in_executor(threads, receiver.address)
    if receiver.type is ReceiverType.APPRISE:
        await send_apprise(receiver, notification, address)
        return DeliveryResult(is_delivered=True)
    proxy = find_proxy(address)
    target = await find_target(address, receiver.allow_private, threads, proxy is not None)
    if receiver.type is ReceiverType.EMAIL:
        left_s = until_s - loop.time()
        await loop.run_in_executor(threads, send_email, receiver, notification, target, left_s)
        return DeliveryResult(is_delivered=True)
    posting = await loop.run_in_executor(
        threads, make_posting, receiver, notification, time.time_ns()
    )
    if proxy is None:
        return await _post(client, posting, notification, target, timeout_s)
    async with await loop.run_in_executor(threads, open_client, timeout_s, proxy) as through:
        return await _post(through, posting, notification, target, timeout_s)


async def _post(
    client: httpx.AsyncClient,
    posting: Posting,
    notification: Notification,
    target: ResolvedAddress,
    timeout_s: float,
) -> DeliveryResult:
    url = httpx.URL(posting.url)
    headers = {
        "Content-Type": "application/json",
        # The first is from the IETF draft, the second from Standard Webhooks.
        "Idempotency-Key": notification.notification_id,
        "webhook-id": notification.notification_id,
        "User-Agent": "evenkeel",
        "Host": url.netloc.decode("ascii"),
        **posting.headers,
    }
    failed: httpx.TransportError | None = None
    for address in target.addresses:
        # Many names have an address of a family that does not get through, or is not even refused.
        is_last = address == target.addresses[-1]
        connect_s = timeout_s if is_last else timeout_s / 3
        try:
            # Streamed and not read: a response may have any length. The connection uses the checked
            # address (a proxy gets the name); the certificate is checked for the name.
            async with client.stream(
                "POST",
                url.copy_with(host=address),
                content=posting.body.encode(),
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=connect_s),
                extensions={"sni_hostname": target.host},
            ) as response:
                return read_outcome(
                    response.status_code, response.headers.get("retry-after"), datetime.now(UTC)
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failed = error
    assert failed is not None
    raise failed


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a test notification to one receiver; `error` is '' if it was accepted."""

    receiver: str
    is_delivered: bool
    error: str


async def send_test(receivers: Sequence[Receiver]) -> list[TrialResult]:
    """Send each receiver a test notification directly, without the outbox or retries.

    Receivers that may open an incident get its end, too; people do not read a second message.
    """
    results = []
    async with open_client(TIMEOUT_S) as client:
        for receiver in receivers:
            fired_ns = time.time_ns()
            outcome = await deliver(client, receiver, _trial(receiver, fired_ns), TIMEOUT_S)
            opens = receiver.sends_resolved and receiver.type not in _READ_BY_PEOPLE
            if outcome.is_delivered and opens:
                end = _trial(receiver, fired_ns, time.time_ns())
                outcome = await deliver(client, receiver, end, TIMEOUT_S)
            results.append(TrialResult(receiver.name, outcome.is_delivered, outcome.error))
    return results


def _trial(receiver: Receiver, fired_ns: int, ended_ns: int | None = None) -> Notification:
    labels = {"alertname": "EvenkeelTest", "slo": "test", "severity": "ticket"}
    summary = "Test notification: evenkeel can reach this receiver; nothing is wrong"
    return Notification(
        notification_id=f"test-{uuid4().hex}",
        receiver=receiver.name,
        alert_id="test",
        fingerprint=fingerprint(labels),
        alerts=(NotifiedAlert(labels, {"summary": summary}, fired_ns, ended_ns),),
        created_ns=time.time_ns(),
    )
