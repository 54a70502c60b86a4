"""Notifications through apprise to services that do not take every text."""

import json
from http.server import ThreadingHTTPServer

import httpx
import pytest

from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel_collector.alerts.groups import group_notification
from evenkeel_collector.alerts.notification import NotifiedAlert
from evenkeel_collector.delivery.attempt import DeliveryResult, deliver
from tests.fixtures.http_stub import QuietHandler, serving

TIMEOUT_S = 60.0
LONGEST = 4000


@pytest.mark.parametrize(("options", "is_delivered"), [("", True), ("?overflow=upstream", False)])
async def test_a_service_gets_as_much_of_a_text_as_it_takes(
    options: str, is_delivered: bool
) -> None:
    """Discord takes 2,000 characters, Telegram 4,096: a page beyond was refused for good."""
    texts: list[str] = []

    class Chat(QuietHandler):
        def do_POST(self) -> None:
            text = json.loads(self.rfile.read(int(self.headers["content-length"])))["text"]
            texts.append(text)
            self.send_response(200 if len(text) <= LONGEST else 400)
            self.end_headers()

    alerts = [
        NotifiedAlert({"slo": f"chat-{i}"}, {"summary": f"chat-{i} burns"}, 10**18)
        for i in range(100)
    ]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    server.daemon_threads = True
    with serving(server):
        address = f"mmost://127.0.0.1:{server.server_port}/{'k' * 24}{options}"
        receiver = Receiver("chat", address, ReceiverType.APPRISE, allow_private=True)
        async with httpx.AsyncClient() as client:
            notification = group_notification("chat", {}, alerts)
            outcome = await deliver(client, receiver, notification, TIMEOUT_S)
    assert outcome.is_delivered is is_delivered
    if is_delivered:
        assert outcome == DeliveryResult(is_delivered=True)
        (text,) = texts
        assert text.startswith("100 firing")
        assert "summary: chat-9 burns" in text
