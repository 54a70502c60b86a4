"""SLI, error budget, burn rate, and multi-window alerts as in the SRE workbook, chapter 5.

Ratios and durations that decide an alert are `Fraction`s, so that 14.4 × 0.001 is the same
number live, in a backtest and on paper. Counts may be weighted and are floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import sqrt
from statistics import NormalDist

MINUTE_S = Fraction(60)
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S


class Severity(StrEnum):
    """How urgently an alert needs a person, most urgent first."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class Counts:
    """Weighted events in a span of time: `bad` out of `total` valid ones."""

    total: float
    bad: float

    @property
    def good(self) -> float:
        """Valid events that met the objective."""
        return self.total - self.bad

    @property
    def sli(self) -> float | None:
        """Good / valid events, from 0 to 1; None without valid events."""
        return self.good / self.total if self.total > 0 else None


def burn_rate(counts: Counts, target: Fraction) -> float | None:
    """Return (1 − SLI) / (1 − target): at 1 the budget lasts exactly the period.

    None without valid events.
    """
    return counts.bad / counts.total / float(1 - target) if counts.total > 0 else None


def budget_left_ratio(counts: Counts, target: Fraction) -> float | None:
    """Return 1 − (1 − SLI) / (1 − target): 1 is untouched, 0 spent, below 0 overspent.

    Weighted by events: a quiet night spends little. None without valid events.
    """
    burned = burn_rate(counts, target)
    return None if burned is None else 1 - burned


def exceeds(counts: Counts, error_limit: Fraction) -> bool:
    """Return whether bad / total > `error_limit`, decided exactly; False without valid events."""
    return (
        counts.total > 0
        and _exact(counts.bad) * error_limit.denominator
        > _exact(counts.total) * error_limit.numerator
    )


def confidence_z(confidence: Fraction) -> float:
    """Return the standard normal quantile of a one-sided confidence, such as 1.645 at 0.95."""
    return NormalDist().inv_cdf(float(confidence))


def error_ratio_lower(counts: Counts, z: float) -> float:
    """Return the lower end of Wilson's one-sided interval for the error ratio; 0 without events.

    (p + z²/2n − z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), with p = bad / total and n = total. Weighted
    events count as if each had been observed. Source: E. B. Wilson, JASA 22 (1927).
    """
    n = counts.total
    if n <= 0:
        return 0.0
    p = counts.bad / n
    root = sqrt(max(p * (1 - p) / n + z * z / (4 * n * n), 0.0))
    return max((p + z * z / (2 * n) - z * root) / (1 + z * z / n), 0.0)


def _exact(value: float) -> int | Fraction:
    # Integers are several times faster than fractions, and almost all counts are integers.
    return int(value) if float(value).is_integer() else Fraction(value)


@dataclass(frozen=True, slots=True)
class AlertWindow:
    """A long and a short window that must both burn too fast before an alert fires.

    The long window shows that a significant share of the budget is gone, the short one that the
    burn continues.

    Attributes:
        severity: Severity of the alert.
        budget_ratio: Share of the period's budget that fires if spent within the long window.
        long_s: Length of the long window.
        short_s: Length of the short window, by convention a twelfth of the long one.
        period_s: The period of the SLO.
    """

    severity: Severity
    budget_ratio: Fraction
    long_s: Fraction
    short_s: Fraction
    period_s: Fraction

    @property
    def factor(self) -> Fraction:
        """Budget share × period / long window: the burn rate that both windows must exceed."""
        return self.budget_ratio * self.period_s / self.long_s

    def error_limit(self, target: Fraction) -> Fraction:
        """Return factor × (1 − target), the error ratio that both windows must exceed.

        Above 1 the pair can never fire.
        """
        return self.factor * (1 - target)

    def detect_s(self, target: Fraction, error_ratio: Fraction) -> Fraction | None:
        """Return how long a constant error ratio lasts before the alert fires.

        Closed form: limit × long / error ratio, with limit = factor × (1 − target). Assumes even
        traffic and no earlier errors: t seconds in, a window of length w has an error ratio of
        e × min(t, w) / w. Both windows must exceed the limit, and the short one exceeds it first.
        None if it never fires: error ratio ≤ limit.
        """
        limit = self.error_limit(target)
        if error_ratio <= limit:
            return None
        return limit * max(self.long_s, self.short_s) / error_ratio

    def reset_s(self, target: Fraction, error_ratio: Fraction) -> Fraction | None:
        """Return how long after the last error the alert's condition clears.

        Closed form: short × (1 − limit / error ratio). u seconds after the errors end, a window
        of length w still has an error ratio of e × (w − u) / w, however long the errors lasted,
        provided that was long enough to fire. The alert ends once either window is at the limit;
        the short one gets there first. None if it never fired.
        """
        limit = self.error_limit(target)
        if error_ratio <= limit:
            return None
        return min(self.long_s, self.short_s) * (1 - limit / error_ratio)


@dataclass(frozen=True, slots=True)
class WindowRule:
    """An alert window not yet tied to a period; `AlertWindow` documents the attributes."""

    severity: Severity
    budget_ratio: Fraction
    long_s: Fraction
    short_s: Fraction


# SRE workbook, chapter 5, table 5-8, plus the 1-day pair from its example rules. For a 30-day
# period the factors are 14.4, 6, 3 and 1.
DEFAULT_RULES = (
    WindowRule(Severity.PAGE, Fraction(2, 100), HOUR_S, 5 * MINUTE_S),
    WindowRule(Severity.PAGE, Fraction(5, 100), 6 * HOUR_S, 30 * MINUTE_S),
    WindowRule(Severity.TICKET, Fraction(10, 100), DAY_S, 2 * HOUR_S),
    WindowRule(Severity.TICKET, Fraction(10, 100), 3 * DAY_S, 6 * HOUR_S),
)


_RULES_PERIOD_S = 30 * DAY_S
_SHORT_PERIOD_S = 28 * DAY_S


def default_rules(period_s: Fraction) -> tuple[WindowRule, ...]:
    """Return the default alert windows of a period.

    From 28 days on, those of the workbook. Shorter periods shorten them in proportion, so that the
    factors stay near 14.4, 6, 3 and 1: unshortened, a 7-day period would page at a burn rate of
    1.4. Windows are whole minutes, or whole seconds for periods under a day, at least one.
    """
    if period_s >= _SHORT_PERIOD_S:
        return DEFAULT_RULES
    unit_s = MINUTE_S if period_s >= DAY_S else Fraction(1)

    def shortened(length_s: Fraction) -> Fraction:
        return max(round(length_s * period_s / _RULES_PERIOD_S / unit_s), 1) * unit_s

    return tuple(
        replace(rule, long_s=shortened(rule.long_s), short_s=shortened(rule.short_s))
        for rule in DEFAULT_RULES
    )


def alert_windows(
    period_s: Fraction,
    rules: tuple[WindowRule, ...] | None = None,
    scale: Fraction = Fraction(1),
) -> tuple[AlertWindow, ...]:
    """Return the alert windows of a period, with everything shortened by `scale`.

    A scale shortens the period and the windows alike, so the factors do not change.

    Args:
        period_s: The period of the SLO.
        rules: The alert windows; None uses the period's defaults.
        scale: The factor that shortens them.
    """
    return tuple(
        AlertWindow(
            rule.severity,
            rule.budget_ratio,
            rule.long_s * scale,
            rule.short_s * scale,
            period_s * scale,
        )
        for rule in (default_rules(period_s) if rules is None else rules)
    )


@dataclass(frozen=True, slots=True)
class Significance:
    """Extra conditions for a pair to burn: at low traffic a ratio alone says little.

    Attributes:
        min_bad: Bad events that the long window must contain.
        confidence: Of the one-sided interval for the long window's error ratio whose lower end
            must exceed a page's limit; None: the observed ratio is enough.
    """

    min_bad: int = 1
    confidence: Fraction | None = None


DEFAULT_SIGNIFICANCE = Significance()
