"""Sends a notification as e-mail, through the SMTP server of a receiver."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from email.message import EmailMessage
from urllib.parse import urlsplit

from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.address import ResolvedAddress
from evenkeel_collector.delivery.text import text_of, title_of


def make_email(receiver: Receiver, notification: Notification) -> EmailMessage:
    """Return the message; its id is the notification's, so that mail programs see a repetition."""
    message = EmailMessage()
    message["Subject"] = title_of(notification)
    message["From"] = receiver.sender
    message["To"] = ", ".join(receiver.recipients)
    message["Message-ID"] = f"<{notification.notification_id}@evenkeel>"
    message["References"] = f"<{notification.alert_id}@evenkeel>"
    message.set_content(text_of(notification))
    return message


def send_email(
    receiver: Receiver, notification: Notification, target: ResolvedAddress, timeout_s: float
) -> None:
    """Send it; blocks for about `timeout_s` at most.

    A user in the address logs in with the receiver's secret; `smtps` is TLS from the start, and
    `smtp` uses STARTTLS where the server offers it.

    Raises:
        OSError: If the server is not reached or answers nonsense (smtplib's errors are of it).
        ConfigurationError: If the secret is not there.
    """
    parts = urlsplit(receiver.address())
    context = ssl.create_default_context()
    server: smtplib.SMTP
    if parts.scheme == "smtps":
        server = smtplib.SMTP_SSL(timeout=timeout_s, context=context)
    else:
        server = smtplib.SMTP(timeout=timeout_s)
    # Connects to the address that was checked; certificates are checked for the name.
    server._host = target.host  # type: ignore[attr-defined]
    # The socket's own limit is for each answer: one that comes byte by byte would hold the thread.
    cut_off = threading.Timer(timeout_s, _cut_off, [server])
    cut_off.daemon = True
    cut_off.start()
    try:
        with server:
            server.connect(target.address, target.port or (465 if parts.scheme == "smtps" else 25))
            server.ehlo()
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
            if parts.username and receiver.secrets:
                server.login(parts.username, receiver.secrets[0].read())
            server.send_message(make_email(receiver, notification))
    finally:
        cut_off.cancel()


def _cut_off(server: smtplib.SMTP) -> None:
    if server.sock is not None:
        with suppress(OSError):
            server.sock.shutdown(socket.SHUT_RDWR)
