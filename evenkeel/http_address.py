"""Checks addresses of HTTP servers, before a client fails at its first request; writes hosts."""

from __future__ import annotations

from urllib.parse import urlsplit

from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import hide_password


def bare_host(host: str) -> str:
    """Return a host without the brackets around an IPv6 address: `::1` for `[::1]`."""
    is_bracketed = host.startswith("[") and host.endswith("]") and ":" in host
    return host[1:-1] if is_bracketed else host


def with_port(host: str, port: int) -> str:
    """Return a host and a port as addresses have them: `localhost:8000`, `[::1]:8000`."""
    host = bare_host(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_http_address(url: str) -> bool:
    """Tell whether `url` is an HTTP address, with a host and a valid port."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # Accessed only to validate the range.
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def check_http_address(what: str, url: str, example: str) -> None:
    """Check that `url` is an HTTP address.

    Args:
        what: What it is the address of, for the message, such as "the store's address".
        url: The address.
        example: A right one.

    Raises:
        ConfigurationError: If it is not; the message has no password.
    """
    if is_http_address(url):
        return
    shown = hide_password(url)
    remedy = "" if shown == url else "; write / # ? of a password as %2F %23 %3F"
    if "::" in shown and "[" not in shown:
        remedy += "; write an IPv6 address in brackets, as in http://[::1]:8000"
    raise ConfigurationError(f"{what} is {shown!r}, expected one such as {example}{remedy}")
