"""What requests cost their engine, summed over steps."""

import pytest

from evenkeel_runtime.exporter.engine_records import (
    EngineRecord,
    charge_requests,
    engine_seconds,
)
from evenkeel_runtime.ledger.step_cost_model import EQUAL_TOKENS
from evenkeel_runtime.ledger.timeline import lay_out
from evenkeel_runtime.wire.steps import Admitted
from tests.unit.runtime.wire.step_builder import COST, Step, build, decode, pack


def records(*tenants: str) -> dict[int, EngineRecord]:
    return {i: EngineRecord(i, f"r{i}", 0, 20, tenant) for i, tenant in enumerate(tenants)}


def test_requests_are_charged_with_their_parts_of_a_step() -> None:
    known = records("acme", "other")
    steps = build(Step(0, 4, [decode(0), decode(1)]))
    assert charge_requests(steps, COST, known)[0] == pytest.approx(0.004)
    assert [r.spent_s * 1e3 for r in known.values()] == pytest.approx([2, 2])


def test_unknown_requests_keep_their_part_of_a_step() -> None:
    known = records("acme")
    shared_s, _ = charge_requests(build(Step(0, 4, [decode(0), decode(9)])), COST, known)
    assert shared_s == known[0].spent_s == pytest.approx(0.002)


def test_no_steps_cost_nothing() -> None:
    assert charge_requests(lay_out(*pack([])), COST, records("a")) == (0, 0)


def test_savings_need_a_tested_model_and_a_cost_needs_all_steps() -> None:
    record = records("a")[0]
    record.admitted = Admitted(0, cached_tokens=50, lost_tokens=0)
    assert engine_seconds([record], None, COST) is None
    record.left_ns = 1
    assert engine_seconds([record], None, EQUAL_TOKENS).saved_by_prefix_s is None  # type: ignore[union-attr]
    assert engine_seconds([record], None, COST).saved_by_prefix_s == pytest.approx(0.005)  # type: ignore[union-attr]
    record.has_lost_steps = True
    assert engine_seconds([record], None, COST) is None
