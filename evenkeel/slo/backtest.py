"""Replays per-minute counts against an SLO and returns the alerts it would have raised."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.slo.burn_rates import MINUTE_S, Counts, Severity, budget_left_ratio
from evenkeel.slo.model import Slo
from evenkeel.slo.series import BucketSeries, SeriesEvaluator

COLUMNS = ("minute", "total", "bad")
# In the year 2160: a larger number is seconds or milliseconds.
_LAST_MINUTE = 10**8
# Far more events than a minute can have, and few enough digits for int() and float().
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """An alert active from `from_minute` to `to_minute`, both inclusive."""

    slo: str
    severity: Severity
    from_minute: int
    to_minute: int


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """The result of replaying an SLO over past counts.

    Attributes:
        alerts: Sorted by start, then severity; consecutive minutes are one alert.
        budget_left_ratio: Over all events; None without any.
        sli: Over all events; None without any.
    """

    alerts: tuple[AlertSpan, ...]
    budget_left_ratio: float | None
    sli: float | None


def replay(
    slo: Slo,
    minutes: Mapping[int, Counts],
    until: int | None = None,
    allowed: float | None = None,
) -> BacktestResult:
    """Return the alerts that `slo` would have raised over the minutes.

    An alert is active in minute m if a pair of windows ending with m, inclusive, burns faster
    than its factor. Missing minutes have no events. Evaluation continues past the last event, as
    it does live, for as long as the windows reach back to one.

    Args:
        slo: The objective.
        minutes: Events by unix minute.
        until: The first minute that is not evaluated; None: no limit.
        allowed: What the minutes may cost together, of a budget in money; None: their totals.

    Raises:
        ConfigurationError: If a window is not a whole number of minutes.
    """
    windows = slo.windows
    for window in windows:
        for length_s in (window.long_s, window.short_s):
            if length_s % MINUTE_S or not length_s:
                raise ConfigurationError(
                    f"SLO {slo.name!r}: a window of {float(length_s):g} s cannot be replayed on "
                    f"minutes; use whole minutes and scale 1"
                )
    # Alerts do not depend on the period: the budget below is counted over all events.
    judge = SeriesEvaluator(slo.target, windows, MINUTE_S, MINUTE_S, slo.significance)
    series = BucketSeries(judge.num_buckets)
    held: dict[Severity, list[int]] = {severity: [] for severity in slo.severities}
    for minute in _minutes_to_judge(minutes, judge.num_buckets):
        if until is not None and minute >= until:
            break
        series.replace_tail(minute, [minutes.get(minute, Counts(0.0, 0.0))])
        verdict = judge.verdict(series, minute)
        for severity, holding in held.items():
            if verdict.burning(severity) is not None:
                holding.append(minute)
    alerts = [
        AlertSpan(slo.name, severity, first, last)
        for severity, holding in held.items()
        for first, last in _runs(holding)
    ]
    alerts.sort(key=lambda alert: alert.from_minute)
    total = sum(counts.total for counts in minutes.values())
    if allowed is not None and minutes:
        total = allowed
    all_events = Counts(total, sum(counts.bad for counts in minutes.values()))
    return BacktestResult(tuple(alerts), budget_left_ratio(all_events, slo.target), all_events.sli)


def _minutes_to_judge(minutes: Mapping[int, Counts], num_buckets: int) -> Iterable[int]:
    """Yield every minute from the first event on, except those with no event in any window."""
    following: int | None = None
    for minute in sorted(minutes):
        if following is not None:
            yield from range(following, min(minute, following + num_buckets))
        yield minute
        following = minute + 1
    if following is not None:
        yield from range(following, following + num_buckets)


def _runs(minutes: Sequence[int]) -> Iterable[tuple[int, int]]:
    start = 0
    for i in range(1, len(minutes) + 1):
        if i == len(minutes) or minutes[i] != minutes[i - 1] + 1:
            yield minutes[start], minutes[i - 1]
            start = i


def read_minutes(path: Path) -> dict[int, Counts]:
    """Read a CSV file with the columns minute (unix minutes), total and bad, in any order.

    Raises:
        ConfigurationError: On a file that cannot be read, a missing or unknown column, a value
            that is not a whole number, more bad than total, a minute that is seconds, or one that
            appears twice.
    """
    minutes: dict[int, Counts] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if sorted(rows.fieldnames or ()) != sorted(COLUMNS):
                raise ConfigurationError(
                    f"{path}: columns are {','.join(rows.fieldnames or ()) or 'missing'}, "
                    f"expected {','.join(COLUMNS)}"
                )
            for row in rows:
                minute, counts = _read_row(row, f"{path}:{rows.line_num}")
                if minute in minutes:
                    raise ConfigurationError(
                        f"minute {minute} appears twice ({path}:{rows.line_num})"
                    )
                minutes[minute] = counts
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {first_line(error)}") from error
    return minutes


def _read_row(row: Mapping[str, str | None], where: str) -> tuple[int, Counts]:
    values: dict[str, int] = {}
    for name in COLUMNS:
        text = row.get(name)
        digits = "" if text is None else text.strip()
        if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            raise ConfigurationError(
                f"{name} is {text!r}, expected a whole number of at least 0, in up to "
                f"{_MAX_DIGITS} digits ({where})"
            )
        values[name] = int(digits)
    if values["minute"] > _LAST_MINUTE:
        raise ConfigurationError(
            f"minute is {values['minute']}, expected minutes since 1970, which are unix seconds "
            f"/ 60 ({where})"
        )
    if values["bad"] > values["total"]:
        raise ConfigurationError(
            f"bad is {values['bad']}, more than the total of {values['total']} ({where})"
        )
    return values["minute"], Counts(float(values["total"]), float(values["bad"]))
