"""The URL of a view: parsed and written, with invalid values ignored."""

from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.selection import (
    FILTERS,
    PRESETS_S,
    Selection,
    format_time_ms,
    parse_time_ms,
    range_problem,
    slices,
    step_s,
)

BEGIN_MS, END_MS = 1_795_000_000_000, 1_795_003_600_000
TIMES = {"from": format_time_ms(BEGIN_MS), "to": format_time_ms(END_MS)}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param({}, Selection(), id="nothing given"),
        pytest.param({"range": "6h"}, Selection(preset="6h"), id="a preset"),
        pytest.param({"range": "9y"}, Selection(), id="an unknown preset"),
        pytest.param(TIMES, Selection(from_ms=BEGIN_MS, to_ms=END_MS), id="a fixed range"),
        pytest.param({"from": TIMES["from"]}, Selection(), id="half a range"),
        pytest.param(
            {"from": TIMES["to"], "to": TIMES["from"]}, Selection(), id="a range backwards"
        ),
        pytest.param({"from": "noon", "to": "now"}, Selection(), id="times that are none"),
        pytest.param(
            {"live": "off", "model": "m", "prompt": "p@2"},
            Selection(is_live=False, model="m", prompt="p@2"),
            id="paused and filtered",
        ),
    ],
)
def test_from_params(params: dict[str, str], expected: Selection) -> None:
    assert Selection.from_params(params) == expected


SELECTIONS = st.builds(
    Selection,
    preset=st.sampled_from(list(PRESETS_S)),
    is_live=st.booleans(),
    zone=st.sampled_from(["", "local", "Europe/Berlin"]),
    **{name: st.text(max_size=8) for name in FILTERS},
)


@given(SELECTIONS)
def test_a_link_reproduces_the_view(selection: Selection) -> None:
    assert Selection.from_params(selection.to_params()) == selection


@given(st.integers(0, 4_000_000_000), st.integers(1, 10**8))
def test_a_link_reproduces_a_fixed_range(begin_s: int, duration_s: int) -> None:
    selection = Selection().narrowed(begin_s * 1000, (begin_s + duration_s) * 1000)
    assert Selection.from_params(selection.to_params()) == selection


@pytest.mark.parametrize(
    ("now_ms", "to_ms"),
    [
        pytest.param(BEGIN_MS + 600_999, BEGIN_MS + 600_000, id="to now, as a preset"),
        pytest.param(BEGIN_MS + 1_000, BEGIN_MS + 60_000, id="a minute at least"),
        pytest.param(BEGIN_MS - 3_600_000, BEGIN_MS + 60_000, id="all in the future"),
    ],
)
def test_a_fixed_range_is_read_no_further_than_now(now_ms: int, to_ms: int) -> None:
    fixed = Selection().narrowed(BEGIN_MS, END_MS)
    read = fixed.window(now_ms)
    assert (read.from_ms, read.to_ms) == (BEGIN_MS, to_ms)
    assert fixed.to_params() == TIMES, "the link keeps the range"


def test_a_preset_ends_now_and_a_fixed_range_does_not() -> None:
    assert Selection(preset="15m").window(END_MS + 999) == Window(END_MS - 900_000, END_MS, 5)
    fixed = Selection().narrowed(BEGIN_MS, END_MS)
    assert fixed.window(END_MS * 2) == Window(BEGIN_MS, END_MS, 30)
    assert fixed.refresh_s() is None
    assert fixed.relative("6h").refresh_s() == 15


def test_the_window_before_touches_this_one() -> None:
    assert Window(BEGIN_MS, END_MS, 30).before() == Window(BEGIN_MS - 3_600_000, BEGIN_MS, 30)


@given(st.floats(1, 3e9))
def test_a_series_stays_within_two_hundred_steps_up_to_100_days(duration_s: float) -> None:
    if duration_s <= 100 * 86_400:
        assert duration_s / step_s(duration_s) <= 200


@pytest.mark.parametrize("preset", PRESETS_S)
def test_steps_of_long_windows_are_whole_minutes(preset: str) -> None:
    window = Selection(preset=preset).window(END_MS)
    assert window.is_long == (PRESETS_S[preset] > 6 * 3600)
    if window.is_long:
        assert window.step_s % 60 == 0


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert parse_time_ms("2026-11-20T10:00:00") == parse_time_ms("2026-11-20T11:00:00+01:00")


def test_a_time_without_a_zone_is_in_the_zone_of_the_page() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert parse_time_ms("2026-11-20 11:00", berlin) == parse_time_ms("2026-11-20T10:00Z")
    assert parse_time_ms("2026-11-20T10:00Z", berlin) == parse_time_ms("2026-11-20T10:00Z")
    assert parse_time_ms("noon", berlin) is None


@pytest.mark.parametrize(
    ("params", "part"),
    [
        pytest.param({}, "", id="nothing given"),
        pytest.param({"range": "7d"}, "", id="a preset"),
        pytest.param(TIMES, "", id="a fixed range"),
        pytest.param({"range": "banana"}, "'banana' is not a range; showing", id="no range"),
        pytest.param({"from": "noon", "to": TIMES["to"]}, "from=noon is not a time", id="no time"),
        pytest.param({"from": TIMES["from"]}, "needs both from and to", id="half a range"),
        pytest.param(
            {"from": TIMES["to"], "to": TIMES["from"]}, "ends before it starts", id="backwards"
        ),
    ],
)
def test_an_address_that_cannot_be_shown_says_so(params: dict[str, str], part: str) -> None:
    assert part in range_problem(params)
    assert bool(part) == bool(range_problem(params))


def test_a_range_that_ends_now_starts_with_the_data() -> None:
    young = Selection(data_from_ms=END_MS - 120_000)
    assert young.window(END_MS) == Window(END_MS - 120_000, END_MS, 5)
    assert Selection(data_from_ms=BEGIN_MS - 1).window(END_MS) == Window(BEGIN_MS, END_MS, 30)
    just_begun = Selection(data_from_ms=END_MS - 1_000).window(END_MS)
    assert just_begun == Window(END_MS - 60_000, END_MS, 5), "at least a minute"
    fixed = young.narrowed(BEGIN_MS, END_MS)
    assert fixed.window(END_MS).from_ms == BEGIN_MS, "a fixed range is as given"


def test_earlier_later_and_zoom_out() -> None:
    fixed = Selection().narrowed(BEGIN_MS, END_MS)
    half_ms = (END_MS - BEGIN_MS) // 2
    now_ms = END_MS + half_ms
    assert fixed.shifted(now_ms, -1) == Selection().narrowed(BEGIN_MS - half_ms, END_MS - half_ms)
    assert fixed.shifted(now_ms, 1) == Selection().narrowed(BEGIN_MS + half_ms, now_ms)
    assert fixed.shifted(now_ms, 4).to_ms == now_ms, "never beyond now"
    assert fixed.widened(now_ms) == Selection().narrowed(BEGIN_MS - half_ms, now_ms)
    assert Selection(preset="1h").shifted(END_MS, -1) == Selection(preset="1h").narrowed(
        BEGIN_MS - half_ms, END_MS - half_ms
    )
    assert Selection(preset="1h").widened(END_MS) == Selection(preset="6h")
    assert Selection(preset="30d").widened(END_MS) == Selection(preset="30d")


def test_of_many_requests_a_slice_of_each_period_is_read() -> None:
    day = Window(0, 86_400_000, 600)
    assert slices(10_000, day) == {"period_s": 3600, "slice_s": 3600}
    assert slices(20_000_000, day) == {"period_s": 3600, "slice_s": 9}


@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T23:59:59Z",
        "2300-01-01T00:00Z",  # beyond the store's times
        "2106-02-08T00:00Z",  # beyond its minutes, which would start again at 1970
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "1969-12-31",
    ],
)
@pytest.mark.parametrize("zone", [UTC, ZoneInfo("Europe/Berlin")])
def test_a_time_beyond_every_calendar_is_none(text: str, zone: tzinfo) -> None:
    assert parse_time_ms(text, zone) is None


def test_filters_are_cleared_and_the_range_stays() -> None:
    filters: dict[str, Any] = dict.fromkeys(FILTERS, "x")
    filtered = Selection(preset="6h", zone="local", **filters)
    assert filtered.unfiltered() == Selection(preset="6h", zone="local")


def test_only_a_range_that_ended_is_in_the_past() -> None:
    now_ms = 1_795_576_200_000
    fixed = Selection().narrowed(now_ms - 3_600_000, now_ms - 121_000)
    assert fixed.is_past(now_ms)
    assert not fixed.is_past(now_ms - 60_000)
    assert not Selection().is_past(now_ms)


@pytest.mark.parametrize(
    ("duration_s", "num_read", "num_stored", "expected"),
    [
        pytest.param(3_600, 0, 12, True, id="requests are past their retention"),
        pytest.param(3_600, 3, 12, False, id="there are requests"),
        pytest.param(3_600, 0, 0, False, id="there were none"),
        pytest.param(300, 0, 12, False, id="too short for minutes"),
        pytest.param(86_400, 0, 12, False, id="read from the rollup already"),
    ],
)
def test_what_only_the_rollup_has_is_read_from_it(
    duration_s: int, num_read: int, num_stored: int, expected: bool
) -> None:
    window = Window(0, duration_s * 1000, 5)
    assert window.is_only_rolled(num_read, num_stored) is expected
    assert window.rolled().is_long and window.rolled().step_s == 60
