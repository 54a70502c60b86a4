"""Shares as percent: a target that was missed never reads as met."""

from fractions import Fraction

import pytest

from evenkeel_collector.slo.percent import exact_percent, percent


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 2, "no data"),
        (1.0, 2, "100.00%"),
        (0.999_996, 2, "99.99%"),
        (0.999_996, 4, "99.9996%"),
        (0.9996, 1, "99.9%"),
        (0.5, 0, "50%"),
        (-0.25, 1, "-25.0%"),
        (0.0, 1, "0.0%"),
        (1.5, 1, "150.0%"),
    ],
)
def test_below_one_nothing_reads_as_all(value: float | None, digits: int, text: str) -> None:
    assert percent(value, digits) == text


def test_a_target_has_all_its_digits() -> None:
    assert exact_percent(Fraction("0.99999")) == "99.999%"
    assert exact_percent(Fraction(1, 2)) == "50%"
