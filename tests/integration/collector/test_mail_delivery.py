"""Notifications to several recipients of one mail server, some of whom it refuses."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.delivery_health import delivery_conditions
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.outbox import PART_NS
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.delivery import receiver_queue
from evenkeel_collector.delivery.worker import DeliveryPolicy, DeliveryWorker
from tests.fixtures.collector_process import wait_for
from tests.fixtures.mail_server import MailServer, serve_mail

QUICK = DeliveryPolicy(unit_s=0.01, poll_s=0.01)


def receiver_of(mail: MailServer) -> Receiver:
    return Receiver(
        "mail",
        f"smtp://127.0.0.1:{mail.port}",
        ReceiverType.EMAIL,
        allow_private=True,
        sender="evenkeel@x.test",
        recipients=("ann@x.test", "Bob <bob@x.test>"),
    )


@contextmanager
def delivering(path: Path, receivers: list[Receiver]) -> Iterator[None]:
    worker = DeliveryWorker(path, lambda: {r.name: r for r in receivers}, QUICK)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(worker.run(stop)))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def fire(book: AlertBook, receiver: Receiver, slo: str = "chat") -> None:
    condition = Condition(slo, "page", True, Delays(), {"slo": slo}, {}, dict)
    AlertEngine(book).observe([condition], [receiver], time.time_ns())


def wait_until_delivered(book: AlertBook, num: int) -> None:
    wait_for(lambda: book.count_by_state()["delivered"] >= num)


def test_who_is_greylisted_gets_the_page_later_and_nobody_gets_it_twice(
    book: AlertBook, tmp_path: Path
) -> None:
    with serve_mail({"bob@x.test": "451 greylisted, try again"}) as mail:
        receiver = receiver_of(mail)
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 3)
            assert book.retried()["mail"].error == "recipients refused: bob@x.test (451)"
            mail.answers.clear()
            wait_until_delivered(book, 1)
    assert mail.sent_to().count("ann@x.test") == 1
    assert [message["To"] for message in mail.messages] == [
        "ann@x.test, Bob <bob@x.test>",
        "Bob <bob@x.test>",
    ]
    assert len({message["Message-ID"] for message in mail.messages}) == 1
    assert book.failing(time.time_ns(), 0) == {}


def test_a_page_that_one_recipient_never_gets_says_so_and_holds_up_nothing(
    book: AlertBook, tmp_path: Path
) -> None:
    with serve_mail({"bob@x.test": "550 no such user"}) as mail:
        receiver = receiver_of(mail)
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_until_delivered(book, 1)
            now_ns = time.time_ns()
            (condition,) = delivery_conditions(book, [receiver], now_ns)
            (later,) = delivery_conditions(book, [receiver], now_ns + PART_NS)
            mail.answers.clear()
            fire(book, receiver, "other")
            wait_until_delivered(book, 2)
        (mended,) = delivery_conditions(book, [receiver], time.time_ns())
    assert condition.holds
    assert condition.describe()["summary"].endswith("recipients refused: bob@x.test (550)")
    assert mail.sent_to().count("ann@x.test") == 2
    assert (later.holds, mended.holds) == (False, False)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_recipient_that_is_left_over_does_not_hold_up_the_others_for_good(
    book: AlertBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    if not is_removed:
        monkeypatch.setattr(receiver_queue, "_MOST_ATTEMPTS_FOR_SOME", 3)
    with serve_mail({"bob@x.test": "452 mailbox full"}) as mail:
        receivers = [receiver_of(mail)]
        fire(book, receivers[0])
        with delivering(tmp_path / "alerts.db", receivers):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 2)
            if is_removed:
                receivers[0] = replace(receivers[0], recipients=("ann@x.test",))
            wait_until_delivered(book, 1)
    assert len(mail.messages) == 1
    assert ("mail" in book.failing(time.time_ns(), 0)) is not is_removed
