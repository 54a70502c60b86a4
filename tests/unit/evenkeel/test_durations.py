"""Durations as people write and read them."""

import pytest

from evenkeel.durations import format_duration, parse_duration_s
from evenkeel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1.5h", 5400),
        ("30d", 2_592_000),
        ("250ms", 0.25),
        ("4w", 2_419_200),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "s",
        "-5m",
        "0s",
        "5 m",
        "1h30m",
        "1y",
        "1e3s",
        "１h",
        pytest.param("9" * 5000 + "s", id="endless"),
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.4166666, "0.417s"),
        (2.5, "2.5s"),
        (51.84, "51.8s"),
        (60, "1m"),
        (90, "90s"),
        (300, "5m"),
        (518.4, "8m38s"),
        (3600, "1h"),
        (12_960, "3h36m"),
        (90_061, "1d1h"),
        (86_460, "1d"),
        (2_592_000, "30d"),
        (-300, "-5m"),
    ],
)
def test_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
