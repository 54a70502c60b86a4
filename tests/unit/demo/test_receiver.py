"""The demo's webhook receiver, over a real connection."""

from collections.abc import Iterator
from http.client import HTTPConnection

import httpx
import pytest

from evenkeel_demo.receiver import MAX_BODY_BYTES, WebhookReceiver

BODY = {
    "version": "4",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "burn", "slo": "chat-ttft", "severity": "page"},
            "annotations": {"summary": "burns 20 times too fast"},
        }
    ],
}


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    yield receiver
    receiver.close()


def test_it_keeps_what_arrives(receiver: WebhookReceiver) -> None:
    assert httpx.post(receiver.url, json=BODY).status_code == 200
    (notification,) = receiver.notifications
    assert (notification.status, notification.name) == ("firing", "chat-ttft")
    assert notification.severity == "page"


def test_the_same_id_again_is_the_same_notification(receiver: WebhookReceiver) -> None:
    for key in ("a-firing", "a-firing", "a-resolved"):
        answer = httpx.post(receiver.url, json=BODY, headers={"Idempotency-Key": key})
        assert answer.status_code == 200
    assert len(receiver.notifications) == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"alerts": [{}]}', b'{"alerts": 3}'])
def test_it_refuses_what_is_not_a_notification(receiver: WebhookReceiver, body: bytes) -> None:
    assert httpx.post(receiver.url, content=body).status_code == 400
    assert receiver.notifications == []


def test_it_refuses_a_body_without_bound(receiver: WebhookReceiver) -> None:
    host, port = receiver.url.removeprefix("http://").rstrip("/").split(":")
    connection = HTTPConnection(host, int(port), timeout=120)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", str(MAX_BODY_BYTES + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
