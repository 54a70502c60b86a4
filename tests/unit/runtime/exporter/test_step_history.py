"""What is kept of an engine's past, whose it is, and what is said where it is gone."""

from dataclasses import replace

import pytest

from evenkeel_runtime.exporter.step_history import StepHistory, api_ids
from evenkeel_runtime.ledger.attribution import RequestTimes
from evenkeel_runtime.wire.steps import Admitted, Arrived, Left
from tests.unit.runtime.wire.step_builder import MS, Step, batch, decode, prefill

ALL_DAY = RequestTimes(0, 10**18)


def history(max_bytes: int = 1 << 20, max_requests: int = 100) -> StepHistory:
    return StepHistory(max_bytes, max_requests)


def between(arrival_ms: int, first_ms: int, last_ms: int) -> RequestTimes:
    return RequestTimes(arrival_ms * MS, last_ms * MS, first_ms * MS, last_ms * MS)


IDS = {
    "a random suffix goes": (
        "cmpl-1-0-deadbeef",
        ("cmpl-1-0-deadbeef", "cmpl-1-0"),
    ),
    "the number of a sequence goes as well": (
        "2_chatcmpl-1-deadbeef",
        ("2_chatcmpl-1-deadbeef", "2_chatcmpl-1", "chatcmpl-1"),
    ),
    "an id without either stays": ("chatcmpl-1", ("chatcmpl-1",)),
    "eight digits inside are no suffix": ("a-deadbeef-b", ("a-deadbeef-b",)),
}


@pytest.mark.parametrize(("internal", "expected"), IDS.values(), ids=IDS.keys())
def test_what_the_api_may_call_a_request(internal: str, expected: tuple[str, ...]) -> None:
    assert api_ids(internal) == expected


def test_a_request_is_found_by_its_id_in_the_api() -> None:
    past = history()
    past.add(batch(0, [], Arrived(5, 7, 100, "cmpl-a-0-deadbeef"), Admitted(5, 32, 16)))
    found = past.find_request("cmpl-a-0", ALL_DAY, 1)
    assert found is not None
    assert (found.numbers, found.queued_ns) == ((5,), 7)
    assert (found.cached_tokens, found.lost_tokens) == (32, 16)
    assert past.find_request("cmpl-a", ALL_DAY, 1) is None


def test_the_sequences_of_one_request_are_found_together_or_not_at_all() -> None:
    past = history()
    past.add(batch(0, [], *(Arrived(i, 5 + i, 10, f"{i}_chat-a-deadbeef") for i in range(2))))
    assert past.find_request("chat-a", ALL_DAY, 3) is None
    past.add(batch(1, [], Arrived(2, 9, 10, "2_chat-a-deadbeef")))
    found = past.find_request("chat-a", ALL_DAY, 3)
    assert found is not None
    assert (found.numbers, found.queued_ns) == ((0, 1, 2), 5)


def test_of_two_requests_of_one_id_the_time_decides_or_neither_is_taken() -> None:
    past = history()
    past.add(batch(0, [], Arrived(0, 10, 1, "x-deadbeef"), Arrived(1, 50, 1, "x-cafecafe")))
    second = past.find_request("x", RequestTimes(40, 100), 1)
    assert second is not None
    assert second.numbers == (1,)
    assert past.find_request("x", ALL_DAY, 1) is None


def test_all_steps_are_there_once_every_sequence_has_left() -> None:
    past = history()
    past.add(batch(0, [], Arrived(0, 1, 1, "0_x-deadbeef"), Arrived(1, 1, 1, "1_x-deadbeef")))
    request = past.find_request("x", ALL_DAY, 2)
    assert request is not None
    past.add(batch(1, [], Left(0, 5)))
    assert not past.has_left(request)
    past.add(batch(2, [], Left(1, 6)))
    assert past.has_left(request)


def test_a_ledger_spans_batches_and_names_its_rival() -> None:
    past = history()
    arrived = [Arrived(0, 0, 20, "a-00000000"), Arrived(1, 0, 999, "b-00000000")]
    past.add(batch(0, [Step(0, 10, [prefill(0, 20), prefill(1, 980)])], *arrived))
    past.add(batch(1, [Step(10, 20, [decode(0)])], Left(0, 20 * MS)))
    times = between(0, 10, 20)
    request = past.find_request("a", times, 1)
    assert request is not None
    ledger = past.charge(times, request, 3)
    # Two steps are too few for a cost model: every token counts the same.
    assert ledger.seconds == pytest.approx(
        {"ttft.prefill.own": 2e-4, "ttft.prefill.others": 98e-4, "decode.decode.own": 1e-2}
    )
    assert [rival.request_id for rival in ledger.rivals] == ["b"]


LOSSES = {
    "a batch that never came": {"sequence": 2},
    "steps that the engine could not send": {"sequence": 1, "lost_steps": 3},
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_time_without_records_is_unobserved(loss: dict[str, int]) -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], Arrived(0, 0, 20, "a-00000000")))
    sequence, lost_steps = loss["sequence"], loss.get("lost_steps", 0)
    past.add(batch(sequence, [Step(30, 40, [decode(0)])], Left(0, 40 * MS), lost_steps=lost_steps))
    times = between(0, 10, 40)
    request = past.find_request("a", times, 1)
    assert request is not None
    assert past.charge(times, request, 3).seconds["decode.unobserved"] == pytest.approx(0.02)
    assert (past.num_lost_batches, past.lost_steps) == (sequence - 1, lost_steps)


def test_memory_is_bounded_and_what_fell_out_of_it_is_unobserved() -> None:
    past = history(max_bytes=350)
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], Arrived(0, 0, 20, "a-00000000")))
    past.add(batch(1, [Step(10, 20, [decode(0)])]))
    past.add(batch(2, [Step(20, 30, [decode(0)])], Left(0, 30 * MS)))
    times = between(0, 10, 30)
    request = past.find_request("a", times, 1)
    assert request is not None
    ledger = past.charge(times, request, 3)
    assert ledger.seconds == pytest.approx({"ttft.unobserved": 0.01, "decode.decode.own": 0.02})


def test_the_oldest_requests_are_forgotten_first() -> None:
    past = history(max_requests=2)
    past.add(batch(0, [], *(Arrived(i, i, 1, f"r{i}-deadbeef") for i in range(3))))
    assert past.find_request("r0", ALL_DAY, 1) is None
    assert past.find_request("r2", ALL_DAY, 1) is not None


def test_notes_of_forgotten_requests_are_passed_over() -> None:
    past = history()
    past.add(batch(0, [], Admitted(9, 0, 0), Left(9, 1)))
    assert past.find_request("x", ALL_DAY, 1) is None


def test_an_engine_that_starts_again_is_a_new_one() -> None:
    past = history()
    past.add(batch(0, [], Arrived(0, 1, 1, "a-deadbeef")))
    past.add(batch(1, [], Left(0, 2)))
    past.add(batch(0, [], Arrived(0, 5, 1, "b-deadbeef")))
    assert past.find_request("a", ALL_DAY, 1) is None
    assert past.find_request("b", ALL_DAY, 1) is not None


def test_the_cost_model_learns_from_steps_that_did_something() -> None:
    past = history()
    steps = [Step(10 * i, 10 * i + 4, [decode(0)]) for i in range(20)]
    idle = [Step(300 + i, 301 + i) for i in range(20)]
    past.add(batch(0, [*steps, *idle]))
    assert past.cost.num_steps == 20
    assert past.num_steps == 40


def test_the_latest_step_is_the_state() -> None:
    past = history()
    assert past.latest is None
    past.add(batch(0, [Step(0, 1), Step(1, 2, [decode(0)], state=(7, 6, 5, 4, 3, 2, 100, 50, 9))]))
    assert past.latest is not None
    assert (past.latest["num_running"], past.latest["num_waiting"]) == (7, 6)
    assert (past.latest["blocks_total"], past.latest["blocks_cached"]) == (100, 9)


def test_all_that_is_done_for_whoever_left_counts_while_the_engine_has_not_let_go() -> None:
    past = history()
    steps = [Step(i * 10, i * 10 + 10, [decode(0)]) for i in range(9)]
    past.add(batch(0, steps, Arrived(0, 0, 10, "a-deadbeef")))
    seen = replace(between(0, 10, 20), client_left_ns=15 * MS)
    request = past.find_request("a", seen, 1)
    assert request is not None
    ledger = past.charge(seen, request, 0)
    assert ledger.aftermath is not None
    assert (ledger.aftermath.num_steps, ledger.aftermath.tokens) == (7, 8)
    assert ledger.made_tokens == 9
    past.add(batch(1, [], Left(0, 42 * MS)))
    request = past.find_request("a", seen, 1)
    assert request is not None
    assert past.charge(seen, request, 0).made_tokens == 5
