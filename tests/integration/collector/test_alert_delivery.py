"""Delivery over real HTTP: retries under one id, order, dead letters, and kill -9."""

import asyncio
import socket
import socketserver
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from bench.slo_kills import kill_again_and_again
from evenkeel.slo.receiver import Receiver, ReceiverType, Secret
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.delivery.address import ResolvedAddress
from evenkeel_collector.delivery.attempt import deliver, send_test
from evenkeel_collector.delivery.email import send_email
from evenkeel_collector.delivery.worker import DeliveryPolicy, DeliveryWorker
from tests.fixtures.alert_receiver import Answer, serve_alerts
from tests.fixtures.collector_process import wait_for
from tests.fixtures.http_stub import serving

# A receiver that answers is in time on any machine.
TIMEOUT_S = 60.0
QUICK = DeliveryPolicy(timeout_s=TIMEOUT_S, unit_s=0.01, poll_s=0.01)
# One that never answers costs a test this long, and the others of that test have as long.
GIVES_UP = replace(QUICK, timeout_s=15.0)
NUM_KILLS = 25


@contextmanager
def delivering(
    path: Path, *receivers: Receiver, policy: DeliveryPolicy = QUICK
) -> Iterator[list[str]]:
    """Run a worker in a thread; yields the outcomes it counts."""
    outcomes: list[str] = []
    worker = DeliveryWorker(path, lambda: {r.name: r for r in receivers}, policy, outcomes.append)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(worker.run(stop)))
    thread.start()
    try:
        yield outcomes
    finally:
        stop.set()
        thread.join()


def observe(book: AlertBook, holds: bool, *receivers: Receiver) -> None:
    condition = Condition("chat", "page", holds, Delays(), {"slo": "chat"}, {}, dict)
    AlertEngine(book).observe([condition], receivers, time.time_ns())


def wait_until_done(book: AlertBook) -> None:
    wait_for(lambda: not book.count_by_state()["waiting"])


def test_a_flaky_receiver_gets_firing_then_resolved_under_constant_ids(
    book: AlertBook, tmp_path: Path
) -> None:
    """An error, an answer that never comes, a request to wait, and then it works."""
    never = threading.Event()
    script = [Answer(500), Answer(200, held=never), Answer(503, headers={"Retry-After": "0"})]
    with serve_alerts(script) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe(book, True, receiver)
        observe(book, False, receiver)
        with delivering(tmp_path / "alerts.db", receiver, policy=GIVES_UP):
            wait_until_done(book)
        never.set()
    firing, resolved = [r.body["status"] for r in server.received[:4]], server.received[4]
    assert firing == ["firing"] * 4
    assert len({r.notification_id for r in server.received[:4]}) == 1
    assert resolved.body["status"] == "resolved"
    assert resolved.notification_id != server.received[0].notification_id
    assert book.count_by_state() == {"waiting": 0, "delivered": 2, "dead": 0}


def test_retry_after_is_honoured(book: AlertBook, tmp_path: Path) -> None:
    with serve_alerts([Answer(429, headers={"Retry-After": "1"})]) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe(book, True, receiver)
        with delivering(tmp_path / "alerts.db", receiver):
            wait_until_done(book)
    refused, accepted = server.received
    assert (refused.status, accepted.status) == (429, 200)
    assert accepted.arrived_s - refused.arrived_s >= 1.0


REFUSALS = [302, 400, 401, 403, 404, 410, 500]


@pytest.mark.parametrize("status", REFUSALS)
def test_a_page_is_tried_until_it_is_accepted(book: AlertBook, tmp_path: Path, status: int) -> None:
    """Whatever it answers, and more often than any number of attempts that was a limit before."""
    with serve_alerts([Answer(status)] * 30) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe(book, True, receiver)
        quick = replace(QUICK, unit_s=0.0005)
        with delivering(tmp_path / "alerts.db", receiver, policy=quick) as outcomes:
            wait_until_done(book)
        assert len({r.notification_id for r in server.received}) == 1
    assert outcomes == ["failed"] * 30 + ["delivered"]


def test_after_a_long_outage_only_the_end_is_told(book: AlertBook, tmp_path: Path) -> None:
    with serve_alerts([Answer(404)] * 3) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe(book, True, receiver)
        observe(book, False, receiver)
        book.connection.exec_driver_sql("UPDATE outbox SET give_up_ns = 1 WHERE status = 'firing'")
        with delivering(tmp_path / "alerts.db", receiver) as outcomes:
            wait_until_done(book)
        assert {r.body["status"] for r in server.received} == {"resolved"}
        assert len({r.notification_id for r in server.received}) == 1
    assert outcomes == ["withdrawn", "failed", "failed", "failed", "delivered"]


def test_a_resolution_is_a_dead_letter_after_a_day_and_can_be_replayed(
    book: AlertBook, tmp_path: Path
) -> None:
    with serve_alerts([Answer(), Answer(401)]) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe(book, True, receiver)
        observe(book, False, receiver)
        path = tmp_path / "alerts.db"
        with delivering(path, receiver, policy=replace(QUICK, unit_s=1000.0)):
            server.wait_for(lambda accepted: len(accepted) == 1)
            wait_for(lambda: bool(book.connection.exec_driver_sql(
                "SELECT 1 FROM outbox WHERE num_attempts = 1").fetchone()))  # fmt: skip
        give_up_ns = book.connection.exec_driver_sql(
            "SELECT give_up_ns FROM outbox WHERE state = 'waiting'"
        ).scalar()
        assert give_up_ns is not None
        assert 23.9 < (give_up_ns - time.time_ns()) / 3600e9 <= 24.0
        book.connection.exec_driver_sql("UPDATE outbox SET give_up_ns = 1 WHERE state = 'waiting'")
        with delivering(path, receiver):
            wait_until_done(book)
            (dead,) = book.dead()
            assert (dead.status, dead.last_error) == ("resolved", "answered 401")
            assert book.replay(time.time_ns()) == 1
            wait_until_done(book)
        assert server.accepted()[-1].notification_id == dead.notification_id


def test_what_waits_is_delivered_though_the_tree_names_its_options_otherwise(
    book: AlertBook, tmp_path: Path
) -> None:
    """A file that only changes how often a route repeats must not make a page a dead letter."""
    with serve_alerts() as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        routed = replace(receiver, name="on-call [alone, repeat 4h]", base="on-call")
        changed = replace(routed, name="on-call [alone, repeat 6h]")
        observe(book, True, routed)
        with delivering(tmp_path / "alerts.db", receiver, changed):
            wait_until_done(book)
        assert [r.status for r in server.received] == [200]
    assert book.count_by_state() == {"waiting": 0, "delivered": 1, "dead": 0}


def test_too_many_requests_pauses_the_receiver_and_is_no_failure(
    book: AlertBook, tmp_path: Path
) -> None:
    """Six of them would open the breaker, which lets nothing through for 30,000 s here."""
    script = [Answer(429, headers={"Retry-After": "0"})] * 20
    with serve_alerts(script) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe(book, True, receiver)
        outbox = book
        with delivering(tmp_path / "alerts.db", receiver, policy=replace(QUICK, unit_s=1e-4)):
            wait_until_done(book)
        assert [r.status for r in server.received] == [429] * 20 + [200]
    assert outbox.count_by_state()["delivered"] == 1


def observe_many(book: AlertBook, num: int, *receivers: Receiver) -> None:
    conditions = [
        Condition(f"slo-{i}", "page", True, Delays(), {"slo": f"slo-{i}"}, {}, dict)
        for i in range(num)
    ]
    AlertEngine(book).observe(conditions, receivers, time.time_ns())


@contextmanager
def unanswering_port() -> Iterator[int]:
    """Accept connections and never say a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        yield server.getsockname()[1]


def test_no_receiver_starves_another(book: AlertBook, tmp_path: Path) -> None:
    """Dead, refusing, silent over HTTP and SMTP: 150 alerts reach the healthy one all the same."""
    with unanswering_port() as port, serve_alerts() as healthy, serve_alerts() as refusing:
        refusing._script = [Answer(401)] * 10_000
        receivers = (
            Receiver("a-dead", "http://127.0.0.1:9/", allow_private=True),
            Receiver("b-silent", f"http://127.0.0.1:{port}/", allow_private=True),
            Receiver(
                "c-mail",
                f"smtp://127.0.0.1:{port}",
                ReceiverType.EMAIL,
                allow_private=True,
                sender="a@example.com",
                recipients=("b@example.com",),
            ),
            Receiver("d-refusing", refusing.url, allow_private=True),
            Receiver("e-healthy", healthy.url, allow_private=True),
        )
        observe_many(book, 150, *receivers)
        with delivering(tmp_path / "alerts.db", *receivers, policy=replace(QUICK, unit_s=1.0)):
            healthy.wait_for(lambda accepted: len(accepted) == 150)
            # The last answers may still be on their way.
            wait_for(lambda: "e-healthy" not in book.waiting_receivers())
        waiting = book.connection.exec_driver_sql(
            "SELECT receiver, count(*) FROM outbox WHERE state = 'waiting' GROUP BY 1"
        )
        by_state = {receiver: num for receiver, num in waiting}
    assert by_state == {"a-dead": 150, "b-silent": 150, "c-mail": 150, "d-refusing": 150}


def test_what_cannot_be_recorded_is_not_sent_with_each_poll(
    book: AlertBook, tmp_path: Path
) -> None:
    """On a full disk, say: everybody got each page four times per second."""
    with serve_alerts([]) as server:
        receiver = Receiver("on-call", server.url, allow_private=True)
        observe_many(book, 9, receiver)
        book.connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        with delivering(tmp_path / "alerts.db", receiver) as outcomes:
            server.wait_for(lambda accepted: len(accepted) >= 9)
            time.sleep(20 * QUICK.poll_s)
            assert set(outcomes) == {"error"}
            book.connection.exec_driver_sql("DROP TRIGGER full")
            wait_until_done(book)
    assert len({r.notification_id for r in server.received}) == len(server.received) == 9
    assert outcomes.count("delivered") == 9


def test_a_receiver_that_left_the_file_leaves_a_dead_letter(
    book: AlertBook, tmp_path: Path
) -> None:
    observe(book, True, Receiver("gone", "http://127.0.0.1:9/", allow_private=True))
    with delivering(tmp_path / "alerts.db"):
        wait_until_done(book)
    assert book.dead()[0].last_error == "the SLO file no longer has this receiver"


def test_a_slow_receiver_does_not_hold_up_another(book: AlertBook, tmp_path: Path) -> None:
    answers = threading.Event()
    with serve_alerts([Answer(200, held=answers)]) as slow, serve_alerts() as fast:
        receivers = (
            Receiver("slow", slow.url, allow_private=True),
            Receiver("fast", fast.url, allow_private=True),
        )
        observe(book, True, *receivers)
        observe(book, False, *receivers)
        with delivering(tmp_path / "alerts.db", *receivers):
            fast.wait_for(lambda accepted: len(accepted) == 2)
            # Not a second one before the first is answered.
            assert {r.body["status"] for r in slow.received} <= {"firing"}
            answers.set()
            wait_until_done(book)


def test_kill_9_loses_no_transition_and_changes_no_id(tmp_path: Path) -> None:
    """The short form of `bench/slo_kills.py`, which says what each figure is."""
    found = kill_again_and_again(tmp_path, NUM_KILLS, seed=7)
    assert found.mistakes == (), found
    assert found.num_transitions > NUM_KILLS, "killed before they did anything"
    assert found.num_repeated > 0, "no answer was lost: nothing was put to the test"


def test_an_address_inside_gets_nothing_unless_allowed(book: AlertBook, tmp_path: Path) -> None:
    with serve_alerts() as server:
        receiver = Receiver("on-call", server.url)
        observe(book, True, receiver)
        with delivering(tmp_path / "alerts.db", receiver):
            wait_for(lambda: bool(book.failing(0, 0)))
        assert server.received == []
        error = book.failing(0, 0)["on-call"].error
        assert error is not None
        assert error.startswith("127.0.0.1 is not a public address")
        # It was a mistake of the file: the page still arrives when that is mended.
        mended = replace(receiver, allow_private=True)
        with delivering(tmp_path / "alerts.db", mended):
            server.wait_for(lambda accepted: len(accepted) == 1)


async def test_a_redirect_to_another_place_is_not_followed() -> None:
    with serve_alerts() as inside, serve_alerts([Answer(307, headers={"Location": ""})]) as first:
        first._script[0].headers["Location"] = inside.url
        receiver = Receiver("on-call", first.url, allow_private=True)
        notification = notification_of("It burns")
        async with httpx.AsyncClient() as client:
            outcome = await deliver(client, receiver, notification, TIMEOUT_S)
        assert (outcome.is_refused, outcome.error) == (True, "answered 307")
        assert inside.received == []


class MailHandler(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs to hand over one message."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper() if line.split() else b""
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                data = b""
                while not data.endswith(b"\r\n.\r\n"):
                    data += self.rfile.readline()
                self.server.messages.append(data.decode())  # type: ignore[attr-defined]
            if word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            if word == b"AUTH":
                self.server.messages.append(line.decode())  # type: ignore[attr-defined]
                self.wfile.write(b"235 welcome\r\n")
                continue
            more = b"250-here\r\n250 AUTH PLAIN\r\n" if word == b"EHLO" else b"250 fine\r\n"
            self.wfile.write(more)


async def test_an_email_reaches_the_server() -> None:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailHandler)
    messages: list[str] = []
    server.messages = messages  # type: ignore[attr-defined]
    with serving(server):
        receiver = Receiver(
            "mail",
            f"smtp://127.0.0.1:{server.server_address[1]}",
            ReceiverType.EMAIL,
            allow_private=True,
            sender="evenkeel@example.com",
            recipients=("ann@example.com", "bob@example.com"),
        )
        notification = notification_of("It\nburns")
        async with httpx.AsyncClient() as client:
            outcome = await deliver(client, receiver, notification, TIMEOUT_S)
    assert outcome.is_delivered, outcome
    (message,) = messages
    assert "Subject: Alert: It burns" in message
    assert "Message-ID: <abc-firing@evenkeel>" in message
    assert "To: ann@example.com, bob@example.com" in message


@pytest.mark.parametrize("user", ["ann@example.com", "ann%40example.com"])
def test_a_mail_server_gets_the_user_of_the_address(tmp_path: Path, user: str) -> None:
    (tmp_path / "key").write_text("secret")
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailHandler)
    messages: list[str] = []
    server.messages = messages  # type: ignore[attr-defined]
    with serving(server):
        port = server.server_address[1]
        receiver = Receiver(
            "mail", f"smtp://{user}@127.0.0.1:{port}", ReceiverType.EMAIL,
            secrets=(Secret(file=tmp_path / "key"),), sender="a@b.test",
            recipients=("c@d.test",),
        )  # fmt: skip
        target = ResolvedAddress("127.0.0.1", "127.0.0.1", port)
        send_email(receiver, notification_of("It burns"), target, TIMEOUT_S)
    login, _ = messages
    assert b64decode(login.split()[2]) == b"\0ann@example.com\0secret"


class SlowMailHandler(socketserver.StreamRequestHandler):
    """Greets byte by byte and never comes to an end."""

    def handle(self) -> None:
        try:
            while True:
                self.wfile.write(b"2")
                time.sleep(0.05)
        except OSError:
            pass  # the client gave up, as it should


def test_a_mail_server_that_never_ends_its_answer_holds_no_thread() -> None:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), SlowMailHandler)
    server.daemon_threads = True
    port = server.server_address[1]
    with serving(server):
        receiver = Receiver("mail", f"smtp://127.0.0.1:{port}", ReceiverType.EMAIL)
        target = ResolvedAddress("127.0.0.1", "127.0.0.1", port)
        with pytest.raises(OSError, match=r".*"):
            send_email(receiver, notification_of("It burns"), target, 0.5)


def notification_of(summary: str) -> Notification:
    alert = NotifiedAlert({"slo": "chat"}, {"summary": summary}, 10**18)
    return Notification("abc-firing", "r", "abc", "f", (alert,))


async def test_apprise_delivers_and_refuses_addresses_inside() -> None:
    with serve_alerts() as server:
        host = server.url.removeprefix("http://")
        allowed = Receiver("r", f"json://{host}", ReceiverType.APPRISE, allow_private=True)
        by_name = f"json://{host.replace('127.0.0.1', 'localhost')}"
        refused = Receiver("r", by_name, ReceiverType.APPRISE)
        unknown = Receiver("r", "nosuch://service", ReceiverType.APPRISE, allow_private=True)
        async with httpx.AsyncClient() as client:
            outcomes = await asyncio.gather(
                *(
                    deliver(client, r, notification_of("It burns"), TIMEOUT_S)
                    for r in (allowed, refused, unknown)
                )
            )
    assert [(o.is_delivered, o.is_refused) for o in outcomes] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    assert outcomes[1].error.startswith("apprise would connect to ")
    assert outcomes[2].error == "apprise does not support this address"
    (received,) = server.received
    assert received.body["title"] == "Alert: It burns"
    assert received.body["message"].endswith("id: abc-firing")


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        (ReceiverType.SLACK, []),
        (ReceiverType.PAGERDUTY, ["resolve"]),
        (ReceiverType.WEBHOOK, ["resolved"]),
        (ReceiverType.GENERIC, ["alert.resolved"]),
    ],
)
def test_a_test_notification_leaves_no_open_alert_behind(
    monkeypatch: pytest.MonkeyPatch, kind: ReceiverType, ends: list[str]
) -> None:
    monkeypatch.setenv("KEY", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    with serve_alerts() as server:
        receiver = Receiver("a", server.url, kind, allow_private=True, secrets=(Secret("KEY"),))
        results = asyncio.run(send_test([receiver]))
    assert [result.is_delivered for result in results] == [True]
    assert len(server.received) == 1 + len(ends)
    bodies = [received.body for received in server.received[1:]]
    assert [b.get("event_action") or b.get("type") or b["status"] for b in bodies] == ends


def test_a_test_of_a_receiver_that_wants_no_ends_sends_none() -> None:
    with serve_alerts() as server:
        receiver = Receiver("a", server.url, allow_private=True, sends_resolved=False)
        asyncio.run(send_test([receiver]))
    assert len(server.received) == 1
