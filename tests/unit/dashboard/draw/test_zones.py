"""Times in the reader's zone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import time_ns
from zoneinfo import ZoneInfo

import pytest

from evenkeel_dashboard.draw import formats, zones
from evenkeel_dashboard.draw.svg_chart import time_ticks
from evenkeel_dashboard.frame.selection import parse_time_ms

# 2026-07-01T10:00:00Z and 2026-12-01T10:00:00Z.
SUMMER_MS, WINTER_MS = 1_782_900_000_000, 1_796_119_200_000


@pytest.fixture(autouse=True)
def _utc_again() -> Iterator[None]:
    yield
    zones.use_zone(UTC)


@pytest.mark.parametrize(
    ("name", "browser", "key"),
    [
        pytest.param("", "Asia/Tokyo", None, id="UTC by default"),
        pytest.param("UTC", None, None, id="UTC by name"),
        pytest.param("local", "Asia/Tokyo", "Asia/Tokyo", id="the browser's"),
        pytest.param("Europe/Berlin", None, "Europe/Berlin", id="by name"),
        pytest.param("local", None, "UTC", id="a browser without a zone"),
    ],
)
def test_a_zone_is_found_by_its_name(name: str, browser: str | None, key: str | None) -> None:
    assert zones.find_zone(name, browser) == (ZoneInfo(key) if key else UTC)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "Europe/Berlin\0", "a b"])
def test_there_is_no_such_zone(name: str) -> None:
    assert zones.find_zone(name, None) is None


def day(unix_ms: int) -> str:
    """Return the day of a time in UTC, which has its year if it is far from today."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    is_far = abs(datetime.now(UTC) - moment) > timedelta(days=180)
    return f"{moment:%d %b %Y}" if is_far else f"{moment:%d %b}"


def test_a_day_of_another_year_names_it() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for days, form in ((1, "%d %b"), (150, "%d %b"), (200, "%d %b %Y"), (1100, "%d %b %Y")):
        moment = now - timedelta(days=days)
        at_ms = round(moment.timestamp() * 1000)
        assert formats.short_moment_ms(at_ms) == f"{moment:{form} %H:%M:%S}"
        assert formats.short_clock_ms(at_ms) == f"{moment:{form} %H:%M:%S}"
        assert formats.short_minute_ms(at_ms) == f"{moment:{form} %H:%M}"
        assert formats.range_ms(at_ms, at_ms).startswith(f"{moment:{form} %H:%M:%S} – ")


def test_every_time_names_its_zone() -> None:
    assert formats.clock_ms(SUMMER_MS) == "10:00:00 UTC"
    zones.use_zone(ZoneInfo("Europe/Berlin"))
    assert formats.clock_ms(SUMMER_MS) == "12:00:00 CEST"
    assert formats.clock_ms(WINTER_MS) == "11:00:00 CET"
    assert formats.moment_ms(WINTER_MS) == "2026-12-01 11:00:00 CET"
    zones.use_zone(ZoneInfo("America/Sao_Paulo"))
    assert formats.clock_ms(SUMMER_MS) == "07:00:00 UTC−3"
    assert formats.zoned("arrived") == "arrived (UTC−3)"
    zones.use_zone(ZoneInfo("Asia/Kolkata"))
    assert formats.clock_ms(SUMMER_MS) == "15:30:00 IST"


def test_a_column_of_times_names_the_day_and_the_zone_where_the_header_would_mislead() -> None:
    zones.use_zone(ZoneInfo("Europe/Berlin"))
    summer, winter = f"{day(SUMMER_MS)} 12:00:00", f"{day(WINTER_MS)} 11:00:00"
    now = zones.current_zone_name()
    shown = [formats.short_moment_ms(SUMMER_MS), formats.short_moment_ms(WINTER_MS)]
    assert shown == ([summer, f"{winter} CET"] if now == "CEST" else [f"{summer} CEST", winter])
    assert formats.short_minute_ms(SUMMER_MS).startswith(f"{day(SUMMER_MS)} 12:00")
    assert formats.short_clock_ms(SUMMER_MS) == shown[0], "of another day"
    now_ms = time_ns() // 10**6
    assert formats.short_clock_ms(now_ms) == formats.clock_ms(now_ms).split()[0]


def test_a_range_names_both_zones_if_the_clocks_changed_in_it() -> None:
    """From half past two to half past two, an hour later."""
    zones.use_zone(ZoneInfo("Europe/Berlin"))
    half_past_two_ms = 1_792_888_200_000
    words = formats.range_ms(half_past_two_ms, half_past_two_ms + 3_600_000)
    assert words == f"{day(half_past_two_ms)} 02:30:00 CEST – 02:30:00 CET"
    words = formats.range_ms(half_past_two_ms - 86_400_000, half_past_two_ms)
    assert words == f"24 Oct 02:30:00 – {day(half_past_two_ms)} 02:30:00 CEST"
    words = formats.range_ms(1_761_350_400_000, 1_761_523_200_000)
    assert words == "25 Oct 02:00:00 CEST – 27 Oct 2025 01:00:00 CET", "as much as the field shows"


def test_an_axis_has_round_times_of_the_zone() -> None:
    zones.use_zone(ZoneInfo("Asia/Kathmandu"))
    ticks = time_ticks(SUMMER_MS, SUMMER_MS + 6 * 3_600_000, SUMMER_MS, 60_000)
    assert [words for _, words in ticks] == ["16:00", "17:00", "18:00", "19:00", "20:00", "21:00"]
    assert ticks[0][0] == 15


@pytest.mark.parametrize("hour", range(-3, 4))
def test_a_typed_time_is_read_back_as_the_same_in_the_hour_that_occurs_twice(hour: int) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice_ms = 1_792_890_000_000 + hour * 3_600_000
    zones.use_zone(berlin)
    typed = zones.typed_time(twice_ms)
    assert parse_time_ms(typed, berlin) == twice_ms
    assert ("+" in typed) == (hour in (-1, 0))
