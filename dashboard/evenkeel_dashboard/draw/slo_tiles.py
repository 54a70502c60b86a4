"""Builds SLO tiles: which SLOs to show, their state and their burn rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.durations import format_duration
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.tiles import SloTile

Row = Mapping[str, Any]

_WORDS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "total time"}
# What is counted, where that says it all.
_EVENTS = {
    "availability": "of requests answered",
    "feedback": "of people's scores good",
    "session_e2e": "of sessions done within",
    "session_turns": "of sessions with few enough turns",
    "session_success": "of sessions done well",
}

_NAMES_OF_A_LINE = 2
# With more SLOs than this, a page shows only the worst.
MOST_SLOS = 12

# If only some are stale, they were taken out of the file: those in force come first.
_BY_URGENCY = ("firing", "pending", "unknown", "no_data", "ok", "stale")


def worst_slos(rows: Sequence[Row], first: str = "") -> tuple[list[Row], int]:
    """Return the SLOs to show on a page, and the number left out.

    A short list is returned whole, in order; otherwise alerting SLOs and those with the least
    budget left come first.

    Args:
        rows: The newest evaluation of each SLO.
        first: The SLO to show regardless of its state.
    """
    chosen = [row for row in rows if row["slo"] == first]
    others = [row for row in rows if row["slo"] != first]
    if len(rows) > MOST_SLOS:
        others.sort(key=_urgency)
    shown = [*chosen, *others][:MOST_SLOS]
    return shown, len(rows) - len(shown)


def _urgency(row: Row) -> tuple[int, bool, float]:
    state, left = row["state"], row["budget_left_ratio"]
    place = _BY_URGENCY.index(state) if state in _BY_URGENCY else len(_BY_URGENCY)
    return place, row["severity"] != "page", float("inf") if left is None else left


def slo_tile(row: Row, history: Sequence[float | None], href: str = "") -> SloTile:
    """Return an SLO's tile from its newest evaluation and its burn rates over the range."""
    level, state = slo_state(row)
    burn, factor = closest_burn(row)
    left = row["budget_left_ratio"]
    return SloTile(
        name=row["slo"],
        level=level,
        state=state,
        objective=objective_words(row),
        sli=formats.percent_of_target(row["sli"], row["target"]),
        budget_left=budget_words(left),
        budget_left_ratio=None if left is None else min(max(left, 0.0), 1.0),
        burn=formats.factor(burn),
        alerts_at=formats.factor(factor),
        burn_history=history,
        href=href,
    )


def budget_words(left: float | None) -> str:
    """Return the budget left as a share, or how often it is spent: 63%, 2.6× spent."""
    if left is None or left >= 0:
        return formats.percent(left)
    return f"{formats.factor(1 - left)} spent"


def closest_burn(row: Row) -> tuple[float | None, float | None]:
    """Return the burn rate and factor of the window pair closest to alerting, or beyond it.

    Windows without events have no burn rate and are skipped. If none remain, the burn rate is
    None and the factor is the first pair's.
    """
    pairs = list(zip(row["window_burn_long"], row["window_factor"], strict=True))
    measured = [(burn, factor) for burn, factor in pairs if burn is not None]
    if measured:
        return max(measured, key=lambda pair: pair[0] / pair[1])
    return None, pairs[0][1] if pairs else None


def objective_words(row: Row) -> str:
    """Return an SLO's objective in words, such as "99.5% with TTFT ≤ 500 ms over 30d"."""
    objective = row["objective"]
    period = row["calendar_period"] or format_duration(round(row["period_s"]))
    if objective == "cost":
        most = formats.number(row["total"])
        return f"costs at most {most} over {period}"
    measure = _EVENTS.get(objective) or f"with {_WORDS.get(objective, objective)}"
    # What is done within a limit needs no sign for it.
    sign = "" if objective in _EVENTS else "≤ "
    limit = "" if row["threshold_s"] is None else f" {sign}{formats.seconds(row['threshold_s'])}"
    scale = float(row["scale"])
    scaled = "" if scale == 1 else f" (demo: time runs {1 / scale:.0f}× faster)"
    return f"{formats.percent(row['target'])} {measure}{limit} over {period}{scaled}"


def drawn_limits(
    slos: Sequence[Row], measure: str, filters: Mapping[str, str]
) -> list[tuple[float, str]]:
    """Return the limits of the SLOs on a measure with their names, as charts draw them.

    One per limit: SLOs that share it, such as those of one definition by tenant, are one line. SLOs
    of other requests than the page's are left out.

    Args:
        slos: The newest evaluation of each SLO.
        measure: What the chart shows.
        filters: The page's filters by name; "" is no filter.
    """
    wanted = {name: value for name, value in filters.items() if value}
    if "prompt" in wanted:
        name, _, version = wanted.pop("prompt").rpartition("@")
        wanted |= {"prompt_name": name, "prompt_version": version}
    named: dict[float, list[str]] = {}
    for row in slos:
        is_of_others = any(row["selector"].get(k, v) != v for k, v in wanted.items())
        if row["objective"] != measure or row["threshold_s"] is None or is_of_others:
            continue
        # A group's name begins with that of its definition.
        name = row["slo"].partition("/")[0]
        names = named.setdefault(row["threshold_s"], [])
        if name not in names:
            names.append(name)
    return [
        (limit_s, f"{_few(names)} ≤ {formats.seconds(limit_s)}")
        for limit_s, names in sorted(named.items())
    ]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_OF_A_LINE} more" if len(names) > _NAMES_OF_A_LINE else ""
    return ", ".join(names[:_NAMES_OF_A_LINE]) + more


def slo_state(row: Row) -> tuple[str, str]:
    """Return the level of an SLO's state and a short text for it."""
    if row["state"] == "firing":
        return "bad", f"firing: {row['severity'] or 'alert'}"
    if row["state"] == "stale":
        return "unknown", f"not evaluated since {formats.moment_ms(row['time_ms'])}"
    if row["state"] == "no_data":
        return "unknown", formats.NO_DATA
    if row["state"] == "unknown":
        return "unknown", "cannot be evaluated"
    if row["state"] == "pending":
        return "warning", "pending"
    if row["budget_left_ratio"] is not None and row["budget_left_ratio"] <= 0:
        return "warning", "budget spent"
    return "good", "met"
