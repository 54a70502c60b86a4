"""Computes the SLO page: burn-down, calendar, cohorts that burned the budget, and drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, TypeVar

from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.model import SESSIONS, Slo
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.slo_tiles import slo_state
from evenkeel_dashboard.draw.tiles import StateSummary
from evenkeel_dashboard.draw.zones import in_zone

Row = Mapping[str, Any]
Choice = TypeVar("Choice")

DAY_MS = 86_400_000
MINUTE_MS = 60_000
HELP = {
    "queue": "Requests waited for the engine: spread the load, hold long prompts back with "
    "control, or add a replica.",
    "prefill": "Prompts took long to process: shorten them, let the prefix cache serve their "
    "static parts, or cut other prompts into smaller chunks.",
    "decode": "Tokens came slowly: run fewer sequences at once, draft where it pays, or add "
    "compute.",
}
_DRAFT_FACTORS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
_DRAFT_TARGETS = ("0.5", "0.8", "0.9", "0.95", "0.97", "0.98", "0.99", "0.995", "0.999", "0.9999")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Valid and bad events from `start_ms` to the next bucket."""

    start_ms: int
    total: float
    bad: float


@dataclass(frozen=True, slots=True)
class Day:
    """One day of the budget's calendar.

    Attributes:
        day: The date in the shown zone.
        total: Valid events; 0 for none.
        bad: Bad events.
        spent_ratio: Share of the period's budget spent on this day; None without events.
    """

    day: date
    total: float
    bad: float
    spent_ratio: float | None


@dataclass(frozen=True, slots=True)
class Burner:
    """A cohort and its share of the spent budget.

    Attributes:
        dimension: The dimension, such as tenant.
        cohort: The value, such as acme.
        total: Its valid events; `bad` its bad ones.
        bad_share: Its share of all bad events.
        traffic_share: Its share of all events.
    """

    dimension: str
    cohort: str
    total: float
    bad: float
    bad_share: float
    traffic_share: float

    @property
    def lift(self) -> float:
        """Ratio of its bad share to its traffic share: 1 is its fair share."""
        return self.bad_share / self.traffic_share


def buckets(rows: Iterable[Row], weights: Sequence[float], width_ns: int) -> list[Bucket]:
    """Return rows of (slo, bucket, total_sum, bad_sum) as buckets, summing members of composites.

    Args:
        rows: As `slo_counts` returns them, in any order.
        weights: Weight of an event of each part.
        width_ns: Width of a bucket.
    """
    sums: dict[int, list[float]] = {}
    for row in rows:
        found = sums.setdefault(row["bucket"], [0.0, 0.0])
        found[0] += row["total_sum"] * weights[row["slo"]]
        found[1] += row["bad_sum"] * weights[row["slo"]]
    return [
        Bucket(number * width_ns // 1_000_000, total, bad)
        for number, (total, bad) in sorted(sums.items())
    ]


def burn_down(found: Sequence[Bucket], target: Fraction) -> list[float]:
    """Return the budget left after each bucket, as a share of the whole period's budget.

    1 − bad so far / (all events of the period × (1 − target)). The last value is the budget
    left now. [] without events.
    """
    budget = sum(b.total for b in found) * float(1 - target)
    left, spent = [], 0.0
    for bucket in found:
        spent += bucket.bad
        left.append(1 - spent / budget if budget > 0 else 1.0)
    return left


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """A point of the budget line; `left` is None without events, which leaves a gap.

    `even` is the budget that would be left if it were spent evenly over the period.
    """

    at_ms: int
    left: float | None
    even: float


def budget_line(
    found: Sequence[Bucket], target: Fraction, width_ms: int, from_ms: int, to_ms: int
) -> list[BudgetPoint]:
    """Return the budget line over a period, with gaps where there are no events.

    Args:
        found: Buckets of `width_ms` with events, in order.
        target: The SLO's target.
        width_ms: Width of a bucket.
        from_ms: Start of the period.
        to_ms: End of the period.
    """

    def point(at_ms: int, left: float | None) -> BudgetPoint:
        at_ms = min(max(at_ms, from_ms), to_ms)
        return BudgetPoint(at_ms, left, 1 - (at_ms - from_ms) / (to_ms - from_ms))

    points, before, drawn_to_ms = [point(from_ms, None)], 1.0, None
    for bucket, left in zip(found, burn_down(found, target), strict=True):
        if bucket.start_ms != drawn_to_ms:
            points += [point(drawn_to_ms or from_ms, None), point(bucket.start_ms, before)]
        drawn_to_ms, before = bucket.start_ms + width_ms, left
        points.append(point(drawn_to_ms, left))
    return [*points, point(drawn_to_ms or from_ms, None), point(to_ms, None)]


def period_start_ms(slo: Slo, to_ms: int) -> int:
    """Return the start of the period whose budget is evaluated, if it ends at `to_ms`.

    At the end of a calendar period that is the period which ends, not the one that begins.
    """
    if slo.calendar is None:
        return to_ms - int(slo.scaled_period_s * 1000)
    return slo.calendar.start_ns(to_ms * 10**6 - 1) // 10**6


def calendar_step_s(step_s: int, from_ms: int, to_ms: int) -> int:
    """Return the width of buckets that do not overlap two days of the shown zone.

    At least an hour: in a zone such as India's, half an hour is counted to the day before.
    """
    offsets = {in_zone(at_ms).utcoffset() or timedelta() for at_ms in (from_ms, to_ms)}
    is_aligned = all(offset % timedelta(seconds=step_s) == timedelta() for offset in offsets)
    return step_s if is_aligned else min(step_s, 3600)


def calendar(found: Sequence[Bucket], target: Fraction, from_ms: int, to_ms: int) -> list[Day]:
    """Return every day of a period, in the shown zone, with the share of the budget it spent."""
    budget = sum(b.total for b in found) * float(1 - target)
    days: dict[date, list[float]] = {}
    for bucket in found:
        sums = days.setdefault(_day(bucket.start_ms), [0.0, 0.0])
        sums[0] += bucket.total
        sums[1] += bucket.bad
    first, last = _day(from_ms), _day(to_ms - 1)
    return [
        _calendar_day(first + timedelta(days=i), days, budget)
        for i in range((last - first).days + 1)
    ]


def _calendar_day(day: date, days: Mapping[date, list[float]], budget: float) -> Day:
    total, bad = days.get(day, (0.0, 0.0))
    return Day(day, total, bad, bad / budget if total > 0 and budget > 0 else None)


def _day(unix_ms: int) -> date:
    return in_zone(unix_ms).date()


def burners(rows: Sequence[Row], limit: int = 12) -> list[Burner]:
    """Return the cohorts that burned more than their share of the traffic, worst first.

    Shares are of all requests, also of those without a value (cohort ""), which are not listed. A
    dimension with only one cohort is not informative and is left out.
    """
    totals: dict[str, list[float]] = {}
    for row in rows:
        sums = totals.setdefault(row["dimension"], [0.0, 0.0, 0.0])
        sums[0] += row["total_sum"]
        sums[1] += row["bad_sum"]
        sums[2] += 1
    found = [
        Burner(
            row["dimension"],
            row["cohort"],
            row["total_sum"],
            row["bad_sum"],
            row["bad_sum"] / totals[row["dimension"]][1],
            row["total_sum"] / totals[row["dimension"]][0],
        )
        for row in rows
        if row["cohort"]
        and row["bad_sum"] > 0
        and row["total_sum"] > 0
        and totals[row["dimension"]][2] > 1
    ]
    found.sort(key=lambda b: (b.traffic_share - b.bad_share, b.dimension, b.cohort))
    return found[:limit]


def draft_thresholds_s(slo: Slo) -> list[float]:
    """Return limits to try, around the SLO's own; [] if it has none."""
    own = slo.indicator.threshold_s
    return [] if own is None else [own * factor for factor in _DRAFT_FACTORS]


def draft_targets(slo: Slo) -> list[Fraction]:
    """Return targets to try, including the SLO's own."""
    return sorted({*(Fraction(text) for text in _DRAFT_TARGETS), slo.target})


def choices(
    values: Iterable[Choice], own: Choice, words: Callable[[Choice], str]
) -> dict[str, Choice]:
    """Return values by their words; words that several have mean the SLO's own, if it is one."""
    return {words(value): value for value in values} | {words(own): own}


def draft(slo: Slo, threshold_s: float | None, target: Fraction) -> Slo:
    """Return the SLO with another limit and target, its windows as written (scale 1)."""
    indicator = replace(slo.indicator, threshold_s=threshold_s)
    return replace(slo, indicator=indicator, target=target, scale=Fraction(1))


def minutes(found: Sequence[Bucket]) -> dict[int, Counts]:
    """Return one-minute buckets in the form `evenkeel.slo.backtest.replay` takes."""
    return {bucket.start_ms // 60_000: Counts(bucket.total, bucket.bad) for bucket in found}


def outside(
    found: Sequence[Bucket], spans_ms: Sequence[tuple[int, int]], width_ms: int
) -> list[Bucket]:
    """Return the buckets that do not overlap a corrected span."""
    return [
        b
        for b in found
        if not any(b.start_ms < end and begin < b.start_ms + width_ms for begin, end in spans_ms)
    ]


def whole_minutes(
    spans_ms: Sequence[tuple[int, int]], from_ms: int, to_ms: int
) -> list[tuple[int, int]]:
    """Return the minutes of a period that overlap spans, as disjoint intervals."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans_ms):
        begin = max(begin // MINUTE_MS * MINUTE_MS, from_ms)
        end = min(-(-end // MINUTE_MS) * MINUTE_MS, to_ms)
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif begin < end:
            found.append((begin, end))
    return found


def partly_in(
    spans_ms: Sequence[tuple[int, int]], width_ms: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Split intervals at buckets of `width_ms` into whole buckets and parts of buckets.

    Only the parts require reading events to exclude them.
    """
    whole, parts = [], []
    for begin, end in spans_ms:
        first, last = -(-begin // width_ms) * width_ms, end // width_ms * width_ms
        if first < last:
            whole.append((first, last))
            parts += [(a, b) for a, b in ((begin, first), (last, end)) if a < b]
        else:
            parts.append((begin, end))
    return whole, parts


def without(found: Sequence[Bucket], part: Sequence[Bucket], width_ms: int) -> list[Bucket]:
    """Return buckets of `width_ms` minus the events of finer ones, dropping empty ones."""
    total: dict[int, float] = {}
    bad: dict[int, float] = {}
    for fine in part:
        start_ms = fine.start_ms // width_ms * width_ms
        total[start_ms] = total.get(start_ms, 0.0) + fine.total
        bad[start_ms] = bad.get(start_ms, 0.0) + fine.bad
    rest = [
        Bucket(b.start_ms, b.total - total.get(b.start_ms, 0.0), b.bad - bad.get(b.start_ms, 0.0))
        for b in found
    ]
    return [Bucket(b.start_ms, b.total, max(b.bad, 0.0)) for b in rest if b.total > 0]


def months(now: datetime, num: int = 6) -> list[tuple[str, str, str]]:
    """Return the newest months as (name, start, end), newest first; times are ISO 8601."""
    found = []
    year, month = now.year, now.month
    for _ in range(num):
        begin = date(year, month, 1)
        end = date(year + month // 12, month % 12 + 1, 1)
        found.append((f"{begin:%B %Y}", f"{begin}T00:00Z", f"{end}T00:00Z"))
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    return found


def budget_summary(name: str, row: Row | None, past_ms: int | None = None) -> StateSummary:
    """Return an SLO's state in a sentence, and what to look for below.

    Args:
        name: Name of the SLO.
        row: Its newest evaluation; None if it was never evaluated.
        past_ms: The end of a range in the past, of which the sentence speaks; None for now.
    """
    look = "Start with the requests that burned it, then see who sent them and where the time went."
    at, has, is_, can = "", "has", "is", "cannot"
    if past_ms is not None:
        at, has, is_, can = f"At {formats.moment_ms(past_ms)}, ", "had", "was", "could not"
    if row is None:
        return StateSummary("unknown", f"{at}{name} {has} not been evaluated yet", look)
    if row.get("objective") in SESSIONS:
        look = "Start with the worst sessions: their page says what each waited for."
    level, state = slo_state(row)
    left = row["budget_left_ratio"]
    if row["state"] == "unknown":
        why = "the alert SloEvaluationFailed says why"
        return StateSummary(level, f"{at}{name} {can} be evaluated: {why}", look)
    if left is None and row["state"] == "stale":
        return StateSummary(level, f"{at}{name}: {state}", look)
    if left is None:
        return StateSummary(level, f"{at}{name} {has} no requests to judge in its period", look)
    counts = f"{formats.count(row['total'] - row['good'])} of {formats.count(row['total'])} bad"
    if row.get("objective") == "cost":
        spent, most = (formats.number(each) for each in (row["total"] - row["good"], row["total"]))
        counts = f"{spent} of {most} spent"
        look = "Its burn rate is spending against an even pace; the Cost page shows who spent it."
    if left < 0:
        headline = f"{at}{name} {has} exhausted its error budget, {formats.factor(1 - left)} spent"
    else:
        headline = f"{at}{name} {has} {formats.percent(left)} of its error budget left"
    if row["state"] == "firing":
        headline += f"; a {row['severity'] or 'alert'} {is_} firing"
    if row["state"] == "stale":
        headline += f"; {state}"
    return StateSummary(level, f"{headline} ({counts})", look)


def lost_phase(causes: Row) -> str:
    """Return the phase in which bad requests lost most time against good ones; "" for none."""
    lost = {
        phase: causes[f"bad_{phase}_s"] - (causes[f"good_{phase}_s"] or 0.0)
        for phase in HELP
        if causes[f"bad_{phase}_s"] is not None
    }
    phase = max(lost, key=lambda phase: lost[phase], default="")
    return phase if phase and lost[phase] > 0 else ""


def rank_of(slo: Slo) -> str:
    """Return the order of the Explore page that shows an SLO's worst requests first."""
    metric = slo.indicator.metric.value
    return metric if metric in ("ttft", "e2e", "stall") else "e2e"
