"""Send a notification as e-mail through a receiver's SMTP server."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
# A server that ends each of these at another recipient is closing down for all.
_MOST_CONNECTIONS = 3
# As a server answers to an address that it cannot take (RFC 6531, section 3.5).
_NO_UTF8 = 553


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
    shown = (
        f"{address} (the server takes only ASCII addresses)"
        if code == _NO_UTF8 and not address.isascii()
        else f"{address} ({code})"
        for address, code in codes.items()
    )
    return f"recipients refused: {', '.join(shown)}"


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
    address; `smtps` uses TLS from the start, and `smtp` uses STARTTLS if the server offers it. If
    the server ends the connection at a recipient, the others get the message through another.

    Raises:
        OSError: If the server cannot be reached or its reply is invalid, including smtplib errors.
        RecipientsRefused: If it did not accept the message for all recipients.
        ConfigurationError: If the secret is missing, or would cross the internet without TLS.
    """
    until_s = time.monotonic() + timeout_s
    addresses = left = addresses_of(receiver.recipients)
    refused: dict[str, int] = {}
    for number in range(1, _MOST_CONNECTIONS + 1):
        found = _send(receiver, notification, target, left, until_s)
        refused |= found
        # Whoever follows was not tried, and whoever was accepted before got nothing.
        left = tuple(address for address in left if address not in found)
        if _CLOSING not in found.values() or not left:
            break
        if number == _MOST_CONNECTIONS:
            raise smtplib.SMTPResponseException(_CLOSING, b"")
        # The header names nobody else: smtplib encodes it as the addresses that it is given need.
        receiver = replace(receiver, recipients=left)
    if refused:
        raise RecipientsRefused(refused, is_in_part=len(refused) < len(addresses))


def _send(
    receiver: Receiver,
    notification: Notification,
    target: ResolvedAddress,
    addresses: Sequence[str],
    until_s: float,
) -> dict[str, int]:
    """Send a message through one connection; return who was refused, with the server's codes.

    With `_CLOSING` among these, nobody got it.
    """
    parts = urlsplit(receiver.address())
    if parts.password is not None:
        raise ConfigurationError("the password belongs in secrets, not in the address")
    context = ssl.create_default_context()
    timeout_s = max(until_s - time.monotonic(), 0.001)
    server: smtplib.SMTP
    if parts.scheme == "smtps":
        server = smtplib.SMTP_SSL(timeout=timeout_s, context=context)
    else:
        server = smtplib.SMTP(timeout=timeout_s)
    # Connect to the checked address; certificates are checked for the name.
    server._host = target.host  # type: ignore[attr-defined]
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
        return _hand_over(server, receiver, notification, addresses)
    finally:
        # The caller waits no longer, and would take an accepted message for a failed one.
        _leave(server, min(_GOODBYE_S, (until_s - time.monotonic()) / 2))
        cut_off.cancel()


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
    server: smtplib.SMTP,
    receiver: Receiver,
    notification: Notification,
    addresses: Sequence[str],
) -> dict[str, int]:
    """Send a message; return the recipients that the server refused, with its codes.

    Raises:
        SMTPException: If it has sent the message to nobody, and not for their addresses.
    """
    message = make_email(receiver, notification)
    refused: dict[str, int] = {}
    if not server.has_extn("smtputf8"):
        refused = {address: _NO_UTF8 for address in addresses if not address.isascii()}
    if refused:
        addresses = [address for address in addresses if address not in refused]
        if not addresses:
            return refused
        # smtplib would send it to nobody, and a header may not name the others either.
        message.replace_header("To", ", ".join(addresses))
    try:
        found = server.send_message(message, to_addrs=addresses)
    except smtplib.SMTPRecipientsRefused as error:
        found = error.recipients
    return refused | {address: code for address, (code, _) in found.items()}


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
