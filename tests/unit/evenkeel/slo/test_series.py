"""Buckets and verdicts, against sums worked out the slow way."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.slo.burn_rates import (
    DAY_S,
    MINUTE_S,
    AlertWindow,
    Counts,
    Severity,
    Significance,
    alert_windows,
)
from evenkeel.slo.series import BucketSeries, SeriesEvaluator, choose_width_s

counts = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(
    lambda pair: Counts(float(max(pair)), float(min(pair)))
)


@settings(deadline=None)
@given(
    num_buckets=st.integers(1, 12),
    fills=st.lists(
        st.tuples(st.integers(0, 25), st.lists(counts, min_size=1, max_size=6)), max_size=12
    ),
    asks=st.lists(st.tuples(st.integers(1, 14), st.integers(0, 8)), min_size=1, max_size=6),
)
def test_sums_are_those_of_a_plain_dictionary(
    num_buckets: int,
    fills: list[tuple[int, list[Counts]]],
    asks: list[tuple[int, int]],
) -> None:
    """Fill tails at any place, forward and back, with gaps, and sum windows of any length."""
    series = BucketSeries(num_buckets)
    plain: dict[int, Counts] = {}
    oldest, newest = 0, 99
    for advance, tail in fills:
        # From 12 back, which may be older than the series holds, to 13 ahead.
        first = newest + 1 + advance - 12
        oldest = max(oldest, newest - num_buckets + 1)
        if plain and first < oldest and first - newest <= num_buckets:
            with pytest.raises(ValueError, match="older than the series holds"):
                series.replace_tail(first, tail)
            continue
        series.replace_tail(first, tail)
        oldest = first if not plain or first - newest > num_buckets else oldest
        plain = {k: v for k, v in plain.items() if k < first} | dict(enumerate(tail, first))
        newest = first + len(tail) - 1
        assert series.newest == newest
    if not plain:
        return
    for length, back in asks:
        end = newest - back
        reach = range(max(end - length + 1, oldest, newest - num_buckets + 1), end + 1)
        expected = [plain.get(k, Counts(0, 0)) for k in reach]
        total = series.sum(length, end)
        assert total.total == sum(c.total for c in expected)
        assert total.bad == sum(c.bad for c in expected)


def test_an_empty_series_sums_to_nothing() -> None:
    assert BucketSeries(5).sum(3, 100) == Counts(0.0, 0.0)


@pytest.mark.parametrize(
    ("scale", "width_s"),
    [("1", 30), ("1/60", 0.5), ("1/300", 0.1)],
    ids=["5 minutes", "5 seconds", "1 second"],
)
def test_the_shortest_window_has_ten_buckets(scale: str, width_s: float) -> None:
    assert float(choose_width_s(alert_windows(30 * DAY_S, scale=Fraction(scale)))) == width_s


WINDOW = AlertWindow(Severity.PAGE, Fraction(1, 2), 4 * MINUTE_S, 2 * MINUTE_S, 8 * MINUTE_S)


def verdict_of(minutes: list[Counts], period_min: int = 8):  # type: ignore[no-untyped-def]
    """Judge at the last minute; the window's factor is 1, so the limit is 1 − target."""
    judge = SeriesEvaluator(Fraction(1, 2), [WINDOW], period_min * MINUTE_S, MINUTE_S)
    series = BucketSeries(judge.num_buckets)
    series.replace_tail(0, minutes)
    return judge.verdict(series, len(minutes) - 1)


GOOD, BAD, NONE = Counts(10, 0), Counts(10, 10), Counts(0, 0)
VERDICTS = [
    ("both windows exceed", [GOOD, BAD, BAD, BAD], True),
    ("the long window does not", [GOOD, GOOD, BAD, BAD], False),
    ("the short window does not", [BAD, BAD, BAD, GOOD], False),
    ("the short window has no events", [BAD, BAD, NONE, NONE], False),
    ("history is shorter than the windows", [BAD], True),
    ("no events at all", [NONE, NONE], False),
]


@pytest.mark.parametrize(
    ("minutes", "burns"), [case[1:] for case in VERDICTS], ids=[case[0] for case in VERDICTS]
)
def test_an_alert_needs_both_windows(minutes: list[Counts], burns: bool) -> None:
    verdict = verdict_of(minutes)
    assert (verdict.burning(Severity.PAGE) is not None) is burns
    assert verdict.burning(Severity.TICKET) is None


def test_few_bad_events_do_not_burn() -> None:
    series = BucketSeries(8)
    series.replace_tail(0, [GOOD, Counts(2, 2), Counts(1, 1)])
    for min_bad, burns in ((3, True), (4, False)):
        loose = AlertWindow(Severity.PAGE, Fraction(1, 9), 4 * MINUTE_S, MINUTE_S, 9 * MINUTE_S)
        judge = SeriesEvaluator(
            Fraction(19, 20), [loose], 8 * MINUTE_S, MINUTE_S, Significance(min_bad)
        )
        assert (judge.verdict(series, 2).burning(Severity.PAGE) is not None) is burns


def test_a_page_wants_its_error_ratio_to_be_beyond_doubt() -> None:
    series = BucketSeries(8)
    loose = AlertWindow(Severity.PAGE, Fraction(1, 9), 4 * MINUTE_S, MINUTE_S, 9 * MINUTE_S)
    judge = SeriesEvaluator(
        Fraction(19, 20), [loose], 8 * MINUTE_S, MINUTE_S, Significance(1, Fraction(95, 100))
    )
    for factor, burns in ((1, False), (100, True)):
        # 2% bad against a limit of 1.25%, of 50 requests and of 5000.
        series.replace_tail(0, [Counts(50.0 * factor, 1.0 * factor)])
        assert (judge.verdict(series, 0).burning(Severity.PAGE) is not None) is burns


@pytest.mark.parametrize(
    ("minutes", "holds"),
    [
        pytest.param([BAD, BAD, NONE, NONE], None, id="only the long one knows, and burns"),
        pytest.param([GOOD, GOOD, NONE, NONE], False, id="the long window rules it out"),
        pytest.param([BAD, BAD, GOOD, GOOD], False, id="the short window says it is over"),
        pytest.param([BAD, BAD, BAD], True, id="both burn"),
        pytest.param([NONE, NONE, NONE], None, id="nothing at all"),
    ],
)
def test_missing_events_do_not_end_an_alert(minutes: list[Counts], holds: bool | None) -> None:
    assert verdict_of(minutes).holds(Severity.PAGE) is holds


def test_no_events_read_as_no_data() -> None:
    verdict = verdict_of([NONE, NONE])
    assert not verdict.has_data
    assert (verdict.sli, verdict.budget_left_ratio) == (None, None)
    assert (verdict.burns[0].burn_long, verdict.burns[0].burn_short) == (None, None)


def test_the_budget_counts_the_period_and_no_more() -> None:
    verdict = verdict_of([BAD, *[GOOD] * 8])
    assert verdict.sli == 1.0
    assert verdict_of([BAD, *[GOOD] * 7]).sli == pytest.approx(70 / 80)
