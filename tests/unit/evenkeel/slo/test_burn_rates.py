"""Windows, factors, burn rates and closed-form times, against published and simulated values."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.slo.burn_rates import (
    DAY_S,
    DEFAULT_RULES,
    AlertWindow,
    Counts,
    Severity,
    alert_windows,
    budget_left_ratio,
    burn_rate,
    default_rules,
    exceeds,
)

# SRE workbook, table 5-8 and its example rules (30 days); Sloth's published windows for 28 days.
PUBLISHED_FACTORS = [
    ("30 days, 2% in 1 hour", 30, 0, 14.4),
    ("30 days, 5% in 6 hours", 30, 1, 6.0),
    ("30 days, 10% in 1 day", 30, 2, 3.0),
    ("30 days, 10% in 3 days", 30, 3, 1.0),
    ("28 days, 2% in 1 hour", 28, 0, 13.44),
    ("28 days, 5% in 6 hours", 28, 1, 5.6),
    ("28 days, 10% in 1 day", 28, 2, 2.8),
    ("28 days, 10% in 3 days", 28, 3, 0.933333),
    ("7 days, 2% in 1 hour", 7, 0, 3.36),
]


@pytest.mark.parametrize(
    ("days", "pair", "factor"),
    [case[1:] for case in PUBLISHED_FACTORS],
    ids=[case[0] for case in PUBLISHED_FACTORS],
)
def test_factors_are_those_published(days: int, pair: int, factor: float) -> None:
    window = alert_windows(days * DAY_S, DEFAULT_RULES)[pair]
    assert float(window.factor) == pytest.approx(factor, rel=1e-6)


def test_the_default_factors_for_30_days_are_exact() -> None:
    assert [window.factor for window in alert_windows(30 * DAY_S)] == [
        Fraction("14.4"),
        Fraction(6),
        Fraction(3),
        Fraction(1),
    ]


@pytest.mark.parametrize("hours", [2, 6, 12, 24, 36, 3 * 24, 7 * 24, 14 * 24, 21 * 24, 671])
def test_short_periods_shorten_their_windows_and_page_at_no_low_burn_rate(hours: int) -> None:
    usual = [window.factor for window in alert_windows(30 * DAY_S)]
    period_s = hours * DAY_S / 24
    windows = alert_windows(period_s)
    for window, factor in zip(windows, usual, strict=True):
        assert float(window.factor) == pytest.approx(float(factor), rel=0.31)
        assert window.short_s <= window.long_s < period_s
        assert window.long_s % (60 if hours >= 24 else 1) == 0
    # What rounding leaves: only the shortest window of a day is far from its place.
    assert hours < 48 or all(
        abs(w.factor / f - 1) < Fraction(1, 10) for w, f in zip(windows, usual, strict=True)
    )


@pytest.mark.parametrize("days", [28, 30, 31, 90, 365])
def test_long_periods_have_the_windows_of_the_workbook(days: int) -> None:
    assert default_rules(days * DAY_S) == DEFAULT_RULES


def test_seven_days_page_as_thirty_do() -> None:
    windows = alert_windows(7 * DAY_S)
    assert [(w.long_s / 60, w.short_s / 60) for w in windows] == [
        (14, 1), (84, 7), (336, 28), (1008, 84)
    ]  # fmt: skip
    assert [w.factor for w in windows] == [Fraction("14.4"), 6, 3, 1]


def test_a_scale_shortens_windows_and_keeps_factors() -> None:
    scaled = alert_windows(30 * DAY_S, scale=Fraction(1, 60))
    assert [float(w.long_s) for w in scaled] == [60, 360, 1440, 4320]
    assert [w.factor for w in scaled] == [w.factor for w in alert_windows(30 * DAY_S)]


# The workbook: at 99.9% a full outage is found in under a minute by the 14.4 pair.
DETECTION = [
    ("full outage, first pair", "0.999", 0, "1", 51.84, 295.68),
    ("1% errors exceed 6 times 0.1%", "0.999", 1, "0.01", 12960.0, 720.0),
    ("1% errors do not reach 14.4 times 0.1%", "0.999", 0, "0.01", None, None),
    ("exactly the limit never fires", "0.999", 0, "0.0144", None, None),
    ("a limit above 1 never fires", "0.9", 0, "1", None, None),
]


@pytest.mark.parametrize(
    ("target", "pair", "error", "detect_s", "reset_s"),
    [case[1:] for case in DETECTION],
    ids=[case[0] for case in DETECTION],
)
def test_detection_and_reset_times(
    target: str, pair: int, error: str, detect_s: float | None, reset_s: float | None
) -> None:
    window = alert_windows(30 * DAY_S)[pair]
    assert window.detect_s(Fraction(target), Fraction(error)) == (
        None if detect_s is None else pytest.approx(detect_s)
    )
    assert window.reset_s(Fraction(target), Fraction(error)) == (
        None if reset_s is None else pytest.approx(reset_s)
    )


@settings(deadline=None)
@given(
    long_s=st.integers(20, 120),
    short_share=st.integers(1, 20),
    budget=st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100),
    error=st.fractions(Fraction(1, 50), Fraction(1), max_denominator=50),
    extra_s=st.integers(1, 200),
)
def test_closed_forms_agree_with_a_simulated_incident(
    long_s: int, short_share: int, budget: Fraction, error: Fraction, extra_s: int
) -> None:
    """One event a second of weight 1; errors at a constant ratio from 0 until they end."""
    short_s = max(1, long_s // short_share)
    target = Fraction(9, 10)
    window = AlertWindow(
        Severity.PAGE, budget, Fraction(long_s), Fraction(short_s), Fraction(10 * long_s)
    )
    limit = window.error_limit(target)

    def holds(end: int, start_s: int, stop_s: int) -> bool:
        """Whether both windows that end with second `end` exceed the limit."""
        return all(
            error * max(0, min(end, stop_s) - max(end - length, start_s)) > limit * length
            for length in (long_s, short_s)
        )

    detect_s = window.detect_s(target, error)
    first = next((t for t in range(1, 3 * long_s) if holds(t, 0, 10**9)), None)
    if detect_s is None:
        assert first is None
        return
    assert first is not None
    assert first - 1 <= detect_s < first
    stop_s = first + extra_s
    gone = next(u for u in range(0, 3 * long_s) if not holds(stop_s + u, 0, stop_s))
    reset_s = window.reset_s(target, error)
    assert reset_s is not None
    assert gone - 1 < reset_s <= gone


BURNS = [
    ("nothing bad", Counts(1000, 0), 0.0, 1.0),
    ("exactly the budget", Counts(1000, 1), 1.0, 0.0),
    ("twice the budget", Counts(1000, 2), 2.0, -1.0),
    ("no events", Counts(0, 0), None, None),
]


@pytest.mark.parametrize(
    ("counts", "burn", "left"), [case[1:] for case in BURNS], ids=[case[0] for case in BURNS]
)
def test_burn_rate_and_budget(counts: Counts, burn: float | None, left: float | None) -> None:
    target = Fraction("0.999")
    assert burn_rate(counts, target) == (None if burn is None else pytest.approx(burn))
    assert budget_left_ratio(counts, target) == (None if left is None else pytest.approx(left))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (Counts(10_000, 144), False),
        (Counts(10_000, 145), True),
        (Counts(0, 0), False),
        (Counts(0.5, 0.25), True),
    ],
    ids=["at the limit", "above the limit", "no events", "weighted"],
)
def test_a_limit_is_exceeded_exactly_or_not(counts: Counts, expected: bool) -> None:
    # 14.4 × 0.001 in floats is 0.0144 + 2e-18; at the limit that decides between page and sleep.
    assert exceeds(counts, Fraction("14.4") * (1 - Fraction("0.999"))) is expected
