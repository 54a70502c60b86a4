"""Reports on each SLO over a period, recomputed from the stored requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from evenkeel.slo.burn_rates import Counts, budget_left_ratio
from evenkeel.slo.model import Slo, SloFile
from evenkeel.slo.query import Span
from evenkeel.times import MINUTE_NS, to_datetime, unix_ns
from evenkeel_collector.slo.corrections import Correction, corrections_of
from evenkeel_collector.slo.history import RowReader, count_buckets

_HERE = Path(__file__).parent
# Days of every time zone consist of whole quarters of an hour.
_QUARTER_NS = 900 * 10**9


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fired in the period; `ended_ns` is None while it is firing."""

    severity: str
    fired_ns: int
    ended_ns: int | None
    top_cause: str | None


@dataclass(frozen=True, slots=True)
class SloResult:
    """One SLO's events in the period, in total and per day, its alerts and its corrections.

    Attributes:
        slo: The SLO.
        counts: All events.
        days: Events by local day, such as 2026-10-31; days without events are absent.
        firings: Alerts that fired in the period, oldest first.
        corrections: Corrections in force that overlap the period.
    """

    slo: Slo
    counts: Counts
    days: Mapping[str, Counts]
    firings: tuple[Firing, ...] = ()
    corrections: tuple[Correction, ...] = ()

    @property
    def budget_left_ratio(self) -> float | None:
        """The budget left, for a budget covering the reported period; None without valid events."""
        return budget_left_ratio(self.counts, self.slo.target)

    @property
    def num_firings(self) -> dict[str, int]:
        """The number of times each severity fired."""
        fired = Counter(firing.severity for firing in self.firings)
        return {severity.value: fired[severity.value] for severity in self.slo.severities}

    def spent_by_day(self) -> list[tuple[str, float]]:
        """Return the share of the period's budget spent by the end of each day.

        The budget of the period is its events × (1 − target).
        """
        budget = self.counts.total * float(1 - self.slo.target)
        bad, spent = 0.0, []
        for day, counts in sorted(self.days.items()):
            bad += counts.bad
            spent.append((day, bad / budget if budget else 0.0))
        return spent


@dataclass(frozen=True, slots=True)
class SloReport:
    """Every SLO of a file over [from_ns, to_ns), by day of a time zone."""

    from_ns: int
    to_ns: int
    results: tuple[SloResult, ...]
    zone: tzinfo = UTC


def measure(
    store: RowReader,
    file: SloFile,
    span: Span,
    corrections: Sequence[Correction] = (),
    zone: tzinfo = UTC,
) -> SloReport:
    """Compute the report; events within corrections do not count.

    Raises:
        StoreError: If the store is unavailable or rejects a query.
    """
    bounds = {"from_ns": span.from_ns, "to_ns": span.to_ns}
    history = store.rows(_HERE / "alert_history_between.sql", bounds)
    results = []
    for slo in file.slos:
        ours = tuple(
            c
            for c in corrections_of(slo.name, corrections)
            if c.from_ns < span.to_ns and span.from_ns < c.until_ns
        )
        days = _count_days(store, slo, span, ours, zone)
        total = sum(counts.total for counts in days.values())
        if slo.indicator.budget is not None and days:
            total = money_for(slo, span)
        counts = Counts(total, sum(counts.bad for counts in days.values()))
        results.append(SloResult(slo, counts, days, tuple(_firings(history, slo)), ours))
    return SloReport(span.from_ns, span.to_ns, tuple(results), zone)


def money_for(slo: Slo, span: Span) -> float:
    """Return what the requests of a span may cost, as budget alerts judge it.

    Within one calendar period that is the whole value. Of each of several periods, and of a rolling
    one, it is value × time of it in the span / its length.
    """
    budget, calendar = slo.indicator.budget, slo.calendar
    assert budget is not None
    if calendar is None:
        return budget * (span.to_ns - span.from_ns) / float(slo.scaled_period_s * 10**9)
    if span.to_ns <= calendar.end_ns(span.from_ns):
        return budget
    num_periods, at_ns = 0.0, span.from_ns
    while at_ns < span.to_ns:
        start_ns, end_ns = calendar.start_ns(at_ns), calendar.end_ns(at_ns)
        num_periods += (min(end_ns, span.to_ns) - at_ns) / (end_ns - start_ns)
        at_ns = end_ns
    return budget * num_periods


def _count_days(
    store: RowReader, slo: Slo, span: Span, corrections: Sequence[Correction], zone: tzinfo
) -> dict[str, Counts]:
    width_ns = MINUTE_NS if corrections else _QUARTER_NS
    if slo.slicing is not None:
        width_ns = int(slo.slicing.length_s * 10**9)
    days: dict[str, Counts] = {}
    for bucket, counts in count_buckets(store, slo, span, width_ns, corrections).items():
        # A bucket that begins before the range holds only events within the range.
        start_ns = max(bucket * width_ns, span.from_ns)
        day = to_datetime(start_ns, zone).date().isoformat()
        before = days.get(day, Counts(0.0, 0.0))
        days[day] = Counts(before.total + counts.total, before.bad + counts.bad)
    return days


def _firings(history: Sequence[Mapping[str, Any]], slo: Slo) -> Iterable[Firing]:
    ours = [row for row in history if row["slo"] == slo.name]
    ended = {row["alert_id"]: row["ends_at"] for row in ours if row["state"] == "resolved"}
    for row in ours:
        if row["state"] == "firing":
            end = ended.get(row["alert_id"])
            yield Firing(
                row["severity"],
                unix_ns(row["time"]),
                None if end is None else unix_ns(end),
                row["annotations"].get("top_cause"),
            )
