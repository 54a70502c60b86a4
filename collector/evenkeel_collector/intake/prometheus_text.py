"""Converts a Prometheus page to points: gauges, counters and assembled histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from evenkeel_collector.intake.metric_points import GAUGE, HISTOGRAM, SUM, SUMMARY, Point

CUMULATIVE = "cumulative"
# Counts are stored in 64 bits.
MAX_COUNT = 1 << 63


def read_page(text: str, time_ns: int) -> list[Point]:
    """Return the points of a page in Prometheus' text format.

    NaN values mean no data and are left out. So is a histogram whose count is NaN.

    Args:
        text: The page.
        time_ns: When it was read.

    Raises:
        ValueError: If a line is not in the format.
    """
    points: list[Point] = []
    for family in text_string_to_metric_families(text):
        if family.type in ("histogram", "gaugehistogram"):
            points += _histograms(family, time_ns)
        else:
            points += _values(family, time_ns)
    return points


def _values(family: Any, time_ns: int) -> Iterator[Point]:
    summaries: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in family.samples:
        if sample.name.endswith("_created") or math.isnan(sample.value):
            continue
        if family.type == "summary" and sample.name != family.name:
            part = sample.name.removeprefix(f"{family.name}_")
            summaries.setdefault(tuple(sorted(sample.labels.items())), {})[part] = sample.value
            continue
        is_counter = family.type == "counter"
        yield Point(
            name=sample.name,
            time_ns=time_ns,
            kind=SUM if is_counter else GAUGE,
            value=sample.value,
            attributes=sample.labels,
            temporality=CUMULATIVE if is_counter else "",
            is_monotonic=is_counter,
        )
    for labels, parts in summaries.items():
        yield Point(
            name=family.name,
            time_ns=time_ns,
            kind=SUMMARY,
            count=_count(parts.get("count")),
            sum=parts.get("sum"),
            attributes=dict(labels),
            temporality=CUMULATIVE,
        )


@dataclass(slots=True)
class _Buckets:
    cumulative: list[tuple[float, float]] = field(default_factory=list)
    count: float | None = None
    sum: float | None = None


def _histograms(family: Any, time_ns: int) -> Iterable[Point]:
    found: dict[tuple[tuple[str, str], ...], _Buckets] = {}
    for sample in family.samples:
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        buckets = found.setdefault(tuple(sorted(labels.items())), _Buckets())
        if sample.name.endswith("_bucket") and "le" in sample.labels:
            buckets.cumulative.append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            buckets.count = sample.value
        elif sample.name.endswith("_sum"):
            buckets.sum = sample.value
    for labels_key, buckets in found.items():
        if any(_count(value) is None for _, value in buckets.cumulative):
            continue
        bounds, counts = _apart(buckets.cumulative, _count(buckets.count))
        total = _count(buckets.count) if buckets.count is not None else sum(counts)
        if total is None or (buckets.count is None and not buckets.cumulative):
            continue
        yield Point(
            name=family.name,
            time_ns=time_ns,
            kind=HISTOGRAM,
            count=total,
            sum=buckets.sum,
            bounds=bounds,
            bucket_counts=counts,
            attributes=dict(labels_key),
            temporality=CUMULATIVE,
        )


def _count(value: float | None) -> int | None:
    """Return a number of observations; None if absent or invalid."""
    return int(value) if value is not None and 0 <= value < MAX_COUNT else None


def _apart(
    cumulative: list[tuple[float, float]], total: int | None
) -> tuple[list[float], list[int]]:
    """Return the finite bounds and the count per bucket, including the last one.

    A bucket that was read before an observation reached it has at least what the one below has, as
    in Prometheus. Without the infinite bucket, the last one holds the rest of all observations.
    """
    ordered = sorted(cumulative)
    counts = []
    before = 0.0
    for _, value in ordered:
        counts.append(max(int(value - before), 0))
        before = max(before, value)
    bounds = [bound for bound, _ in ordered if math.isfinite(bound)]
    if len(bounds) == len(ordered):
        counts.append(max((total or 0) - int(before), 0))
    return bounds, counts
