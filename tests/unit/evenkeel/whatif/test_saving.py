"""What an engine saves without a tenant is predicted from what is stored, or it says why not."""

import random
from dataclasses import replace
from typing import Any

import pytest

from evenkeel.whatif.batching import BatchLimits
from evenkeel.whatif.saving import PredictedSaving, Unpredictable, predict_saving
from evenkeel.whatif.stored_work import StoredWork
from tests.unit.evenkeel.whatif.toy_engine import serve, some_tasks

RANGE_S = 120.0


def work_of(served: Any, engine: int = 0) -> StoredWork:
    for row in served.runs:
        row["engine"] = engine
    return StoredWork(0.0, 0.0, RANGE_S, served.requests, served.runs)


def predicted(work: StoredWork, busy_s: float, tenant: str = "b") -> PredictedSaving:
    found = predict_saving([work], tenant, busy_s, RANGE_S)
    assert isinstance(found, PredictedSaving), found
    return found


@pytest.mark.parametrize("within_s", [100.0, 30.0, 8.0], ids=["quiet", "busy", "queue"])
def test_the_saving_is_that_of_the_same_engine_without_the_tenant(within_s: float) -> None:
    tasks = some_tasks(random.Random(5), 150, within_s)
    limits = BatchLimits(seats=8, budget=200)
    whole = serve(tasks, limits, tenants="ab")
    saved_s = whole.busy_s - serve(tasks[::2], limits).busy_s
    found = predicted(work_of(whole), whole.busy_s)
    assert found.saved_s == pytest.approx(saved_s, rel=0.03)
    assert found.margin_s is not None and found.margin_s < 0.1 * whole.busy_s
    assert abs(found.replay_error) < 0.01
    assert (found.replayed_ratio, found.num_requests) == (1.0, 150)


def test_several_engines_save_each_their_part() -> None:
    limits = BatchLimits(seats=8)
    served = [serve(some_tasks(random.Random(n), 150), limits, tenants="ab") for n in (5, 6)]
    for place, each in enumerate(served):
        for row in each.requests:
            row["request_id"] += f"-{place}"
        for row in each.runs:
            row["prefilling_request_id"] = [f"{n}-{place}" for n in row["prefilling_request_id"]]
    single = [predicted(work_of(each, place), each.busy_s) for place, each in enumerate(served)]
    both = StoredWork(
        0.0, 0.0, RANGE_S,
        sorted((r for s in served for r in s.requests), key=lambda r: float(r["time_s"])),
        [r for s in served for r in s.runs],
    )  # fmt: skip
    together = predicted(both, sum(each.busy_s for each in served))
    assert together.saved_s == pytest.approx(sum(each.saved_s for each in single), rel=1e-2)


@pytest.mark.parametrize("num", [400, 1200], ids=["room", "queue"])
def test_a_sample_stands_for_the_range_unless_requests_queue(num: int) -> None:
    tasks = some_tasks(random.Random(5), num, 120.0)
    limits = BatchLimits(seats=16)
    whole = serve(tasks, limits, tenants="ab")
    parts = []
    for from_s in (10.0, 40.0, 70.0, 100.0):
        end_s = from_s + 12.0
        parts.append(
            StoredWork(
                from_s, from_s + 3.0, end_s,
                [r for r in whole.requests if r["time_s"] < end_s
                 and r["time_s"] + r["e2e_s"] > from_s],
                [r for r in whole.runs if from_s <= r["time_s"] < end_s],
            )
        )  # fmt: skip
    found = predict_saving(parts, "b", whole.busy_s, 120.0)
    if num == 1200:
        assert isinstance(found, Unpredictable)
        assert "requests were waiting when a sample of the range began" in found.reason
        return
    saved_s = whole.busy_s - serve(tasks[::2], limits).busy_s
    assert isinstance(found, PredictedSaving)
    assert found.replayed_ratio == pytest.approx(0.3)
    assert found.margin_s is not None and found.margin_s < 0.3 * saved_s
    assert abs(found.saved_s - saved_s) < found.margin_s


def test_why_nothing_is_predicted() -> None:
    whole = serve(some_tasks(random.Random(5), 150, 60.0), BatchLimits(), tenants="ab")
    work = work_of(whole)
    twice = [{**row, "engine": 1, "prefilling_request_id": ["other"]} for row in work.runs]
    untied = [{**row, "prefilling_request_id": []} for row in work.runs]
    slow = [{**row, "busy_s": row["busy_s"] * 2} for row in work.runs]
    cases = {
        "no steps": replace(work, runs=[]),
        "none of its requests": work.without("b"),
        "too few steps": replace(work, runs=work.runs[:4]),
        "150 of 150 requests cannot be tied to one of the 2 engines": replace(
            work, runs=untied + twice
        ),
        "less engine time than was measured": replace(
            work, requests=work.requests[:100], runs=slow
        ),
    }
    for reason, each in cases.items():
        found = predict_saving([each], "b", whole.busy_s, RANGE_S)
        assert isinstance(found, Unpredictable), reason
        assert reason in found.reason
