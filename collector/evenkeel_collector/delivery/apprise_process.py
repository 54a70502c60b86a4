"""Send one message through the library `apprise`, in a separate process.

The library opens its own connections. An audit hook checks every address before the connection,
after DNS and redirects, and refuses internal ones.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from evenkeel_collector.delivery.address import is_inside

DELIVERED, NOT_DELIVERED, UNKNOWN_ADDRESS, REFUSED = 0, 1, 2, 3
_AUDITED = ("socket.connect", "socket.sendto")


def main() -> int:
    """Read a message (url, title, body, is_firing, allow_private) from standard input; send it."""
    message = json.loads(sys.stdin.read())
    refused: list[str] = []
    if not message["allow_private"]:
        _guard(refused)
    import apprise

    sender = apprise.Apprise()
    if not sender.add(message["url"]):
        return UNKNOWN_ADDRESS
    if "overflow=" not in message["url"]:
        for service in sender:
            # The library's default sends what is too long for the service, which refuses it.
            service.overflow_mode = apprise.OverflowMode.TRUNCATE
    kind = apprise.NotifyType.FAILURE if message["is_firing"] else apprise.NotifyType.SUCCESS
    is_sent = sender.notify(
        title=message["title"],
        body=message["body"],
        notify_type=kind,
        body_format=apprise.NotifyFormat.TEXT,
    )
    if refused:
        print(refused[0], end="")
        return REFUSED
    return DELIVERED if is_sent else NOT_DELIVERED


def _guard(refused: list[str]) -> None:
    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _AUDITED:
            return
        address = arguments[1]
        host = str(address[0] if isinstance(address, tuple) else address)
        try:
            is_refused = is_inside(host)
        except ValueError:
            # A local socket or an unresolved name: not known to be public.
            is_refused = True
        if is_refused:
            refused.append(host)
            raise OSError("refused: internal address")

    sys.addaudithook(check)


if __name__ == "__main__":
    sys.exit(main())
