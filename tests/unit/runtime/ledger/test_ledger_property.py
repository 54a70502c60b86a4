"""A ledger sums to what was measured whatever the steps, and its rivals to what others cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.ledger.attribution import Phase, charge
from evenkeel_runtime.ledger.step_cost_model import FEATURES, StepCost
from evenkeel_runtime.ledger.step_costs import price
from evenkeel_runtime.ledger.timeline import EngineRequest, Steps
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.steps import Held
from tests.unit.runtime.wire.step_builder import COST, ME, MS, Part, Step, build, prefill, times

HOOKS = (Cause.QUEUE_GATE, Cause.HOST_PROMPT, Cause.HOST_COMPRESSION, Cause.HOST_CACHE)
parts = st.builds(
    Part,
    request=st.integers(0, 3),
    context=st.integers(0, 500),
    prefill=st.integers(0, 300),
    recomputed=st.integers(0, 50),
    decode=st.integers(0, 1),
    drafted=st.integers(0, 4),
    accepted=st.integers(0, 6),
    emitted=st.integers(0, 2),
    held_by=st.sampled_from(Held),
    is_preempted=st.booleans(),
)


@st.composite
def step_sequences(draw: st.DrawFn) -> Steps:
    """Steps in the order of their end, overlapping or apart, some with records missing."""
    steps, end = [], 0
    for _ in range(draw(st.integers(0, 8))):
        end += draw(st.integers(0, 40))
        start = max(0, end - draw(st.integers(0, 50)))
        held_by, is_loss = draw(st.sampled_from(Held)), draw(st.booleans())
        steps.append(Step(start, end, draw(st.lists(parts, max_size=4)), held_by, is_loss))
    return build(*steps)


@given(
    step_sequences(),
    st.lists(st.integers(0, 200), min_size=3, max_size=3).map(sorted),
    st.integers(0, 200),
    st.none() | st.integers(0, 200),
    st.dictionaries(st.sampled_from(HOOKS), st.floats(0, 200)),
    st.lists(st.floats(0, 1e-2), min_size=len(FEATURES), max_size=len(FEATURES)),
    st.integers(0, 400),
    st.integers(0, 400),
    st.booleans(),
)
def test_a_ledger_sums_to_what_was_measured_whatever_the_steps(
    steps: Steps,
    points: list[int],
    queued: int,
    submitted: int | None,
    holds: dict[str, float],
    weights: list[float],
    cached: int,
    lost: int,
    has_token: bool,
) -> None:
    arrival, first, last = points
    seen = times(arrival, first, last, submitted, holds)
    if not has_token:
        seen = replace(seen, first_token_ns=None, last_token_ns=None)
    request = EngineRequest((ME, 3), queued * MS, cached, lost)
    ledger = charge(seen, request, price(steps, StepCost(np.array(weights))))
    ttft_ms, decode_ms = (first - arrival, last - first) if has_token else (last + 1 - arrival, 0)
    assert ledger.total(Phase.TTFT) == pytest.approx(ttft_ms / 1e3, rel=1e-9, abs=1e-12)
    assert ledger.total(Phase.DECODE) == pytest.approx(decode_ms / 1e3, rel=1e-9, abs=1e-12)
    assert all(seconds > 0 for seconds in ledger.seconds.values())
    assert {key.partition(".")[2] for key in ledger.seconds} <= set(Cause)


@st.composite
def crowded_steps(draw: st.DrawFn) -> Steps:
    """Steps that all hold others, and some of them the request."""
    steps, end = [], 0
    for _ in range(draw(st.integers(1, 8))):
        start = end + draw(st.integers(0, 5))
        end = start + draw(st.integers(1, 40))
        others = [prefill(number, draw(st.integers(1, 300))) for number in (1, 2)]
        own = [prefill(ME, draw(st.integers(1, 300)))] if draw(st.booleans()) else []
        steps.append(Step(start, end, others + own, draw(st.sampled_from(Held))))
    return build(*steps)


@given(crowded_steps(), st.integers(0, 50), st.integers(0, 150))
def test_rivals_cost_exactly_what_others_and_the_queue_are_charged_with(
    steps: Steps, queued: int, length: int
) -> None:
    seen = times(queued, queued + length, queued + length)
    ledger = charge(seen, EngineRequest((ME,), queued * MS), price(steps, COST), max_rivals=99)
    charged_s = sum(
        seconds
        for key, seconds in ledger.seconds.items()
        if ".queue." in key or key.endswith(".others")
    )
    assert sum(rival.cost_s for rival in ledger.rivals) == pytest.approx(charged_s, abs=1e-12)
