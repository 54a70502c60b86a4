"""Send notifications through `apprise`, which supports a hundred further services."""

from __future__ import annotations

import asyncio
import json
import sys

from evenkeel.errors import EvenkeelError
from evenkeel.slo.receiver import Receiver
from evenkeel_collector.alerts.notification import Notification
from evenkeel_collector.delivery.address import AddressRefused
from evenkeel_collector.delivery.apprise_process import DELIVERED, REFUSED, UNKNOWN_ADDRESS
from evenkeel_collector.delivery.text import text_of, title_of


class AppriseFailed(EvenkeelError):
    """apprise did not deliver; `is_final` if a retry cannot help."""

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


async def send_apprise(receiver: Receiver, notification: Notification, address: str) -> None:
    """Send one notification in a subprocess, which is killed if the caller is cancelled.

    Raises:
        AddressRefused: If it would connect to an internal address and that is not allowed.
        AppriseFailed: If apprise does not support the address, or the service did not accept it.
    """
    # On standard input, not as an argument: the address is a secret.
    message = {
        "url": address,
        "title": title_of(notification),
        "body": f"{text_of(notification)}\nid: {notification.notification_id}",
        "is_firing": notification.status == "firing",
        "allow_private": receiver.allow_private,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "evenkeel_collector.delivery.apprise_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # The library's log may contain the address.
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        said, _ = await process.communicate(json.dumps(message).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    _raise_unless_delivered(process.returncode, said.decode(errors="replace"))


def _raise_unless_delivered(code: int | None, said: str) -> None:
    if code == DELIVERED:
        return
    if code == REFUSED:
        raise AddressRefused(
            f"apprise would connect to {said}, which is not a public address; "
            "set allowPrivate to allow it",
            is_final=True,
        )
    if code == UNKNOWN_ADDRESS:
        raise AppriseFailed("apprise does not support this address", is_final=True)
    raise AppriseFailed("apprise could not deliver", is_final=False)
