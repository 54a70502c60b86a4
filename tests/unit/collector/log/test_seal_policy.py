import math
from pathlib import Path

import pytest

from evenkeel_collector.log.repeats import DIGEST_BYTES
from evenkeel_collector.log.seal_policy import LogLimits, NeverFitsError, SealPolicy
from evenkeel_collector.log.write_ahead_log import LogFullError, WriteAheadLog

LAZY = LogLimits(unread_age_s=20.0)
EAGER = LogLimits()
NOW_S = 1000.0


@pytest.mark.parametrize(
    ("limits", "insert_s", "rested_s", "num_spans", "is_requested", "due_after_s"),
    [
        pytest.param(EAGER, 0.1, 60, 1, False, 0.4, id="the first after a while"),
        pytest.param(EAGER, 0.1, 1, 1, False, 1.1, id="a small one soon after another"),
        pytest.param(LAZY, 0.1, 60, 1, False, 20, id="a small one that nobody reads"),
        pytest.param(LAZY, 0.1, 60, 1, True, -math.inf, id="one that a reader waits for"),
        pytest.param(LAZY, 0.1, 0, 2_000, False, 0.4, id="one that is worth an insert"),
        pytest.param(LAZY, 0.5, 0, 2_000, False, 1.0, id="the same where inserts take long"),
        pytest.param(LAZY, 9.0, 0, 2_000, False, 2.0, id="the same where they take very long"),
        pytest.param(LAZY, 0.1, 0, 51_200, False, -math.inf, id="a full one"),
    ],
)
def test_a_segment_is_due(
    limits: LogLimits,
    insert_s: float,
    rested_s: float,
    num_spans: int,
    is_requested: bool,
    due_after_s: float,
) -> None:
    policy = SealPolicy(limits, insert_s, NOW_S - rested_s, is_requested)
    assert policy.due_s(NOW_S, num_spans) - NOW_S == pytest.approx(due_after_s)


def test_a_small_segment_is_seen_within_what_rests_and_an_insert_need() -> None:
    """What is acknowledged right after a seal waits longest."""
    policy = SealPolicy(EAGER, 0.3, NOW_S)
    assert policy.due_s(NOW_S, 1) + policy.insert_s <= NOW_S + 3.0


@pytest.mark.parametrize(
    ("age_s", "rested_s", "rest_s", "is_sealed"),
    [
        pytest.param(0.5, 3.0, 2.1, True, id="old enough"),
        pytest.param(0.3, 3.0, 2.1, False, id="too young"),
        pytest.param(0.5, 2.0, 2.1, False, id="too soon after the last"),
        pytest.param(0.5, 0.5, 0.0, True, id="for an evaluation"),
        pytest.param(0.0, 0.0, 0.0, True, id="for a query that asks for everything"),
    ],
)
def test_a_reader_has_a_segment_sealed(
    age_s: float, rested_s: float, rest_s: float, is_sealed: bool
) -> None:
    policy = SealPolicy(LAZY, 0.1, NOW_S - rested_s)
    assert policy.request(NOW_S - age_s, rest_s, NOW_S) is is_sealed
    assert policy.is_requested is is_sealed
    policy.record_sealed(NOW_S)
    assert not policy.is_requested


@pytest.mark.parametrize("limits", [LogLimits(max_pending_bytes=100), LogLimits(max_log_bytes=100)])
def test_a_record_that_no_empty_log_could_hold_is_refused_for_good(
    tmp_path: Path, limits: LogLimits
) -> None:
    log = WriteAheadLog(tmp_path / "log", "node", limits)
    digest = bytes(DIGEST_BYTES)
    try:
        with pytest.raises(LogFullError):
            log.append(b"x" * 55, 1, digest)
        with pytest.raises(NeverFitsError, match="101 bytes of it, more than 100"):
            limits.check(55)
        limits.check(54)
        log.append(b"x" * 54, 1, digest).result(timeout=120)
    finally:
        log.close()
