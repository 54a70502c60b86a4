"""Moments as text and as Unix nanoseconds: nothing is lost on the way, and nothing made up."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel.times import minute_text, parse_time_ns, rfc3339, to_datetime, unix_ns

TEN = 1_795_168_800 * 10**9  # 2026-11-20T10:00Z
BERLIN = ZoneInfo("Europe/Berlin")
MICROSECONDS = st.integers(0, 9 * 10**15).map(lambda us: us * 1000)


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        pytest.param("2026-11-20T10:00Z", TEN, id="to the minute"),
        pytest.param("2026-11-20 10:00:00", TEN, id="without a zone it is UTC"),
        pytest.param("2026-11-20T11:00:00+01:00", TEN, id="another zone"),
        pytest.param("2026-11-20", TEN - 36_000 * 10**9, id="a day is its begin"),
        pytest.param("2026-11-20T10:00:00.250Z", TEN + 250_000_000, id="a fraction stays"),
        pytest.param("2026-11-20T10:00:00.123456789Z", TEN + 123_456_000, id="six digits count"),
        pytest.param("1969-12-31T23:59:59.5Z", -500_000_000, id="before 1970"),
    ],
)
def test_parse(text: str, time_ns: int) -> None:
    assert parse_time_ns(text) == time_ns


@pytest.mark.parametrize("text", ["", "noon", "2026-11-31", "10:00", "1795168800"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match="is not a time; expected one such as 2026-11-20T10"
    ):
        parse_time_ns(text)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "1677-12-31T23:59:59Z", "2262-01-01", "9999-12-31T23:59:59-23:59"]
)
def test_years_whose_nanoseconds_have_no_64_bits_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a time of the years 1678 to 2261"):
        parse_time_ns(text)
    assert -(2**63) <= parse_time_ns("1678-01-01T00:00+23:59")
    assert parse_time_ns("2261-12-31T23:59:59.999999-23:59") < 2**63


@given(MICROSECONDS)
def test_a_moment_survives_its_text(time_ns: int) -> None:
    assert parse_time_ns(rfc3339(time_ns, "microseconds")) == time_ns
    assert unix_ns(to_datetime(time_ns)) == unix_ns(to_datetime(time_ns, BERLIN)) == time_ns


@pytest.mark.parametrize(
    ("timespec", "text"),
    [
        ("minutes", "2026-11-20T10:00Z"),
        ("seconds", "2026-11-20T10:00:00Z"),
        ("milliseconds", "2026-11-20T10:00:00.999Z"),
    ],
)
def test_what_is_too_fine_is_cut_off(timespec: str, text: str) -> None:
    assert rfc3339(TEN + 999_999_999, timespec) == text


def test_times_for_a_person() -> None:
    assert minute_text(TEN) == "2026-11-20 10:00"
    assert minute_text(TEN + 59 * 10**9, BERLIN) == "2026-11-20 11:00"
    assert to_datetime(TEN + 1_999) == datetime(2026, 11, 20, 10, 0, 0, 1, tzinfo=UTC)
