"""What a report compares a budget in money with."""

from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.model import Indicator, Metric, Slo
from evenkeel.slo.query import Span
from evenkeel_collector.slo.report import SloReport, SloResult, money_for
from evenkeel_collector.slo.report_text import report_json, report_markdown

BERLIN = ZoneInfo("Europe/Berlin")
MONTHLY = Calendar(CalendarUnit.MONTH, BERLIN)
QUARTERLY = Calendar(CalendarUnit.QUARTER, BERLIN)
WEEKLY = Calendar(CalendarUnit.WEEK, BERLIN)


def span(begin: str, end: str) -> Span:
    times = (datetime.fromisoformat(text).replace(tzinfo=BERLIN) for text in (begin, end))
    return Span(*(int(time.timestamp()) * 10**9 for time in times))


def money_slo(calendar: Calendar | None) -> Slo:
    period_s = Fraction(30 * 86_400) if calendar is None else calendar.nominal_s
    indicator = Indicator(Metric.COST, None, budget=100.0)
    return Slo("spend", "Spend", indicator, Fraction(0), period_s, (), calendar=calendar)


@pytest.mark.parametrize(
    ("calendar", "begin", "end", "allowed"),
    [
        pytest.param(MONTHLY, "2026-02-01", "2026-03-01", 100, id="28 days"),
        pytest.param(MONTHLY, "2026-10-01", "2026-11-01", 100, id="31 days and an hour"),
        pytest.param(MONTHLY, "2026-11-01", "2026-11-20", 100, id="a month that is not over"),
        pytest.param(MONTHLY, "2026-10-17", "2026-12-01", 100 * (1 + 361 / 745), id="part of one"),
        pytest.param(QUARTERLY, "2026-08-01", "2026-09-01", 100, id="a month of a quarter"),
        pytest.param(WEEKLY, "2026-02-01", "2026-03-01", 400, id="weeks"),
        pytest.param(None, "2026-02-01", "2026-03-01", 100 * 28 / 30, id="rolling"),
    ],
)
def test_what_a_span_may_cost(
    calendar: Calendar | None, begin: str, end: str, allowed: float
) -> None:
    assert money_for(money_slo(calendar), span(begin, end)) == pytest.approx(allowed)


def test_a_month_of_millions_is_reported_to_the_event() -> None:
    fast = Slo(
        "fast", "Fast", Indicator(Metric.TTFT, 0.5), Fraction(999, 1000), Fraction(86_400), ()
    )
    counts = Counts(12_345_678.0, 3.0)
    result = SloResult(fast, counts, {"2026-02-03": Counts(1_234_567.0, 3.0)})
    month = span("2026-02-01", "2026-03-01")
    text = report_markdown(SloReport(month.from_ns, month.to_ns, (result,)))
    assert "| 99.9999% | 99.9% | 3 | 12,345,678 | none |" in text
    assert "Worst day: 2026-02-03, 3 of 1,234,567 bad, 100% of all bad events." in text


def test_a_budget_in_money_is_told_in_money() -> None:
    days = {"2026-02-03": Counts(3.3, 80.0), "2026-02-04": Counts(3.3, 15.0)}
    result = SloResult(money_slo(MONTHLY), Counts(100.0, 95.0), days)
    month = span("2026-02-01", "2026-03-01")
    report = SloReport(month.from_ns, month.to_ns, (result,))
    (slo,) = report_json(report)["slos"]
    assert slo["budget_left_ratio"] == pytest.approx(0.05)
    assert slo["budget_spent_by_day"] == pytest.approx({"2026-02-03": 0.8, "2026-02-04": 0.95})
    text = report_markdown(report)
    assert "| costs at most 100 in a calendar month | " in text
    assert "| 5.0% | 95 | 100 | none |" in text
    assert "Worst day: 2026-02-03, 80 spent, 84% of all." in text
