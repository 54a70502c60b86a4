"""Refuses requests whose Host is not this server, to prevent DNS rebinding.

A hostile web page can make its own name resolve to this machine; its script can then talk to our
ports as same-origin. The browser still sends the page's name as Host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from evenkeel.http_address import bare_host
from evenkeel_collector.ports.body import Response, Scope

# RFC 9110, section 15.5.20: the request was directed at a server that does not answer for its host.
MISDIRECTED = 421
_LOCAL_NAME = "localhost"


class KnownHosts:
    """The host names and addresses that this server answers to.

    Args:
        bound: The address or name that the server listens on.
        listed: Further names, of the setting `allowed_hosts`.
    """

    def __init__(self, bound: str, listed: Iterable[str] = ()) -> None:
        self._names = {_normal(name) for name in (bound, *listed)}

    def refusal(self, scope: Scope) -> Response | None:
        """Return the error response to a request for another host; None if the host is ours."""
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not given and scope["http_version"] == "1.0":
            # Browsers have sent it ever since; RFC 9112, section 3.2.
            return None
        if len(given) != 1:
            return Response(400, b"a request has one Host header\n")
        host = _without_port(given[0].strip())
        server = scope.get("server")
        if self._is_known(host, server[0] if server else ""):
            return None
        text = f"this server does not answer to {host[:100]!r}; to allow it, set allowed_hosts\n"
        return Response(MISDIRECTED, text.encode("utf-8", "replace"))

    def _is_known(self, host: str, reached: str) -> bool:
        name = _normal(host)
        if name in self._names or name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}"):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # If bound to all addresses, the host must be the address this connection reached.
        return address.is_loopback or name == _normal(reached)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _normal(name: str) -> str:
    """Return a name in lower case without its final dot, an address in its shortest form."""
    name = bare_host(name.lower().removesuffix("."))
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
