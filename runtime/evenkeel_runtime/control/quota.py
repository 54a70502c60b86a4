"""Tenant and session quotas, as token buckets."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from evenkeel_runtime.control.config import ControlConfig, Quota

_MAX_KEPT = 10_000


@dataclass(slots=True)
class TokenBucket:
    """A token bucket with a minute's capacity; it may go below zero, into debt.

    Attributes:
        per_minute: Its fill rate, and its capacity.
        level: Its level at `at_s`.
    """

    per_minute: float
    level: float
    at_s: float

    def fill(self, now_s: float) -> None:
        """Refill for the time since the last call."""
        gained = max(0.0, now_s - self.at_s) * self.per_minute / 60
        self.level = min(self.per_minute, self.level + gained)
        self.at_s = now_s

    def wait_s(self, needed: float) -> float:
        """Return the seconds until it holds `needed` or is full; 0 if it does now."""
        missing = min(needed, self.per_minute) - self.level
        return max(0.0, missing * 60 / self.per_minute)


@dataclass(slots=True)
class Account:
    """The usage of one tenant or session against its quota."""

    quota: Quota
    requests: TokenBucket | None
    tokens: TokenBucket | None
    active: int = 0

    @classmethod
    def open(cls, quota: Quota, now_s: float) -> Account:
        """Return an account with full buckets."""
        requests = _change(None, quota.requests_per_minute, now_s)
        return cls(quota, requests, _change(None, quota.tokens_per_minute, now_s))

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until one more request may start; 0 if it may now."""
        wait_s = 0.0
        for bucket, needed in ((self.requests, 1.0), (self.tokens, 0.0)):
            if bucket is not None:
                bucket.fill(now_s)
                # Tokens are charged at the end, so a bucket without debt admits one more.
                wait_s = max(wait_s, bucket.wait_s(needed))
        if self.quota.active is not None and self.active >= self.quota.active:
            wait_s = max(wait_s, 1.0)
        return wait_s

    def begin(self) -> None:
        """Count a request that starts."""
        self.active += 1
        if self.requests is not None:
            self.requests.level -= 1

    def refund(self) -> None:
        """Undo `begin` for a request that is refused."""
        self.active -= 1
        if self.requests is not None:
            self.requests.level = min(self.requests.per_minute, self.requests.level + 1)

    def configure(self, quota: Quota, now_s: float) -> None:
        """Apply a new quota; usage so far is kept."""
        self.quota = quota
        self.requests = _change(self.requests, quota.requests_per_minute, now_s)
        self.tokens = _change(self.tokens, quota.tokens_per_minute, now_s)

    def end(self, tokens: int) -> None:
        """Count a finished request, and charge its tokens."""
        self.active -= 1
        if self.tokens is not None:
            self.tokens.level -= tokens


def _change(
    bucket: TokenBucket | None, per_minute: float | None, now_s: float
) -> TokenBucket | None:
    """Return a bucket of another size with the same amount used."""
    if per_minute is None:
        return None
    if bucket is None:
        return TokenBucket(per_minute, per_minute, now_s)
    bucket.fill(now_s)
    return TokenBucket(per_minute, per_minute - (bucket.per_minute - bucket.level), now_s)


@dataclass(frozen=True, slots=True)
class Overdrawn:
    """An exhausted quota: its owner, and the seconds until it recovers."""

    owner: str
    wait_s: float


class Quotas:
    """The accounts of all tenants and sessions, evicted by least recent use."""

    def __init__(self, config: ControlConfig) -> None:
        self._config = config
        self._accounts: OrderedDict[tuple[str, str], Account] = OrderedDict()

    def configure(self, config: ControlConfig, now_s: float) -> None:
        """Apply new quotas; accounts that no longer have one are closed."""
        self._config = config
        unlimited = Quota()
        for (kind, name), account in list(self._accounts.items()):
            quota = self._quota(kind, name)
            if quota == unlimited:
                del self._accounts[kind, name]
            else:
                account.configure(quota, now_s)

    def join(self, accounts: list[Account], tenant: str, session: str | None, now_s: float) -> None:
        """Count a request in flight in the accounts that it is still missing from."""
        for _, account in self._owners(tenant, session, now_s):
            if not any(account is known for known in accounts):
                account.active += 1
                accounts.append(account)

    def check(self, tenant: str, session: str | None, now_s: float) -> Overdrawn | None:
        """Return the quota that refuses another request, if any."""
        for owner, account in self._owners(tenant, session, now_s):
            wait_s = account.wait_s(now_s)
            if wait_s > 0:
                return Overdrawn(owner, wait_s)
        return None

    def begin(self, tenant: str, session: str | None, now_s: float) -> list[Account]:
        """Count a request that starts; return the accounts to close it on."""
        accounts = [account for _, account in self._owners(tenant, session, now_s)]
        for account in accounts:
            account.begin()
        return accounts

    def _owners(self, tenant: str, session: str | None, now_s: float) -> list[tuple[str, Account]]:
        owners = [("tenant", tenant)]
        if session is not None:
            # Sessions are scoped by tenant: two tenants may use the same name.
            owners.append(("session", f"{tenant}\0{session}"))
        unlimited = Quota()
        return [
            (kind, self._find((kind, name), quota, now_s))
            for kind, name in owners
            if (quota := self._quota(kind, name)) != unlimited
        ]

    def _quota(self, kind: str, name: str) -> Quota:
        config = self._config
        return config.session if kind == "session" else config.tenants.get(name, config.tenant)

    def _find(self, key: tuple[str, str], quota: Quota, now_s: float) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account.open(quota, now_s)
            self._forget()
        self._accounts.move_to_end(key)
        return account

    def _forget(self) -> None:
        while len(self._accounts) > _MAX_KEPT:
            self._accounts.popitem(last=False)
