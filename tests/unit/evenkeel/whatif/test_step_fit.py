"""How long steps take is found from stored steps and requests, and what limits them."""

import math
import random
from typing import Any

import numpy as np
import pytest

from evenkeel.whatif.batching import BatchLimits
from evenkeel.whatif.step_fit import (
    context_at,
    fit_speed,
    host_gap,
    limits_of,
    step_work,
    unexplained_s,
)
from tests.unit.evenkeel.whatif.toy_engine import SPEED, serve, some_tasks


def test_the_speed_of_an_engine_is_found() -> None:
    served = serve(some_tasks(random.Random(3), 200), BatchLimits(seats=8, budget=150))
    work = step_work(served.runs, served.requests)
    found = fit_speed(work, host_gap(served.runs))
    assert found is not None
    assert found.decode[:3] == pytest.approx(SPEED.decode[:3], rel=0.05)
    assert found.mixed[0] == pytest.approx(SPEED.mixed[0], rel=0.02)
    assert found.mixed[4] == pytest.approx(SPEED.mixed[4], rel=0.02)
    assert limits_of(served.runs, served.requests, work) == BatchLimits(seats=8, budget=150)


def test_a_limit_that_was_never_met_is_unknown() -> None:
    served = serve(some_tasks(random.Random(3), 20, within_s=100.0), BatchLimits())
    work = step_work(served.runs, served.requests)
    assert limits_of(served.runs, served.requests, work) == BatchLimits()


@pytest.mark.parametrize("held", [{"held_by": "kv"}, {"num_preempted": 100}])
def test_what_a_request_holds_of_the_cache_is_found(held: dict[str, object]) -> None:
    served = serve(some_tasks(random.Random(3), 200, 30.0), BatchLimits())
    work = step_work(served.runs, served.requests)
    # Half a block per request, and one per four tokens.
    live = work.features[:, 1] * 0.5 + work.features[:, 2] / 4
    runs = [
        {**row, "blocks_live": blocks, "blocks_total": 200}
        for row, blocks in zip(served.runs, live, strict=True)
    ]
    assert limits_of(runs, served.requests, work).blocks == math.inf
    runs[5] |= held
    limits = limits_of(runs, served.requests, work)
    assert limits.blocks == 200
    assert limits.per_request == pytest.approx(0.5, rel=0.05)
    assert limits.per_token == pytest.approx(0.25, rel=0.02)
    assert limits.per_shared == pytest.approx(0.0, abs=0.1)
    assert (limits.recomputed < math.inf) == ("num_preempted" in held)


def test_too_few_steps_are_no_basis() -> None:
    served = serve(some_tasks(random.Random(3), 4), BatchLimits())
    assert fit_speed(step_work(served.runs[:12], served.requests), 0.0) is None
    assert fit_speed(step_work([], []), 0.0) is None


def test_few_steps_of_one_kind_are_fitted_with_the_other() -> None:
    served = serve(some_tasks(random.Random(3), 4), BatchLimits())
    work = step_work(served.runs, served.requests)
    found = fit_speed(work, 0.0)
    assert found is not None
    assert found.decode == found.mixed[:4]
    assert unexplained_s(work, found).sum() == pytest.approx(0.0, abs=1e-9)
    assert np.abs(unexplained_s(work, found)).max() < 0.01


def test_contexts_grow_evenly_between_first_and_last_token() -> None:
    usual: dict[str, Any] = {
        "input_tokens": 100, "output_tokens": 10, "ttft_s": 1.0, "e2e_s": 11.0,
    }  # fmt: skip
    requests = [
        {**usual, "time_s": 0.0},
        {**usual, "time_s": 5.0, "input_tokens": 50},
        {**usual, "time_s": 0.0, "output_tokens": 1},
        {**usual, "time_s": 0.0, "ttft_s": None, "e2e_s": None},
    ]
    times_s = np.array([0.5, 1.0, 6.0, 8.5, 12.0, 17.0])
    assert context_at(times_s, requests) == pytest.approx([0, 100, 155, 160, 56, 0], abs=1e-6)


def test_time_between_steps_is_that_within_runs() -> None:
    usual = {"time_s": 0.0, "duration_s": 1.0, "busy_s": 0.7, "num_steps": 4}
    assert host_gap([usual, {**usual, "busy_s": 1.0, "num_steps": 1}]) == pytest.approx(0.1)
    assert host_gap([]) == 0.0
