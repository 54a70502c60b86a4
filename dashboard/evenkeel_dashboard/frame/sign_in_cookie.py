"""The cookie that remembers who is signed in, so that a reload does not ask again."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from evenkeel_dashboard.frame.user_access import Identity

_COOKIE = "evenkeel_session"
LASTS_S = 12 * 3_600
_TICKET_LASTS_S = 60.0
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class _Kept:
    identity: Identity
    until_s: float
    ticket: str = ""


class SignInSessions:
    """Signed-in users by the value of their cookie; kept in memory, at most 12 hours.

    The token stays here: the cookie has a random number and its signature. A page cannot set a
    cookie that scripts cannot read, so it gets a ticket, valid once and for a minute, which the
    browser exchanges for the cookie.

    Attributes:
        cookie: The cookie's name. Browsers send a cookie to all ports of a host, so each dashboard
            has a name of its own.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._key = secrets.token_bytes(32)
        self.cookie = f"{_COOKIE}_{secrets.token_hex(4)}"
        self._lock = threading.RLock()
        self._tickets: dict[str, _Kept] = {}
        self._sessions: dict[str, _Kept] = {}
        # Of pages that were loaded before the sign-in, by their ticket.
        self._sign_ins: dict[str, _Kept] = {}

    def ticket(self, identity: Identity) -> str:
        """Return a ticket for a user who has just signed in."""
        name = secrets.token_urlsafe(32)
        self._keep(self._tickets, name, identity, _TICKET_LASTS_S)
        self._keep(self._sign_ins, name, identity, LASTS_S)
        return name

    def redeem(self, ticket: str) -> str | None:
        """Return the cookie's value for a ticket; None if it is used, old or unknown."""
        with self._lock:
            kept = self._tickets.pop(ticket, None)
            if kept is None or kept.until_s < self._clock_s():
                return None
            name = secrets.token_urlsafe(32)
            self._keep(self._sessions, name, kept.identity, LASTS_S, ticket)
        return f"{name}.{self._signature(name)}"

    def find(self, cookie: str) -> Identity | None:
        """Return the user of a cookie; None if it is not ours, or the session is over."""
        name, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(name).encode()):
            return None
        with self._lock:
            kept = self._sessions.get(name)
        return None if kept is None or kept.until_s < self._clock_s() else kept.identity

    def lasts(self, cookie: str, ticket: str = "") -> bool:
        """Return whether an open page may go on: nobody signed out, and it is not too long ago.

        A page knows only the cookies of when it was loaded: of a sign-in since, it has the ticket.
        """
        if not ticket:
            return self.find(cookie) is not None
        with self._lock:
            kept = self._sign_ins.get(ticket)
        return kept is not None and kept.until_s >= self._clock_s()

    def end(self, cookie: str, ticket: str = "") -> None:
        """End the session of a cookie, and what a ticket began or could still begin.

        So the other pages of the same sign-in end, too.
        """
        with self._lock:
            ended = self._sessions.pop(cookie.partition(".")[0], None)
            tickets = {ticket, "" if ended is None else ended.ticket} - {""}
            for each in tickets:
                self._tickets.pop(each, None)
                self._sign_ins.pop(each, None)
            for name in [n for n, one in self._sessions.items() if one.ticket in tickets]:
                del self._sessions[name]

    def _signature(self, name: str) -> str:
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()

    def _keep(
        self,
        kept: dict[str, _Kept],
        name: str,
        identity: Identity,
        lasts_s: float,
        ticket: str = "",
    ) -> None:
        now_s = self._clock_s()
        with self._lock:
            for old in [n for n, one in kept.items() if one.until_s < now_s]:
                del kept[old]
            while len(kept) >= _MOST:
                del kept[next(iter(kept))]
            kept[name] = _Kept(identity, now_s + lasts_s, ticket)
