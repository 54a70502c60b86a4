"""Every second of an engine belongs to one kind, and the kinds add up."""

import random
from dataclasses import replace
from typing import Any

import pytest

from evenkeel_runtime.exporter.engine_account import AccountedTime
from evenkeel_runtime.exporter.step_history import StepHistory
from evenkeel_runtime.ledger.attribution import RequestTimes
from evenkeel_runtime.ledger.engine_seconds import EngineSeconds
from evenkeel_runtime.wire.drafts import NO_TENANT
from evenkeel_runtime.wire.steps import Arrived, Left
from tests.unit.runtime.wire.step_builder import MS, Part, Step, batch, decode, prefill

ALL_DAY = RequestTimes(0, 10**18)


def history() -> StepHistory:
    return StepHistory(1 << 20, 100)


def arrived(number: int, ms: float) -> Arrived:
    return Arrived(number, int(ms * MS), 20, f"r{number}-deadbeef")


def left(number: int, ms: float) -> Left:
    return Left(number, int(ms * MS))


def read(past: StepHistory, now_ms: float = 0) -> AccountedTime:
    return past.account.read(int(now_ms * MS))


def engine_seconds(past: StepHistory, number: int, **times: Any) -> EngineSeconds | None:
    request = past.find_request(f"r{number}", ALL_DAY, 1)
    assert request is not None
    return past.charge(RequestTimes(0, 10**18, **times), request, 0).engine


def test_the_kinds_add_up_to_the_time_since_the_first_request() -> None:
    past = history()
    past.add(batch(0, [Step(102, 110, [prefill(0, 20)])], arrived(0, 100)))
    past.add(batch(1, [Step(111, 115, [decode(0)])], left(0, 115)))
    past.add(batch(2, [Step(515, 525, [prefill(1, 20)])], arrived(1, 515), left(1, 525)))
    seen = read(past)
    assert seen.requests_s == pytest.approx(0.022)
    assert seen.between_s == pytest.approx(0.003)
    assert seen.idle_s == pytest.approx(0.4)
    assert (seen.other_s, seen.unrecorded_s) == (0, 0)
    assert seen.total_s == pytest.approx(0.425)


def test_idle_time_grows_while_nothing_arrives_and_never_shrinks() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0), left(0, 10)))
    assert read(past, 1_000).idle_s == 0
    before = read(past, 10_010).idle_s
    assert before == pytest.approx(8)
    # The record of an arrival comes a little later than the arrival.
    past.add(batch(1, [], arrived(1, 9_900)))
    assert read(past, 10_100).idle_s == pytest.approx(9.89)


def test_a_step_of_requests_that_nobody_knows_is_other_work() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    past.add(batch(1, [Step(10, 14, [decode(9)])]))
    assert read(past).other_s == pytest.approx(0.004)


def test_a_replay_of_the_canary_is_other_work_because_no_request_pays_for_it() -> None:
    past = history()
    replay = replace(arrived(1, 0), tenant=NO_TENANT)
    past.add(batch(0, [Step(0, 10, [prefill(0, 10), prefill(1, 10)])], arrived(0, 0), replay))
    past.add(batch(1, [], left(0, 10), left(1, 10)))
    seen = engine_seconds(past, 0)
    assert seen is not None
    assert (seen.spent_s, read(past).requests_s) == pytest.approx((0.005, 0.005))
    assert read(past).other_s == pytest.approx(0.005)


def test_no_kind_ever_falls_because_a_counter_that_falls_counts_as_restarted() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    past.add(batch(1, [Step(10, 14, [decode(9)])]))
    seen = [read(past)]
    rest = random.Random(4)
    now = 14.0
    for sequence in range(2, 400):
        took = rest.uniform(0.1, 7)
        past.add(batch(sequence, [Step(now, now + took, [decode(0), decode(0, 7)])]))
        now += took
        seen.append(read(past))
    for kind in ("requests_s", "other_s", "between_s", "idle_s", "unrecorded_s"):
        values = [getattr(each, kind) for each in seen]
        assert values == sorted(values), kind
    assert seen[-1].other_s == pytest.approx(0.004)
    assert seen[-1].total_s == pytest.approx(now / 1e3, rel=1e-9)


def test_idle_time_told_too_early_is_caught_up_with_and_not_taken_back() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    # Aborted while a step of 9 s runs, whose record comes at its end.
    past.add(batch(1, [], left(0, 1_000)))
    early = read(past, 8_000).idle_s
    assert early == pytest.approx(5)
    past.add(batch(2, [Step(10, 9_010, [prefill(0, 20)])]))
    assert read(past, 9_100).idle_s == early
    assert read(past, 26_010).idle_s == pytest.approx(15)
    assert read(past, 26_010).total_s == pytest.approx(24.01)


@pytest.mark.parametrize(
    ("sequence", "lost_steps"), [(2, 0), (1, 3)], ids=["a lost batch", "steps that were not sent"]
)
def test_lost_records_are_said_and_not_guessed(sequence: int, lost_steps: int) -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    lossy = [Step(30, 40, [decode(0), prefill(1, 10)])]
    past.add(
        batch(sequence, lossy, arrived(1, 29), left(0, 40), left(1, 40), lost_steps=lost_steps)
    )
    assert read(past).unrecorded_s == pytest.approx(0.02)
    assert read(past).total_s == pytest.approx(0.04)
    assert engine_seconds(past, 0) is None
    later = engine_seconds(past, 1)
    assert later is not None
    assert later.spent_s > 0


def test_idle_time_before_a_loss_stays_idle_and_is_not_unrecorded_too() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0), left(0, 10)))
    night_ms = 8 * 3600 * 1000
    assert read(past, night_ms).idle_s == pytest.approx(8 * 3600 - 2.01)
    # The first batch of the morning is lost.
    past.add(batch(2, [Step(night_ms + 500, night_ms + 510, [decode(9)])]))
    seen = read(past, night_ms + 510)
    assert seen.idle_s == pytest.approx(8 * 3600 - 2.01)
    assert seen.unrecorded_s == pytest.approx(2.5)
    assert seen.total_s == pytest.approx((night_ms + 510) / 1e3)


def test_a_request_whose_end_was_lost_does_not_keep_the_engine_busy() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    state = (1, 0, 0, 0, 0, 0, 100, 50, 50)
    alone = Step(30, 40, [prefill(1, 10)], state=state)
    past.add(batch(2, [alone], arrived(1, 29)))
    past.add(batch(3, [Step(40, 44, [decode(1)], state=state)], left(1, 44)))
    assert past.num_live == 0
    past.add(batch(4, [Step(544, 550, [prefill(2, 10)], state=state)], arrived(2, 544)))
    assert read(past).idle_s == pytest.approx(0.5)
    assert read(past).total_s == pytest.approx(0.55)


def test_the_time_while_an_engine_restarts_is_unrecorded() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    past.add(batch(1))
    past.add(batch(0, [Step(500, 510, [prefill(0, 20)])], arrived(0, 500)))
    assert read(past).unrecorded_s == pytest.approx(0.49)


def test_an_abort_during_a_step_counts_no_second_twice() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0), left(0, 4)))
    past.add(batch(1, [Step(20, 30, [prefill(1, 20)])], arrived(1, 20)))
    assert read(past).total_s == pytest.approx(0.03)
    assert read(past).idle_s == pytest.approx(0.01)


def test_requests_are_charged_with_all_of_their_steps() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 15), prefill(1, 5)])], arrived(0, 0), arrived(1, 0)))
    past.add(batch(1, [Step(10, 14, [decode(0), decode(1)])], left(0, 14), left(1, 14)))
    shares = [engine_seconds(past, number) for number in (0, 1)]
    assert all(each is not None for each in shares)
    # Until the cost model is tested, every token counts the same.
    assert [each.spent_s for each in shares if each] == pytest.approx([0.0095, 0.0045])
    assert [each.saved_by_prefix_s for each in shares if each] == [None, None]


def test_work_after_the_client_left_is_wasted() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 15)])], arrived(0, 0)))
    past.add(batch(1, [Step(10, 14, [decode(0)]), Step(14, 18, [decode(0)])], left(0, 18)))
    seen = engine_seconds(past, 0, client_left_ns=12 * MS)
    assert seen is not None
    assert (seen.spent_s, seen.wasted_s) == pytest.approx((0.018, 0.008))


def test_what_a_step_in_progress_costs_is_not_left_out() -> None:
    past = history()
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    # The client left during the next step, and nobody waits for the record of a long one.
    assert engine_seconds(past, 0, client_left_ns=12 * MS) is None
    past.add(batch(1, [Step(10, 3_010, [decode(0)])], left(0, 3_010)))
    seen = engine_seconds(past, 0, client_left_ns=12 * MS)
    assert seen is not None and seen.spent_s == pytest.approx(3.01)


def test_prefill_after_a_preemption_is_wasted() -> None:
    past = history()
    again = Part(0, 0, prefill=20, recomputed=20)
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)]), Step(10, 20, [again])], arrived(0, 0)))
    past.add(batch(1, [], left(0, 20)))
    seen = engine_seconds(past, 0)
    assert seen is not None
    assert (seen.spent_s, seen.wasted_s) == pytest.approx((0.02, 0.01))
