"""Back-off, what answers mean, and the notification as a whole."""

import asyncio
import socket
from datetime import UTC, datetime
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel.slo.receiver import Receiver, ReceiverType, Secret
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert, fingerprint
from evenkeel_collector.delivery.alertmanager import alertmanager_message
from evenkeel_collector.delivery.attempt import DeliveryResult, deliver, read_outcome
from evenkeel_collector.delivery.receiver_queue import backoff_s
from tests.fixtures.http_stub import QuietHandler, serving

NOW = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("num_failures", "seconds"), [(1, 1.5), (2, 2.5), (4, 8.5), (6, 32.5), (7, 60.0), (5000, 60.0)]
)
def test_the_wait_doubles_up_to_a_minute(num_failures: int, seconds: float) -> None:
    assert backoff_s(num_failures, 0.5) == seconds


BUSY = (False, False, False, True, None)
ANSWERS = [
    ("accepted", 202, None, (True, False, False, False, None)),
    ("a redirect is not followed", 302, None, (False, True, False, False, None)),
    ("a bad request, others may be good", 400, None, (False, True, True, False, None)),
    ("a wrong key", 401, "5", (False, True, False, False, None)),
    ("nothing there, whatever it asks", 404, "5", (False, True, False, False, None)),
    ("gone", 410, None, (False, True, False, False, None)),
    ("too large, others may fit", 413, None, (False, True, True, False, None)),
    ("too many, in seconds", 429, "7", (False, False, False, True, 7.0)),
    ("too many", 429, None, (False, False, False, True, None)),
    (
        "too many, until a date",
        429,
        "Fri, 20 Nov 2026 10:00:30 GMT",
        (False, False, False, True, 30.0),
    ),
    ("a past date", 503, "Fri, 20 Nov 2026 09:00:00 GMT", (False, False, False, False, 0.0)),
    ("a wait of a week is cut to an hour", 503, "604800", (False, False, False, False, 3600.0)),
    ("a wait that is no wait", 503, "soon", (False, False, False, False, None)),
    ("a wait below none", 429, "-5", (False, False, False, True, None)),
    ("a server error", 500, None, (False, False, False, False, None)),
    ("a slow client", 408, None, (False, False, False, False, None)),
]


@pytest.mark.parametrize(
    ("status", "retry_after", "expected"),
    [case[1:] for case in ANSWERS],
    ids=[case[0] for case in ANSWERS],
)
def test_what_an_answer_means(
    status: int, retry_after: str | None, expected: tuple[bool, bool, bool, bool, float | None]
) -> None:
    outcome = read_outcome(status, retry_after, NOW)
    assert (
        outcome.is_delivered,
        outcome.is_refused,
        outcome.is_about_notification,
        outcome.is_busy,
        outcome.retry_after_s,
    ) == expected
    assert (outcome.error == "") is outcome.is_delivered


def test_a_notification_is_what_alertmanager_posts() -> None:
    labels = {"alertname": "SloBudgetBurn", "slo": "chat", "severity": "page"}
    alert = NotifiedAlert(labels, {"summary": "chat burns"}, 1_795_168_800_250_000_000)
    notification = Notification(
        "a-firing", "on-call", "a", "f", (alert,), dashboard_url="http://127.0.0.1:8501"
    )
    message = alertmanager_message(Receiver("on-call", "http://127.0.0.1:1/"), notification)
    # Field by field as in Prometheus' documentation of webhook_config, version 4.
    assert message == {
        "version": "4",
        "groupKey": '{}:{alertname="SloBudgetBurn", slo="chat"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "on-call",
        "groupLabels": {"alertname": "SloBudgetBurn", "slo": "chat"},
        "commonLabels": labels,
        "commonAnnotations": {"summary": "chat burns"},
        "externalURL": "http://127.0.0.1:8501",
        "alerts": [
            {
                "status": "firing",
                "labels": labels,
                "annotations": {"summary": "chat burns"},
                "startsAt": "2026-11-20T10:00:00.250Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://127.0.0.1:8501",
                "fingerprint": "dcfab4f4010366d0",
            }
        ],
    }


def test_a_fingerprint_depends_on_labels_and_not_on_their_order() -> None:
    one = fingerprint({"a": "1", "b": "2"})
    assert one == fingerprint({"b": "2", "a": "1"})
    assert one != fingerprint({"a": "2", "b": "1"})
    assert len(one) == 16


ALERT = NotifiedAlert({"slo": "chat"}, {"summary": "chat burns"}, 0)
NOTIFICATION = Notification("a-firing", "on-call", "a", "chat", (ALERT,))
ADDRESSES = ["http://127.0.0.1:99999/hook", "http://127.0.0.1:key/hook", "http://[::1/key", "key"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("kind", [ReceiverType.SLACK, ReceiverType.EMAIL])
def test_a_secret_address_that_is_none_is_a_failed_attempt_that_keeps_the_secret(
    tmp_path: Path, address: str, kind: ReceiverType
) -> None:
    """What would be raised instead would be tried again at once, for ever and uncounted."""
    (tmp_path / "url").write_text(address)
    receiver = Receiver("on-call", "", kind, Secret(file=tmp_path / "url"), allow_private=True)

    async def attempt() -> tuple[bool, str]:
        async with httpx.AsyncClient() as client:
            outcome = await deliver(client, receiver, NOTIFICATION, 5.0)
            return outcome.is_delivered, outcome.error

    is_delivered, error = asyncio.run(attempt())
    assert not is_delivered
    assert error
    assert "key" not in error


class Accepting(QuietHandler):
    """Accepts every notification."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()


@pytest.mark.parametrize("kind", [ReceiverType.WEBHOOK, ReceiverType.EMAIL])
def test_a_name_with_an_address_that_does_not_answer_is_reached_at_its_other_one(
    kind: ReceiverType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a receiver on IPv4 alone whose name has an IPv6 address, too."""
    resolve = socket.getaddrinfo

    def both(host: str, port: int, *rest: int) -> list[Any]:
        if host != "hook.test":
            return resolve(host, port, *rest)
        found = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port))]
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in found]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    server = HTTPServer(("127.0.0.1", 0), Accepting)
    with serving(server):
        scheme = "http" if kind is ReceiverType.WEBHOOK else "smtp"
        url = f"{scheme}://hook.test:{server.server_port}/"
        receiver = Receiver(
            "on-call", url, kind, allow_private=True, sender="a@b.test", recipients=("c@d.test",)
        )

        # The second waits in vain for a greeting.
        timeout_s = 60.0 if kind is ReceiverType.WEBHOOK else 5.0

        async def attempt() -> DeliveryResult:
            async with httpx.AsyncClient(trust_env=False) as client:
                return await deliver(client, receiver, NOTIFICATION, timeout_s)

        outcome = asyncio.run(attempt())
    if kind is ReceiverType.WEBHOOK:
        assert outcome == DeliveryResult(is_delivered=True)
    else:
        # It is reached, and does not speak SMTP.
        assert "refused" not in outcome.error.lower()
        assert "cannot assign" not in outcome.error.lower()


def test_the_last_address_has_all_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow TLS handshake at the only address that works is no reason to give up earlier."""
    found = [(socket.AF_INET6, ("::1", 80, 0, 0)), (socket.AF_INET, ("127.0.0.1", 80))]
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_: [(family, socket.SOCK_STREAM, 6, "", address) for family, address in found],
    )
    tried: dict[str, float] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        tried[request.url.host] = request.extensions["timeout"]["connect"]
        if request.url.host == "::1":
            raise httpx.ConnectTimeout("no answer")
        return httpx.Response(204)

    async def attempt() -> DeliveryResult:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            receiver = Receiver("on-call", "http://hook.test/", allow_private=True)
            return await deliver(client, receiver, NOTIFICATION, 9.0)

    assert asyncio.run(attempt()) == DeliveryResult(is_delivered=True)
    assert tried == {"::1": 3.0, "127.0.0.1": 9.0}
