"""Checks that a pattern cannot make, such as telling a password from a placeholder.

A check gets a text, the part that a rule's pattern matched, and the budget; it yields the parts
that are the secret: none, all of it, or some (a card number followed by its security code).
Texts are UTF-8 bytes, parts are (start, end) offsets.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping

from evenkeel.privacy.account_numbers import (
    DIGITS,
    WORD,
    find_cards,
    find_iban,
    find_social_security,
)
from evenkeel.privacy.assigned import find_assigned
from evenkeel.privacy.cpu_budget import CpuBudget

Check = Callable[[bytes, int, int, CpuBudget], Iterator[tuple[int, int]]]


def find_email(text: bytes, start: int, end: int, _: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield the address without surrounding punctuation or quotes."""
    while start < end and text[start] in b".'`*|{=/?&!$%^~#-":
        start += 1
    local, _at, domain = text[start:end].rpartition(b"@")
    # `user=ana@…` in a query string or a log line: the name is not part of the address.
    start += max(local.rfind(b"="), local.rfind(b"'"), local.rfind(b"`"), local.rfind(b"|")) + 1
    local = text[start : end - len(domain) - 1]
    if (
        local
        and local.lower() not in LOGINS
        and domain.rpartition(b".")[2].lower() not in NO_DOMAINS
        and not VERSION.match(domain)
        and not REMOTE_PATH.match(text, end)
        and not AUTHORITY.search(text[max(0, start - 80) : start])
    ):
        yield start, end


# `ssh://ana@host.example`: a login at a host, whose password `url_credentials` takes.
AUTHORITY = re.compile(rb"://[^/?#\s]*$")
# `git@github.com`: a repository host's login, not a person's.
LOGINS = frozenset([b"git", b"hg", b"svn"])
# `deploy@web01.example.com:/srv/app`: a target of scp or rsync.
REMOTE_PATH = re.compile(rb":(?:[/~]|[^\s:]{1,200}\.git\b)")
# `react@18.2.0-rc.beta`
VERSION = re.compile(rb"[0-9]+\.[0-9]")
# `icon@2x.png` is a file, `getty@tty1.service` a unit, not a mailbox.
NO_DOMAINS = frozenset(
    b"png jpg jpeg gif svg webp css js ts json html htm txt md yaml yml toml gz zip pdf "
    b"service socket timer target mount slice scope local localhost internal".split()
)


def find_jwt(text: bytes, start: int, end: int, _: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield a token whose first part is JSON with an algorithm, as RFC 7515 requires."""
    header = text[start:end].split(b".")[0]
    try:
        fields = json.loads(base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4)))
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict) and "alg" in fields:
        yield start, end


def find_key(text: bytes, start: int, end: int, _: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield a vendor's key unless it is a word with dashes, such as `sk-learn-based-pipeline`."""
    body = text[start:end]
    if any(byte in DIGITS for byte in body[3:]) or (body[3:] != body[3:].lower()):
        yield start, end


def find_opaque(text: bytes, start: int, end: int, _: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield the value after `Bearer`, `Basic` or `token` unless it is a plain word."""
    while text[end - 1] == DOT:
        end -= 1
    value = text[start : min(end, start + MAX_OPAQUE_BYTES)]
    if text[max(0, start - 12) : start].lower().rstrip(b" \t+\"'`").endswith(b"basic"):
        try:
            is_secret = b":" in base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return
    else:
        has_digit = any(byte in DIGITS for byte in value)
        has_letter = any(65 <= byte | 32 <= 122 and byte > 64 for byte in value)
        is_secret = has_letter and ((has_digit and len(value) >= 12) or len(value) >= 32)
    if is_secret:
        yield start, end


# Enough of a value to recognise it; a multiple of 4, as in base64.
MAX_OPAQUE_BYTES = 4096
DOT = ord(".")


def find_url_password(text: bytes, start: int, end: int, _: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield the password of `scheme://user:password@host` unless it is a port and a path."""
    has_user = not text.endswith(b"://:", 0, start)
    if has_user and PORT.match(text, start, end):
        return
    host = text.rfind(b"://[", max(0, start - MAX_USER_BYTES), start)
    if host < 0 or not IPV6_HOST.match(text, host + 3, end):
        yield start, end


# `https://example.com:8443/@ana`, `http://localhost:$PORT/@vite/client`
PORT = re.compile(rb"(?:[0-9]*|\$[A-Za-z_]\w*|\$?\{\w+\})[/?#]")
# `http://[::1]:8080/@ana`
IPV6_HOST = re.compile(rb"\[[0-9A-Fa-f:.]+\](?::" + PORT.pattern + rb"|[/?#])")
# The longest user in the rule's pattern, and what surrounds it.
MAX_USER_BYTES = 84


def find_ip(text: bytes, start: int, end: int, _: CpuBudget) -> Iterator[tuple[int, int]]:
    """Yield an IPv4 or IPv6 address that is not part of a longer word or version number."""
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    if any(byte in WORD or byte in b":." for byte in around.rstrip(b".:")):
        return
    try:
        ipaddress.ip_address(text[start:end].decode("ascii"))
    except ValueError:
        return
    yield start, end


CHECKS: Mapping[str, Check] = {
    "assigned": find_assigned,
    "card": find_cards,
    "email": find_email,
    "iban": find_iban,
    "ip": find_ip,
    "jwt": find_jwt,
    "key": find_key,
    "opaque": find_opaque,
    "social_security": find_social_security,
    "url_password": find_url_password,
}
