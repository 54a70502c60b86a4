"""The step hook around vLLM's own scheduler: what it records, and that it changes nothing."""

import logging
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from evenkeel_runtime.engine.recorder import find_missing
from evenkeel_runtime.engine.settings import SOCKET_VARIABLE
from evenkeel_runtime.wire.steps import Admitted, Arrived, Held, Left, encode_batch
from tests.fixtures import random_model
from tests.fixtures.real_scheduler import SchedulerBox, build_scheduler
from tests.fixtures.step_records import Records, Seen, decode_batch, everything

PROMPT = [3 + i % 500 for i in range(200)]
OTHER_PROMPT = [3 + i * 7 % 500 for i in range(200)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model.build(tmp_path_factory.mktemp("model"), hidden=64, layers=1)


@pytest.fixture
def records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_internal_error: None
) -> Iterator[Records]:
    address = f"ipc://{tmp_path}/steps"
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.bind(address)
    monkeypatch.setenv(SOCKET_VARIABLE, address)
    monkeypatch.setenv("EVENKEEL_STEPS_INTERVAL_S", "0")
    records = Records(socket)

    def encode(*parts: Any) -> bytes:
        records.num_sent += 1
        return encode_batch(*parts)

    monkeypatch.setattr("evenkeel_runtime.engine.sender.encode_batch", encode)
    # A scheduler that is shut down sends all it has, however busy the machine is.
    monkeypatch.setattr("evenkeel_runtime.engine.sender._CLOSE_MS", 120_000)
    yield records
    context.destroy(linger=0)


Build = Callable[..., SchedulerBox]


@pytest.fixture
def build(model: Path, records: Records) -> Iterator[Build]:
    from evenkeel_runtime.adapter.scheduler import LedgerScheduler

    boxes: list[SchedulerBox] = []

    def build_one(**options: Any) -> SchedulerBox:
        boxes.append(build_scheduler(LedgerScheduler, model, **options))
        return boxes[-1]

    yield build_one
    for box in boxes:
        box.scheduler.shutdown()


def test_a_request_is_followed_from_arrival_to_end(build: Build, records: Records) -> None:
    before_ns = time.monotonic_ns()
    box = build()
    box.add("a-deadbeef", PROMPT, max_tokens=3)
    for _ in range(3):
        box.step()
    seen = everything(records.read())

    arrived, admitted, left = seen.events
    assert isinstance(arrived, Arrived)
    assert (arrived.request_id, arrived.prompt_tokens) == ("a-deadbeef", 200)
    assert admitted == Admitted(arrived.request, 0, 0, block_tokens=16)
    assert isinstance(left, Left)
    assert left.request == arrived.request

    assert [s["prefill_tokens"] for s in seen.steps] == [200, 0, 0]
    assert [s["decode_tokens"] for s in seen.steps] == [0, 1, 1]
    assert [s["requests"][0]["context_tokens"] for s in seen.steps] == [0, 200, 201]
    assert [s["requests"][0]["emitted_tokens"] for s in seen.steps] == [1, 1, 1]
    assert [s["num_running"] for s in seen.steps] == [1, 1, 1]
    times = [t for s in seen.steps for t in (s["start_ns"], s["end_ns"])]
    times = [before_ns, *times, time.monotonic_ns()]
    assert times == sorted(times)
    assert seen.steps[0]["blocks_total"] == 999
    assert seen.steps[0]["blocks_free"] == 999 - 13
    assert seen.steps[0]["blocks_cached"] == 12


def test_nothing_that_vllm_schedules_is_changed(
    build: Build, model: Path, records: Records
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    def run(box: SchedulerBox) -> list[dict[str, int]]:
        for i in range(12):
            box.add(f"{i}-deadbeef", [3 + i + j % 400 for j in range(40 * i + 1)], max_tokens=5 + i)
        return [dict(box.step().num_scheduled_tokens) for _ in range(60)]

    small: dict[str, int] = {"num_blocks": 60, "max_batched_tokens": 256, "max_num_seqs": 6}
    plain = run(build_scheduler(Scheduler, model, **small))  # type: ignore[arg-type]
    hooked = run(build(**small))
    assert hooked == plain
    assert len(everything(records.read()).steps) >= sum(bool(step) for step in plain)


TRAFFIC: dict[str, dict[str, int]] = {
    "plenty of room": {},
    "preemptions": {"num_blocks": 40, "max_num_seqs": 6},
    "chunks": {"max_batched_tokens": 64},
    "drafts": {"drafts": 2},
    "asynchronous": {"is_async": True},
}


@pytest.mark.parametrize("limits", TRAFFIC.values(), ids=TRAFFIC.keys())
def test_steps_that_repeat_the_one_before_are_told_as_exactly_as_steps_alone(
    build: Build, records: Records, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """In a batch, a step like the one before is not spelled out; alone, each one is."""
    from vllm.v1.request import RequestStatus

    def run(interval_s: str) -> tuple[Seen, int]:
        monkeypatch.setenv("EVENKEEL_STEPS_INTERVAL_S", interval_s)
        box = build(**limits)
        for turn in range(90):
            if turn % 15 == 0:
                prompt = [3 + turn + j % 400 for j in range(10 + 2 * turn)]
                box.add(f"{turn}-deadbeef", prompt, max_tokens=25 + turn % 7)
            if turn == 40:
                box.scheduler.finish_requests("30-deadbeef", RequestStatus.FINISHED_ABORTED)
            box.step()
        box.scheduler.shutdown()
        messages = records.receive()
        return everything(list(map(decode_batch, messages))), sum(map(len, messages))

    def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if not k.endswith("_ns")} for row in rows]

    (alone, bytes_alone), (together, bytes_together) = run("0"), run("10")
    assert without_times(together.steps) == without_times(alone.steps)
    assert [type(event) for event in together.events] == [type(event) for event in alone.events]
    assert bytes_together < bytes_alone


HELD = {
    "the token budget is spent": ({"max_batched_tokens": 128}, Held.BUDGET),
    "all seats are taken": ({"max_num_seqs": 1}, Held.SEATS),
    "no blocks are free": ({"num_blocks": 20}, Held.KV),
}


@pytest.mark.parametrize(("limits", "reason"), HELD.values(), ids=HELD.keys())
def test_the_queue_is_held_by_what_vllm_ran_out_of(
    build: Build, records: Records, limits: dict[str, int], reason: Held
) -> None:
    box = build(**limits)
    box.add("a-deadbeef", PROMPT)
    box.add("b-deadbeef", OTHER_PROMPT)
    box.step()
    step = everything(records.read()).steps[0]
    assert step["held_by"] == reason
    assert step["num_waiting"] == 1


def test_a_draft_models_slots_are_part_of_the_budget(
    build: Build, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.config import SpeculativeConfig

    slots = property(lambda _: 4)
    monkeypatch.setattr(SpeculativeConfig, "max_num_new_slots_for_drafting", slots)
    # The first prompt fills the step but for what its drafts may need.
    box = build(drafts=4, max_batched_tokens=len(PROMPT) + 6)
    box.add("a-deadbeef", PROMPT)
    box.add("b-deadbeef", OTHER_PROMPT)
    assert box.step().total_num_scheduled_tokens < len(PROMPT) + 6
    step = everything(records.read()).steps[0]
    assert (step["num_waiting"], step["held_by"]) == (1, Held.BUDGET)


def test_a_queue_that_was_emptied_is_held_by_nothing(build: Build, records: Records) -> None:
    box = build()
    box.add("a-deadbeef", PROMPT)
    box.step()
    assert everything(records.read()).steps[0]["held_by"] == Held.NOT


def test_a_preempted_request_is_marked_and_its_second_prefill_is_recompute(
    build: Build, records: Records
) -> None:
    # Each needs 13 blocks for its prompt and one more soon: only one can go on.
    box = build(num_blocks=28)
    box.add("a-deadbeef", PROMPT, max_tokens=30)
    box.add("b-deadbeef", OTHER_PROMPT, max_tokens=30)
    for _ in range(60):
        box.step()
    seen = everything(records.read())
    victims = [
        (i, entry["request"])
        for i, step in enumerate(seen.steps)
        for entry in step["requests"]
        if entry["is_preempted"]
    ]
    assert len(victims) == 1
    at, victim = victims[0]
    assert seen.steps[at]["num_preempted"] == 1
    assert seen.steps[at]["held_by"] == Held.KV
    before = sum(
        entry["emitted_tokens"]
        for step in seen.steps[:at]
        for entry in step["requests"]
        if entry["request"] == victim
    )
    again = [
        entry
        for step in seen.steps[at:]
        for entry in step["requests"]
        if entry["request"] == victim and entry["prefill_tokens"]
    ]
    computed = sum(entry["prefill_tokens"] for entry in again)
    assert again[0]["recomputed_tokens"] > 0
    # All that was known is computed again, but for the last token, which had not been yet, and for
    # what the prefix cache still holds.
    cached = again[0]["context_tokens"]
    assert sum(entry["recomputed_tokens"] for entry in again) == len(PROMPT) + before - 1 - cached
    assert computed == len(PROMPT) + before - cached


def test_drafted_and_accepted_tokens_are_counted(build: Build, records: Records) -> None:
    box = build(drafts=3)
    box.accept = lambda drafted: 1
    box.add("a-deadbeef", PROMPT, max_tokens=20)
    for _ in range(3):
        box.step()
    steps = everything(records.read()).steps
    assert [(s["drafted_tokens"], s["accepted_tokens"]) for s in steps] == [(0, 0), (3, 1), (3, 1)]
    assert [s["requests"][0]["emitted_tokens"] for s in steps] == [1, 2, 2]
    assert [s["decode_tokens"] for s in steps] == [0, 1, 1]


def test_a_prefix_that_was_evicted_is_lost_and_a_new_one_is_not(
    build: Build, records: Records
) -> None:
    box = build(num_blocks=20)

    def admitted(request_id: str, prompt: list[int]) -> Admitted:
        box.add(request_id, prompt, max_tokens=1)
        box.step()
        (event,) = [n for n in everything(records.read()).events if isinstance(n, Admitted)]
        return event

    first = admitted("a-deadbeef", PROMPT)
    again = admitted("b-deadbeef", PROMPT)
    other = admitted("c-deadbeef", OTHER_PROMPT)
    evicted = admitted("d-deadbeef", PROMPT)
    assert (first.cached_tokens, first.lost_tokens) == (0, 0)
    assert (again.cached_tokens, again.lost_tokens) == (192, 0)
    assert (other.cached_tokens, other.lost_tokens) == (0, 0)
    assert evicted.cached_tokens < 192
    assert evicted.cached_tokens + evicted.lost_tokens == 192


def test_an_aborted_request_has_left(build: Build, records: Records) -> None:
    from vllm.v1.request import RequestStatus

    box = build()
    box.add("a-deadbeef", PROMPT)
    box.step()
    records.read()
    box.scheduler.finish_requests("a-deadbeef", RequestStatus.FINISHED_ABORTED)
    (event,) = everything(records.read()).events
    assert isinstance(event, Left)


def test_a_long_answer_is_told_while_it_goes_on(
    build: Build, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENKEEL_STEPS_INTERVAL_S", "0.02")
    box = build()
    box.add("a-deadbeef", PROMPT, max_tokens=1000)
    box.step()
    time.sleep(0.03)
    box.step()
    assert len(everything(records.read()).steps) == 2


def test_last_records_that_cannot_be_packed_leave_one_error_and_the_end_goes_on(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVENKEEL_STEPS_INTERVAL_S", "10")
    box = build()
    box.add("a-deadbeef", PROMPT, max_tokens=4)
    box.scheduler.kv_cache_manager.block_pool.num_gpu_blocks = -5
    box.step()
    box.scheduler.shutdown()
    (error,) = (r for r in caplog.records if r.name.startswith("evenkeel_runtime"))
    assert error.exc_info is not None and error.exc_info[0] is struct.error
    caplog.clear()


def test_under_asynchronous_scheduling_steps_overlap_and_are_told_apart(
    build: Build, records: Records
) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    box = build(is_async=True)
    assert isinstance(box.scheduler, AsyncScheduler)
    box.add("a-deadbeef", PROMPT, max_tokens=4)
    first = box.scheduler.schedule()
    second = box.scheduler.schedule()
    box.finish(first)
    third = box.scheduler.schedule()
    box.finish(second)
    box.finish(third)
    steps = everything(records.read()).steps
    assert [s["prefill_tokens"] for s in steps] == [200, 0, 0]
    assert [s["decode_tokens"] for s in steps] == [0, 1, 1]
    assert [s["requests"][0]["context_tokens"] for s in steps] == [0, 200, 201]
    assert [s["requests"][0]["emitted_tokens"] for s in steps] == [1, 1, 1]
    assert steps[1]["start_ns"] < steps[0]["end_ns"] < steps[1]["end_ns"]


def test_without_a_socket_it_is_vllms_scheduler_with_one_warning(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from evenkeel_runtime.adapter.scheduler import LedgerScheduler

    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    with caplog.at_level(logging.WARNING, "evenkeel_runtime"):
        box = build_scheduler(LedgerScheduler, model)
    (warning,) = (r for r in caplog.records if r.name.startswith("evenkeel_runtime"))
    assert SOCKET_VARIABLE in warning.message
    box.add("a-deadbeef", PROMPT)
    assert box.step().num_scheduled_tokens == {"a-deadbeef": 200}


def test_a_hook_that_fails_leaves_vllms_scheduler_with_one_error(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from evenkeel_runtime.adapter.scheduler import LedgerScheduler

    monkeypatch.setenv(SOCKET_VARIABLE, "nonsense://nowhere")
    with caplog.at_level(logging.WARNING, "evenkeel_runtime"):
        box = build_scheduler(LedgerScheduler, model)
    (error,) = (r for r in caplog.records if r.name.startswith("evenkeel_runtime"))
    assert "engine step recording stopped" in error.message
    box.add("a-deadbeef", PROMPT)
    assert box.step().num_scheduled_tokens == {"a-deadbeef": 200}


def test_records_that_cannot_be_packed_leave_vllms_scheduler_with_one_error(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVENKEEL_STEPS_INTERVAL_S", "10")
    box = build()
    box.add("a-deadbeef", PROMPT, max_tokens=4)
    box.step()
    # A step counts it as it is; only packing, once the request has left, finds it to be no count.
    monkeypatch.setattr(box.scheduler.kv_cache_manager.block_pool, "num_gpu_blocks", -5)
    box.step()
    with caplog.at_level(logging.ERROR, "evenkeel_runtime"):
        while box.scheduler.has_unfinished_requests():
            box.step()
    (error,) = (r for r in caplog.records if r.name.startswith("evenkeel_runtime"))
    assert "engine step recording stopped" in error.message
    caplog.clear()
    box.add("b-deadbeef", PROMPT)
    assert box.step().num_scheduled_tokens.keys() == {"b-deadbeef"}


def test_what_a_scheduler_lacks_is_named(build: Build) -> None:
    assert find_missing(build().scheduler) == []
    missing = find_missing(object())
    assert "requests" in missing
    assert "kv_cache_manager.block_pool.num_gpu_blocks" in missing
