"""Reads a session's ledger: where the time until it was done went, in the order of its bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.sessions.ledger import (
    CLIENT,
    DECODE,
    OTHER,
    PREFILL,
    QUEUE,
    RECOMPUTE,
    TOOL_PREFIX,
)

TOOLS = "tool"
# Each cause of a session's time, in the order of the bar.
CAUSES: Mapping[str, str] = {
    QUEUE: "waiting in the queue",
    PREFILL: "processing prompts",
    RECOMPUTE: "recomputing evicted prefixes",
    DECODE: "generating answers",
    OTHER: "unrecorded time of the model",
    TOOLS: "tools",
    CLIENT: "pauses of the client",
}


@dataclass(frozen=True, slots=True)
class Spent:
    """Time of a session charged to one cause."""

    cause: str
    seconds: float

    @property
    def words(self) -> str:
        """What the time went to."""
        return cause_words(self.cause)


def cause_words(cause: str) -> str:
    """Return a cause in words; a tool's is its name."""
    name = cause.removeprefix(TOOL_PREFIX)
    return CAUSES.get(cause) or (f"tool {name}" if name != cause else cause)


def read_session_ledger(ledger: Mapping[str, float] | None) -> list[Spent]:
    """Return what the ledger has, in the bar's order; causes without time are left out."""
    stored = {cause: seconds for cause, seconds in (ledger or {}).items() if seconds > 0}
    return [Spent(cause, stored[cause]) for cause in sorted(stored, key=_place)]


def with_tools_as_one(spent: Sequence[Spent]) -> list[Spent]:
    """Return a ledger with the time of all tools in one entry."""
    found: dict[str, float] = {}
    for each in spent:
        cause = TOOLS if each.cause.startswith(TOOL_PREFIX) else each.cause
        found[cause] = found.get(cause, 0.0) + each.seconds
    return read_session_ledger(found)


def _place(cause: str) -> tuple[int, str]:
    ordered = list(CAUSES)
    known = TOOLS if cause.startswith(TOOL_PREFIX) else cause
    return ordered.index(known) if known in ordered else len(ordered), cause


def colour_of_cause(cause: str, colours: Palette) -> str:
    """Return a cause's colour; queue, prefill and decode are the same on every page."""
    shades = {
        QUEUE: colours.queue,
        PREFILL: colours.prefill,
        RECOMPUTE: colours.recomputed,
        DECODE: colours.decode,
        OTHER: colours.ok,
        CLIENT: colours.line,
    }
    if cause == TOOLS or cause.startswith(TOOL_PREFIX):
        return colours.shed
    return shades.get(cause, colours.muted)


def bar_parts(spent: Sequence[Spent], colours: Palette) -> list[tuple[str, str, float]]:
    """Return name, colour and seconds of each cause, for a stacked bar."""
    return [(each.words, colour_of_cause(each.cause, colours), each.seconds) for each in spent]
