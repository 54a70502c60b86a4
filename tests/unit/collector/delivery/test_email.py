"""What mail servers are sent, and what their answers mean."""

import asyncio
import smtplib
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.receiver import Receiver, ReceiverType, Secret
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert
from evenkeel_collector.delivery import email
from evenkeel_collector.delivery.address import ResolvedAddress
from evenkeel_collector.delivery.attempt import DeliveryResult, deliver
from evenkeel_collector.delivery.email import send_email
from evenkeel_collector.delivery.text import text_of
from tests.fixtures.mail_server import CLOSES, HANGS, MailServer, serve_mail

ALERT = NotifiedAlert({"slo": "chat"}, {"summary": "It burns"}, 10**18)
NOTIFICATION = Notification("abc-firing", "mail", "abc", "f", (ALERT,))
OK = DeliveryResult(is_delivered=True)
TO = ("ann@x.test", "bob@x.test")
# A server that answers is in time on any machine.
TIMEOUT_S = 60.0


def send(
    mail: MailServer,
    summary: str = "It burns",
    timeout_s: float = TIMEOUT_S,
    to: tuple[str, ...] = TO,
) -> DeliveryResult:
    receiver = Receiver(
        "mail",
        f"smtp://127.0.0.1:{mail.port}",
        ReceiverType.EMAIL,
        allow_private=True,
        sender="evenkeel@x.test",
        recipients=to,
    )
    alert = replace(ALERT, annotations={"summary": summary})
    notification = replace(NOTIFICATION, alerts=(alert,))
    return attempt(receiver, notification, timeout_s)


def attempt(receiver: Receiver, notification: Notification, timeout_s: float) -> DeliveryResult:
    async def run() -> DeliveryResult:
        async with httpx.AsyncClient() as client:
            return await deliver(client, receiver, notification, timeout_s)

    return asyncio.run(run())


def test_both_addresses_of_a_server_are_tried_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond it the attempt has failed, and a message that was sent would be sent again."""
    tried = []

    def connect(server: smtplib.SMTP, host: str, port: int) -> None:
        tried.append((host, server.timeout))
        time.sleep(0.2)
        raise TimeoutError

    monkeypatch.setattr(smtplib.SMTP, "connect", connect)
    receiver = Receiver("mail", "smtp://mail.test", ReceiverType.EMAIL, recipients=TO)
    target = ResolvedAddress("::1", "mail.test", 25, "127.0.0.1")
    with pytest.raises(TimeoutError):
        send_email(receiver, NOTIFICATION, target, 90.0)
    (first, first_s), (last, last_s) = tried
    assert (first, last) == ("::1", "127.0.0.1")
    assert 20.0 < first_s <= 30.0
    assert 0 < last_s <= 89.8


def test_the_limit_includes_the_loading_of_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller waits no longer: what is accepted later would be sent again."""
    load = ssl.create_default_context

    def load_slowly() -> ssl.SSLContext:
        time.sleep(1.5)
        return load()

    monkeypatch.setattr(ssl, "create_default_context", load_slowly)
    limits: list[float] = []
    monkeypatch.setattr(threading, "Timer", lambda after_s, *_: limits.append(after_s))
    receiver = Receiver("mail", "smtp://mail.test", ReceiverType.EMAIL, recipients=TO)
    with pytest.raises(AttributeError):
        send_email(receiver, NOTIFICATION, ResolvedAddress("::1", "mail.test", 25), 2.0)
    assert limits[0] <= 0.5


NAMES = [
    ("a line break", "a\r\nBcc: eve@x.test", "a Bcc: eve@x.test"),
    ("an encoded line break", "=?utf-8?q?=0D=0ABcc:_eve=40x.test?= a", None),
    ("an encoded body", "=?utf-8?b?DQoNCkFsbCBpcyB3ZWxs?=", None),
    ("one encoded in parts", "=?utf-8?q?=0D?= =?utf-8?q?=0ABcc:_x?=", None),
    ("a line separator", "a\u2028Bcc: eve@x.test", "a Bcc: eve@x.test"),
    ("a NUL", "a\x00b", "a\ufffdb"),
    ("another script", "日本" * 300, "日本" * 300),
    ("a long word", "x" * 3000, "x" * 3000),
]


@pytest.mark.parametrize(
    ("summary", "shown"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES]
)
def test_a_name_in_the_subject_is_text_only(summary: str, shown: str | None) -> None:
    """A tenant chooses its name, which must add no header and no recipient."""
    with serve_mail() as mail:
        assert send(mail, summary) == OK
    (message,) = mail.messages
    assert set(message.keys()) == {
        "Subject", "From", "To", "Date", "Message-ID", "References",
        "Content-Type", "Content-Transfer-Encoding", "MIME-Version",
    }  # fmt: skip
    assert message["Subject"].startswith("Alert: ")
    if shown is not None:
        assert message["Subject"] == f"Alert: {shown}"
    else:
        assert message["Subject"].replace("= ?", "=?") == f"Alert: {summary}"
    assert "firing since 2001-09-09" in message.get_content()
    assert b"\0" not in mail.raw[0]
    assert max(map(len, mail.raw[0].split(b"\r\n"))) <= 998
    assert mail.sent_to() == list(TO)


def test_an_end_says_when_it_was_and_when_the_alert_began() -> None:
    """For who did not get the start, and because the end may come late."""
    alert = replace(ALERT, ends_at_ns=10**18 + 600 * 10**9)
    text = text_of(replace(NOTIFICATION, alerts=(alert,)))
    said = "resolved at 2001-09-09T01:56:40.000Z, fired at 2001-09-09T01:46:40.000Z\n"
    assert text.startswith(said)


@pytest.mark.parametrize("goodbye", [HANGS, CLOSES, "421 too busy", "500 what?"])
def test_a_message_that_was_accepted_is_delivered_whatever_comes_after(goodbye: str) -> None:
    """It would be sent again with every retry, as long as its alert fires."""
    with serve_mail({"QUIT": goodbye}) as mail:
        assert send(mail) == OK
    assert len(mail.messages) == 1


def test_a_message_that_is_accepted_late_is_delivered_though_the_goodbye_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than what is left, with seconds to spare on a busy machine.
    monkeypatch.setattr(email, "_GOODBYE_S", 1000.0)
    with serve_mail({"QUIT": HANGS}, accepts_after_s=0.2) as mail:
        assert send(mail, timeout_s=8.0) == OK
    assert len(mail.messages) == 1


REFUSALS = [
    ("unknown recipients", {"ann@x.test": "550 no", "bob@x.test": "551 no"}, True),
    ("one unknown, one greylisted", {"ann@x.test": "550 no", "bob@x.test": "451 later"}, False),
    ("all greylisted", {"ann@x.test": "451 later", "bob@x.test": "451 later"}, False),
    ("an unknown sender", {"MAIL": "550 no"}, True),
    ("no messages now", {"DATA": "421 busy"}, False),
    ("one after the other when it closes", dict.fromkeys(TO, "421 closing"), False),
    ("one unknown, then it closes", {"ann@x.test": "550 no", "bob@x.test": "421 closing"}, False),
    ("a server that is gone after one", {"bob@x.test": CLOSES}, False),
    ("spam", {"DOT": "554 spam"}, True),
    ("a full disk", {"DOT": "452 full"}, False),
    ("a server that hangs", {"DOT": HANGS}, False),
    ("a server that closes", {"DOT": CLOSES}, False),
]


@pytest.mark.parametrize(
    ("answers", "is_refused"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_what_no_server_accepted_is_not_delivered(
    answers: dict[str, str], is_refused: bool
) -> None:
    with serve_mail(answers) as mail:
        outcome = send(mail, timeout_s=1.0 if HANGS in answers.values() else TIMEOUT_S)
    assert (outcome.is_delivered, outcome.is_refused) == (False, is_refused)
    assert outcome.error
    assert not outcome.is_in_part


UNSUPPORTED = [
    ("a login", {"url": "smtp://ann@127.0.0.1:{}"}, "AUTH extension not supported", ""),
    ("our logins", {"url": "smtp://ann@127.0.0.1:{}"}, "No suitable authentic", "AUTH XOAUTH2"),
    ("an address", {"recipients": ("köln@x.test",)}, "takes only ASCII addresses", ""),
    ("the sender", {"sender": "köln@x.test"}, "internationalized email support", ""),
]


@pytest.mark.parametrize(
    ("changes", "error", "login"),
    [case[1:] for case in UNSUPPORTED],
    ids=[case[0] for case in UNSUPPORTED],
)
def test_what_the_server_does_not_support_needs_someone_to_act(
    tmp_path: Path, changes: dict[str, Any], error: str, login: str
) -> None:
    """`SloDeliveryFailing` fires at once, not after ten minutes."""
    (tmp_path / "key").write_text("secret")
    with serve_mail(extensions=("8BITMIME", login or "HELP")) as mail:
        receiver = Receiver(
            "mail",
            f"smtp://127.0.0.1:{mail.port}",
            ReceiverType.EMAIL,
            secrets=(Secret(file=tmp_path / "key"),),
            allow_private=True,
            sender="evenkeel@x.test",
            recipients=TO,
        )
        url = changes.get("url", receiver.url).format(mail.port)
        outcome = attempt(replace(receiver, **changes | {"url": url}), NOTIFICATION, TIMEOUT_S)
    assert (outcome.is_delivered, outcome.is_refused) == (False, True)
    assert error in outcome.error
    assert mail.messages == []


CLOSED = [
    ("too many connections", {"GREETING": "421 too many"}, 421),
    ("a blocked client", {"GREETING": "554 blocked"}, 554),
    ("a server that closes down", {"EHLO": "421 closing", "HELO": "421 closing"}, 421),
]


@pytest.mark.parametrize(
    ("answers", "code"), [case[1:] for case in CLOSED], ids=[case[0] for case in CLOSED]
)
def test_a_server_that_is_not_open_says_so_before_it_lacks_a_login(
    tmp_path: Path, answers: dict[str, str], code: int
) -> None:
    """A server that was busy once paged somebody, because it "supports no login"."""
    (tmp_path / "key").write_text("secret")
    with serve_mail(answers) as mail:
        receiver = Receiver(
            "mail",
            f"smtp://ann@127.0.0.1:{mail.port}",
            ReceiverType.EMAIL,
            secrets=(Secret(file=tmp_path / "key"),),
            allow_private=True,
            sender="evenkeel@x.test",
            recipients=TO,
        )
        outcome = attempt(receiver, NOTIFICATION, TIMEOUT_S)
    assert (outcome.is_refused, outcome.error) == (code >= 500, f"answered {code}")
    assert mail.messages == []


SAME = [
    ("twice", ("bob@x.test", "Bob <bob@x.test>"), ["bob@x.test"]),
    ("several in one", ("ann@x.test, Bob <bob@x.test>",), ["ann@x.test", "bob@x.test"]),
    ("a name with a comma", ('"B, Bob" <bob@x.test>',), ["bob@x.test"]),
    ("an encoded name with a comma", ("=?utf-8?q?B=2C_Bob?= <bob@x.test>",), ["bob@x.test"]),
    ("cases of one address", ("bob@x.test", "Bob@x.test"), ["bob@x.test", "Bob@x.test"]),
]


@pytest.mark.parametrize(
    ("to", "addresses"), [case[1:] for case in SAME], ids=[case[0] for case in SAME]
)
def test_every_address_is_named_once(to: tuple[str, ...], addresses: list[str]) -> None:
    """smtplib counts refusals by address: with one named twice it sends a message to nobody."""
    with serve_mail({"bob@x.test": "550 no"}) as mail:
        outcome = send(mail, to=to)
    assert mail.sent_to() == addresses
    assert (outcome.is_in_part, outcome.refused) == (len(addresses) > 1, {"bob@x.test": 550})
    assert len(mail.messages) == (len(addresses) > 1)


def test_recipients_that_are_refused_for_now_are_left() -> None:
    with serve_mail({"bob@x.test": "451 greylisted, try again"}) as mail:
        outcome = send(mail)
    assert not outcome.is_delivered
    assert not outcome.is_refused
    assert (outcome.is_in_part, outcome.refused) == (True, {"bob@x.test": 451})
    assert outcome.error == "recipients refused: bob@x.test (451)"


@pytest.mark.parametrize("name", TO)
def test_a_server_that_ends_the_connection_at_a_recipient_holds_up_no_other(name: str) -> None:
    """Some do that to every message for a full mailbox or a new sender."""
    with serve_mail({name: "421 too many messages"}) as mail:
        outcome = send(mail)
    assert (outcome.is_in_part, outcome.refused) == (True, {name: 421})
    assert not outcome.is_refused
    assert len(mail.messages) == 1
    (other,) = set(TO) - {name}
    assert mail.sent_to()[-1] == other
    assert outcome.error == f"recipients refused: {name} (421)"


def test_a_server_that_ends_every_connection_is_not_asked_for_each_recipient() -> None:
    to = tuple(f"{name}@x.test" for name in "abcdefgh")
    with serve_mail(dict.fromkeys(to, "421 closing")) as mail:
        outcome = send(mail, to=to)
    assert (outcome.is_in_part, outcome.error) == (False, "answered 421")
    assert len(mail.sent_to()) == 3


def test_a_server_that_closes_down_for_everybody_has_accepted_nothing() -> None:
    with serve_mail({"ann@x.test": "421 closing"}) as mail:
        original = mail.answer_of

        def answer(word: str, line: str) -> str | None:
            if word == "RCPT":
                mail.answers["GREETING"] = "421 closed"
            return original(word, line)

        mail.answer_of = answer  # type: ignore[method-assign]
        outcome = send(mail)
    assert (outcome.is_delivered, outcome.is_refused, outcome.is_in_part) == (False, False, False)
    assert outcome.error == "answered 421"
    assert mail.messages == []


def test_an_address_that_the_server_cannot_take_holds_up_no_other() -> None:
    to = ("Ann <ann@x.test>", "Jürgen <jürgen@x.test>", "bob@x.test")
    with serve_mail() as mail:
        outcome = send(mail, to=to)
    assert (outcome.is_in_part, outcome.refused) == (True, {"jürgen@x.test": 553})
    assert outcome.error == (
        "recipients refused: jürgen@x.test (the server takes only ASCII addresses)"
    )
    assert mail.sent_to() == ["ann@x.test", "bob@x.test"]
    assert mail.messages[0]["To"] == "ann@x.test, bob@x.test"
    assert mail.raw[0].isascii()


@pytest.mark.parametrize("extensions", [("8BITMIME",), ("8BITMIME", "SMTPUTF8")])
def test_no_header_of_a_second_connection_names_who_was_refused(
    extensions: tuple[str, ...],
) -> None:
    """An address that is not ASCII was written as an encoded word, which took its neighbour in."""
    to = ("Ann <ann@x.test>", "Jürgen <jürgen@x.test>", "bob@x.test")
    answers = {"ann@x.test": "421 too many", "jürgen@x.test": "421 too many"}
    with serve_mail(answers, extensions=extensions) as mail:
        outcome = send(mail, to=to)
    assert outcome.is_in_part
    assert set(outcome.refused) == {"ann@x.test", "jürgen@x.test"}
    (message,) = mail.messages
    assert message["To"] == "bob@x.test"


def test_the_only_one_at_whom_a_server_ends_the_connection_is_refused() -> None:
    """One who is left over from an e-mail that the others have must not open the circuit."""
    with serve_mail({"bob@x.test": "421 too many"}) as mail:
        outcome = send(mail, to=("bob@x.test",))
    assert (outcome.is_refused, outcome.is_in_part) == (False, False)
    assert outcome.refused == {"bob@x.test": 421}


def test_a_server_that_takes_every_address_gets_the_message_for_all() -> None:
    to = ("ann@x.test", "jürgen@x.test")
    with serve_mail(extensions=("8BITMIME", "SMTPUTF8")) as mail:
        assert send(mail, to=to) == OK
    assert mail.sent_to() == list(to)


@pytest.mark.parametrize("is_public", [True, False])
def test_no_password_crosses_the_internet_without_tls(tmp_path: Path, is_public: bool) -> None:
    """Whoever is in between can leave STARTTLS out of what the server offers."""
    (tmp_path / "key").write_text("secret")
    with serve_mail() as mail:
        receiver = Receiver(
            "mail",
            f"smtp://ann@mail.test:{mail.port}",
            ReceiverType.EMAIL,
            secrets=(Secret(file=tmp_path / "key"),),
            sender="evenkeel@x.test",
            recipients=TO,
        )
        other = "8.8.8.8" if is_public else None
        target = ResolvedAddress("127.0.0.1", "mail.test", mail.port, other)
        if is_public:
            with pytest.raises(ConfigurationError, match=r"^mail\.test offers no TLS.* smtps://"):
                send_email(receiver, NOTIFICATION, target, TIMEOUT_S)
        else:
            send_email(receiver, NOTIFICATION, target, TIMEOUT_S)
    words = {command.partition(" ")[0].upper() for command in mail.commands}
    assert ("AUTH" in words, "DATA" in words) == (not is_public, not is_public)
    assert len(mail.messages) == (not is_public)


def test_a_password_in_a_secret_address_is_not_left_out_in_silence() -> None:
    receiver = Receiver("mail", "smtp://ann:key@127.0.0.1", ReceiverType.EMAIL)
    target = ResolvedAddress("127.0.0.1", "127.0.0.1", None)
    with pytest.raises(ConfigurationError, match=r"^the password belongs in secrets, not in the"):
        send_email(receiver, NOTIFICATION, target, 1.0)


@pytest.mark.parametrize(
    ("word", "answer", "is_about"),
    [("DOT", "554 no", True), ("MAIL", "554 no", False), ("MAIL", "552 too large", True)],
)
def test_a_refused_text_holds_up_no_other_message(word: str, answer: str, is_about: bool) -> None:
    """Others may be accepted, so the breaker stays closed."""
    with serve_mail({word: answer}, extensions=("SIZE 1000",)) as mail:
        outcome = send(mail)
    assert (outcome.is_refused, outcome.is_about_notification) == (True, is_about)
