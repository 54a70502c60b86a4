"""One request as control follows it, why it may be refused, and what is counted of all of them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from evenkeel.errors import EvenkeelError
from evenkeel_runtime.control.gate import Standing, Ticket
from evenkeel_runtime.control.quota import Account

# In vLLM's own queue, behind whatever is not late.
_LATE_S = 1e6


class RefusedError(EvenkeelError):
    """A request that is not served now.

    Attributes:
        status: 429 for a quota, 503 for load.
        reason: `quota`, `shed` or `queue_deadline`.
        retry_after_s: When to try again.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_s = max(1, math.ceil(retry_after_s))


@dataclass(slots=True)
class Visit:
    """One request that control follows, from its arrival to its end.

    Attributes:
        slo_class: Its class; the default one where the caller named none that is known.
        arrived_s: When it arrived, on the monotonic clock.
        late_s: When it is late.
        due_s: Its deadline at the gate.
        tenant: Whose it is; empty where nobody's.
        session: Of which session.
        accounts: Whose quota it uses.
        is_overdrawn: Whether one of them is used up, which a dry run lets pass.
        ticket: Its place at the gate; None before it asked for one.
        shadow: Its place at the gate of a dry run, at which nobody waits.
        keeps_order: Whether vLLM is to serve it by its arrival, because control does not act.
        queued_s: When it began to wait there; None where it has not had to.
        gate_s: How long it waited, once its turn has come.
        entered_s: When its turn came; None before.
        is_streamed: Whether its first token can be seen; None before the engine has it.
        has_first_token: Whether it was seen.
    """

    slo_class: str
    arrived_s: float
    late_s: float
    due_s: float
    tenant: str
    session: str | None
    accounts: list[Account]
    is_overdrawn: bool = False
    ticket: Ticket | None = None
    shadow: Ticket | None = None
    queued_s: float | None = None
    gate_s: float = 0.0
    entered_s: float | None = None
    is_streamed: bool | None = None
    has_first_token: bool = False
    keeps_order: bool = False

    @property
    def priority(self) -> int:
        """What vLLM orders it by, lower first: its deadline; its arrival if control does not act.

        Milliseconds on one scale, so that a change of the mode puts nobody behind all who come.
        """
        if self.keeps_order:
            return int(self.arrived_s * 1000)
        is_late = self.ticket is not None and self.ticket.standing is Standing.LATE
        return int((self.due_s + _LATE_S * is_late) * 1000)


@dataclass(slots=True)
class ControlCounts:
    """What control did so far; each only grows.

    Attributes:
        admitted: Requests let in, by class.
        refused: Requests refused, by class and reason.
        would_refuse: The same for what a dry run let in.
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
