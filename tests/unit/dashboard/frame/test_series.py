"""Gaps stay gaps, and alerts are cut to the range."""

from datetime import UTC, datetime

import pandas as pd

from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.burns import burns_by_step
from evenkeel_dashboard.frame.series import fill_gaps, firing_periods

MINUTE_MS = 60_000
WINDOW = Window(600 * MINUTE_MS, 605 * MINUTE_MS, 60)


def time(minute: int) -> pd.Timestamp:
    return pd.Timestamp(minute * 60, unit="s")


def test_steps_without_a_row_have_no_value() -> None:
    frame = pd.DataFrame({"bucket": [time(601), time(603)], "ttft_s": [0.1, 0.3]})
    filled = fill_gaps(frame, ["ttft_s"], WINDOW)
    assert list(filled["bucket"]) == [time(m) for m in range(600, 605)]
    assert filled["ttft_s"].isna().tolist() == [True, False, True, False, True]


def test_zoned_and_nullable_columns_are_accepted() -> None:
    frame = pd.DataFrame(
        {
            "bucket": pd.to_datetime([time(600)], utc=True),
            "rate": pd.array([None], dtype="Float64"),
        }
    )
    assert fill_gaps(frame, ["rate"], WINDOW)["rate"].isna().all()


def test_an_empty_frame_becomes_empty_steps() -> None:
    filled = fill_gaps(pd.DataFrame(), ["rate"], WINDOW)
    assert len(filled) == 5
    assert filled["rate"].isna().all()


def test_periods_are_cut_to_the_range() -> None:
    def alert(fired: int | None, ended: int | None) -> dict[str, object]:
        return {
            "slo": "s",
            "severity": "page",
            "fired_ms": None if fired is None else fired * MINUTE_MS,
            "ended_ms": None if ended is None else ended * MINUTE_MS,
        }

    found = firing_periods(
        [alert(590, 602), alert(603, None), alert(None, None), alert(500, 510)], WINDOW
    )
    assert [(p.start, p.end) for p in found] == [
        (time(600).to_pydatetime(), time(602).to_pydatetime()),
        (time(603).to_pydatetime(), time(605).to_pydatetime()),
    ]


def test_a_burn_rate_is_drawn_at_its_time() -> None:
    window = Window(1_000_030_000, 1_000_300_000, 5)
    rows = [
        {"slo": "chat", "bucket": datetime.fromtimestamp(at_s, UTC), "alert_share": share}
        for at_s, share in ((1_000_020, 0.5), (1_000_260, 2.0))
    ]
    assert burns_by_step(rows, window, 60) == {"chat": [0.5, None, None, None, 2.0]}
