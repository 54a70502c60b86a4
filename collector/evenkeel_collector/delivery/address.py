"""Keep notifications away from internal addresses: loopback, private, link-local, metadata.

A name is resolved once, every address is checked, and the connection uses a checked address, so
that a DNS answer that changes in between has no effect. Redirects are not followed. Behind a proxy
the name goes to the proxy, which resolves it itself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from evenkeel.errors import EvenkeelError


class AddressRefused(EvenkeelError):
    """A receiver's address must not be used; `is_final` if a retry cannot help."""

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ResolvedAddress:
    """A checked address to connect to, and the host name it belongs to.

    Attributes:
        address: The first of the name's addresses.
        host: The name.
        port: None if the receiver does not name one.
        other: Its first address of the other family, to try if the first does not answer.
    """

    address: str
    host: str
    port: int | None
    other: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to try, in this order."""
        return (self.address,) if self.other is None else (self.address, self.other)


# All public IPv6 addresses (RFC 4291); others are special, or obsolete forms of IPv4 addresses.
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
# Where only a proxy gets out, there may be no name server to wait for.
_LOOKUP_BEHIND_A_PROXY_S = 2.0
# Such lookups may hang for long after that: they must not take the threads that deliveries need.
_LOOKUPS = ThreadPoolExecutor(4, "lookups")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Public by its number, but Azure answers it to its own machines only.
_AZURE_PLATFORM = ipaddress.IPv4Address("168.63.129.16")


def is_inside(address: str) -> bool:
    """Return whether an address is not public; IPv4 addresses within IPv6 are checked, too."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_inside(str(inner))
        if ip not in _PUBLIC_IPV6:
            return True
    return not ip.is_global or ip.is_multicast or ip == _AZURE_PLATFORM


def find_proxy(url: str) -> str | None:
    """Return the environment's proxy for an http(s) address; None if it is reached directly."""
    parts = urlsplit(url)
    proxies = getproxies()
    if parts.scheme not in ("http", "https") or _is_exempt(
        parts.hostname or "", parts.port, proxies.get("no", "")
    ):
        return None
    found = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{found}" if found and "://" not in found else found


def _is_exempt(host: str, port: int | None, no_proxy: str) -> bool:
    """Return whether `no_proxy` names a host, with its port if it likes, or its network."""
    if proxy_bypass(host) or (port is not None and proxy_bypass(f"{host}:{port}")):
        return True
    networks = [name.strip() for name in no_proxy.split(",") if "/" in name]
    for network in networks:
        with suppress(ValueError):
            if ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False):
                return True
    return False


async def find_target(
    url: str, allow_private: bool, threads: Executor | None = None, has_proxy: bool = False
) -> ResolvedAddress:
    """Return the checked address of a receiver; the name is resolved in one of `threads`.

    With a proxy, its name, which need not resolve here.

    Raises:
        AddressRefused: If the name does not resolve, or one of its addresses is internal and that
            is not allowed.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port
    loop = asyncio.get_running_loop()
    try:
        if has_proxy:
            found = await _look_up_behind_a_proxy(host, port)
        else:
            found = await loop.run_in_executor(threads, _look_up, host, port)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} does not resolve: {error}", is_final=False) from error
    addresses = [str(info[4][0]) for info in found]
    refused = [] if allow_private else [a for a in addresses if is_inside(a)]
    if refused:
        where = host if host == refused[0] else f"{host} ({refused[0]})"
        raise AddressRefused(
            f"{where} is not a public address; set allowPrivate to allow it", is_final=True
        )
    if has_proxy:
        return ResolvedAddress(host, host, port)
    other = next((str(info[4][0]) for info in found if info[0] != found[0][0]), None)
    return ResolvedAddress(addresses[0], host, port, other)


def _look_up(host: str, port: int | None, flags: int = 0) -> list[Any]:
    return socket.getaddrinfo(host, port or 0, 0, socket.SOCK_STREAM, 0, flags)


async def _look_up_behind_a_proxy(host: str, port: int | None) -> list[Any]:
    """Return what is known of a host soon; nothing if that is for the proxy to find out."""
    try:
        # An address, in whatever notation, needs no lookup.
        return _look_up(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        pass
    looking = asyncio.get_running_loop().run_in_executor(_LOOKUPS, _look_up, host, port)
    try:
        return await asyncio.wait_for(looking, _LOOKUP_BEHIND_A_PROXY_S)
    except (OSError, UnicodeError):
        return []
