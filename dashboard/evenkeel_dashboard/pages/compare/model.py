"""Compares two cohorts: their shift, and what differs most between them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from evenkeel.why.causes import describe_cause, is_load
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.shift import Shift
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.selection import Selection

Row = Mapping[str, Any]

DIMENSIONS = {
    "prompt": "prompt version",
    "model": "model",
    "tenant": "tenant",
    "slo_class": "SLO class",
    "service": "service, such as other server flags",
    "engine": "engine",
    "setup": "precision and parallelism",
    "time": "time",
}
EARLIER_MS = {"before": 0, "day": 86_400_000, "week": 604_800_000}
EARLIER = {"before": "the previous range", "day": "a day earlier", "week": "a week earlier"}
NUM_POINTS = 160
# The prompt of the evaluations' drift sentinel, which is not user traffic.
SENTINEL = "evenkeel-sentinel"

# Phases that make up a measure: the column and name of each.
_PHASES = {"queue_s": "queue", "prefill_s": "prefill", "decode_s": "decode"}
_PHASES_OF = {
    "ttft": ("queue_s", "prefill_s"),
    "queue": ("queue_s",),
    "e2e": ("queue_s", "prefill_s", "decode_s"),
}
_LEDGER_OF = {"ttft": ("ttft.",), "queue": ("ttft.",), "e2e": ("ttft.", "decode.")}
_FEATURES = {
    "input_tokens": ("input tokens", formats.count),
    "output_tokens": ("output tokens", formats.count),
    "cached_ratio": ("cached input", formats.percent),
    "acceptance_rate": ("acceptance", formats.percent),
    "error_ratio": ("errors", formats.percent),
    "aborted_ratio": ("aborts", formats.percent),
    "stall_s": ("longest pause", formats.seconds),
}


@dataclass(frozen=True, slots=True)
class Cohort:
    """One of the two cohorts: its name, and the requests in it.

    Servers with different flags are distinguished by `service.name`; "" is every service.
    `setup` is an engine's precision and parallel sizes, as `compare_setups.sql` writes them.
    `engine` is which engine served them.
    """

    name: str
    selection: Selection
    window: Window
    service: str = ""
    setup: str = ""
    engine: str = ""


@dataclass(frozen=True, slots=True)
class CauseDifference:
    """Mean seconds per request that each side spends on one cause or phase.

    Attributes:
        name: The cause or phase in words.
        a_s: Seconds of side A; `b_s` of side B.
        key: Its key in the ledger, or the phase.
        is_load: Whether other requests cause it, rather than the request itself.
    """

    name: str
    a_s: float
    b_s: float
    key: str = ""
    is_load: bool = False

    @property
    def delta_s(self) -> float:
        """B − A."""
        return self.b_s - self.a_s


@dataclass(frozen=True, slots=True)
class Feature:
    """A property of the mean request of each side, in words, and as numbers."""

    name: str
    a: str
    b: str
    values: tuple[float | None, float | None]


def sides(
    selection: Selection, window: Window, dimension: str, a: str, b: str
) -> tuple[Cohort, Cohort]:
    """Return both cohorts: two values of a dimension, or the range and an earlier one."""
    if dimension == "time":
        back_ms = EARLIER_MS.get(a, 0) or window.to_ms - window.from_ms
        earlier = replace(window, from_ms=window.from_ms - back_ms, to_ms=window.to_ms - back_ms)
        name = EARLIER.get(a, EARLIER["before"])
        return Cohort(name, selection, earlier), Cohort("this range", selection, window)
    if dimension == "setup":
        return Cohort(a, selection, window, setup=a), Cohort(b, selection, window, setup=b)
    if dimension == "engine":
        return Cohort(a, selection, window, engine=a), Cohort(b, selection, window, engine=b)
    if dimension == "service":
        return Cohort(a, selection, window, a), Cohort(b, selection, window, b)
    return (
        Cohort(a, selection.filtered(dimension, a), window),
        Cohort(b, selection.filtered(dimension, b), window),
    )


def causes(measure: str, a: Row, b: Row) -> list[CauseDifference]:
    """Return what each side spends its time on, largest difference first.

    Uses the ledger if both sides have one, else the phases.
    """
    prefixes = _LEDGER_OF.get(measure, ("decode.",))
    ledgers = [
        {k: s for k, s in (row["ledger_s"] or {}).items() if k.startswith(prefixes)}
        for row in (a, b)
    ]
    if all(ledgers):
        names = sorted(set(ledgers[0]) | set(ledgers[1]))
        found = [
            CauseDifference(
                name=describe_cause(key),
                a_s=ledgers[0].get(key, 0.0),
                b_s=ledgers[1].get(key, 0.0),
                key=key,
                is_load=is_load(key),
            )
            for key in names
        ]
    else:
        columns = _PHASES_OF.get(measure, ("decode_s",))
        found = [
            CauseDifference(_PHASES[c], a[c], b[c], _PHASES[c], c == "queue_s")
            for c in columns
            if a[c] is not None and b[c] is not None
        ]
    return sorted(found, key=lambda cause: -abs(cause.delta_s))


def confounder(found: Sequence[CauseDifference]) -> str | None:
    """Return the load that explains most of a difference, which makes the sides not comparable."""
    load = [c for c in found if c.is_load]
    total_s, load_s = sum(c.delta_s for c in found), sum(c.delta_s for c in load)
    if load_s * total_s <= 0 or abs(load_s) <= abs(total_s) / 2:
        return None
    return max(load, key=lambda c: abs(c.delta_s)).name


def _in_words_and_numbers(value: str) -> list[tuple[bool, int, str]]:
    """Return a sort key by which version 10 comes after version 9."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+|[0-9]", value)
    return [(p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts]


def default_first(values: Sequence[str]) -> list[str]:
    """Return the values to compare, most useful first: versions of one prompt, then the rest.

    Our own probe is left out. Versions of a prompt are in order, so that the first two are a
    version and its successor.
    """
    found = [value for value in values if not value.startswith(SENTINEL)]
    families: dict[str, list[str]] = {}
    for value in sorted(found, key=_in_words_and_numbers):
        families.setdefault(value.rpartition("@")[0] or value, []).append(value)
    ordered = sorted(families.values(), key=lambda family: len(family) < 2)
    return [value for family in ordered for value in family[-2:] + family[:-2]]


def features(a: Row, b: Row) -> list[Feature]:
    """Return properties of both sides' requests, which often explain a shift."""
    return [
        Feature(name, words(a[c]), words(b[c]), (a[c], b[c]))
        for c, (name, words) in _FEATURES.items()
        if a[c] is not None or b[c] is not None
    ]


_CAPITAL = {"total": "Total time", "stall": "Longest pause", "queue": "Queue time"}


def verdict(
    found: Shift | None, measure: str, a: str, b: str, load: str | None = None
) -> tuple[str, str, str]:
    """Return the level, the finding and its figures in words.

    Args:
        found: Shift of B relative to A; None with too few requests.
        measure: What is compared.
        a: Name of side A.
        b: Name of side B.
        load: Load from other requests that explains most of the difference, if any.
    """
    measure = _CAPITAL.get(measure, measure)
    if found is None:
        return "unknown", "Too few requests to compare", "Each side needs at least ten."
    faster = a if found.probability > 0.5 else b
    typical, lower, upper = map(formats.signed_seconds, (found.estimate, found.lower, found.upper))
    detail = (
        f"Typical difference {typical} ({lower} to {upper}, 95% interval); {faster} is faster in "
        f"{formats.percent(max(found.probability, 1 - found.probability))} of random pairs."
    )
    if load is not None and (found.lower > 0 or found.upper < 0):
        headline = f"{measure} of {a} and {b} cannot be compared here"
        return (
            "unknown",
            headline,
            f"Most of the difference is load: {load[:1].lower()}{load[1:]}. {detail}",
        )
    if found.lower > 0:
        return "warning", f"{measure} of {b} is higher than that of {a}", detail
    if found.upper < 0:
        return "good", f"{measure} of {b} is lower than that of {a}", detail
    return "unknown", f"No typical difference in {measure} can be detected", detail


def tail_words(
    a: Sequence[float], b: Sequence[float], names: tuple[str, str] = ("A", "B"), q: float = 0.95
) -> str:
    """Return whether the tails differ, in words; "" if that cannot be determined.

    They differ if the 95% intervals of both quantiles, from order statistics, do not overlap: a
    stricter test than one of the difference. Values must be sorted.
    """
    low_a, high_a = _quantile_interval(a, q)
    low_b, high_b = _quantile_interval(b, q)
    if None in (low_a, high_a, low_b, high_b):
        return ""
    before, after = formats.seconds(quantile(a, q)), formats.seconds(quantile(b, q))
    if low_b > high_a or low_a > high_b:  # type: ignore[operator]
        return (
            f" The tail differs: p{q * 100:g} is {before} for {names[0]}, {after} for {names[1]}."
        )
    return ""


def _quantile_interval(ordered: Sequence[float], q: float) -> tuple[float | None, float | None]:
    n = len(ordered)
    reach = 1.96 * sqrt(n * q * (1 - q))
    low, high = math.floor(n * q - reach) - 1, math.ceil(n * q + reach)
    return (ordered[low] if low >= 0 else None), (ordered[high] if high < n else None)


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """Return a quantile of sorted values, interpolated linearly; None without values."""
    if not ordered:
        return None
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def curve(ordered: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return values with the share of requests up to each, at most `NUM_POINTS` points."""
    num = min(NUM_POINTS, len(ordered))
    parts = [i / (num - 1) if num > 1 else 1.0 for i in range(num)]
    return [quantile(ordered, part) or 0.0 for part in parts], parts
