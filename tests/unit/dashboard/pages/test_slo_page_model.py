"""Burn-down, calendar, burners and drafts, against numbers computed by hand."""

from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

import pytest

from evenkeel.slo.burn_rates import DEFAULT_RULES, Counts, budget_left_ratio
from evenkeel.slo.calendar import Calendar, CalendarUnit
from evenkeel.slo.model import Indicator, Metric, Slo
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.zones import use_zone
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.frame.user_access import slos_of
from evenkeel_dashboard.pages.slo.budget_figure import calendar_grid, state_words
from evenkeel_dashboard.pages.slo.draft import shortened_words
from evenkeel_dashboard.pages.slo.model import (
    DAY_MS,
    Bucket,
    Burner,
    buckets,
    budget_line,
    budget_summary,
    burn_down,
    burners,
    calendar,
    calendar_step_s,
    choices,
    draft,
    draft_targets,
    draft_thresholds_s,
    lost_phase,
    minutes,
    months,
    outside,
    partly_in,
    period_start_ms,
    rank_of,
    whole_minutes,
    without,
)
from evenkeel_dashboard.pages.slo.page import cohort_href

TARGET = Fraction(9, 10)
SLO = Slo("s", "s", Indicator(Metric.TTFT, 0.5), TARGET, Fraction(30 * 86_400), DEFAULT_RULES)


def test_a_burn_down_ends_at_what_is_left() -> None:
    found = [Bucket(0, 100, 5), Bucket(1, 50, 0), Bucket(2, 50, 10)]
    left = burn_down(found, TARGET)
    assert left == pytest.approx([0.75, 0.75, 0.25])
    assert left[-1] == pytest.approx(budget_left_ratio(Counts(200, 15), TARGET))


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("calendar", "to", "start"),
    [
        pytest.param(None, "2026-11-02T12:00Z", "2026-10-03T12:00Z", id="rolling"),
        pytest.param("M", "2026-11-02T12:00Z", "2026-10-31T23:00Z", id="this month in Berlin"),
        pytest.param("M", "2026-10-31T23:00Z", "2026-09-30T22:00Z", id="all of a month at its end"),
    ],
)
def test_a_budget_is_drawn_over_the_period_that_is_evaluated(
    calendar: str | None, to: str, start: str
) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    slo = replace(SLO, calendar=Calendar(CalendarUnit(calendar), berlin) if calendar else None)
    assert period_start_ms(slo, ms(to)) == ms(start)


def test_an_overspent_budget_is_negative_and_none_is_none() -> None:
    assert burn_down([Bucket(0, 10, 5)], TARGET) == pytest.approx([-4])
    assert burn_down([], TARGET) == []


def test_the_budget_is_drawn_where_there_are_events() -> None:
    found = [Bucket(300, 10, 1), Bucket(400, 10, 0), Bucket(700, 20, 1)]
    points = budget_line(found, TARGET, 100, 0, 1000)
    budget = 40 * float(1 - TARGET)
    after = (1 - 1 / budget, 1 - 2 / budget)
    drawn: list[tuple[int, Any]] = [(point.at_ms, point.left) for point in points]
    gaps = [at_ms for at_ms, left in drawn if left is None]
    assert [(at_ms, left) for at_ms, left in drawn if left is not None] == [
        (300, 1.0), (400, pytest.approx(after[0])), (500, pytest.approx(after[0])),
        (700, pytest.approx(after[0])), (800, pytest.approx(after[1])),
    ]  # fmt: skip
    # Before the first, between the two periods, and after the last.
    assert min(gaps) == 0 and 500 in gaps and max(gaps) == 1000
    assert drawn.index((500, None)) < drawn.index((700, pytest.approx(after[0])))
    assert (points[0].even, points[-1].even) == (1.0, 0.0)


def test_a_bucket_that_begins_before_the_period_is_drawn_within_it() -> None:
    points = budget_line([Bucket(-50, 10, 0)], TARGET, 100, 0, 60)
    assert [(p.at_ms, p.left) for p in points if p.left is not None] == [(0, 1.0), (50, 1.0)]
    assert budget_line([], TARGET, 100, 0, 60)[0].left is None


def test_the_calendar_has_every_day_and_tells_none_from_nothing_spent() -> None:
    found = [Bucket(0, 100, 5), Bucket(2 * DAY_MS, 100, 0)]
    days = calendar(found, TARGET, 0, 3 * DAY_MS)
    assert [d.day for d in days] == [date(1970, 1, 1 + i) for i in range(3)]
    assert [d.spent_ratio for d in days] == [pytest.approx(0.25), None, 0]
    html = calendar_grid(days)
    assert "25% of the budget spent, 5 bad of 100" in html


def test_the_calendar_has_the_days_of_the_shown_zone() -> None:
    late = Bucket(DAY_MS - 2 * 3_600_000, 100, 5)
    try:
        use_zone(ZoneInfo("Europe/Berlin"))
        assert calendar_step_s(14_400, 0, DAY_MS) == 3_600
        days = calendar([late], TARGET, 0, 2 * DAY_MS)
        # 22:00 UTC is 23:00 there; an hour later is the next day.
        assert [(d.day, d.total) for d in days][:2] == [
            (date(1970, 1, 1), 100),
            (date(1970, 1, 2), 0),
        ]
        later = replace(late, start_ms=late.start_ms + 3_600_000)
        assert calendar([later], TARGET, 0, 2 * DAY_MS)[1].total == 100
    finally:
        use_zone(UTC)
    assert calendar_step_s(14_400, 0, DAY_MS) == 14_400


def test_members_of_a_composite_are_weighed() -> None:
    rows = [
        {"slo": 0, "bucket": 7, "total_sum": 10.0, "bad_sum": 1.0},
        {"slo": 1, "bucket": 7, "total_sum": 4.0, "bad_sum": 2.0},
    ]
    assert buckets(rows, [1.0, 0.5], 60 * 10**9) == [Bucket(7 * 60_000, 12.0, 2.0)]


def test_who_burned_more_than_their_traffic_comes_first() -> None:
    def row(dimension: str, cohort: str, total: float, bad: float) -> dict[str, object]:
        return {"dimension": dimension, "cohort": cohort, "total_sum": total, "bad_sum": bad}

    found = burners(
        [
            row("tenant", "acme", 90, 1),
            row("tenant", "umbrella", 10, 9),
            row("model", "only", 100, 10),
        ]
    )
    assert [b.cohort for b in found] == ["umbrella", "acme"], "one model alone says nothing"
    assert found[0].bad_share == pytest.approx(0.9)
    assert found[0].lift == pytest.approx(9)


def test_shares_are_of_all_requests_also_of_those_without_a_value() -> None:
    def row(cohort: str, total: float, bad: float) -> dict[str, object]:
        return {"dimension": "tenant", "cohort": cohort, "total_sum": total, "bad_sum": bad}

    found = burners([row("", 900, 90), row("acme", 60, 9), row("umbrella", 40, 1)])
    assert [(b.cohort, b.bad_share, b.traffic_share) for b in found] == [
        ("acme", pytest.approx(0.09), pytest.approx(0.06)),
        ("umbrella", pytest.approx(0.01), pytest.approx(0.04)),
    ]
    assert [b.cohort for b in burners([row("", 900, 0), row("acme", 100, 9)])] == ["acme"]


def test_a_draft_changes_limit_and_target_alone() -> None:
    tried = draft(SLO, 1.0, Fraction(99, 100))
    assert (tried.indicator.threshold_s, tried.target) == (1.0, Fraction(99, 100))
    assert tried.windows == SLO.windows
    assert SLO.target in draft_targets(SLO)
    assert 0.5 in draft_thresholds_s(SLO)


@pytest.mark.parametrize("own_s", [0.5, 150.0, 180.0, 299.0, 3_600.0])
def test_every_limit_to_try_has_words_of_its_own(own_s: float) -> None:
    tried = draft_thresholds_s(replace(SLO, indicator=Indicator(Metric.TTFT, own_s)))
    found = choices(tried, own_s, formats.seconds)
    assert list(found.values()) == tried
    assert found[formats.seconds(own_s)] == own_s


def test_words_that_two_targets_share_mean_the_own_one() -> None:
    own = 0.98999
    assert choices([own, 0.99], own, formats.percent) == {"99%": own}


def test_corrected_time_does_not_count() -> None:
    found = [Bucket(i * 60_000, 1, 1) for i in range(4)]
    kept = outside(found, [(60_000, 120_000)], 60_000)
    assert [b.start_ms for b in kept] == [0, 120_000, 180_000]
    assert minutes(kept) == {0: Counts(1, 1), 2: Counts(1, 1), 3: Counts(1, 1)}


def test_of_a_wide_bucket_only_the_corrected_minutes_do_not_count() -> None:
    hours = [Bucket(i * 3_600_000, 60, 6) for i in range(3)]
    fine = [Bucket(3_600_000 + i * 60_000, 1, 0.1) for i in range(20)]
    fine += [Bucket(7_200_000 + i * 60_000, 1, 0.1) for i in range(60)]
    first, second = without(hours, fine, 3_600_000)
    assert first == hours[0]
    assert second.total == 40
    assert second.bad == pytest.approx(4)


@pytest.mark.parametrize(
    ("spans_ms", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param([(61_000, 119_000)], [(60_000, 120_000)], id="minutes that it touches"),
        pytest.param(
            [(200_000, 300_000), (0, 60_000), (30_000, 100_000)],
            [(0, 120_000), (180_000, 300_000)],
            id="overlapping ones count once",
        ),
        pytest.param([(-90_000, 70_000)], [(0, 120_000)], id="begun before the period"),
        pytest.param(
            [(580_000, 900_000), (900_000, 960_000)], [(540_000, 600_000)], id="beyond it"
        ),
    ],
)
def test_corrected_spans_as_minutes(
    spans_ms: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert whole_minutes(spans_ms, 0, 600_000) == expected


@pytest.mark.parametrize(
    ("span", "whole", "parts"),
    [
        pytest.param((0, 200), [(0, 200)], [], id="fills buckets"),
        pytest.param((50, 350), [(100, 300)], [(50, 100), (300, 350)], id="more than buckets"),
        pytest.param((110, 130), [], [(110, 130)], id="within one"),
        pytest.param((90, 110), [], [(90, 110)], id="parts of two"),
        pytest.param((100, 250), [(100, 200)], [(200, 250)], id="from the begin of one"),
    ],
)
def test_only_parts_of_buckets_are_read_to_leave_them_out(
    span: tuple[int, int], whole: list[tuple[int, int]], parts: list[tuple[int, int]]
) -> None:
    assert partly_in([span], 100) == (whole, parts)


def test_months_cross_the_year() -> None:
    found = months(datetime(2026, 1, 15, tzinfo=UTC), 2)
    assert found == [
        ("January 2026", "2026-01-01T00:00Z", "2026-02-01T00:00Z"),
        ("December 2025", "2025-12-01T00:00Z", "2026-01-01T00:00Z"),
    ]


def evaluated(**fields: object) -> dict[str, object]:
    return {
        "state": "ok", "severity": None, "budget_left_ratio": 0.25, "good": 95, "total": 100,
    } | fields  # fmt: skip


@pytest.mark.parametrize(
    ("row", "level", "headline"),
    [
        pytest.param(None, "unknown", "s has not been evaluated yet", id="never evaluated"),
        pytest.param(
            evaluated(budget_left_ratio=None),
            "good",
            "s has no requests to judge in its period",
            id="nothing to judge",
        ),
        pytest.param(
            evaluated(), "good", "s has 25% of its error budget left (5 of 100 bad)", id="left"
        ),
        pytest.param(
            evaluated(budget_left_ratio=-1.6, state="firing", severity="page"),
            "bad",
            "s has exhausted its error budget, 2.6× spent; a page is firing (5 of 100 bad)",
            id="exhausted and firing",
        ),
        pytest.param(
            evaluated(state="stale", time_ms=1_795_560_000_000),
            "unknown",
            "s has 25% of its error budget left; not evaluated since 2026-11-24 22:40:00 UTC "
            "(5 of 100 bad)",
            id="no longer evaluated",
        ),
        pytest.param(
            evaluated(state="stale", time_ms=1_795_560_000_000, budget_left_ratio=None, total=0),
            "unknown",
            "s: not evaluated since 2026-11-24 22:40:00 UTC",
            id="no longer evaluated, without a budget",
        ),
        pytest.param(
            evaluated(state="unknown", budget_left_ratio=None, good=0, total=0),
            "unknown",
            "s cannot be evaluated: the alert SloEvaluationFailed says why",
            id="its evaluation fails",
        ),
    ],
)
def test_the_sentence_at_the_top(row: dict[str, object] | None, level: str, headline: str) -> None:
    found = budget_summary("s", row)
    assert (found.level, found.headline) == (level, headline)
    assert "requests that burned it" in found.reason


@pytest.mark.parametrize(
    ("row", "headline"),
    [
        (None, "s had not been evaluated yet"),
        (evaluated(budget_left_ratio=None), "s had no requests to judge in its period"),
        (evaluated(), "s had 25% of its error budget left (5 of 100 bad)"),
        (
            evaluated(budget_left_ratio=-1.6, state="firing", severity="page"),
            "s had exhausted its error budget, 2.6× spent; a page was firing (5 of 100 bad)",
        ),
        (
            evaluated(state="unknown", budget_left_ratio=None, good=0, total=0),
            "s could not be evaluated: the alert SloEvaluationFailed says why",
        ),
    ],
)
def test_the_sentence_at_the_top_of_a_past_range(
    row: dict[str, object] | None, headline: str
) -> None:
    found = budget_summary("s", row, past_ms=1_795_560_000_000)
    assert found.headline == f"At 2026-11-24 22:40:00 UTC, {headline}"


@pytest.mark.parametrize(
    ("left", "is_past", "words"),
    [
        ([0.9, 0.63], False, "of the last 30d: 63% left now"),
        ([0.9, 0.63], True, "of 30d up to the range's end: 63% left"),
        ([0.9, -1.6], True, "of 30d up to the range's end: exhausted, 2.6× spent"),
        ([], True, "of 30d up to the range's end: no data"),
    ],
)
def test_the_budget_left_is_that_of_now_only_at_present(
    left: list[float], is_past: bool, words: str
) -> None:
    assert state_words(SLO, left, is_past=is_past) == words


def test_of_sessions_it_leads_to_their_page() -> None:
    found = budget_summary("s", evaluated(objective="session_e2e"))
    assert found.reason.startswith("Start with the worst sessions")


def test_the_phase_that_bad_requests_lost_most_in() -> None:
    def causes(bad: tuple[float | None, ...], good: tuple[float | None, ...]) -> dict[str, object]:
        phases = ("queue", "prefill", "decode")
        return {
            f"{side}_{phase}_s": value
            for side, values in (("bad", bad), ("good", good))
            for phase, value in zip(phases, values, strict=True)
        }

    assert lost_phase(causes((2.0, 0.3, 4.0), (0.1, 0.2, 3.9))) == "queue"
    assert lost_phase(causes((None, 0.3, None), (None, None, None))) == "prefill"
    assert lost_phase(causes((0.1, 0.1, 0.1), (0.2, 0.2, 0.2))) == ""
    assert lost_phase(causes((None, None, None), (0.2, 0.2, 0.2))) == ""


def test_the_worst_requests_are_ordered_by_what_is_judged() -> None:
    assert rank_of(SLO) == "ttft"
    assert rank_of(replace(SLO, indicator=Indicator(Metric.AVAILABILITY, None))) == "e2e"


@pytest.mark.parametrize(
    ("select", "params"),
    [
        pytest.param(
            {"model": "m", "route": "/chat", "prompt_name": "p", "prompt_version": "2"},
            {"model": ["m"], "route": ["/chat"], "prompt": ["p@2"], "tenant": ["acme"]},
            id="its selection",
        ),
        pytest.param({"tenant": "globex"}, {"tenant": ["acme"]}, id="the cohort of its dimension"),
    ],
)
def test_the_link_to_a_cohort_keeps_what_the_slo_selects(
    select: dict[str, str], params: dict[str, list[str]]
) -> None:
    slo = replace(SLO, indicator=replace(SLO.indicator, select=select))
    href = cohort_href(Burner("tenant", "acme", 9, 3, 1.0, 0.5), Selection(), slo)
    assert parse_qs(href.partition("?")[2]) == {**params, "order": ["ttft"]}


def test_the_link_to_a_cohort_leaves_out_filters_that_the_page_does_not_have() -> None:
    """Else it lists fewer requests than the page counted, or none."""
    filtered = Selection("6h", tenant="globex", prompt="p@1", zone="local")
    href = cohort_href(Burner("model", "m", 9, 3, 1.0, 0.5), filtered, SLO)
    found = parse_qs(href.partition("?")[2])
    assert found == {"range": ["6h"], "tz": ["local"], "model": ["m"], "order": ["ttft"]}


def test_a_draft_says_over_how_little_it_was_replayed() -> None:
    assert shortened_words(1_260, 604_800).startswith("Over the last 21 min of the range only")
    assert shortened_words(3_540, 3_600) == "", "cut to the minute"


def test_a_tenant_sees_only_slos_of_its_own_requests() -> None:
    """Of another one, it may read neither the evaluation nor all the requests."""
    own, other = (
        replace(SLO, name=name, indicator=replace(SLO.indicator, select={"tenant": name}))
        for name in ("acme", "globex")
    )
    assert slos_of([SLO, own, other], "acme") == [own]
    assert slos_of([SLO, own, other], None) == [SLO, own, other]
