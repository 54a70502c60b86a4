"""The shares of a step add up to it, whatever is in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.ledger.engine_seconds import prefill_seconds, share_steps
from evenkeel_runtime.ledger.step_cost_model import FEATURES, StepCost
from evenkeel_runtime.ledger.timeline import Steps
from evenkeel_runtime.wire.steps import Held
from tests.unit.runtime.wire.step_builder import COST, Part, Step, build, decode, prefill

from .test_ledger_property import step_sequences

FREE = StepCost(np.zeros(len(FEATURES)))


@given(
    step_sequences(),
    st.lists(st.floats(0, 1e-2), min_size=len(FEATURES), max_size=len(FEATURES)),
)
def test_shares_add_up_to_each_step_with_work(steps: Steps, weights: list[float]) -> None:
    shares = share_steps(steps, StepCost(np.array(weights)))
    entries = steps.entries
    is_in = (entries["prefill_tokens"] > 0) | (entries["decode_tokens"] > 0)
    has_work = np.bincount(steps.rows(), is_in, len(steps)) > 0
    spent = np.bincount(steps.rows(), shares.spent_s, len(steps))
    seconds = (steps.end_ns - steps.begin_ns) / 1e9
    assert spent == pytest.approx(np.where(has_work, seconds, 0.0), rel=1e-9, abs=1e-12)
    assert (shares.wasted_s <= shares.spent_s + 1e-12).all()
    assert (shares.spent_s[~is_in] == 0).all()
    for part in (shares.wasted_s, shares.saved_s):
        assert (part >= 0).all()


def test_a_cost_that_is_next_to_nothing_splits_in_equal_parts() -> None:
    steps = build(Step(0, 26, [prefill(0, 100), decode(1)]))
    shares = share_steps(steps, StepCost(np.full(len(FEATURES), 2e-313)))
    assert shares.spent_s == pytest.approx([0.013, 0.013])


def test_a_step_is_split_by_predicted_cost_with_its_fixed_cost_in_equal_parts() -> None:
    # 1 fixed + 10 prefill, and 1 fixed + 1 decode: 13 ms predicted, 26 measured.
    shares = share_steps(build(Step(0, 26, [prefill(0, 100), decode(1)])), COST)
    assert shares.spent_s == pytest.approx([0.022, 0.004])


def test_a_step_without_predicted_cost_is_split_equally() -> None:
    steps = build(Step(0, 10, [prefill(0, 100), decode(1), Part(2, held_by=Held.KV)]))
    assert share_steps(steps, FREE).spent_s == pytest.approx([0.005, 0.005, 0.0])


def test_rejected_drafts_are_wasted_and_accepted_ones_save_steps() -> None:
    # 2 fixed + 1 decode + 4 drafts at 0.5 ms: 5 ms predicted and measured.
    steps = build(Step(0, 5, [Part(0, 100, decode=1, drafted=4, accepted=3, emitted=4)]))
    shares = share_steps(steps, COST)
    assert shares.wasted_s == pytest.approx([0.0005])
    # Three more steps of 3 ms each, less the three drafts.
    assert shares.saved_s == pytest.approx([0.0075])


def test_what_cached_tokens_saved() -> None:
    assert prefill_seconds(COST, 50) == pytest.approx(0.005)
    pairs = StepCost(np.array([0.0, 0.0, 1e-6, 0.0, 0.0, 0.0]))
    assert prefill_seconds(pairs, 3) == pytest.approx(6e-6)
