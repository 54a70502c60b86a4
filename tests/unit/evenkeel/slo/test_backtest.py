"""Replays against a slow evaluator written from the definition alone."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel.slo.backtest import AlertSpan, read_minutes, replay
from evenkeel.slo.burn_rates import DAY_S, HOUR_S, MINUTE_S, Counts, Severity, WindowRule
from evenkeel.slo.model import Indicator, Metric, Slo


def slo_of(target: str, *rules: WindowRule, period_s: Fraction = 30 * DAY_S) -> Slo:
    return Slo(
        "chat", "chat", Indicator(Metric.AVAILABILITY, None), Fraction(target), period_s, rules
    )


def rule(severity: Severity, budget: str, long_min: int, short_min: int) -> WindowRule:
    return WindowRule(severity, Fraction(budget), long_min * MINUTE_S, short_min * MINUTE_S)


def holding_minutes(slo: Slo, minutes: dict[int, Counts], severity: Severity) -> set[int]:
    """The definition: windows that end with m inclusive, both above the factor, no events: no."""

    def exceeds(end: int, length_s: Fraction, limit: Fraction) -> bool:
        inside = [minutes[m] for m in minutes if end - length_s / 60 < m <= end]
        total = sum(int(c.total) for c in inside)
        return total > 0 and Fraction(sum(int(c.bad) for c in inside), total) > limit

    holding = set()
    # No window is longer than an hour: after that nothing can hold.
    for minute in range(min(minutes), max(minutes) + 61):
        for window in slo.windows:
            factor = window.budget_ratio * window.period_s / window.long_s
            limit = factor * (1 - slo.target)
            if window.severity is severity and all(
                exceeds(minute, length_s, limit) for length_s in (window.long_s, window.short_s)
            ):
                holding.add(minute)
    return holding


@settings(max_examples=60, deadline=None)
@given(
    minutes=st.dictionaries(
        st.integers(28_000_000, 28_000_060),
        st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
            lambda pair: Counts(float(max(pair)), float(min(pair)))
        ),
        min_size=1,
        max_size=40,
    ),
    target=st.sampled_from(["0.5", "0.9", "0.99", "0.873"]),
    budgets=st.tuples(st.sampled_from(["1/50", "1/5", "1/2"]), st.sampled_from(["1/20", "1"])),
)
def test_a_replay_is_the_definition_minute_by_minute(
    minutes: dict[int, Counts], target: str, budgets: tuple[str, str]
) -> None:
    slo = slo_of(
        target,
        rule(Severity.PAGE, budgets[0], 6, 2),
        rule(Severity.PAGE, budgets[1], 15, 5),
        rule(Severity.TICKET, budgets[1], 30, 1),
        period_s=Fraction(3600),
    )
    result = replay(slo, minutes)
    for severity in (Severity.PAGE, Severity.TICKET):
        held = [
            minute
            for span in result.alerts
            if span.severity is severity
            for minute in range(span.from_minute, span.to_minute + 1)
        ]
        assert len(held) == len(set(held))
        assert set(held) == holding_minutes(slo, minutes, severity)


def test_an_outage_of_twenty_minutes_is_one_page() -> None:
    minutes = {m: Counts(100, 100 if 100 <= m < 120 else 0) for m in range(300)}
    result = replay(slo_of("0.999", rule(Severity.PAGE, "0.02", 60, 5)), minutes)
    # 1.44% of 60 minutes is 0.864: one bad minute fires. The last of five clears 4 minutes later.
    assert result.alerts == (AlertSpan("chat", Severity.PAGE, 100, 123),)
    assert result.sli == pytest.approx(280 / 300)
    assert result.budget_left_ratio == pytest.approx(1 - (20 / 300) / 0.001)


def test_a_gap_of_years_is_skipped_and_forgotten() -> None:
    minutes = {0: Counts(1, 1), 50_000_000: Counts(1, 0)}
    result = replay(slo_of("0.99", rule(Severity.PAGE, "0.02", 60, 5)), minutes)
    assert result.alerts == (AlertSpan("chat", Severity.PAGE, 0, 4),)


def test_judging_goes_on_past_the_last_event_as_it_does_live() -> None:
    minutes = {m: Counts(100, 100) for m in range(20)}
    slo = slo_of("0.999", rule(Severity.PAGE, "0.02", 60, 5))
    assert replay(slo, minutes).alerts == (AlertSpan("chat", Severity.PAGE, 0, 23),)
    # Minutes that are yet to come are not judged.
    assert replay(slo, minutes, until=22).alerts == (AlertSpan("chat", Severity.PAGE, 0, 21),)


def test_no_history_has_no_sli() -> None:
    result = replay(slo_of("0.99", rule(Severity.PAGE, "0.02", 60, 5)), {})
    assert (result.alerts, result.sli, result.budget_left_ratio) == ((), None, None)


def test_a_window_of_half_a_minute_is_refused() -> None:
    odd = WindowRule(Severity.PAGE, Fraction(1, 50), HOUR_S, Fraction(30))
    with pytest.raises(ConfigurationError, match="30 s cannot be replayed on minutes"):
        replay(slo_of("0.99", odd), {})


def test_minutes_are_read_in_any_order_of_rows_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("total,minute,bad\r\n5,2,1\r\n4,1,0\r\n")
    assert read_minutes(path) == {2: Counts(5, 1), 1: Counts(4, 0)}


BAD_FILES = [
    ("a missing column", "minute,total\n1,2\n", "columns are minute,total"),
    ("an unknown column", "minute,total,bad,x\n", "columns are minute,total,bad,x"),
    ("an empty file", "", "columns are missing"),
    (
        "more bad than total",
        "minute,total,bad\n1,2,3\n",
        r"bad is 3, more than the total of 2 \(.*:2\)",
    ),
    ("a fraction", "minute,total,bad\n1,2.5,1\n", r"total is '2.5'.*:2\)"),
    ("a negative number", "minute,total,bad\n1,2,1\n-1,2,1\n", r"minute is '-1'.*:3\)"),
    ("more than a float holds", f"minute,total,bad\n1,{'9' * 400},1\n", r"total is '9.*:2\)"),
    ("thousands of digits", f"minute,total,bad\n1,2,1\n{'9' * 5000},2,1\n", r"minute is .*:3\)"),
    ("seconds", "minute,total,bad\n1795793097,2,1\n", r"unix seconds / 60 \(.*:2\)"),
    ("a short row", "minute,total,bad\n1,2\n", r"bad is None.*:2\)"),
    ("a repeated minute", "minute,total,bad\n1,2,1\n1,2,1\n", r"minute 1 appears twice.*:3\)"),
]


@pytest.mark.parametrize(
    ("content", "message"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES]
)
def test_a_bad_history_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        read_minutes(path)
