"""Quotas: what a tenant or a session may use, by token buckets that fill with time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from runtime.control_config import ControlConfig, Quota

_MAX_KEPT = 10_000


@dataclass(slots=True)
class Bucket:
    """A token bucket that holds a minute's worth; it may go below zero, and then owes.

    Attributes:
        per_minute: What it fills by, and holds at most.
        level: What is in it at `at_s`.
    """

    per_minute: float
    level: float
    at_s: float

    def fill(self, now_s: float) -> None:
        """Add what came since the last call."""
        gained = max(0.0, now_s - self.at_s) * self.per_minute / 60
        self.level = min(self.per_minute, self.level + gained)
        self.at_s = now_s

    def wait_s(self, needed: float) -> float:
        """Seconds until it holds `needed`, or as much as it can ever hold; 0 if it does now."""
        missing = min(needed, self.per_minute) - self.level
        return max(0.0, missing * 60 / self.per_minute)


@dataclass(slots=True)
class Account:
    """What one tenant or session has used, against its quota."""

    quota: Quota
    requests: Bucket | None
    tokens: Bucket | None
    active: int = 0

    @classmethod
    def open(cls, quota: Quota, now_s: float) -> Account:
        """Return an account with full buckets."""

        def bucket(per_minute: float | None) -> Bucket | None:
            return None if per_minute is None else Bucket(per_minute, per_minute, now_s)

        return cls(quota, bucket(quota.requests_per_minute), bucket(quota.tokens_per_minute))

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more request may begin; 0 if it may now."""
        wait_s = 0.0
        for bucket, needed in ((self.requests, 1.0), (self.tokens, 0.0)):
            if bucket is not None:
                bucket.fill(now_s)
                # Tokens are charged at the end: a bucket that owes nothing lets one more in.
                wait_s = max(wait_s, bucket.wait_s(needed))
        if self.quota.active is not None and self.active >= self.quota.active:
            wait_s = max(wait_s, 1.0)
        return wait_s

    def begin(self) -> None:
        """Count a request that begins."""
        self.active += 1
        if self.requests is not None:
            self.requests.level -= 1

    def end(self, tokens: int) -> None:
        """Count a request that is over, and charge what it used."""
        self.active -= 1
        if self.tokens is not None:
            self.tokens.level -= tokens


@dataclass(frozen=True, slots=True)
class Overdrawn:
    """A quota that is used up: whose, and the seconds until it is not."""

    owner: str
    wait_s: float


class Quotas:
    """The accounts of all tenants and sessions; the least used of too many are forgotten."""

    def __init__(self, config: ControlConfig) -> None:
        self._config = config
        self._accounts: OrderedDict[tuple[str, str], Account] = OrderedDict()

    @property
    def num_accounts(self) -> int:
        """Accounts that are kept."""
        return len(self._accounts)

    def check(self, tenant: str, session: str | None, now_s: float) -> Overdrawn | None:
        """Return the quota that refuses one more request, if one does."""
        for owner, account in self._owners(tenant, session, now_s):
            wait_s = account.wait_s(now_s)
            if wait_s > 0:
                return Overdrawn(owner, wait_s)
        return None

    def begin(self, tenant: str, session: str | None, now_s: float) -> list[Account]:
        """Count a request that begins; returns the accounts to end it on."""
        accounts = [account for _, account in self._owners(tenant, session, now_s)]
        for account in accounts:
            account.begin()
        return accounts

    def _owners(self, tenant: str, session: str | None, now_s: float) -> list[tuple[str, Account]]:
        config = self._config
        owners = [("tenant", tenant, config.tenants.get(tenant, config.tenant))]
        if session is not None:
            # A session is its tenant's: two tenants may use one name.
            owners.append(("session", f"{tenant}\0{session}", config.session))
        unlimited = Quota()
        return [
            (kind, self._find((kind, name), quota, now_s))
            for kind, name, quota in owners
            if quota != unlimited
        ]

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
