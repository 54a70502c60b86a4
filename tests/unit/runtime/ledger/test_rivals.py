"""Rivals in a crowd, and what the engine did for a request whose client had left."""

from typing import Any

import numpy as np
import pytest

from evenkeel_runtime.ledger.attribution import Aftermath, RequestTimes, charge, find_aftermath
from evenkeel_runtime.ledger.step_cost_model import DECODE, StepCost
from evenkeel_runtime.ledger.step_costs import price
from evenkeel_runtime.ledger.timeline import EngineRequest, Steps, find_own
from tests.unit.runtime.wire.step_builder import COST, ME, MS, Step, build, decode, prefill

REQUEST = EngineRequest((ME,), 0)

about: Any = pytest.approx


def crowd(num_steps: int, batch: int) -> Steps:
    """Decode steps of a full batch; requests 7 and 9 compute a prompt in the third step."""
    steps = []
    for place in range(num_steps):
        parts = [decode(number) for number in range(batch)]
        if place == 2:
            parts = [p for p in parts if p.request not in (7, 9)]
            parts += [prefill(7, 400), prefill(9, 900)]
        steps.append(Step(place * 10, place * 10 + 10, parts))
    return build(*steps)


@pytest.mark.parametrize(
    ("num_steps", "names"),
    [
        pytest.param(20, [9, 7, 1, 2], id="few rows: whoever only decoded is named as well"),
        pytest.param(120, [9, 7], id="many rows: whoever computed a prompt"),
    ],
)
def test_large_prompts_are_named_however_large_the_crowd(num_steps: int, names: list[int]) -> None:
    batch = 200
    steps = crowd(num_steps, batch)
    end_ns = num_steps * 10 * MS
    times = RequestTimes(0, end_ns, 10 * MS, end_ns)
    ledger = charge(times, REQUEST, price(steps, COST), max_rivals=4)
    assert [rival.number for rival in ledger.rivals] == names
    worst = ledger.rivals[0]
    # Its decode steps are counted with its prompt.
    assert (worst.prefill_tokens, worst.decode_tokens) == (900, num_steps - 1)


def test_who_was_alone_is_charged_with_nothing_of_others() -> None:
    steps = build(
        Step(0, 10, [prefill(ME, 77)]),
        *[Step(i * 10, i * 10 + 10, [decode(ME)]) for i in range(1, 50)],
    )
    weights = np.random.default_rng(11).uniform(size=(50, 6))
    for row in weights:
        times = RequestTimes(0, 500 * MS, 10 * MS, 500 * MS)
        ledger = charge(times, REQUEST, price(steps, StepCost(row)))
        assert set(ledger.seconds) == {"ttft.prefill.own", "decode.decode.own"}
        assert ledger.rivals == ()


def test_a_request_with_two_rows_in_a_step_is_their_sum() -> None:
    twice = [decode(ME), decode(ME), decode(1)]
    own = find_own(build(Step(0, 10, twice), Step(10, 20, [decode(ME)])), REQUEST)
    assert own.emitted.tolist() == [2, 1]
    assert own.features[:, DECODE].tolist() == [2, 1]


def test_what_comes_after_a_client_left_is_counted_apart() -> None:
    steps = build(
        Step(0, 10, [prefill(ME, 10)]),
        Step(10, 20, [decode(ME)]),
        Step(20, 30, [decode(ME)]),
        Step(30, 40, [decode(1)]),
    )
    gone = EngineRequest((ME,), 0, left_ns=29 * MS)
    # Seen in the middle of the second step: that one ends, and one more was begun.
    assert find_aftermath(steps, gone, 15 * MS) == Aftermath(1, 2, about(0.014))
    assert find_aftermath(steps, gone, 25 * MS) == Aftermath(0, 1, about(0.004))
    assert find_aftermath(steps, gone, 35 * MS) == Aftermath(0, 0, 0.0)
