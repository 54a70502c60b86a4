"""A simulated engine is busy as long as one that is simulated step by step."""

import math
import random
from dataclasses import replace

import pytest

from evenkeel.whatif.batching import BatchLimits, StepSpeed, Task, busy_seconds
from tests.unit.evenkeel.whatif.toy_engine import SPEED, serve, some_tasks

FOREVER_S = 1e6


def busy(tasks: list[Task], limits: BatchLimits | None = None, speed: StepSpeed = SPEED) -> float:
    (found,) = busy_seconds(tasks, speed, limits or BatchLimits(), [0.0, FOREVER_S])
    return found


def prefill_s(tokens: int, computed: int = 0, decodes: int = 0, context: int = 0) -> float:
    pairs = tokens * (computed + (tokens + 1) / 2)
    return 0.020 + 0.001 * decodes + 1e-6 * context + 0.001 * tokens + 1e-7 * pairs


def decode_s(*contexts: int) -> float:
    return 0.010 + 0.001 * len(contexts) + 1e-6 * sum(contexts)


ONE = Task(0.0, 10, 0, 2)
CASES = {
    "no request": ([], BatchLimits(), 0.0),
    "a prompt and two more tokens": (
        [ONE], BatchLimits(), prefill_s(10) + decode_s(10) + decode_s(11)
    ),
    "only one token": ([Task(0.0, 10, 0, 0)], BatchLimits(), prefill_s(10)),
    "cached tokens are read, not computed": (
        [Task(0.0, 10, 6, 0)], BatchLimits(), prefill_s(4, computed=6)
    ),
    "two at once share steps": (
        [ONE, ONE], BatchLimits(),
        0.020 + 2 * (0.001 * 10 + 1e-7 * 55) + decode_s(10, 10) + decode_s(11, 11),
    ),
    "one seat: one after the other": ([ONE, ONE], BatchLimits(seats=1), 2 * busy([ONE])),
    "a prompt of three chunks": (
        [Task(0.0, 10, 0, 0)], BatchLimits(budget=4),
        prefill_s(4) + prefill_s(4, computed=4) + prefill_s(2, computed=8),
    ),
    "no room in the cache for two": (
        [ONE, ONE], BatchLimits(blocks=3, per_token=0.2), 2 * busy([ONE])
    ),
    "drafts cost, and save steps": (
        [Task(0.0, 10, 0, 1, growth=3.0, drafts=2.0)], BatchLimits(),
        prefill_s(10) + decode_s(10) + 2 * 0.0005,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tasks", "limits", "expected_s"), CASES.values(), ids=CASES)
def test_how_long_an_engine_is_busy(
    tasks: list[Task], limits: BatchLimits, expected_s: float
) -> None:
    assert busy(tasks, limits) == pytest.approx(expected_s)


def test_one_that_arrives_in_a_step_begins_in_the_next() -> None:
    late = Task(prefill_s(10) + 0.001, 5, 0, 0)
    expected_s = prefill_s(10) + decode_s(10) + prefill_s(5, decodes=1, context=11)
    assert busy([ONE, late]) == pytest.approx(expected_s)


def test_time_between_steps_is_not_busy_but_passes() -> None:
    slow = replace(SPEED, gap_s=0.5)
    assert busy([ONE], speed=slow) == pytest.approx(busy([ONE]))
    # It arrives in the gap after the first step, so it does not wait for a second one.
    late = Task(prefill_s(10) + 0.4, 5, 0, 0)
    alone_s = prefill_s(10) + prefill_s(5, decodes=1, context=10) + decode_s(11)
    assert busy([ONE, late], speed=slow) == pytest.approx(alone_s)


def test_a_preempted_request_computes_its_context_again() -> None:
    long = Task(0.0, 10, 0, 20)
    tight = BatchLimits(blocks=40, per_token=1)
    both = busy([long, long], tight)
    assert both > busy([long, long]) + prefill_s(10)
    assert both < 2 * busy([long]) + prefill_s(30)


def test_what_is_still_cached_of_a_preempted_request_is_not_computed_again() -> None:
    long = Task(0.0, 10, 0, 20)
    whole = BatchLimits(blocks=40, per_token=1)
    assert busy([long, long], replace(whole, recomputed=4)) < busy([long, long], whole)


def test_shared_prompts_need_less_room() -> None:
    task = Task(0.0, 10, 6, 2, shared=6)
    room = BatchLimits(blocks=19, per_token=1, per_shared=0.5)
    assert busy([task, task], room) == pytest.approx(busy([task, task]))
    assert busy([task, task], replace(room, per_shared=0.0)) == pytest.approx(2 * busy([task]))


def test_a_prompt_larger_than_the_cache_is_computed_alone() -> None:
    assert busy([Task(0.0, 50, 0, 2)], BatchLimits(blocks=20, per_token=1)) > 0


def test_intervals_add_up() -> None:
    tasks = some_tasks(random.Random(1), 40)
    (whole,) = busy_seconds(tasks, SPEED, BatchLimits(), [0.0, 60.0])
    parts = busy_seconds(tasks, SPEED, BatchLimits(), [0.0, 0.01, 1.0, 1.5, 20.0, 60.0])
    assert sum(parts) == pytest.approx(whole)
    sizes_s = (0.01, 0.99, 0.5, 18.5, 40.0)
    assert all(0 <= part <= size + 1e-9 for part, size in zip(parts, sizes_s, strict=True))
    # What happens before the first interval is simulated, but not counted.
    assert busy_seconds(tasks, SPEED, BatchLimits(), [1.0, 1.5, 20.0]) == pytest.approx(parts[2:4])


@pytest.mark.parametrize("seed", range(12))
def test_adding_up_steps_is_the_same_as_taking_each(seed: int) -> None:
    chosen = random.Random(seed)
    tasks = some_tasks(chosen, 60)
    limits = BatchLimits(
        seats=chosen.choice((2, 8, math.inf)), budget=chosen.choice((64, 300, math.inf))
    )
    speed = replace(SPEED, gap_s=chosen.choice((0.0, 0.002)))
    assert busy(tasks, limits, speed) == pytest.approx(serve(tasks, limits, speed).busy_s)
