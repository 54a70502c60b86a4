"""SVG charts: paths, labels and tooltips for given numbers."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from evenkeel.times import to_datetime
from evenkeel_dashboard.draw.appearance import LIGHT
from evenkeel_dashboard.draw.charts import (
    Line,
    Scale,
    ShadedPeriod,
    add_objective,
    add_periods,
    lines,
    stacked_bars,
    time_chart,
)
from evenkeel_dashboard.draw.svg_chart import Chart, line, time_ticks
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.draw.zones import use_zone
from evenkeel_dashboard.frame.zoom import read_part, selected_ms
from evenkeel_dashboard.pages.latency.figures import heatmap
from evenkeel_dashboard.pages.latency.model import Heat

NAN = math.nan
HOUR = Window(0, 3_600_000, 900)


def frame(**columns: list[float]) -> pd.DataFrame:
    steps = len(next(iter(columns.values())))
    return pd.DataFrame(
        {"bucket": pd.to_datetime([i * 900_000 for i in range(steps)], unit="ms"), **columns}
    )


@pytest.mark.parametrize(
    ("values", "joined", "dots"),
    [
        pytest.param([1.0, 2.0, 3.0], "M0 1L1 2L2 3", "", id="no gap"),
        pytest.param([1.0, 2.0, NAN, 0.0, 5.0], "M0 1L1 2M3 0L4 5", "", id="a gap is not joined"),
        pytest.param([NAN, 2.0, NAN], "M1 2", "M1 2h0", id="one without neighbours is a dot"),
        pytest.param([NAN, NAN], "", "", id="nothing"),
    ],
)
def test_no_value_is_a_gap_and_zero_is_a_point(values: list[float], joined: str, dots: str) -> None:
    drawn = line("p50", "red", enumerate(values))
    assert drawn[0].path == joined
    assert "".join(s.path for s in drawn[1:]) == dots


def test_bars_stand_on_each_other_and_no_value_is_no_bar() -> None:
    data = frame(error=[1.0, 0.0, NAN, 0.0], ok=[2.0, 3.0, NAN, 4.0])
    series = [Line("error", "error", "red"), Line("ok", "ok", "grey")]
    chart = stacked_bars(data, series, Scale("/s", 1.0), HOUR)
    assert [s.path for s in chart.series] == [
        "M0.5 0V1M1.5 0V0M3.5 0V0",
        "M0.5 1V3M1.5 0V3M3.5 0V4",
    ]


def test_an_objective_above_all_values_is_within_the_chart() -> None:
    chart = lines(frame(v=[0.1, 0.2]), [Line("v", "v", "red")], Scale("ms", 1e3), HOUR)
    add_objective(chart, 0.5, "limit", Scale("ms", 1e3), LIGHT)
    assert 500 < chart.top < 550
    assert "limit" in chart.markup("TTFT")


@pytest.mark.parametrize(
    ("top", "unit", "said"),
    [
        pytest.param(0.83, "/s", ["0/s", "0.25/s", "0.5/s", "0.75/s"], id="less than one"),
        pytest.param(1234.0, "ms", ["0 ms", "500 ms", "1,000 ms"], id="thousands"),
        pytest.param(410_000.0, "", ["0", "200 k", "400 k"], id="very many"),
        pytest.param(0.0, "", ["0", "0.25", "0.5", "0.75", "1"], id="all zero"),
    ],
)
def test_axes_have_round_numbers(top: float, unit: str, said: list[str]) -> None:
    markup = Chart(0, 1, [], unit=unit, top=top).markup("x")
    assert re.findall(r"bottom:[^>]*>([^<]+)<", markup) == said


def test_times_are_round_and_midnight_is_a_day() -> None:
    midnight = 20_000 * 86_400_000
    ticks = time_ticks(midnight - 3_600_000, midnight + 3_600_000, midnight, 60_000)
    assert [words for _, words in ticks] == ["23:00", "23:30", "04 Oct", "00:30"]
    assert ticks[2][0] == 0


@pytest.mark.parametrize("begin", ["2026-10-15", "2026-03-15", "2026-10-20"])
def test_days_stay_days_across_a_change_of_clocks(begin: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    use_zone(zone)
    begin_ms = int(datetime.fromisoformat(begin).replace(tzinfo=zone).timestamp() * 1000)
    try:
        ticks = time_ticks(begin_ms, begin_ms + 30 * 86_400_000, begin_ms, 60_000)
    finally:
        use_zone(UTC)
    assert len(ticks) >= 4
    assert not [words for _, words in ticks if ":" in words]


@pytest.mark.parametrize("years", [1, 2, 7, 56])
def test_an_axis_of_years_has_few_labels_that_differ(years: int) -> None:
    ticks = time_ticks(0, years * 365 * 86_400_000, 0, 86_400_000)
    assert 3 <= len(ticks) <= 7
    assert len({words for _, words in ticks}) == len(ticks)
    assert years == 1 or all(re.fullmatch(r"[A-Z][a-z]{2} \d{4}", words) for _, words in ticks)


def test_names_cannot_become_markup() -> None:
    chart = Chart(0, 1, [], has_key=True, series=line('<img src=x onerror="x">', "red", [(0, 1)]))
    assert "<img" not in chart.markup('"><img>')


def test_each_cell_of_a_heatmap_keeps_its_number() -> None:
    steps = [pd.Timestamp(0, unit="s"), pd.Timestamp(900, unit="s")]
    chart = heatmap(Heat(steps, [-10, -9], [[4, None], [None, 100]]), 900, HOUR, LIGHT)
    assert {(s.path, s.counts) for s in chart.series} == {
        ("M0.5 -1V-0.9", (4,)),
        ("M1.5 -0.9V-0.8", (100,)),
    }


@pytest.mark.parametrize(
    ("sent", "chosen"),
    [
        pytest.param([1_000, 61_000], (1_000, 61_000), id="a minute"),
        pytest.param([1_000, 2_000], None, id="too short"),
        pytest.param(None, None, id="nothing"),
        pytest.param(["a", 2_000], None, id="nonsense"),
    ],
)
def test_only_a_stretch_becomes_the_range(sent: object, chosen: tuple[int, int] | None) -> None:
    assert selected_ms(sent) == chosen


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1200~3400", (1.2, 3.4)),
        ("-50~1000", (-0.05, 1.0)),
        ("", None),
        ("3~3", None),
        ("1~2~3", None),
        ("0~1_0", None),
        ("0~٣٣", None),
        pytest.param("0~" + "9" * 400, None, id="more than a float holds"),
    ],
)
def test_only_a_part_of_a_timeline_in_the_address_is_shown(
    text: str, part: tuple[float, float] | None
) -> None:
    assert read_part(text) == part


def test_the_legend_names_what_is_shaded_and_the_axis_its_zone() -> None:
    chart = time_chart(Window(0, 600_000, 60), 60, 0)
    add_periods(
        chart,
        [
            ShadedPeriod(to_datetime(1 * 60 * 10**9), to_datetime(2 * 60 * 10**9), "page firing"),
            ShadedPeriod(
                to_datetime(3 * 60 * 10**9), to_datetime(4 * 60 * 10**9), "ticket firing", False
            ),
        ],
        LIGHT,
    )
    html = chart.markup("x")
    assert "page firing" in html and "ticket firing" in html
    # Not only by colour: one is shaded, the other a strip along the top.
    (shaded,), (strip,) = chart.periods, chart.strips
    assert (shaded[:2], strip[:2]) == ((1.0, 2.0), (3.0, 4.0))
    assert html.count("<rect") == 2 and "border-top-width:4px" in html
    assert '<span class="ek-zone" aria-hidden="true">UTC</span>' in html
    assert 'data-zone="UTC"' in html
    assert ">00:00<" not in html and ">00:02<" in html, "a time covers the zone's name"


def test_labels_of_a_page_s_charts_are_equally_wide() -> None:
    assert "--ek-w:7ch" in time_chart(Window(0, 600_000, 60), 60, 0).markup("x")
