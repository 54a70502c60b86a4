"""A request's ledger as entries, and what each of its causes cost the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evenkeel.why.causes import cause_name

PHASES = {"ttft": "to the first token", "decode": "from the first token on"}
_WOULD_HAVE = {
    "ttft": "the first token would have come after",
    "decode": "decoding would have taken",
}
MISSES: Mapping[str, str] = {
    "none": "fully cached",
    "off": "prefix caching is off",
    "evicted": "cached before, evicted since",
    "other_salt": "cached, but isolated from this caller",
    "diverged": "differs from earlier prompts part-way",
    "never_seen": "first time this text is seen",
}
# Time that a request spends in any case; other causes come from outside.
OWN_CAUSES = ("host.input", "prefill.own", "decode.own", "host.output")
# A cause below this share of its phase is not worth a sentence.
_NOTABLE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Seconds of one phase charged to one cause.

    Attributes:
        phase: "ttft" or "decode".
        cause: Name of the cause in the ledger.
        seconds: Time charged.
        without_s: Length of the phase without this cause.
        is_own: Whether the request would have spent it in any case.
    """

    phase: str
    cause: str
    seconds: float
    without_s: float
    is_own: bool

    @property
    def share(self) -> float:
        """Its part of the phase, 0-1."""
        return self.seconds / (self.seconds + self.without_s)


def read_ledger(ledger: Mapping[str, float] | None) -> list[LedgerEntry]:
    """Return the entries by phase, largest cause first; [] for a request without a ledger."""
    found: dict[str, dict[str, float]] = {}
    for key, seconds in (ledger or {}).items():
        phase, _, cause = key.partition(".")
        if phase in PHASES and cause and seconds > 0:
            found.setdefault(phase, {})[cause] = seconds
    listed = []
    for phase in PHASES:
        causes = found.get(phase, {})
        total_s = sum(causes.values())
        for cause, seconds in sorted(causes.items(), key=lambda item: -item[1]):
            listed.append(
                LedgerEntry(phase, cause, seconds, total_s - seconds, cause in OWN_CAUSES)
            )
    return listed


def worst_causes(listed: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return the largest outside cause of each phase, leaving out negligible ones."""
    found = []
    for phase in PHASES:
        outside = [e for e in listed if e.phase == phase and not e.is_own]
        worst = max(outside, key=lambda e: e.seconds, default=None)
        if worst is not None and worst.share >= _NOTABLE_SHARE:
            found.append(worst)
    return found


def counterfactuals(listed: Sequence[LedgerEntry], seconds: Callable[[float], str]) -> list[str]:
    """Return one sentence per phase on the cost of its largest outside cause.

    Args:
        listed: The ledger's entries.
        seconds: Writes a duration.
    """
    return [
        f"Without {cause_name(e.cause)}, {_WOULD_HAVE[e.phase]} {seconds(e.without_s)} "
        f"instead of {seconds(e.seconds + e.without_s)}."
        for e in worst_causes(listed)
    ]


def missed_prefix(miss: str, evicted_s: float | None, seconds: Callable[[float], str]) -> str:
    """Return why the prefix cache lacked part of a prompt, in words; "" if it lacked none.

    Args:
        miss: The reason as recorded, such as `evicted`.
        evicted_s: How long before the arrival it was evicted; None if it was not.
        seconds: Writes a duration.
    """
    words = MISSES.get(miss, miss)
    if miss == "evicted" and evicted_s is not None:
        return f"evicted {seconds(evicted_s)} before this request arrived"
    return "" if miss == "none" else words
