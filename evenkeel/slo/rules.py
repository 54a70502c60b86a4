"""Alert rules in addition to SLOs: thresholds, changes of level, spikes, gauges, no requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from evenkeel.durations import format_duration
from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.change_points import find_changes
from evenkeel.slo.spikes import Spike

# The columns of the query `rule_measures`.
MEASURES = (
    "requests",
    "ttft_p50_s",
    "ttft_p95_s",
    "ttft_p99_s",
    "tpot_p95_s",
    "itl_p99_s",
    "stall_p99_s",
    "queue_p95_s",
    "e2e_p50_s",
    "e2e_p95_s",
    "e2e_p99_s",
    "output_tokens_per_s_p50",
    "error_ratio",
    "aborted_ratio",
    "abandoned_ratio",
    "prefix_hit_ratio",
    "session_hit_ratio",
    "acceptance_ratio",
    "accepted_tokens_per_step",
)
# The columns of the query `cache_measures`.
CACHE_MEASURES = ("cache_wrong_ratio", "cache_wrong_upper", "cache_similarity_min")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Holds if a measure over a window is above (`gt`) or below (`lt`) a value.

    With fewer than `min_requests` in the window the result is unknown.
    """

    measure: str
    op: str
    value: float
    over_s: Fraction
    min_requests: int = 20

    def __str__(self) -> str:
        side = "above" if self.op == "gt" else "below"
        return f"{self.measure} is {side} {self.value:g} over {format_duration(self.over_s)}"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Holds if a measure's per-minute level changed in the newest part of a window.

    Attributes:
        measure: The measure.
        over_s: The window to search.
        recent_s: A change older than this counts as the new normal.
        min_effect: The smallest change relative to the level before, a ratio.
        direction: up, down or any.
    """

    measure: str
    over_s: Fraction
    recent_s: Fraction
    min_effect: float
    direction: str

    def __str__(self) -> str:
        way = "either way" if self.direction == "any" else self.direction
        return (
            f"{self.measure} moves {way} by {self.min_effect:.3g} of its level within "
            f"{format_duration(self.recent_s)}"
        )


@dataclass(frozen=True, slots=True)
class Absence:
    """Holds if no request ended for this long."""

    after_s: Fraction

    def __str__(self) -> str:
        return f"no request ended for {format_duration(self.after_s)}"


@dataclass(frozen=True, slots=True)
class GaugeSource:
    """Readings of one gauge in `engine_state`, filtered by labels."""

    metric: str
    where: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        labels = ", ".join(f"{name}={value}" for name, value in self.where.items())
        return f"{self.metric}{{{labels}}}" if labels else self.metric


@dataclass(frozen=True, slots=True)
class Gauge:
    """Holds if a gauge's mean over a window is above (`gt`) or below (`lt`) a value in any series.

    Attributes:
        of: The gauge.
        per: The gauge to divide by; None: no division.
        op: gt or lt.
        value: The value to compare with.
        over_s: The window.
        while_zero: Only readings taken while this gauge was 0 on the same series count; None:
            all do.
        has_each_series: Whether each series has an alert of its own, which also resolves once the
            series has no readings left.
    """

    of: GaugeSource
    per: GaugeSource | None
    op: str
    value: float
    over_s: Fraction
    while_zero: GaugeSource | None = None
    has_each_series: bool = False

    def __str__(self) -> str:
        side = "above" if self.op == "gt" else "below"
        idle = f" while {self.while_zero} is 0" if self.while_zero else ""
        return f"{self.what} is {side} {self.value:g}{idle} over {format_duration(self.over_s)}"

    @property
    def what(self) -> str:
        """The gauge, or both gauges of the quotient."""
        return f"{self.of} / {self.per}" if self.per else str(self.of)


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert that does not belong to an SLO; its name is unique among SLOs and rules.

    `helps` says what would help, in one sentence; '' if nothing is known.
    """

    name: str
    title: str
    severity: Severity
    test: Test
    select: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    pending_s: Fraction = Fraction(0)
    keep_firing_s: Fraction = Fraction(0)
    helps: str = ""

    @property
    def has_many_alerts(self) -> bool:
        """Whether it has an alert per cohort or series, named `rule/values`, not one."""
        test = self.test
        return isinstance(test, Spike) or (isinstance(test, Gauge) and test.has_each_series)

    @property
    def window_s(self) -> Fraction:
        """How far back the test reads."""
        return self.test.after_s if isinstance(self.test, Absence) else self.test.over_s

    @property
    def bucket_s(self) -> Fraction:
        """The width of the rows the test reads: minutes, or the whole window."""
        return Fraction(60) if isinstance(self.test, Anomaly) else self.window_s


Test = Threshold | Anomaly | Absence | Gauge | Spike


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Whether a rule holds; None: unknown. `text` describes what was observed."""

    holds: bool | None
    text: str = ""
    value: float | None = None


Row = Mapping[str, Any]


def judge_rule(rule: Rule, rows: Sequence[Row]) -> RuleResult:
    """Evaluate the rule on the rows of its query, oldest first."""
    match rule.test:
        case Absence():
            return RuleResult(not rows, "no request ended")
        case Threshold() as threshold:
            return _judge_threshold(threshold, rows)
        case Anomaly() as anomaly:
            return _judge_anomaly(anomaly, rows)
        case Gauge() as gauge:
            return _judge_gauge(gauge, rows)
        case Spike():
            raise TypeError("spikes are judged per cohort, by judge_spike")


def _judge_gauge(test: Gauge, rows: Sequence[Row]) -> RuleResult:
    read = [row for row in rows if row["value"] is not None]
    if not read:
        return RuleResult(None, "no data")
    is_above = test.op == "gt"
    worst = (max if is_above else min)(read, key=lambda row: float(row["value"]))
    return judge_series(test, worst)


def judge_series(test: Gauge, worst: Row) -> RuleResult:
    """Evaluate a gauge on one series."""
    is_above = test.op == "gt"
    value = float(worst["value"])
    holds = value > test.value if is_above else value < test.value
    rest = ", ".join(f"{name}={text}" for name, text in sorted(worst["rest"].items()))
    where = f"{worst['instance'] or worst['service']}{f' ({rest})' if rest else ''}"
    side = "above" if is_above else "below"
    return RuleResult(holds, f"{test.what} is {value:.4g} on {where}, {side} {test.value:g}", value)


def _judge_threshold(test: Threshold, rows: Sequence[Row]) -> RuleResult:
    row = rows[-1] if rows else {}
    value, requests = row.get(test.measure), row.get("requests") or 0.0
    if value is None or requests < test.min_requests:
        return RuleResult(None, "no data")
    holds = value > test.value if test.op == "gt" else value < test.value
    side = "above" if test.op == "gt" else "below"
    return RuleResult(holds, f"{test.measure} is {value:.4g}, {side} {test.value:g}", value)


def _judge_anomaly(test: Anomaly, rows: Sequence[Row]) -> RuleResult:
    seen = [(row["bucket"] or 0.0, row[test.measure]) for row in rows]
    minutes = [(bucket, value) for bucket, value in seen if value is not None]
    if not minutes:
        return RuleResult(None, "no data")
    oldest = float((test.over_s - test.recent_s) / 60)
    for change in reversed(find_changes([value for _, value in minutes], test.min_effect)):
        effect = change.after - change.before
        is_wanted = test.direction == "any" or (effect > 0) == (test.direction == "up")
        if is_wanted and minutes[change.index][0] >= oldest:
            text = f"{test.measure} went from {change.before:.4g} to {change.after:.4g}"
            return RuleResult(True, text, change.after)
    return RuleResult(False, f"{test.measure} keeps its level", minutes[-1][1])
