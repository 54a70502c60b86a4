"""`/readyz` says no while requests are refused for a reason that is the collector's own."""

from pathlib import Path

import pytest

from evenkeel_collector.intake.body_weight import TooManyError
from evenkeel_collector.intake.otlp_body import MalformedError
from evenkeel_collector.intake.readiness import SHOWN_S, Readiness
from evenkeel_collector.log.seal_policy import LogLimits, NeverFitsError
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError, WriteAheadLog
from evenkeel_collector.ports.decompress import TooLargeError
from evenkeel_collector.ports.memory_budget import BusyError, MemoryBudget
from evenkeel_collector.ports.tenant_limits import RateLimitedError
from tests.fixtures.manual_clock import ManualClock


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(LogWriteError("cannot write to the log: no space"), id="the disk refuses"),
        pytest.param(LogFullError("the log is full"), id="a log without room for this one"),
        pytest.param(BusyError("too many requests in progress"), id="no memory"),
    ],
)
def test_a_refusal_is_shown_until_a_request_is_taken_or_may_be_again(
    tmp_path: Path, error: Exception
) -> None:
    clock = ManualClock()
    log = WriteAheadLog(tmp_path, "node")
    readiness = Readiness(log, MemoryBudget(100), clock)
    assert readiness.why_not() is None
    readiness.record(error)
    reason = readiness.why_not()
    assert reason is not None and str(error) in reason
    clock.now_s += SHOWN_S
    assert readiness.why_not() is None
    readiness.record(error)
    readiness.record_accepted()
    assert readiness.why_not() is None
    log.close()


@pytest.mark.parametrize(
    "error",
    [
        MalformedError("x"),
        TooManyError("x"),
        TooLargeError("x"),
        NeverFitsError("x"),
        RateLimitedError("x", 1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_senders_own_mistake_is_none_of_ours(tmp_path: Path, error: Exception) -> None:
    log = WriteAheadLog(tmp_path, "node")
    readiness = Readiness(log, MemoryBudget(100))
    readiness.record(error)
    assert readiness.why_not() is None
    log.close()


def test_memory_that_is_all_in_use_is_said_while_it_is(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path, "node")
    memory = MemoryBudget(100)
    readiness = Readiness(log, memory)
    with memory.lease(100):
        assert readiness.why_not() == "too many requests in progress"
    assert readiness.why_not() is None
    log.close()


def test_a_full_log_is_said(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path, "node", LogLimits(max_log_bytes=100))
    readiness = Readiness(log, MemoryBudget(100))
    assert readiness.why_not() is None
    log.append(b"x" * 70, 1).result(120)
    assert readiness.why_not() == "the log is full: the store cannot keep up"
    log.close()


def test_another_part_that_is_stuck_is_said(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path, "node")
    readiness = Readiness(log, MemoryBudget(100))
    reasons: list[str | None] = [None, "no cycle was finished"]
    readiness.watch(lambda: reasons[0])
    assert readiness.why_not() is None
    readiness.watch(lambda: reasons[1])
    assert readiness.why_not() == "no cycle was finished"
    log.close()
