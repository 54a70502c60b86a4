"""One request as control tracks it, its possible refusal, and the counters over all requests."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from evenkeel.errors import EvenkeelError
from evenkeel_runtime.control.costs import PromptCost
from evenkeel_runtime.control.gate import Standing, Ticket
from evenkeel_runtime.control.kv_shares import Claim, Owner
from evenkeel_runtime.control.quota import Account

# Priority offset that puts late requests behind all others in vLLM's own queue.
_LATE_S = 1e6
# More than any deadline, in milliseconds; and the most of a client's own priority that counts.
_OWN_PRIORITY, _MAX_OWN_PRIORITY = 10**13, 100_000


class RefusedError(EvenkeelError):
    """A refused request.

    Attributes:
        status: 400 for what is never served, 429 for a quota, 503 for load.
        reason: `context_length`, `background`, `quota`, `kv_share`, `shed` or `queue_deadline`.
        retry_after_s: When to retry; None if that would not help.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_s = None if retry_after_s is None else max(1, math.ceil(retry_after_s))


@dataclass(slots=True)
class Visit:
    """One request tracked by control, from arrival to end.

    Attributes:
        slo_class: Its class; the default if the caller named none or an unknown one.
        arrived_s: When it arrived, on the monotonic clock.
        late_s: When it becomes late.
        due_s: Its deadline at the gate.
        tenant: Its tenant; empty if none.
        session: Its session.
        accounts: The accounts whose quota it uses; none once it is refused.
        is_refused: Whether it was refused, or would have been in a dry run, which serves it.
        owners: Its tenant, session and route, whose limits apply.
        cost: What its prompt costs; None before vLLM has rendered it.
        claim: What it holds of its owners' shares of the KV cache.
        ticket: Its ticket at the gate; None before it joins the queue.
        shadow: Its ticket at a dry run's shadow gate, which holds no request back.
        keeps_order: Whether vLLM should serve it in order of arrival, because control does not act.
        queued_s: When it began to wait there; None if it did not have to.
        gate_s: How long it waited; set once its turn has come.
        entered_s: When its turn came; None before.
        is_streamed: Whether its answer is streamed, so that its first token can be observed; set
            when its body is read at the gate, or when the engine gets it.
        has_first_token: Whether its first token was observed.
        has_output: Whether the engine has answered any of it.
    """

    slo_class: str
    arrived_s: float
    late_s: float
    due_s: float
    tenant: str
    session: str | None
    accounts: list[Account] = field(default_factory=list)
    is_refused: bool = False
    owners: tuple[Owner, ...] = ()
    cost: PromptCost | None = None
    claim: Claim | None = None
    ticket: Ticket | None = None
    shadow: Ticket | None = None
    queued_s: float | None = None
    gate_s: float = 0.0
    entered_s: float | None = None
    is_streamed: bool = False
    has_first_token: bool = False
    has_output: bool = False
    keeps_order: bool = False

    def is_overdue(self, now_s: float) -> bool:
        """Whether it has no first token though that is late."""
        return self.is_streamed and not self.has_first_token and now_s > self.late_s

    def refund(self) -> None:
        """Give back what it used of its quotas; it uses none of them any more."""
        for account in self.accounts:
            account.refund()
        self.accounts = []

    def end_accounts(self, tokens: int) -> None:
        """Charge its tokens to its quotas, of which it uses no place any more."""
        for account in self.accounts:
            account.end(tokens)

    @property
    def priority(self) -> int:
        """Its priority in vLLM, lower first: its deadline, or its arrival if control does not act.

        Both are milliseconds on one scale, so that a change of mode starves no request.
        """
        if self.keeps_order:
            return int(self.arrived_s * 1000)
        is_late = self.ticket is not None and self.ticket.standing is Standing.LATE
        return int((self.due_s + _LATE_S * is_late) * 1000)


@dataclass(slots=True)
class ControlCounts:
    """Counters of control; each only grows.

    Attributes:
        admitted: Requests let in, by class.
        refused: Requests refused, by class and reason.
        would_refuse: The same for requests that a dry run let in.
        unknown_classes: Requests that named a class that is not configured.
        changes: Steps taken, by lever.
        errors: Ticks that failed.
    """

    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    would_refuse: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown_classes: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    errors: int = 0


def order_by_arrival(own_priority: int, arrival_ns: int) -> int:
    """Return the priority of a request without a visit: the client's own, then its arrival.

    On the scale of `Visit.priority`, so that those let in before are not overtaken without end.
    """
    own = max(-_MAX_OWN_PRIORITY, min(own_priority, _MAX_OWN_PRIORITY))
    return own * _OWN_PRIORITY + arrival_ns // 1_000_000
