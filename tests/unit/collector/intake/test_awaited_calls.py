"""Calls known from events, until it is clear whether their spans come."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from evenkeel_collector.intake import awaited_calls
from evenkeel_collector.intake.awaited_calls import AwaitedCalls, CallSettler
from evenkeel_collector.intake.event_spans import call_of_row, spans_of_calls
from evenkeel_collector.intake.otlp_body import AwaitedCall
from tests.unit.collector.intake.test_otlp_logs import spans_of


def call(number: int, resource: bytes = b"", span: bytes = b"") -> AwaitedCall:
    return AwaitedCall(f"{number:032x}", f"{number:016x}", resource, span)


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


def test_a_call_without_room_is_left_out_and_said() -> None:
    now_s = [0.0]
    awaited = AwaitedCalls(lambda: now_s[0])
    for number in range(awaited_calls.MAX_AWAITED):
        assert awaited.add(call(number))
    assert not awaited.take_left_out()
    assert not awaited.add(call(awaited_calls.MAX_AWAITED))
    # One that is there needs no room.
    assert awaited.add(call(0))
    assert awaited.take_left_out()
    assert not awaited.take_left_out()
    now_s[0] = 60.0
    assert len(awaited.take_ripe(60.0)) == awaited_calls.MAX_AWAITED
    assert awaited.add(call(1))


def test_calls_of_one_resource_keep_it_once_and_bytes_are_bounded() -> None:
    now_s = [0.0]
    awaited = AwaitedCalls(lambda: now_s[0])
    large = b"r" * (awaited_calls.MAX_BYTES - 10)
    assert all(awaited.add(call(number, large, b"s")) for number in range(10))
    assert not awaited.add(call(10, large, b"s"))
    now_s[0] = 60.0
    assert len(awaited.take_ripe(60.0)) == 10
    assert awaited.add(call(10, large, b"s"))


def test_calls_of_two_tenants_with_the_same_ids_are_two() -> None:
    now_s = [0.0]
    awaited = AwaitedCalls(lambda: now_s[0])
    both = [replace(call(1), tenant=tenant) for tenant in ("acme", "other")]
    assert all(map(awaited.add, both))
    now_s[0] = 60.0
    assert awaited.take_ripe(60.0) == both


@pytest.mark.parametrize("time_ns", [0, 1_795_582_531_000_000_000])
def test_a_stored_event_gives_the_same_call(time_ns: int) -> None:
    found = call_of_row(
        time_ns, "ab" * 16, "cd" * 8,
        {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": "5"},
        {"service.name": "s", "evenkeel.tenant": "acme"},
    )  # fmt: skip
    assert found is not None
    assert (found.trace_id, found.span_id, found.tenant) == ("ab" * 16, "cd" * 8, "acme")
    ((span, attributes),) = spans_of(spans_of_calls([found]))
    assert span.end_time_unix_nano == time_ns
    assert attributes["gen_ai.usage.input_tokens"] == "5"


@pytest.mark.parametrize("ids", [("0" * 32, "cd" * 8), ("ab" * 16, "0" * 16), ("ab", "cd" * 8)])
def test_a_stored_event_whose_ids_are_none_gives_no_call(ids: tuple[str, str]) -> None:
    assert call_of_row(0, *ids, {"gen_ai.request.model": "m"}, {}) is None


async def test_an_unforeseen_failure_does_not_end_the_looking() -> None:
    looks = 0
    has_looked_again = asyncio.Event()

    def connect() -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            loop.call_soon_threadsafe(has_looked_again.set)
        raise RuntimeError("unforeseen")

    async def accept(*_: Any) -> None:
        raise AssertionError

    loop = asyncio.get_running_loop()
    settler = CallSettler(AwaitedCalls(), accept, connect, look_every_s=0.01)
    try:
        await asyncio.wait_for(has_looked_again.wait(), 120)
    finally:
        await settler.close()
