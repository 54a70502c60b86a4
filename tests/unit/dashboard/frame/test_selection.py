"""The URL of a view: parsed and written, with invalid values ignored."""

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
    **{name: st.text(max_size=8) for name in FILTERS},
)


@given(SELECTIONS)
def test_a_link_reproduces_the_view(selection: Selection) -> None:
    assert Selection.from_params(selection.to_params()) == selection


@given(st.integers(0, 4_000_000_000), st.integers(1, 10**8))
def test_a_link_reproduces_a_fixed_range(begin_s: int, duration_s: int) -> None:
    selection = Selection().narrowed(begin_s * 1000, (begin_s + duration_s) * 1000)
    assert Selection.from_params(selection.to_params()) == selection


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


def test_of_many_requests_a_slice_of_each_period_is_read() -> None:
    day = Window(0, 86_400_000, 600)
    assert slices(10_000, day) == {"period_s": 3600, "slice_s": 3600}
    assert slices(20_000_000, day) == {"period_s": 3600, "slice_s": 9}
