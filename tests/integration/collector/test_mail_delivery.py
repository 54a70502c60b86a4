"""Notifications to several recipients of one mail server, some of whom it refuses."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.delivery_health import delivery_conditions
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.outbox import PART_NS
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.delivery import breaker, receiver_queue
from evenkeel_collector.delivery.worker import DeliveryPolicy, DeliveryWorker
from tests.fixtures.collector_process import wait_for
from tests.fixtures.mail_server import MailServer, serve_mail

# A server that answers is in time on any machine.
QUICK = DeliveryPolicy(timeout_s=60.0, unit_s=0.01, poll_s=0.01)


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


def fire(book: AlertBook, receiver: Receiver, slo: str = "chat", holds: bool = True) -> None:
    condition = Condition(slo, "page", holds, Delays(), {"slo": slo, "team": "a"}, {}, dict)
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
        "bob@x.test",
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


@pytest.mark.parametrize(
    ("answer", "is_removed"),
    [("452 mailbox full", False), ("452 mailbox full", True), ("421 mailbox full", False)],
)
def test_a_recipient_that_is_left_over_does_not_hold_up_the_others_for_good(
    book: AlertBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_removed: bool
) -> None:
    if not is_removed:
        monkeypatch.setattr(receiver_queue, "_MOST_ATTEMPTS_FOR_SOME", 3)
        monkeypatch.setattr(receiver_queue, "FAILING_AFTER_NS", 0)
    with serve_mail({"bob@x.test": answer}) as mail:
        receivers = [receiver_of(mail)]
        fire(book, receivers[0])
        with delivering(tmp_path / "alerts.db", receivers):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 2)
            if is_removed:
                receivers[0] = replace(receivers[0], recipients=("ann@x.test",))
            wait_until_delivered(book, 1)
    assert len(mail.messages) == 1
    assert ("mail" in book.failing(time.time_ns(), 0)) is not is_removed


@pytest.mark.parametrize("name", ["ann@x.test", "bob@x.test"])
def test_a_server_that_ends_the_connection_at_a_recipient_leaves_out_nobody(
    book: AlertBook, tmp_path: Path, name: str
) -> None:
    """The other one gets it through another connection, and this one once it may."""
    with serve_mail({name: "421 closing"}) as mail:
        receiver = receiver_of(mail)
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: mail.sent_to().count(name) >= 3)
            assert book.count_by_state()["delivered"] == 0
            assert len(mail.messages) == 1
            mail.answers.clear()
            wait_until_delivered(book, 1)
    assert mail.sent_to()[-1] == name
    assert len(mail.messages) == 2
    assert len({message["Message-ID"] for message in mail.messages}) == 1


def test_a_connection_that_ends_at_one_recipient_each_time_opens_no_circuit(
    book: AlertBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After five attempts for that one alone, the others' next pages waited for half a minute."""
    monkeypatch.setattr(breaker, "OPEN_UNITS", 1e6)
    with serve_mail({"bob@x.test": "421 mailbox full"}) as mail:
        receiver = receiver_of(mail)
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 7)
            fire(book, receiver, "other")
            wait_for(lambda: len(mail.messages) == 2)
            assert {row.error for row in book.retried().values()} == {
                "recipients refused: bob@x.test (421)"
            }


def test_who_is_refused_for_good_is_not_forgotten_over_who_is_greylisted(
    book: AlertBook, tmp_path: Path
) -> None:
    refusals = {"bob@x.test": "451 greylisted", "cy@x.test": "550 no such user"}
    with serve_mail(refusals) as mail:
        receiver = receiver_of(mail)
        receiver = replace(receiver, recipients=(*receiver.recipients, "cy@x.test"))
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 2)
            (early,) = delivery_conditions(book, [receiver], time.time_ns())
            del mail.answers["bob@x.test"]
            wait_until_delivered(book, 1)
            (later,) = delivery_conditions(book, [receiver], time.time_ns())
    assert mail.sent_to().count("cy@x.test") == 1
    assert early.holds and later.holds
    assert later.describe()["summary"].endswith(": recipients refused: cy@x.test (550)")


@pytest.mark.parametrize(
    ("is_grouped", "is_lasting"), [(True, False), (False, False), (True, True)]
)
def test_who_is_greylisted_holds_up_nothing_newer_to_the_others(
    book: AlertBook,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_grouped: bool,
    is_lasting: bool,
) -> None:
    """A full mailbox would delay the others' next pages of the group by an hour."""
    if is_lasting:
        monkeypatch.setattr(receiver_queue, "FAILING_AFTER_NS", 0)
    with serve_mail({"bob@x.test": "452 mailbox full"}) as mail:
        receiver = receiver_of(mail)
        if is_grouped:
            receiver = replace(receiver, group=AlertGrouping(("team",)))
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 2)
            fire(book, receiver, "other" if is_grouped else "chat", holds=is_grouped)
            wait_for(lambda: mail.sent_to().count("ann@x.test") == 2)
            (condition,) = delivery_conditions(book, [receiver], time.time_ns())
            mail.answers.clear()
            wait_until_delivered(book, 2)
    # It would page somebody about every server that greylists.
    assert condition.holds is is_lasting
    newest = mail.messages[-1]
    assert newest["To"] in ("bob@x.test", "ann@x.test, Bob <bob@x.test>")
    assert ("slo=other" if is_grouped else "resolved at") in newest.get_content()
    assert book.count_by_state() == {"waiting": 0, "delivered": 2, "dead": 0}


def test_who_is_greylisted_does_not_put_off_repetitions(book: AlertBook, tmp_path: Path) -> None:
    with serve_mail({"bob@x.test": "452 mailbox full"}) as mail:
        receiver = replace(receiver_of(mail), repeat_s=Fraction(1, 10))
        fire(book, receiver)
        engine = AlertEngine(book)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_until_delivered(book, 1)
            wait_for(lambda: engine.repeat([receiver], time.time_ns()) > 0)
            wait_for(lambda: mail.sent_to().count("ann@x.test") == 2)


def test_a_repetition_counts_from_when_the_others_got_the_page(
    book: AlertBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One full mailbox doubled the time between two repetitions to everybody."""
    monkeypatch.setattr(receiver_queue, "_MOST_ATTEMPTS_FOR_SOME", 6)
    with serve_mail({"bob@x.test": "452 mailbox full"}) as mail:
        receiver = receiver_of(mail)
        fire(book, receiver)
        (page,) = book.due(time.time_ns())
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 2)
            again_ns = time.time_ns()
            wait_until_delivered(book, 1)
    last = book.find_last("mail", page.fingerprint)
    assert last is not None
    assert page.created_ns < last[1] < again_ns


def test_who_was_greylisted_learns_of_an_end_from_the_next_message_about_the_group(
    book: AlertBook, tmp_path: Path
) -> None:
    """An alert that has ended is no longer in the group, so that message alone would tell of it."""
    with serve_mail() as mail:
        receiver = replace(receiver_of(mail), group=AlertGrouping(("team",)))
        fire(book, receiver)
        fire(book, receiver, "other")
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_until_delivered(book, 1)
            mail.answers["bob@x.test"] = "451 greylisted"
            fire(book, receiver, holds=False)
            wait_for(lambda: mail.sent_to().count("bob@x.test") >= 3)
            fire(book, receiver, "third")
            wait_for(lambda: mail.sent_to().count("ann@x.test") == 3)
            mail.answers.clear()
            wait_until_delivered(book, 3)
    text = mail.messages[-1].get_content()
    assert "slo=third" in text
    assert text.index("slo=other") < text.index("resolved at") < text.index("slo=chat")


def has_more(mail: MailServer, num: int) -> bool:
    return len(mail.messages) > num


def test_an_end_is_not_said_again_for_ever_because_one_mailbox_is_full(
    book: AlertBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_queue, "FAILING_AFTER_NS", 0)
    with serve_mail({"bob@x.test": "452 mailbox full"}) as mail:
        receiver = replace(receiver_of(mail), group=AlertGrouping(("team",)))
        fire(book, receiver, "lasting")
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_for(lambda: len(mail.messages) == 1)
            for number in range(3):
                for holds in (True, False):
                    before = len(mail.messages)
                    fire(book, receiver, f"slo-{number}", holds)
                    wait_for(partial(has_more, mail, before))
            last = mail.messages[-1]
    text = last.get_content()
    assert [name for name in ("slo-0", "slo-1", "slo-2") if f"slo={name}" in text] == ["slo-2"]


def test_a_repetition_makes_no_failure_of_who_is_greylisted(
    book: AlertBook, tmp_path: Path
) -> None:
    with serve_mail({"bob@x.test": "451 greylisted"}) as mail:
        receiver = replace(receiver_of(mail), repeat_s=Fraction(1, 10))
        fire(book, receiver)
        with delivering(tmp_path / "alerts.db", [receiver]):
            wait_until_delivered(book, 1)
    (condition,) = delivery_conditions(book, [receiver], time.time_ns())
    assert not condition.holds
