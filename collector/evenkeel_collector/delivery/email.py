"""Send a notification as e-mail through a receiver's SMTP server."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from email.utils import format_datetime, getaddresses
from urllib.parse import unquote, urlsplit

from evenkeel.errors import ConfigurationError, EvenkeelError
from evenkeel.slo.receiver import Receiver
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.address import ResolvedAddress, is_inside
from evenkeel_collector.delivery.text import text_of, title_of

# How long to wait for the answer to QUIT, at most.
_GOODBYE_S = 1.0
_READY = 220
_CLOSING = 421


class RecipientsRefused(EvenkeelError):
    """The server refused some recipients, or all.

    Attributes:
        codes: Its answers, by address; those below 500 may change.
        is_in_part: Whether it accepted the message for the others.
    """

    def __init__(self, codes: Mapping[str, int], is_in_part: bool) -> None:
        super().__init__(describe_refusals(codes))
        self.codes = codes
        self.is_in_part = is_in_part


def describe_refusals(codes: Mapping[str, int]) -> str:
    """Return the addresses that a server refused, with its answers."""
    return f"recipients refused: {', '.join(f'{a} ({c})' for a, c in codes.items())}"


def addresses_of(recipients: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of recipients, each once; one text may name several."""
    return tuple(dict.fromkeys(address for _, address in getaddresses(recipients)))


def make_email(receiver: Receiver, notification: Notification) -> EmailMessage:
    """Return the message, with the notification's id, so that mail programs see duplicates."""
    message = EmailMessage()
    # It may contain names that tenants chose: an encoded word would become text, or a header.
    message["Subject"] = title_of(notification).replace("=?", "= ?")
    message["From"] = receiver.sender
    message["To"] = ", ".join(receiver.recipients)
    message["Date"] = format_datetime(to_datetime(notification.created_ns))
    message["Message-ID"] = f"<{notification.notification_id}@evenkeel>"
    message["References"] = f"<{notification.alert_id}@evenkeel>"
    message.set_content(text_of(notification))
    return message


def send_email(
    receiver: Receiver, notification: Notification, target: ResolvedAddress, timeout_s: float
) -> None:
    """Send a message; blocks for at most about `timeout_s`.

    A user in the address logs in with the receiver's secret, without TLS only to an internal
    address; `smtps` uses TLS from the start, and `smtp` uses STARTTLS if the server offers it.

    Raises:
        OSError: If the server cannot be reached or its reply is invalid, including smtplib errors.
        RecipientsRefused: If it did not accept the message for all recipients.
        ConfigurationError: If the secret is missing, or would cross the internet without TLS.
    """
    parts = urlsplit(receiver.address())
    if parts.password is not None:
        raise ConfigurationError("the password belongs in secrets, not in the address")
    context = ssl.create_default_context()
    server: smtplib.SMTP
    if parts.scheme == "smtps":
        server = smtplib.SMTP_SSL(timeout=timeout_s, context=context)
    else:
        server = smtplib.SMTP(timeout=timeout_s)
    # Connect to the checked address; certificates are checked for the name.
    server._host = target.host  # type: ignore[attr-defined]
    until_s = time.monotonic() + timeout_s
    # The socket's timeout applies to each read: a reply sent byte by byte would block the thread.
    cut_off = threading.Timer(timeout_s, _cut_off, [server])
    cut_off.daemon = True
    cut_off.start()
    try:
        _connect(server, target, 465 if parts.scheme == "smtps" else 25, until_s)
        server.ehlo_or_helo_if_needed()
        if parts.scheme == "smtp" and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo_or_helo_if_needed()
        if parts.username and receiver.secrets:
            if not isinstance(server.sock, ssl.SSLSocket):
                _check_plain(target)
            server.login(unquote(parts.username), receiver.secrets[0].read())
        addresses = addresses_of(receiver.recipients)
        refused = _hand_over(server, make_email(receiver, notification), addresses)
    finally:
        # The caller waits no longer, and would take an accepted message for a failed one.
        _leave(server, min(_GOODBYE_S, (until_s - time.monotonic()) / 2))
        cut_off.cancel()
    if refused:
        raise RecipientsRefused(refused, is_in_part=len(refused) < len(addresses))


def _check_plain(target: ResolvedAddress) -> None:
    """Check that a password may be sent without TLS: whoever is in between can take TLS away.

    Raises:
        ConfigurationError: If the server is not in our own network.
    """
    if not all(is_inside(address) for address in target.addresses):
        raise ConfigurationError(
            f"{target.host} offers no TLS, so the password is not sent: use smtps://, or a port"
            " with STARTTLS, such as 587"
        )


def _hand_over(
    server: smtplib.SMTP, message: EmailMessage, addresses: Sequence[str]
) -> dict[str, int]:
    """Send a message; return the recipients that the server refused, with its codes.

    Raises:
        SMTPResponseException: If it has sent the message to nobody, and not for their addresses.
    """
    try:
        refused = server.send_message(message, to_addrs=addresses)
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
        for code, said in refused.values():
            # It ends the connection: those who were accepted get nothing, others were not tried.
            if code == _CLOSING:
                raise smtplib.SMTPResponseException(code, said) from error
    return {address: code for address, (code, _) in refused.items()}


def _connect(
    server: smtplib.SMTP, target: ResolvedAddress, usual_port: int, until_s: float
) -> None:
    port, timeout_s = target.port or usual_port, server.timeout
    *others, last = target.addresses
    for address in others:
        # Many names have an address of a family that does not get through, or is not even refused.
        server.timeout = timeout_s / 3
        with suppress(OSError):
            _open(server, address, port)
            if server.sock is not None:
                server.sock.settimeout(timeout_s)
            return
    # There is no socket to cut off yet, and a message sent later would be sent again.
    server.timeout = max(until_s - time.monotonic(), 0.001)
    _open(server, last, port)


def _open(server: smtplib.SMTP, address: str, port: int) -> None:
    code, said = server.connect(address, port)
    if code != _READY:
        server.close()
        raise smtplib.SMTPConnectError(code, said)


def _leave(server: smtplib.SMTP, wait_s: float) -> None:
    """Close the connection; the server's answer to that cannot undo what it accepted before."""
    with suppress(OSError):
        if server.sock is not None:
            server.sock.settimeout(max(wait_s, 0.0))
            server.docmd("QUIT")
    server.close()


def _cut_off(server: smtplib.SMTP) -> None:
    if server.sock is not None:
        with suppress(OSError):
            server.sock.shutdown(socket.SHUT_RDWR)
