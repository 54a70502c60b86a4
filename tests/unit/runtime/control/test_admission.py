"""Control as a whole: refusals, kill switch, what a tick does."""

import asyncio
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import (
    ControlConfig,
    ControlMode,
    Quota,
    SloClass,
)
from evenkeel_runtime.control.costs import RenderedPrompt
from evenkeel_runtime.control.ladder import ClassCounts
from evenkeel_runtime.control.measure import measure
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.control.visit import RefusedError, order_by_arrival
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.limits import EngineLimits, LimitsFile, decode_limits, limits_path
from tests.fixtures.manual_clock import ManualClock
from tests.unit.runtime.control.admission import CLASSES, burn, crowd, make, serve


async def test_the_wait_at_the_gate_is_measured() -> None:
    clock = ManualClock(1000.0)
    control = make(clock, max_active=1)
    first, second = (control.arrive(Caller(slo_class="batch"), 100) for _ in range(2))
    for visit in (first, second):
        control.queue(visit)
    control.enter(first)
    clock.now_s += 2.5
    control.leave(first, 10)
    control.enter(second)
    assert (first.gate_s, second.gate_s) == (0.0, 2.5)


async def test_a_burning_class_has_nobody_shed() -> None:
    clock = ManualClock(1000.0)
    control = make(clock)
    for _ in range(5):
        burn(control, clock, 40)
        control.tick()
    assert control.level == 2
    for _ in range(50):
        control.queue(control.arrive(Caller(slo_class="batch"), 100))
    assert control.counts.refused == {}


async def test_a_request_is_shed_where_its_turn_cannot_come_before_it_would_be_given_up() -> None:
    clock = ManualClock(1000.0)
    classes = CLASSES | {"brief": SloClass(ttft_s=60.0, queue_deadline_s=10.0)}
    quota = {"acme": Quota(requests_per_minute=1)}
    control = make(clock, max_active=1, tenants=quota)
    control.configure(control.config.model_copy(update=dict(classes=classes)))
    crowd(control, clock, 100)
    # Some 60 wait before it, two a second get their turn: 30 s, and it waits for 10.
    for number in range(1, 4):
        visit = control.arrive(Caller(slo_class="brief", tenant="acme"), 100)
        with pytest.raises(RefusedError, match="would miss its deadline") as caught:
            control.queue(visit)
        assert (caught.value.status, caught.value.reason) == (503, "shed")
        retry_after_s = caught.value.retry_after_s
        assert retry_after_s is not None and 20 <= retry_after_s <= 40
        assert control.counts.refused == {("brief", "shed"): number}
        # It costs its tenant nothing.
        control.leave(visit, 0)
    # Who is due before all of them is not.
    control.queue(control.arrive(Caller(slo_class="interactive"), 100))
    assert control.counts.refused == {("brief", "shed"): 3}


async def test_nobody_is_shed_for_those_behind_it() -> None:
    clock = ManualClock(1000.0)
    control = make(clock, max_active=1)
    crowd(control, clock, 100)
    for _ in range(2):
        control.queue(control.arrive(Caller(slo_class="interactive"), 100))
    control.queue(control.arrive(Caller(slo_class="batch"), 100))
    assert control.counts.refused == {}


async def test_a_request_with_several_prompts_is_refused_once() -> None:
    quota = Quota(requests_per_minute=2, context_tokens=10)
    control = make(ManualClock(1000.0), tenant=quota)
    control.arrive(Caller(tenant="acme"), 100)
    visit = control.arrive(Caller(tenant="acme"), 100)
    for _ in range(3):
        with pytest.raises(RefusedError, match="the prompt has 20 tokens"):
            measure(control, visit, RenderedPrompt([1] * 20))
    control.leave(visit, 0)
    assert control.counts.refused == {("interactive", "context_length"): 1}
    control.arrive(Caller(tenant="acme"), 100)
    with pytest.raises(RefusedError, match="quota exhausted"):
        control.arrive(Caller(tenant="acme"), 100)


async def test_a_request_that_waited_too_long_costs_its_tenant_nothing() -> None:
    control = make(ManualClock(1000.0), tenant=Quota(requests_per_minute=1))
    visit = control.arrive(Caller(tenant="acme"), 100)
    assert control.give_up(visit).reason == "queue_deadline"
    control.leave(visit, 0)
    control.arrive(Caller(tenant="acme"), 100)


async def test_who_is_pushed_out_of_a_full_queue_is_shed() -> None:
    control = make(
        ManualClock(1000.0), max_active=1, tenants={"acme": Quota(requests_per_minute=1)}
    )
    last = control.arrive(Caller(slo_class="batch", tenant="acme"), 100)
    error = control.push_out(last)
    assert (error.status, error.reason) == (503, "shed")
    assert control.counts.refused == {("batch", "shed"): 1}
    control.leave(last, 0)
    control.arrive(Caller(slo_class="batch", tenant="acme"), 100)


async def test_quotas_are_answered_with_429() -> None:
    control = make(ManualClock(1000.0), tenant=Quota(requests_per_minute=60))
    for _ in range(60):
        control.arrive(Caller(tenant="acme"), 100)
    with pytest.raises(RefusedError) as caught:
        control.arrive(Caller(tenant="acme"), 100)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
    control.arrive(Caller(tenant="other"), 100)


async def test_an_unknown_class_is_served_as_the_default_one() -> None:
    control = make(ManualClock(1000.0))
    assert control.arrive(Caller(slo_class="urgent"), 100).slo_class == "interactive"
    assert control.counts.unknown_classes == 1


@pytest.mark.parametrize("mode", [ControlMode.DRY_RUN, ControlMode.OFF])
async def test_control_that_does_not_act_leaves_the_order_of_arrival(mode: ControlMode) -> None:
    clock = ManualClock(1000.0)
    control = make(clock, mode=mode)
    priorities = []
    for slo_class in ("batch", "chat", "interactive", "batch"):
        visit = control.arrive(Caller(slo_class=slo_class), 100_000)
        control.queue(visit)
        priorities.append(visit.priority)
        clock.now_s += 0.25
    assert priorities == sorted(set(priorities))


async def test_long_prompts_are_due_later_but_not_for_ever() -> None:
    control = make(ManualClock(1000.0))
    short, long, huge = (
        control.arrive(Caller(), size).priority for size in (1_000, 65_536, 100_000_000)
    )
    assert short == 1_000_200
    assert long == 1_000_800
    assert huge == 1_001_600
    # A class with time to spare is not put off beyond its own limit by much.
    batch = Caller(slo_class="batch")
    assert control.arrive(batch, 100_000_000).priority == 1_034_000


async def test_a_request_without_a_first_token_burns_once_it_is_late() -> None:
    clock = ManualClock(1000.0)
    control = make(clock)
    for _ in range(5):
        control.arrive(Caller(), 100).is_streamed = True
    assert control.burn() == 0
    clock.now_s += 1
    assert control.read()["interactive"].num_bad == 5
    assert control.tick() is not None


async def test_a_client_that_gives_up_on_a_late_first_token_still_burns() -> None:
    clock = ManualClock(1000.0)
    control = make(clock)
    late, early, refused, whole = (control.arrive(Caller(), 100) for _ in range(4))
    for visit in (late, early, refused):
        visit.is_streamed = True
    control.leave(early, 10)
    clock.now_s += 1
    control.give_up(refused)
    for visit in (late, refused, whole):
        control.leave(visit, 0)
    assert control.read()["interactive"] == ClassCounts(num_good=0, num_bad=2)
    clock.now_s += 100
    assert control.read() == {}


async def test_first_tokens_that_clients_do_not_wait_for_hold_back_who_can_wait() -> None:
    clock = ManualClock(1000.0)
    control = AdmissionControl(ControlConfig(classes=CLASSES), num_slots=256, clock=clock)
    inside = [control.arrive(Caller(slo_class="batch"), 100) for _ in range(100)]
    for visit in inside:
        control.queue(visit)
        control.enter(visit)
    assert control.gate.room.patient == 256
    for _ in range(64):
        visit = control.arrive(Caller(slo_class="interactive"), 100)
        visit.is_streamed = True
        control.queue(visit)
        control.enter(visit)
        clock.now_s += 1
        control.leave(visit, 0)
    assert control.gate.room.patient < 100


@pytest.mark.parametrize("mode", [ControlMode.DRY_RUN, ControlMode.OFF])
async def test_who_waits_late_when_control_stops_acting_is_passed_by_nobody(
    mode: ControlMode,
) -> None:
    """Their turn comes at once, and vLLM has no other queue for late ones."""
    clock = ManualClock(1000.0)
    control = make(clock, max_active=1)
    first, waiting = (control.arrive(Caller(), 100) for _ in range(2))
    for visit in (first, waiting):
        control.queue(visit)
    clock.now_s += 1
    control.tick()
    act_ms = waiting.priority
    assert act_ms > control.arrive(Caller(), 100).priority
    control.configure(control.config.model_copy(update=dict(mode=mode)))
    assert waiting.ticket is not None and waiting.ticket.is_inside
    assert waiting.priority < control.arrive(Caller(), 100).priority
    assert waiting.priority < order_by_arrival(0, round(clock.now_s * 1e9))
    control.configure(control.config.model_copy(update=dict(mode=ControlMode.ACT)))
    assert waiting.priority == act_ms


async def test_an_answer_in_one_piece_has_no_first_token_and_burns_nothing() -> None:
    clock = ManualClock(1000.0)
    control = make(clock)
    control.arrive(Caller(), 100).is_streamed = False
    clock.now_s += 100
    assert control.read() == {}


async def test_a_request_is_not_late_before_the_engine_is_asked_to_stream() -> None:
    clock = ManualClock(1000.0)
    control = make(clock, max_active=1)
    # Embeddings are never streamed; of a request at the gate it is not known yet.
    inside, waiting = (control.arrive(Caller(), 100) for _ in range(2))
    for visit in (inside, waiting):
        control.queue(visit)
    control.enter(inside)
    clock.now_s += 1
    assert control.read() == {}
    assert control.tick() is None
    # What is late once it is known counts at once, as does a refusal.
    control.leave(inside, 0)
    control.enter(waiting)
    waiting.is_streamed = True
    assert control.read()["interactive"].num_bad == 1
    control.give_up(control.arrive(Caller(), 100))
    assert control.read()["interactive"].num_bad == 2


async def test_limits_reach_the_engine_and_are_taken_back(tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    file = LimitsFile.create(tmp_path / "limits")
    config = ControlConfig(classes=CLASSES, default_class="interactive", recover_s=1.0)
    control = AdmissionControl(config, 4, file, clock)
    for _ in range(4):
        burn(control, clock, 40)
        control.tick()
    written = LimitsFile(tmp_path / "limits").read_bytes()
    assert decode_limits(written) == EngineLimits(0.25, 0.0)
    for _ in range(200):
        clock.now_s += 1
        control.tick()
    assert control.level == 0
    assert decode_limits(file.read_bytes()) == EngineLimits()


async def test_the_kill_switch_is_in_the_file(tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    path = tmp_path / "control.toml"
    path.write_text("mode = 'act'\n[tenant]\nactive = 1\n")
    control = make(clock)
    events: list[tuple[str, dict[str, Any]]] = []
    service = serve(
        control,
        path,
        lambda name, attributes, *_: events.append((name, dict(attributes))),
    )
    burn(control, clock)
    service.tick()
    assert control.level == 1

    path.write_text("mode = nonsense")
    service.tick()
    assert control.config.mode is ControlMode.ACT
    assert control.level == 1

    path.write_text("mode = 'off'")
    service.tick()
    assert control.config.mode is ControlMode.OFF
    assert control.level == 0
    service.close()
    levers = [attributes["evenkeel.control.lever"] for _, attributes in events]
    assert levers == ["prefill_chunk", "mode"]
    assert {name for name, _ in events} == {"evenkeel.control"}
    step = events[0][1]
    assert step["evenkeel.control.burn_before"] == pytest.approx(100)
    assert step["evenkeel.control.bad_before"] == step["evenkeel.control.bad_after"] == 10
    assert step["evenkeel.control.good_before"] == 0


async def test_the_effect_of_a_step_is_read_one_window_later_whatever_the_wall_clock_says(
    tmp_path: Path,
) -> None:
    clock = ManualClock(1000.0)
    path = tmp_path / "control.toml"
    path.write_text("mode = 'act'\nwindow_s = 10\n")
    control = make(clock)
    times: list[tuple[int, int]] = []
    service = serve(
        control,
        path,
        lambda name, attributes, start_ns, end_ns: times.append((start_ns, end_ns)),
    )
    burn(control, clock)
    service.tick()
    clock.now_s += 9
    service.tick()
    assert times == []
    clock.now_s += 1
    service.tick()
    ((start_ns, end_ns),) = times
    assert start_ns <= end_ns


async def test_ticks_that_fail_are_counted_and_the_first_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    control = make(ManualClock(1000.0))
    config = control.config
    file = WatchedFile(tmp_path / "none", lambda _: config, logging.getLogger("tests"))
    service = ControlService(control, file, lambda *_: None)
    monkeypatch.setattr("evenkeel_runtime.control.service.TICK_S", 0.001)
    monkeypatch.setattr(control, "tick", fail)
    running = asyncio.create_task(service.run())
    while control.counts.errors < 3:
        await asyncio.sleep(0.001)
    running.cancel()
    assert caplog.text.count("a control tick failed") == 1


async def test_a_file_read_again_keeps_what_was_used_and_who_is_in() -> None:
    clock = ManualClock(1000.0)
    control = make(clock, tenant=Quota(requests_per_minute=2, active=4))
    inside = [control.arrive(Caller(tenant="acme"), 100) for _ in range(2)]
    # Larger by one request, and one more place for each tenant; sessions are bounded now, too.
    quota = Quota(requests_per_minute=3, active=3)
    control.configure(control.config.model_copy(update=dict(tenant=quota, session=Quota(active=1))))
    control.arrive(Caller(tenant="acme", session_id="s"), 100)
    with pytest.raises(RefusedError, match="quota exhausted for this tenant"):
        control.arrive(Caller(tenant="acme"), 100)
    clock.now_s += 60
    with pytest.raises(RefusedError, match="quota exhausted for this tenant"):
        control.arrive(Caller(tenant="acme"), 100)
    for visit in inside:
        control.leave(visit, 0)
    with pytest.raises(RefusedError, match="quota exhausted for this session"):
        control.arrive(Caller(tenant="acme", session_id="s"), 100)
    control.arrive(Caller(tenant="acme"), 100)


async def test_a_quota_that_is_new_counts_who_is_in() -> None:
    control = make(ManualClock(1000.0))
    inside = control.arrive(Caller(tenant="acme"), 100)
    control.configure(control.config.model_copy(update=dict(tenant=Quota(active=1))))
    with pytest.raises(RefusedError, match="quota exhausted for this tenant"):
        control.arrive(Caller(tenant="acme"), 100)
    control.leave(inside, 0)
    control.arrive(Caller(tenant="acme"), 100)


async def test_a_file_read_again_keeps_the_steps_that_mean_the_same() -> None:
    clock = ManualClock(1000.0)
    control = make(clock)
    for _ in range(2):
        burn(control, clock, 40)
        assert control.tick() is not None
    limits, burning = control.limits, control.burn()
    classes = {**CLASSES, "archive": SloClass(ttft_s=60.0)}
    more = control.config.model_copy(update=dict(window_s=20.0, max_active=3, classes=classes))
    control.configure(more)
    assert (control.level, control.limits) == (2, limits)
    assert control.burn() == burning
    assert control.gate.room.urgent == 3
    # A dry run's steps are nobody's: acting begins at the first.
    control.configure(control.config.model_copy(update=dict(mode=ControlMode.DRY_RUN)))
    assert control.level == 0


def test_limits_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    others = [tmp_path / f"limits-{ended.pid}", tmp_path / "limits-1", tmp_path / "limits-note"]
    for path in others:
        path.touch()
    assert limits_path(tmp_path) == tmp_path / f"limits-{os.getpid()}"
    assert [path.exists() for path in others] == [False, True, True]


def slowed(config: ControlConfig, clock: ManualClock) -> AdmissionControl:
    """Return a control whose interactive requests were so slow that others get 16 places."""
    control = AdmissionControl(config, num_slots=64, clock=clock)
    for _ in range(32):
        visit = control.arrive(Caller(slo_class="interactive"), 100)
        control.queue(visit)
        control.enter(visit)
        clock.now_s += 0.19
        control.record_first_token(visit)
        control.leave(visit, 10)
    return control


@pytest.mark.parametrize("mode", [ControlMode.ACT, ControlMode.DRY_RUN])
async def test_a_batch_request_that_is_nearly_due_goes_in_without_anything_else_happening(
    mode: ControlMode,
) -> None:
    clock = ManualClock(1000.0)
    config = ControlConfig(mode=mode, classes=CLASSES, default_class="interactive")
    control = slowed(config, clock)
    batch = [control.arrive(Caller(slo_class="batch"), 100) for _ in range(17)]
    for visit in batch:
        control.queue(visit)
    last = batch[-1].ticket if mode is ControlMode.ACT else batch[-1].shadow
    assert last is not None and not last.is_inside
    clock.now_s += 29.9
    control.tick()
    assert last.is_inside


async def test_what_requests_were_held_back_for_is_forgotten_with_the_class() -> None:
    clock = ManualClock(1000.0)
    config = ControlConfig(classes=CLASSES, default_class="interactive")
    control = slowed(config, clock)
    room = control.gate.room
    assert (room.urgent, room.patient, room.urgent_s) == (64, 16, 0.2)
    control.queue(control.arrive(Caller(slo_class="batch"), 100))
    assert control.gate.room == room
    # Nobody interactive any more: batch is served as if it had always been alone.
    clock.now_s += 4
    # What does not come to the gate, such as a request without a key, does not count.
    control.arrive(Caller(slo_class="interactive"), 100)
    control.queue(control.arrive(Caller(slo_class="batch"), 100))
    room = control.gate.room
    assert (room.urgent, room.late, room.urgent_s) == (64, 64, 30.0)
