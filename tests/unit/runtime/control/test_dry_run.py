"""A dry run of control: what it counts, and what it must not do."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import (
    ControlMode,
    Quota,
    SloClass,
)
from evenkeel_runtime.control.costs import RenderedPrompt
from evenkeel_runtime.control.measure import measure
from evenkeel_runtime.control.visit import RefusedError, Visit
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.manual_clock import ManualClock
from tests.unit.runtime.control.admission import CLASSES, burn, crowd, make, serve


async def test_a_dry_run_lets_everybody_in_and_counts_what_it_would_do() -> None:
    clock = ManualClock(1000.0)
    classes = CLASSES | {"brief": SloClass(ttft_s=60.0, queue_deadline_s=10.0)}
    quotas = {"acme": Quota(requests_per_minute=1)}
    control = make(clock, mode=ControlMode.DRY_RUN, max_active=1, tenants=quotas)
    control.configure(control.config.model_copy(update={"classes": classes}))
    waiting = crowd(control, clock, 100)
    assert all(visit.ticket is not None and visit.ticket.is_inside for visit in waiting)
    for _ in range(3):
        visit = control.arrive(Caller(slo_class="brief", tenant="acme"), 100)
        assert control.queue(visit).is_inside
        control.leave(visit, 0)
    # As when it acts, a request that is shed costs its tenant nothing.
    assert control.counts.would_refuse == {("brief", "shed"): 3}
    served = control.arrive(Caller(slo_class="interactive", tenant="acme"), 100)
    for _ in range(2):
        visit = control.arrive(Caller(slo_class="brief", tenant="acme"), 100)
        assert control.queue(visit).is_inside
        control.leave(visit, 0)
    # Over their quota, which is why they would be refused.
    assert control.counts.would_refuse == {("brief", "shed"): 3, ("brief", "quota"): 2}
    control.leave(served, 0)
    patient = control.arrive(Caller(slo_class="interactive"), 100)
    control.queue(patient)
    clock.now_s += 3
    control.leave(patient, 0)
    assert control.counts.would_refuse["interactive", "queue_deadline"] == 1
    # Over its quota and too late besides: refused once.
    overdrawn = control.arrive(Caller(slo_class="interactive", tenant="acme"), 100)
    control.queue(overdrawn)
    clock.now_s += 3
    control.leave(overdrawn, 0)
    assert control.counts.would_refuse["interactive", "quota"] == 1
    assert control.counts.would_refuse["interactive", "queue_deadline"] == 1
    assert control.counts.refused == {}


async def test_a_dry_run_counts_who_would_be_given_up_while_it_is_still_served() -> None:
    clock = ManualClock(1000.0)
    classes = CLASSES | {"brief": SloClass(ttft_s=60.0, queue_deadline_s=10.0)}
    control = make(clock, mode=ControlMode.DRY_RUN, max_active=1)
    control.configure(control.config.model_copy(update={"classes": classes}))
    visits = [control.arrive(Caller(slo_class="brief"), 100) for _ in range(3)]
    for visit in visits:
        control.queue(visit)
    clock.now_s += 9
    control.tick()
    assert control.counts.would_refuse == {}
    clock.now_s += 2
    for _ in range(2):
        control.tick()
        # One is inside, and nobody waits behind the two any more.
        assert control.counts.would_refuse == {("brief", "queue_deadline"): 2}
    for visit in visits:
        control.leave(visit, 0)
    assert control.counts.would_refuse == {("brief", "queue_deadline"): 2}


async def test_whom_a_dry_run_would_have_refused_burns_if_its_client_gives_up() -> None:
    """It is served, so nothing but its first token says that it is late."""
    clock = ManualClock(1000.0)
    control = make(clock, mode=ControlMode.DRY_RUN, max_active=1)
    visits = [control.arrive(Caller(slo_class="interactive"), 100) for _ in range(3)]
    for visit in visits:
        visit.is_streamed = True
        control.queue(visit)
    clock.now_s += 3
    control.tick()
    assert control.counts.would_refuse == {("interactive", "queue_deadline"): 2}
    assert control.read()["interactive"].num_bad == 3
    for visit in visits:
        control.leave(visit, 0)
    assert control.read()["interactive"].num_bad == 3


def count_refused(control: AdmissionControl) -> int:
    """Return how many requests were refused (in a dry run: would have been)."""
    return (control.counts.refused + control.counts.would_refuse).total()


def count_refused_in(
    mode: ControlMode, quota: Quota, every_s: float, takes_s: float, tokens: int
) -> tuple[AdmissionControl, ManualClock]:
    """Let 1000 requests of one tenant arrive, each of which ends after a while."""
    clock = ManualClock(1000.0)
    control = make(clock, mode=mode, tenant=quota)
    running: list[tuple[float, Visit]] = []
    for _ in range(1000):
        clock.now_s += every_s
        while running and running[0][0] <= clock.now_s:
            control.leave(running.pop(0)[1], tokens)
        with suppress(RefusedError):
            running.append((clock.now_s + takes_s, control.arrive(Caller(tenant="acme"), 100)))
    for _, visit in running:
        control.leave(visit, tokens)
    return control, clock


@pytest.mark.parametrize(
    ("quota", "every_s", "takes_s"),
    [
        pytest.param(Quota(requests_per_minute=60), 0.5, 0.0, id="requests"),
        pytest.param(Quota(tokens_per_minute=6000), 1.0, 0.0, id="tokens"),
        pytest.param(Quota(active=4), 1.0, 8.0, id="places"),
    ],
)
async def test_a_dry_run_counts_as_many_over_a_quota_as_would_be_refused(
    quota: Quota, every_s: float, takes_s: float
) -> None:
    acting, clock = count_refused_in(ControlMode.ACT, quota, every_s, takes_s, 120)
    dry, dry_clock = count_refused_in(ControlMode.DRY_RUN, quota, every_s, takes_s, 120)
    assert 0 < count_refused(acting) == count_refused(dry)
    # Switched to act, it refuses no more than if it had always acted.
    dry.configure(dry.config.model_copy(update={"mode": ControlMode.ACT}))
    for control in (acting, dry):
        clock.now_s = dry_clock.now_s = clock.now_s + 3
        control.arrive(Caller(tenant="acme"), 100)


async def test_what_a_dry_run_would_refuse_costs_its_tenant_nothing() -> None:
    clock = ManualClock(1000.0)
    classes = CLASSES | {"brief": SloClass(ttft_s=60.0, queue_deadline_s=10.0)}
    quotas = {
        "acme": Quota(requests_per_minute=1, active=1, tokens_per_minute=10),
        "long": Quota(requests_per_minute=1, context_tokens=10),
    }
    control = make(clock, mode=ControlMode.DRY_RUN, max_active=1, tenants=quotas)
    control.configure(control.config.model_copy(update={"classes": classes}))
    control.queue(control.arrive(Caller(slo_class="brief"), 100))
    given_up = control.arrive(Caller(slo_class="brief", tenant="acme"), 100)
    control.queue(given_up)
    clock.now_s += 11
    control.tick()
    # It is still served, but would have left its tenant's quota long ago.
    following = control.arrive(Caller(slo_class="brief", tenant="acme"), 100)
    control.leave(given_up, 1000)
    control.leave(following, 0)
    clock.now_s += 60
    assert control.arrive(Caller(slo_class="brief", tenant="acme"), 100).accounts
    assert control.counts.would_refuse == {("brief", "queue_deadline"): 1}

    for _ in range(2):
        too_long = control.arrive(Caller(slo_class="brief", tenant="long"), 100)
        # Two prompts of one request.
        for _ in range(2):
            measure(control, too_long, RenderedPrompt([1] * 20))
        control.leave(too_long, 1000)
    assert control.counts.would_refuse["brief", "context_length"] == 2
    assert control.counts.would_refuse["brief", "quota"] == 0


async def test_what_a_dry_run_let_pass_takes_no_place_once_control_acts() -> None:
    control = make(ManualClock(1000.0), mode=ControlMode.DRY_RUN, tenant=Quota(active=1))
    inside, beyond = (control.arrive(Caller(tenant="acme"), 100) for _ in range(2))
    control.configure(control.config.model_copy(update={"mode": ControlMode.ACT}))
    control.leave(inside, 0)
    control.arrive(Caller(tenant="acme"), 100)
    control.leave(beyond, 0)
    with pytest.raises(RefusedError, match="quota exhausted"):
        control.arrive(Caller(tenant="acme"), 100)


async def test_a_switch_takes_effect_also_where_it_ends_in_a_dry_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(1000.0)
    path = tmp_path / "control.toml"
    path.write_text("mode = 'act'")
    control = make(clock)
    events: list[dict[str, Any]] = []
    service = serve(
        control,
        path,
        lambda name, attributes, *_: events.append(dict(attributes)),
    )
    service.tick()
    path.write_text("mode = 'dry-run'")
    service.tick()
    burn(control, clock)
    service.tick()
    service.close()
    seen = [(e["evenkeel.control.change"], e["evenkeel.control.is_dry_run"]) for e in events]
    assert seen[0] == ("mode act -> dry-run", False)
    assert [is_dry_run for _, is_dry_run in seen[1:]] == [True]
    assert "control switched: mode act -> dry-run" in caplog.text
    assert "control would act: prefill_chunk" in caplog.text
