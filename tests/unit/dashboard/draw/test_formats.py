"""Number formatting."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel_dashboard.draw import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "no data", id="nothing is not zero"),
        pytest.param(math.nan, "no data", id="NaN is nothing"),
        pytest.param(0.0, "0 ms", id="zero is a value"),
        pytest.param(0.0000421, "42.1 µs", id="microseconds"),
        pytest.param(3.46e-17, "0 ms", id="less than clocks tell"),
        pytest.param(0.0413, "41.3 ms", id="milliseconds"),
        pytest.param(0.9996, "1 s", id="rounds into seconds"),
        pytest.param(2.312, "2.31 s", id="seconds"),
        pytest.param(95.0, "95 s", id="a minute and a half"),
        pytest.param(720, "12 min", id="minutes"),
        pytest.param(150, "2.5 min", id="between two minutes"),
        pytest.param(9000, "2.5 h", id="hours"),
        pytest.param(216_000, "2.5 d", id="days"),
        pytest.param(-0.2, "−200 ms", id="before"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert formats.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "no data", id="nothing"),
        pytest.param(0.0, "0%", id="zero"),
        pytest.param(0.0421, "4.21%", id="three digits"),
        pytest.param(0.995, "99.5%", id="an objective"),
        pytest.param(0.99951, "99.951%", id="enough nines"),
        pytest.param(0.9999999, "99.99999%", id="never rounds up to 100"),
        pytest.param(1.0, "100%", id="all"),
    ],
)
def test_percent(value: float | None, text: str) -> None:
    assert formats.percent(value) == text


@pytest.mark.parametrize(
    ("value", "target", "text"),
    [
        pytest.param(None, 0.99, "no data", id="nothing"),
        pytest.param(0.98996, 0.99, "98.996%", id="as many digits as needed"),
        pytest.param(0.9499, 0.95, "94.99%", id="a target without nines"),
        pytest.param(0.949999999, 0.95, "<95%", id="missed by next to nothing"),
        pytest.param(0.98, 0.99, "98%", id="told apart anyway"),
        pytest.param(0.9500001, 0.95, "95%", id="met"),
    ],
)
def test_a_missed_target_does_not_look_met(value: float | None, target: float, text: str) -> None:
    assert formats.percent_of_target(value, target) == text


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [
        pytest.param(1.12, 1.0, "▲ 12%", id="more"),
        pytest.param(0.5, 1.0, "▼ 50%", id="less"),
        pytest.param(3.1, 1.0, "▲ 3.1×", id="much more is a factor"),
        pytest.param(1.001, 1.0, "±0%", id="the same"),
        pytest.param(1.0, 0.0, None, id="from nothing has no ratio"),
        pytest.param(None, 1.0, None, id="no value now"),
        pytest.param(1.0, None, None, id="no value before"),
    ],
)
def test_change(now: float | None, before: float | None, text: str | None) -> None:
    assert formats.change(now, before) == text


@pytest.mark.parametrize(
    ("words", "value", "text"),
    [
        pytest.param(formats.points, -0.133, "−13.3 pp", id="a loss in points"),
        pytest.param(formats.points, 0.0, "±0 pp", id="no point"),
        pytest.param(formats.percent, 0.00439, "0.44%", id="two digits below a percent"),
        pytest.param(formats.percent, 1.4e-16, "<0.0001%", id="next to nothing"),
        pytest.param(formats.factor, 1.0, "1×", id="no trailing zeros"),
        pytest.param(formats.number, -1.5, "−1.5", id="a real minus sign"),
        pytest.param(formats.signed_seconds, -0.035, "−35 ms", id="faster"),
        pytest.param(formats.signed_seconds, 1.2, "+1.2 s", id="slower"),
        pytest.param(formats.age, 8.9, "8 s", id="an age in whole seconds"),
        pytest.param(formats.age, 119.9, "119 s", id="nearly two minutes"),
        pytest.param(formats.age, 150, "2 min", id="an age in minutes"),
        pytest.param(formats.age, 90_000, "25 h", id="an age in hours"),
        pytest.param(formats.age, 200_000, "2 d", id="an age in days"),
        pytest.param(formats.age, -3, "0 s", id="a clock ahead of ours"),
        pytest.param(formats.count, 99_999, "99,999", id="a count in full"),
        pytest.param(formats.count, 1_234_567, "1.23 M", id="millions"),
        pytest.param(formats.count, 999_499, "999 k", id="just below a million"),
        pytest.param(formats.count, 999_500, "1 M", id="rounds into millions"),
        pytest.param(formats.count, 999_500_000, "1 G", id="rounds into the next unit"),
        pytest.param(formats.count, -999_999, "−1 M", id="rounds into millions below zero"),
        pytest.param(formats.count, 2e13, "20,000 G", id="beyond the units"),
        pytest.param(formats.kilowatt_hours, None, "no data", id="no energy measured"),
        pytest.param(formats.kilowatt_hours, 0.00002, "0.00002 kWh", id="little energy"),
        pytest.param(formats.kilowatt_hours, 4_032.4, "4,032 kWh", id="energy of a day"),
        pytest.param(formats.kilowatt_hours, 1_234_567, "1.23 M kWh", id="energy of a year"),
        pytest.param(formats.rate, 12.34, "12.3/s", id="a rate"),
        pytest.param(formats.factor, 14.4, "14.4×", id="a factor"),
        pytest.param(formats.signed_percent, -0.075, "−7.5%", id="a loss"),
        pytest.param(formats.signed_percent, 0.0, "±0%", id="no difference"),
        pytest.param(formats.span_of, 3600, "1 h", id="an hour"),
        pytest.param(formats.span_of, 110, "110 s", id="less than two minutes"),
        pytest.param(formats.span_of, 135, "2 min 15 s", id="minutes and seconds"),
        pytest.param(formats.span_of, 7_325, "2 h 2 min", id="hours and minutes"),
        pytest.param(formats.span_of, 86_400 * 3 + 5, "3 d", id="days and next to nothing"),
        pytest.param(formats.exact, -2471.66341, "−2,471.66341", id="all digits"),
        pytest.param(formats.exact, 1234567, "1,234,567", id="all digits of an integer"),
        pytest.param(formats.two_digits, 0.01234, "0.012", id="two digits"),
        pytest.param(formats.three_digits, 0.09999, "0.1", id="rounds to three digits"),
    ],
)
def test_others(words: object, value: float, text: str) -> None:
    assert words(value) == text  # type: ignore[operator]


@given(st.floats())
@example(math.inf)
@example(-math.inf)
@example(math.nan)
@example(1.7976931348623157e308)
@example(5e-324)
def test_any_number_has_words(value: float) -> None:
    formatters = (
        formats.seconds, formats.signed_seconds, formats.age, formats.count, formats.rate,
        formats.percent, formats.signed_percent, formats.points, formats.factor,
        formats.three_digits, formats.number, formats.span_of,
    )  # fmt: skip
    for write in formatters:
        words = write(value)
        assert words and "nan" not in words and "inf" not in words
    formats.change(value, 1.0)
    formats.change(1.0, value)
    formats.change(value, value)


def test_infinity_is_a_sign() -> None:
    assert formats.seconds(-math.inf) == "−∞" and formats.factor(math.inf) == "∞×"
    assert formats.count(math.inf) == formats.age(math.inf) == "∞"
