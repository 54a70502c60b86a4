"""A request's ledger made ready to show: what its time went to, and what it would be without."""

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
# What a request must spend in any case; the rest somebody or something else made it spend.
_OWN = ("host.input", "prefill.own", "decode.own", "host.output")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Seconds of one phase that went to one cause.

    Attributes:
        phase: "ttft" or "decode".
        cause: Its name in the ledger.
        seconds: How long.
        without_s: How long the phase would have been without it.
        is_own: Whether the request had to spend it in any case.
    """

    phase: str
    cause: str
    seconds: float
    without_s: float
    is_own: bool


def entries(row: Row) -> list[LedgerEntry]:
    """Return the ledger by phase, the largest cause first; [] for a request that has none."""
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
    """Return, for each phase, what its largest cause from outside cost, in a sentence."""
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
    """Return how far the causes that are shared with others can be relied on, in a sentence.

    Args:
        attributes: Of the request's own span.
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
