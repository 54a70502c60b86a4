"""Where calendar periods begin, in zones whose clocks change."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.slo.calendar import Calendar, CalendarUnit

BERLIN = ZoneInfo("Europe/Berlin")


def ns(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("unit", "now", "start"),
    [
        pytest.param("d", "2026-03-29T12:00", "2026-03-29", id="a day of 23 hours"),
        pytest.param("w", "2026-03-29T23:59", "2026-03-23", id="weeks begin on Monday"),
        pytest.param("M", "2026-03-31T23:30", "2026-03-01", id="a month with a clock change"),
        pytest.param("M", "2026-03-01T00:00", "2026-03-01", id="its first moment belongs to it"),
        pytest.param("Q", "2026-12-31T23:59", "2026-10-01", id="a quarter"),
        pytest.param("Y", "2026-07-01T00:00", "2026-01-01", id="a year"),
    ],
)
def test_where_a_period_begins(unit: str, now: str, start: str) -> None:
    assert Calendar(CalendarUnit(unit), BERLIN).start_ns(ns(now)) == ns(start)


def test_a_zone_whose_clocks_change_at_midnight() -> None:
    # On 2026-09-06 Chile's clocks go from 00:00 to 01:00: that day begins at one.
    zone = ZoneInfo("America/Santiago")
    start_ns = Calendar(CalendarUnit.DAY, zone).start_ns(ns("2026-09-06T12:00", zone))
    assert datetime.fromtimestamp(start_ns / 1e9, zone).isoformat()[:16] == "2026-09-06T01:00"


@given(
    unit=st.sampled_from(list(CalendarUnit)),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]),
    minutes=st.integers(0, 2_000_000),
)
def test_a_moment_lies_within_its_period(unit: CalendarUnit, zone: str, minutes: int) -> None:
    calendar = Calendar(unit, ZoneInfo(zone))
    now_ns = ns("2025-01-01") + minutes * 60 * 10**9
    start_ns = calendar.start_ns(now_ns)
    assert start_ns <= now_ns < start_ns + int(calendar.longest_s) * 10**9
    end_ns = calendar.end_ns(now_ns)
    assert now_ns < end_ns == calendar.start_ns(end_ns)
    assert calendar.start_ns(end_ns - 1) == start_ns
    assert calendar.start_ns(start_ns) == start_ns
    before = calendar.start_ns(start_ns - 1)
    assert before < start_ns
    assert timedelta(microseconds=(start_ns - before) / 1000) <= timedelta(days=366, hours=1)
