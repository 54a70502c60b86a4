"""The arguments of `evenkeel simulate`, and what is said when nothing takes the spans."""

import argparse
from datetime import UTC, datetime

import pytest

from evenkeel.cli import _run, build_parser
from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_demo.simulate.command import SIMULATE, plan_from

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def arguments(*argv: str) -> argparse.Namespace:
    return build_parser([SIMULATE]).parse_args(["simulate", *argv])


@pytest.mark.parametrize(
    ("argv", "num_requests", "start", "duration_s"),
    [
        pytest.param((), 5000, datetime(2026, 11, 20, 11, tzinfo=UTC), 3600, id="the past hour"),
        pytest.param(
            ("--rate", "2", "--duration", "30m"),
            3600,
            datetime(2026, 11, 20, 11, 30, tzinfo=UTC),
            1800,
            id="a rate times a duration",
        ),
        pytest.param(
            ("--until", "2026-11-01T00:00:00Z", "--duration", "1d", "--requests", "9"),
            9,
            datetime(2026, 10, 31, tzinfo=UTC),
            86_400,
            id="another day",
        ),
        pytest.param(("--live",), 5000, NOW, 3600, id="live starts now"),
    ],
)
def test_plan_from(
    argv: tuple[str, ...], num_requests: int, start: datetime, duration_s: float
) -> None:
    plan = plan_from(arguments(*argv), NOW)
    assert plan.num_requests == num_requests
    assert plan.start_ns == int(start.timestamp()) * 10**9
    assert plan.duration_s == duration_s


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(("--requests", "0"), "nothing to simulate", id="no request"),
        pytest.param(("--requests", "999999999999"), "too many", id="more than memory holds"),
        pytest.param(("--rate", "nan"), "--rate is nan", id="no rate"),
        pytest.param(("--rate", "inf"), "--rate is inf", id="an endless rate"),
        pytest.param(("--rate", "-1"), "--rate is -1", id="a negative rate"),
        pytest.param(("--duration", "soon"), "'soon' is not a duration", id="not a duration"),
        pytest.param(("--duration", "9999999w"), "would begin before 1970", id="an age"),
        pytest.param(("--duration", "9999999w", "--live"), "before 1970", id="an age to wait"),
        pytest.param(("--until", "1969-12-31"), "would begin before 1970", id="before the epoch"),
        pytest.param(("--until", "noon"), "--until is 'noon'", id="not a time"),
        pytest.param(("--seed", "-1"), "--seed is -1", id="a negative seed"),
        pytest.param(
            ("--live", "--until", "2026-11-01"), "cannot be combined", id="live in the past"
        ),
    ],
)
def test_plan_from_refuses(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan_from(arguments(*argv), NOW)


@pytest.mark.parametrize(
    ("endpoint", "error", "message"),
    [
        ("http://127.0.0.1:9", CannotMeasureError, "start one .* wait until it has printed"),
        ("localhost:4318", ConfigurationError, "'localhost:4318', expected one such as"),
    ],
    ids=["nobody there", "no scheme"],
)
def test_an_unreachable_collector_is_one_line(
    endpoint: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _run([SIMULATE], ["simulate", "--requests", "1", "--endpoint", endpoint])
