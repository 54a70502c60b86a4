"""Receivers behind a proxy of the environment are reached through it, by their names."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert
from evenkeel_collector.delivery import address
from evenkeel_collector.delivery.attempt import DeliveryResult, deliver, open_client
from tests.fixtures.http_stub import QuietHandler, serving

ALERT = NotifiedAlert({"slo": "chat"}, {"summary": "chat burns"}, 0)
NOTIFICATION = Notification("a-firing", "on-call", "a", "chat", (ALERT,))
# A receiver that answers is in time on any machine; half of what a lookup hangs for.
TIMEOUT_S = 30.0
BOTH = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Proxy(QuietHandler):
    """Accepts what is posted to any address, and refuses tunnels after noting where they lead."""

    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.send_error(503)


@contextmanager
def listening() -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    handler = type("Noting", (Proxy,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with serving(server):
        yield server.server_port, asked


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BOTH:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    known = {"hook.test": "127.0.0.1", "inside.test": "10.0.0.7", "outside.test": "93.184.216.34"}
    resolve = socket.getaddrinfo

    def look_up(host: str, port: int, *rest: int) -> list[Any]:
        if not host.endswith(".test"):
            return resolve(host, port, *rest)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def send(url: str, allow_private: bool = False) -> DeliveryResult:
    receiver = Receiver("on-call", url, allow_private=allow_private)

    async def attempt() -> DeliveryResult:
        async with open_client(TIMEOUT_S) as client:
            return await deliver(client, receiver, NOTIFICATION, TIMEOUT_S)

    return asyncio.run(attempt())


@pytest.mark.parametrize("host", ["outside.test", "unknown-here.test"])
def test_a_receiver_is_asked_for_by_name(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By address, the proxy's tunnel would show a certificate for another name."""
    with listening() as (port, asked):
        for scheme in ("http", "https"):
            monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{port}")
        assert send(f"http://{host}/hook") == DeliveryResult(is_delivered=True)
        refused = send(f"https://{host}/hook")
    assert asked == [f"http://{host}/hook", f"{host}:443"]
    assert (refused.is_delivered, refused.is_refused) == (False, False)


@pytest.mark.parametrize(
    ("url", "has_proxy"),
    [
        ("https://outside.test/hook", True),
        ("https://a.corp.test/hook", False),
        ("http://hook.test:8443/", False),
        ("http://hook.test/", True),
        ("http://10.1.2.3/", False),
        ("http://11.1.2.3/", True),
        ("http://[2001:db8::1]:9093/", False),
        ("smtp://outside.test", False),
    ],
)
def test_what_no_proxy_may_name(url: str, has_proxy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:9")
    exempt = ".corp.test, hook.test:8443, 10.0.0.0/8, 2001:db8::1, what/ever"
    monkeypatch.setenv("no_proxy", exempt)
    assert (address.find_proxy(url) is not None) is has_proxy


def test_a_name_that_is_exempt_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "hook.test")
    with listening() as (port, asked):
        outcome = send(f"http://hook.test:{port}/hook", allow_private=True)
    assert (outcome, asked) == (DeliveryResult(is_delivered=True), ["/hook"])


def test_lookups_that_hang_do_not_hold_up_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no name server answers, each takes far longer than we wait for it."""
    resolve, is_over = socket.getaddrinfo, threading.Event()

    def hang(host: str, *rest: Any) -> list[Any]:
        if host == "unknown-here.test" and socket.AI_NUMERICHOST not in rest:
            is_over.wait(2 * TIMEOUT_S)
        return resolve(host, *rest)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(address, "_LOOKUP_BEHIND_A_PROXY_S", 0.05)
    receiver, threads = Receiver("on-call", "http://unknown-here.test/hook"), ThreadPoolExecutor(2)
    inside = replace(receiver, url="http://10.0.0.7/hook")

    async def attempt() -> list[DeliveryResult]:
        async with open_client(TIMEOUT_S) as client:
            return await asyncio.gather(
                *(
                    deliver(client, each, NOTIFICATION, TIMEOUT_S, threads)
                    for each in (*[receiver] * 8, inside)
                )
            )

    with listening() as (port, asked):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        *outcomes, refused = asyncio.run(attempt())
        is_over.set()
    assert outcomes == [DeliveryResult(is_delivered=True)] * 8
    assert len(asked) == 8
    assert "not a public address" in refused.error


@pytest.mark.parametrize(
    "url", ["http://inside.test/hook", "http://10.0.0.7/hook", "http://0x0a000007/hook"]
)
def test_an_internal_address_is_refused_as_without_a_proxy(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as (port, asked):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        outcome = send(url)
    assert (outcome.is_refused, asked) == (True, [])
    assert "not a public address" in outcome.error
