"""Says in sentences where a session's time went, and what to know about its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.pages.sessions.ledger_bar import Spent, with_tools_as_one
from evenkeel_dashboard.pages.sessions.timeline import SessionTimeline, Step
from evenkeel_dashboard.sessions.evictions import During, Eviction
from evenkeel_dashboard.sessions.ledger import RECOMPUTE, TOOL_PREFIX
from evenkeel_dashboard.sessions.work import WorkKind

Row = Mapping[str, Any]

# Savings shorter than this are not worth a sentence.
_NOTABLE_S = 0.0005
_MOST_TOOLS = 3
_FOUND_BY = {
    "trace": "No session ID was sent: its requests and tool calls are those of one trace.",
    "chain": "No session ID was sent: each prompt continued the one before, which may be wrong.",
}


def explanation(row: Row, spent: Sequence[Spent], evictions: Sequence[Eviction]) -> list[str]:
    """Return sentences on where the time went, the most important first.

    Args:
        row: The session.
        spent: Its ledger.
        evictions: What it had in the cache, and lost.
    """
    total_s = sum(each.seconds for each in spent)
    if not total_s:
        return []
    largest = max(with_tools_as_one(spent), key=lambda each: each.seconds)
    done = "It has taken" if row["is_open"] else "It was done after"
    share = formats.percent(min(largest.seconds / total_s, 1.0))
    said = [
        f"{done} {formats.seconds(total_s)}; {share} of that was {largest.words} "
        f"({formats.seconds(largest.seconds)})."
    ]
    said += _tool_words(spent)
    lost_s = sum(each.seconds for each in spent if each.cause == RECOMPUTE)
    if lost_s > _NOTABLE_S:
        said += _recompute_words(lost_s, [each for each in evictions if each.seconds])
    if row["last_status"] != "ok":
        failed = "It may try again" if row["is_open"] else "It failed"
        said.append(f"{failed}: its last request ended with {row['last_status']}.")
    return said


def _tool_words(spent: Sequence[Spent]) -> list[str]:
    """Return the tools it waited for longest, if any."""
    tools = [each for each in spent if each.cause.startswith(TOOL_PREFIX)]
    tools.sort(key=lambda each: -each.seconds)
    if not tools:
        return []
    named = ", ".join(
        f"{each.cause.removeprefix(TOOL_PREFIX)} ({formats.seconds(each.seconds)})"
        for each in tools[:_MOST_TOOLS]
    )
    return [f"Of the tools it waited longest for {named}."]


def _recompute_words(lost_s: float, evictions: Sequence[Eviction]) -> list[str]:
    """Return what recomputed prefixes cost, and the tools that ran while they were evicted."""
    words = f"prefixes of {len(evictions)} turns" if len(evictions) > 1 else "prefix of a turn"
    verb = "were" if len(evictions) > 1 else "was"
    said = [
        f"The {words} {verb} evicted and had to be computed again: a cache hit would have saved "
        f"{formats.seconds(lost_s)}."
    ]
    tools: dict[str, int] = {}
    for each in evictions:
        if each.during is During.TOOL and each.tool is not None:
            tools[each.tool] = tools.get(each.tool, 0) + 1
    if tools:
        named = sorted(tools, key=lambda name: -tools[name])[:_MOST_TOOLS]
        said.append(f"Evicted while a tool ran: {', '.join(named)}.")
    return said


def notes(row: Row, found: SessionTimeline, most: int) -> list[str]:
    """Return what to know about the figures: an open session, no price, clocks that differ."""
    said = []
    if row["is_open"]:
        said.append("Still open: seen in the last 30 minutes, so it may go on.")
    if row["cost"] is None:
        said.append(
            f"No cost: no price is known for {row['model'] or 'its model'}, or not all that it "
            "charges for."
        )
    elif any(_is_turn(s) and s.row["cost"] is None for s in found.steps):
        said.append("Some requests have no cost; the session's cost is that of the others.")
    if row["session_source"] in _FOUND_BY:
        said.append(_FOUND_BY[row["session_source"]])
    skew_s = clock_skew_s(found.steps)
    if skew_s > 0:
        said.append(
            f"Clocks differ: a step began {formats.seconds(skew_s)} before its caller did. Times "
            "between client and server are off by at least that."
        )
    if len(found.steps) >= most:
        said.append(f"Only the first {most:,} steps are shown.")
    if not row["num_tools"]:
        said.append("No tool calls were traced: their time is part of the client's pauses.")
    return said


def _is_turn(step: Step) -> bool:
    return step.work.kind is WorkKind.REQUEST


def clock_skew_s(steps: Sequence[Step]) -> float:
    """Return by how much a step began before its caller's span, at most; 0 if none did."""
    begun = {step.work.id: step.start_s for step in steps if step.work.id}
    early_s = (
        begun[step.work.parent_id] - step.start_s for step in steps if step.work.parent_id in begun
    )
    return max(0.0, *early_s, 0.0)
