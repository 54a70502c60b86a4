"""Prepares a request's ledger for display: its causes, and the time without each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.causes import cause_name
from evenkeel.spans import LEDGER_ERROR_RATIO, LEDGER_SHARED_BY
from evenkeel_dashboard.draw import wording
from evenkeel_dashboard.pages.request.token_model import Attributes, number

Row = Mapping[str, Any]

PHASES = {"ttft": "to the first token", "decode": "from the first token on"}
_WOULD_HAVE = {
    "ttft": "the first token would have come after",
    "decode": "decoding would have taken",
}
# Time that a request spends in any case; other causes come from outside.
_OWN = ("host.input", "prefill.own", "decode.own", "host.output")


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


def entries(row: Row) -> list[LedgerEntry]:
    """Return the ledger by phase, largest cause first; [] for a request without one."""
    found: dict[str, dict[str, float]] = {}
    for key, seconds in (row.get("ledger") or {}).items():
        phase, _, cause = key.partition(".")
        if phase in PHASES and cause and seconds > 0:
            found.setdefault(phase, {})[cause] = seconds
    listed = []
    for phase in PHASES:
        causes = found.get(phase, {})
        total_s = sum(causes.values())
        for cause, seconds in sorted(causes.items(), key=lambda item: -item[1]):
            listed.append(LedgerEntry(phase, cause, seconds, total_s - seconds, cause in _OWN))
    return listed


def counterfactual(listed: Sequence[LedgerEntry]) -> list[str]:
    """Return one sentence per phase on the cost of its largest outside cause."""
    sentences = []
    for phase in PHASES:
        outside = [e for e in listed if e.phase == phase and not e.is_own]
        if not outside:
            continue
        worst = max(outside, key=lambda e: e.seconds)
        total_s = worst.seconds + worst.without_s
        if worst.seconds < 0.05 * total_s:
            continue
        sentences.append(
            f"Without {cause_name(worst.cause)}, {_WOULD_HAVE[phase]} "
            f"{wording.seconds(worst.without_s)} instead of {wording.seconds(total_s)}."
        )
    return sentences


def sharing(attributes: Attributes) -> str | None:
    """Return a sentence on the accuracy of the causes shared with other requests.

    Args:
        attributes: Attributes of the request's own span.
    """
    shared_by = attributes.get(LEDGER_SHARED_BY)
    if shared_by == "tokens":
        return (
            "The time of steps with several requests is split by tokens, because the server's cost "
            "model had not been validated yet. The sums are exact; the split is rough."
        )
    error = number(attributes, LEDGER_ERROR_RATIO)
    if shared_by != "cost_model" or error is None:
        return None
    return (
        "The time of steps with several requests is split by a cost model, which was "
        f"{wording.percent(error)} off on average over the last steps."
    )
