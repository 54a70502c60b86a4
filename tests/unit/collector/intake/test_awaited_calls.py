"""Calls known from events, until it is clear whether their spans come."""

import pytest

from evenkeel_collector.intake import awaited_calls
from evenkeel_collector.intake.awaited_calls import AwaitedCalls
from evenkeel_collector.intake.canonical import AwaitedCall
from evenkeel_collector.intake.event_spans import call_of_row
from tests.unit.collector.intake.test_otlp_logs import spans_of


def call(number: int) -> AwaitedCall:
    return AwaitedCall(f"{number:032x}", f"{number:016x}", b"")


def test_calls_are_taken_in_order_once_they_have_waited() -> None:
    now_s = [0.0]
    awaited = AwaitedCalls(lambda: now_s[0])
    awaited.add(call(1))
    now_s[0] = 30.0
    awaited.add(call(2))
    # Sent again: its wait goes on.
    awaited.add(call(1))
    assert awaited.take_ripe(60.0) == []
    now_s[0] = 60.0
    assert awaited.take_ripe(60.0) == [call(1)]
    assert len(awaited) == 1
    now_s[0] = 90.0
    assert awaited.take_ripe(60.0) == [call(2)]


def test_the_oldest_of_too_many_is_decided_early() -> None:
    awaited = AwaitedCalls(lambda: 0.0)
    for number in range(awaited_calls.MAX_AWAITED + 2):
        awaited.add(call(number))
    assert awaited.take_ripe(60.0) == [call(0), call(1)]


@pytest.mark.parametrize("time_ns", [0, 1_795_582_531_000_000_000])
def test_a_stored_event_gives_the_same_call(time_ns: int) -> None:
    found = call_of_row(
        time_ns, "ab" * 16, "cd" * 8,
        {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": "5"}, {"service.name": "s"},
    )  # fmt: skip
    assert (found.trace_id, found.span_id) == ("ab" * 16, "cd" * 8)
    ((span, attributes),) = spans_of(found.payload)
    assert span.end_time_unix_nano == time_ns
    assert attributes["gen_ai.usage.input_tokens"] == "5"
