"""Checks addresses of HTTP servers, before a client fails at its first request."""

from __future__ import annotations

from urllib.parse import urlsplit

from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import hide_password


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
    raise ConfigurationError(f"{what} is {shown!r}, expected one such as {example}{remedy}")
