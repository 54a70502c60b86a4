"""An SLO's counts in memory."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from evenkeel.slo.burn_rates import default_rules
from evenkeel.slo.model import Indicator, Metric, Slo
from evenkeel_collector.slo.corrections import Correction
from evenkeel_collector.slo.judgement import Buckets
from evenkeel_collector.slo.track import SECOND_NS, Track

MINUTE_NS = 60 * SECOND_NS
START_NS = 1_790_000_000 // 60 * MINUTE_NS
PERIOD_S = Fraction(30 * 86_400)


def correction(first: int, end: int) -> Correction:
    """Return a correction from one minute after the start to another."""
    between = (START_NS + first * MINUTE_NS, START_NS + end * MINUTE_NS)
    return Correction("1", "", *between, "maintenance", "ann", "", START_NS)


@pytest.mark.parametrize(
    ("case", "corrected", "traffic", "expected"),
    [
        ("traffic", (), range(20), False),
        ("no traffic", (), (), True),
        ("a correction over traffic", (correction(0, 60),), range(20), None),
        ("a correction without traffic", (correction(0, 60),), (), None),
        ("a correction that has ended, with traffic since", (correction(0, 15),), range(20), False),
        ("one that ended within the time, without traffic", (correction(0, 12),), (), None),
        ("one that ended before", (correction(0, 5),), (), True),
        ("one that is to come", (correction(30, 60),), (), True),
    ],
)
def test_corrected_time_is_not_missing_data(
    case: str, corrected: tuple[Correction, ...], traffic: range, expected: bool | None
) -> None:
    slo = Slo(
        "up", "up", Indicator(Metric.AVAILABILITY, None), Fraction(9, 10), PERIOD_S,
        default_rules(PERIOD_S), no_data_s=Fraction(600),
    )  # fmt: skip
    track = Track(slo, corrected, START_NS)
    now_ns = START_NS + 19 * MINUTE_NS + 30 * SECOND_NS
    first = START_NS // track.width_ns
    total = np.zeros(now_ns // track.width_ns - first + 1)
    for minute in traffic:
        total[minute * MINUTE_NS // track.width_ns] = 1.0
    track.take(first, now_ns, [Buckets(first, total, np.zeros(len(total)))])
    assert track.is_without_data(now_ns) is expected, case


@pytest.mark.parametrize(
    ("case", "minutes", "expected"),
    [
        ("the machine slept for hours", [500], None),
        ("the store was gone for longer than half of the time", [26], None),
        ("it has been watched again for that long", [500, *range(501, 511)], True),
        ("every minute without traffic", range(20, 31), True),
        ("a pause of some minutes", [20, 21, 25, 26, 30], True),
        ("an evaluation that comes that seldom", [30, 40, 50], True),
    ],
)
def test_what_was_sent_while_nothing_was_read_may_be_on_its_way(
    case: str, minutes: Sequence[int], expected: bool | None
) -> None:
    slo = Slo(
        "up", "up", Indicator(Metric.AVAILABILITY, None), Fraction(9, 10), PERIOD_S,
        default_rules(PERIOD_S), no_data_s=Fraction(600),
    )  # fmt: skip
    track = Track(slo, (), START_NS)
    for minute in [*range(20), *minutes]:
        now_ns = START_NS + minute * MINUTE_NS
        first = track.first_bucket(now_ns, MINUTE_NS)
        total = np.zeros(now_ns // track.width_ns - first + 1)
        # Traffic up to the minute 15.
        total[-1] = minute <= 15
        track.take(first, now_ns, [Buckets(first, total, np.zeros(len(total)))])
    assert track.is_without_data(now_ns) is expected, case
