"""A ledger charges every moment once: named cases with known answers."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from evenkeel_runtime.ledger.attribution import Ledger, Phase, charge
from evenkeel_runtime.ledger.step_cost_model import FEATURES, StepCost
from evenkeel_runtime.ledger.step_costs import price
from evenkeel_runtime.ledger.timeline import EngineRequest
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.steps import Held
from tests.unit.runtime.wire.step_builder import (
    COST,
    ME,
    MS,
    Part,
    Step,
    build,
    decode,
    prefill,
    times,
)


@dataclass(frozen=True, slots=True)
class Case:
    """A request from 0 ms on, queued at `queued`, and what it is charged, in milliseconds."""

    steps: tuple[Step, ...]
    first: float | None
    last: float | None
    expected: dict[str, float]
    queued: float = 0
    submitted: float | None = None
    holds: dict[str, float] = field(default_factory=dict)
    end: float | None = None
    cached: int = 0
    lost: int = 0
    numbers: tuple[int, ...] = (ME,)
    cost: StepCost = field(default=COST)


CASES = {
    "alone: its own prefill, its own decode, and the way in and out": Case(
        (Step(5, 15, [prefill(ME, 80)]), Step(16, 20, [decode(ME)])),
        queued=4,
        first=18,
        last=21,
        expected={
            "ttft.host.input": 4,
            "ttft.host.gap": 1,
            "ttft.prefill.own": 10,
            "ttft.host.output": 3,
            # The second step had run for 2 of its 4 ms when the first token left the server.
            "decode.decode.own": 2,
            "decode.host.output": 1,
        },
    ),
    "a step is shared by what its parts cost": Case(
        # 2 fixed + 1 own + 100 prefill of another + 2 decodes of others = 105 by the model.
        (Step(0, 210, [prefill(ME, 10), prefill(1, 1000), decode(2), decode(3)]),),
        first=210,
        last=210,
        expected={
            "ttft.prefill.own": 6,
            "ttft.prefill.others": 200,
            "ttft.decode.others": 4,
        },
    ),
    "a step that was running when it was queued is the others' work": Case(
        (Step(0, 100, [prefill(1, 980)]), Step(100, 104, [prefill(ME, 20)])),
        queued=30,
        first=104,
        last=104,
        expected={
            "ttft.host.input": 30,
            "ttft.prefill.others": 70,
            "ttft.prefill.own": 4,
        },
    ),
    "vLLM takes it in after the step that ran when it was submitted": Case(
        (Step(0, 100, [prefill(1, 980)]), Step(101, 105, [prefill(ME, 20)])),
        queued=100.5,
        submitted=10,
        first=105,
        last=105,
        expected={
            "ttft.host.input": 10.5,
            "ttft.prefill.others": 90,
            "ttft.host.gap": 0.5,
            "ttft.prefill.own": 4,
        },
    ),
    "a step that ended long before it was taken in did not hold it": Case(
        (Step(0, 100, [prefill(1, 980)]), Step(150, 154, [prefill(ME, 20)])),
        queued=150,
        submitted=10,
        first=154,
        last=154,
        expected={"ttft.host.input": 150, "ttft.prefill.own": 4},
    ),
    "control's gate, then vLLM's door": Case(
        (Step(0, 100, [prefill(1, 980)]), Step(101, 105, [prefill(ME, 20)])),
        queued=100.5,
        submitted=60,
        holds={"queue.gate": 55},
        first=105,
        last=105,
        expected={
            "ttft.queue.gate": 55,
            "ttft.host.input": 5.5,
            "ttft.prefill.others": 40,
            "ttft.host.gap": 0.5,
            "ttft.prefill.own": 4,
        },
    ),
    "waiting in the queue has the reason of each step": Case(
        (
            Step(1, 10, [prefill(1, 70)], Held.BUDGET),
            Step(10, 13, [decode(1)], Held.KV),
            Step(13, 15, [decode(1)], Held.SEATS),
            Step(15, 16, [decode(1)], Held.OTHER),
            Step(16, 20, [prefill(ME, 20)]),
        ),
        first=20,
        last=20,
        expected={
            "ttft.host.gap": 1,
            "ttft.queue.budget": 9,
            "ttft.queue.kv": 3,
            "ttft.queue.seats": 2,
            "ttft.queue.other": 1,
            "ttft.prefill.own": 4,
        },
    ),
    "set aside by itself, its own reason counts and not the queue's": Case(
        (
            Step(0, 5, [decode(1), Part(ME, held_by=Held.GRAMMAR)], Held.KV),
            Step(5, 8, [decode(1), Part(ME, held_by=Held.REMOTE_KV)]),
            Step(8, 10, [prefill(ME, 80)]),
        ),
        first=10,
        last=10,
        expected={
            "ttft.queue.grammar": 5,
            "ttft.queue.remote_kv": 3,
            "ttft.prefill.own": 2,
        },
    ),
    "a grammar is compiled between steps as well, in which the engine only looks for it": Case(
        (
            Step(3, 3.01, [Part(ME, held_by=Held.GRAMMAR)]),
            Step(4, 4.01, [Part(ME, held_by=Held.GRAMMAR)]),
            Step(90, 90.01, [Part(ME, held_by=Held.GRAMMAR)]),
            Step(91, 99, [prefill(ME, 80)]),
            Step(100, 101, [decode(ME)]),
        ),
        queued=2,
        first=99,
        last=101,
        expected={
            "ttft.host.input": 2,
            "ttft.queue.grammar": 89,
            "ttft.prefill.own": 8,
            "decode.host.gap": 1,
            "decode.decode.own": 1,
        },
    ),
    "remote blocks are fetched between others' steps as well": Case(
        (
            Step(1, 5, [decode(1), Part(ME, held_by=Held.REMOTE_KV)]),
            Step(7, 9, [decode(1), Part(ME, held_by=Held.REMOTE_KV)]),
            Step(12, 14, [prefill(ME, 80)]),
        ),
        first=14,
        last=14,
        expected={"ttft.queue.remote_kv": 12, "ttft.prefill.own": 2},
    ),
    "given up while its grammar was compiled": Case(
        (Step(3, 3.01, [Part(ME, held_by=Held.GRAMMAR)]),),
        queued=2,
        first=None,
        last=None,
        end=20,
        expected={"ttft.host.input": 2, "ttft.queue.grammar": 18},
    ),
    "records that are missing are nobody's, also where it was set aside": Case(
        (
            Step(1, 5, [Part(ME, held_by=Held.GRAMMAR)]),
            Step(8, 9, [Part(ME, held_by=Held.GRAMMAR)], follows_loss=True),
            Step(9, 10, [prefill(ME, 80)]),
        ),
        first=10,
        last=10,
        expected={"ttft.queue.grammar": 6, "ttft.unobserved": 3, "ttft.prefill.own": 1},
    ),
    "what our own hooks took is theirs": Case(
        (Step(100, 104, [prefill(ME, 20)]),),
        queued=100,
        submitted=90,
        first=104,
        last=104,
        holds={"host.prompt": 5, "host.compression": 7, "host.cache": 50, "queue.gate": 20},
        expected={
            "ttft.host.prompt": 5,
            "ttft.host.compression": 7,
            "ttft.host.cache": 50,
            "ttft.queue.gate": 20,
            "ttft.host.input": 18,
            "ttft.prefill.own": 4,
        },
    ),
    "hooks are never charged more than there is": Case(
        (Step(10, 14, [prefill(ME, 20)]),),
        queued=10,
        first=14,
        last=14,
        holds={"host.compression": 7, "host.cache": 50},
        expected={"ttft.host.compression": 7, "ttft.host.cache": 3, "ttft.prefill.own": 4},
    ),
    "tokens that the prefix cache had lost are the miss's": Case(
        # 100 of 400 tokens were cached, 200 more had been: two thirds of what is computed.
        (Step(0, 32, [prefill(ME, 300, context=100)]),),
        first=32,
        last=32,
        cached=100,
        lost=200,
        expected={"ttft.prefill.cache_miss": 32 * 2 / 3, "ttft.prefill.own": 32 / 3},
    ),
    "a miss is found in the chunk that computes it": Case(
        (
            Step(0, 12, [prefill(ME, 100, emitted=0)]),
            Step(12, 24, [prefill(ME, 100, context=100)]),
        ),
        first=24,
        last=24,
        lost=150,
        expected={"ttft.prefill.cache_miss": 18, "ttft.prefill.own": 6},
    ),
    "from a preemption to the return, and what is computed again": Case(
        (
            Step(0, 10, [prefill(ME, 80)]),
            Step(10, 15, [decode(1), Part(ME, held_by=Held.KV, is_preempted=True)], Held.KV),
            Step(15, 20, [decode(1)], Held.KV),
            Step(20, 30, [Part(ME, prefill=80, recomputed=60, emitted=1)]),
        ),
        first=10,
        last=30,
        expected={
            "ttft.prefill.own": 10,
            "decode.preemption": 10 + 7.5,
            "decode.prefill.own": 2.5,
        },
    ),
    "rejected drafts are speculation's, accepted ones are work": Case(
        # 2 fixed + 1 + 4 drafts of 0.5 = 5 by the model, of which 3 drafts were in vain.
        (
            Step(0, 10, [prefill(ME, 80)]),
            Step(10, 20, [Part(ME, 80, decode=1, drafted=4, accepted=1, emitted=2)]),
        ),
        first=10,
        last=20,
        expected={
            "ttft.prefill.own": 10,
            "decode.decode.own": 7,
            "decode.speculation": 3,
        },
    ),
    "missing records are unobserved, not the host's": Case(
        (
            Step(0, 10, [prefill(ME, 80)]),
            Step(40, 44, [decode(ME)], follows_loss=True),
            Step(45, 49, [decode(ME)]),
        ),
        first=10,
        last=49,
        expected={
            "ttft.prefill.own": 10,
            "decode.unobserved": 30,
            "decode.decode.own": 8,
            "decode.host.gap": 1,
        },
    ),
    "no record of its steps at all": Case(
        (),
        queued=2,
        first=10,
        last=20,
        expected={"ttft.host.input": 2, "ttft.unobserved": 8, "decode.unobserved": 10},
    ),
    "running, but left out of a step": Case(
        (
            Step(0, 10, [prefill(ME, 80)]),
            Step(10, 40, [prefill(1, 280)], Held.BUDGET),
            Step(40, 43, [decode(ME)]),
        ),
        first=10,
        last=43,
        expected={
            "ttft.prefill.own": 10,
            "decode.queue.budget": 30,
            "decode.decode.own": 3,
        },
    ),
    "two sequences of one request are both its own": Case(
        (Step(0, 20, [prefill(ME, 90), prefill(7, 90)]), Step(20, 24, [decode(ME), decode(7)])),
        first=20,
        last=24,
        numbers=(ME, 7),
        expected={"ttft.prefill.own": 20, "decode.decode.own": 4},
    ),
    "under asynchronous scheduling a step begins when the one before it ends": Case(
        (
            Step(0, 10, [prefill(ME, 80)]),
            Step(2, 14, [decode(ME)]),
            Step(11, 18, [decode(ME)]),
        ),
        first=10,
        last=18,
        expected={"ttft.prefill.own": 10, "decode.decode.own": 8},
    ),
    "a model that knows no cost leaves a step to its request": Case(
        (Step(0, 10, [prefill(ME, 80), decode(1)]), Step(10, 12, [decode(ME), decode(1)])),
        first=10,
        last=12,
        cost=StepCost(np.zeros(len(FEATURES))),
        expected={"ttft.prefill.own": 10, "decode.decode.own": 2},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_moment_has_its_cause(case: Case) -> None:
    request = EngineRequest(case.numbers, int(case.queued * MS), case.cached, case.lost)
    seen = times(0, case.first, case.last, case.submitted, case.holds)
    if case.end is not None:
        seen = replace(seen, end_ns=int(case.end * MS))
    ledger = charge(seen, request, price(build(*case.steps), case.cost))
    assert {k: s * 1e3 for k, s in ledger.seconds.items()} == pytest.approx(case.expected)


def test_without_a_token_all_time_is_ttft() -> None:
    waiting = build(Step(0, 50, [prefill(1, 480)], Held.BUDGET))
    ledger = charge(times(0, None, None), EngineRequest((ME,), 0), price(waiting, COST))
    assert ledger.seconds == pytest.approx({"ttft.queue.budget": 1e-3})


def test_rivals_are_named_with_what_they_cost() -> None:
    steps = build(
        Step(0, 105, [prefill(ME, 10), prefill(1, 1000), decode(2), decode(3)]),
        Step(105, 109, [decode(ME), decode(2)]),
    )
    ledger = charge(times(0, 105, 109), EngineRequest((ME,), 0), price(steps, COST), max_rivals=2)
    worst, second = ledger.rivals
    assert (worst.number, worst.prefill_tokens, worst.decode_tokens) == (1, 1000, 0)
    assert worst.cost_s == pytest.approx(0.1)
    assert (second.number, second.decode_tokens) == (2, 2)
    assert second.cost_s == pytest.approx(0.002)


def test_the_top_cause_is_that_of_the_phase() -> None:
    ledger = Ledger({"ttft.queue.kv": 1.0, "ttft.prefill.own": 2.0, "decode.decode.own": 9.0})
    assert ledger.top_cause(Phase.TTFT) is Cause.PREFILL_OWN
    assert ledger.top_cause(Phase.DECODE) is Cause.DECODE_OWN
    assert Ledger({}).top_cause(Phase.TTFT) is None


def test_steps_with_drafts_say_what_each_made() -> None:
    drafting = [Part(ME, decode=1, drafted=4, accepted=2, emitted=3)]
    steps = build(
        Step(0, 9, [prefill(ME, 80)]), Step(9, 12, drafting), Step(12, 15, [decode(1)]),
        Step(15, 18, [decode(ME)]),
    )  # fmt: skip
    priced = price(steps, COST)
    ledger = charge(times(0, 10, 19), EngineRequest((ME,), 0), priced)
    assert ledger.verified == ((1, 0, 0), (3, 4, 2), (1, 0, 0))
    assert charge(times(0, 10, 19), EngineRequest((1,), 0), priced).verified == ()
    # Where a record is missing, the others may fit the emissions by chance.
    lossy = price(replace(steps, follows_loss=np.array([False, True, False, False])), COST)
    assert charge(times(0, 10, 19), EngineRequest((ME,), 0), lossy).verified == ()


def test_each_sequence_has_drafts_of_its_own_in_a_step() -> None:
    """Added up, four tokens of each of two would be a draft of eight."""
    both = [
        Part(ME, decode=1, drafted=4, accepted=2, emitted=3),
        Part(1, decode=1, drafted=4, accepted=4, emitted=5),
        Part(7, decode=1, drafted=3, accepted=0, emitted=1),
    ]
    steps = build(Step(0, 9, [prefill(ME, 80), prefill(7, 80)]), Step(9, 12, both))
    ledger = charge(times(0, 10, 19), EngineRequest((ME, 7), 0), price(steps, COST))
    assert (ledger.drafted_by_step, ledger.accepted_by_step) == ((4, 3), (2, 0))


def test_times_that_run_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="run backwards"):
        charge(times(10, 5, 20), EngineRequest((ME,), 0), price(build(), COST))
