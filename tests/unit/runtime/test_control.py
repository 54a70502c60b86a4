"""Control as a whole: refusals, dry run, kill switch, what a tick does."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.caller import Caller
from runtime.control import Control, RefusedError
from runtime.control_config import ControlConfig, Mode, Quota, SloClass
from runtime.control_limits import EngineLimits, LimitsFile
from runtime.control_service import ControlService

CLASSES = {"interactive": SloClass(0.2), "batch": SloClass(30.0, target=0.9)}


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def scenario() -> None:
        await test()

    asyncio.run(scenario())


def make(clock: Clock, **fields: Any) -> Control:
    config = ControlConfig(classes=CLASSES, default_class="interactive", **fields)
    return Control(config, num_slots=4, clock=clock)


def burn(control: Control, clock: Clock, num_bad: int = 10) -> None:
    """Let so many interactive requests have a late first token."""
    for _ in range(num_bad):
        visit = control.arrive(Caller(slo_class="interactive"), 100)
        clock.now_s += 0.3
        control.note_first_token(visit)
        control.leave(visit, 10)


def test_a_burning_class_sheds_the_lowest_and_says_when_to_come_back() -> None:
    async def scenario() -> None:
        clock = Clock()
        control = make(clock)
        burn(control, clock)
        change = control.tick()
        assert change is not None
        assert change.after == "batch"
        with pytest.raises(RefusedError) as caught:
            control.arrive(Caller(slo_class="batch"), 100)
        assert (caught.value.status, caught.value.reason) == (503, "shed")
        assert caught.value.retry_after_s == 20
        control.arrive(Caller(slo_class="interactive"), 100)
        assert control.counts.refused == {("batch", "shed"): 1}

    in_loop(scenario)


def test_a_dry_run_climbs_and_refuses_nobody() -> None:
    async def scenario() -> None:
        clock = Clock()
        control = make(clock, mode=Mode.DRY_RUN, tenant=Quota(requests_per_minute=1))
        burn(control, clock)
        assert control.tick() is not None
        for _ in range(10):
            assert control.arrive(Caller(slo_class="batch"), 100).ticket.is_inside
        assert control.counts.refused == {}
        assert control.counts.would_refuse["interactive", "quota"] == 9
        assert sum(control.counts.would_refuse.values()) == 19

    in_loop(scenario)


def test_quotas_are_answered_with_429() -> None:
    async def scenario() -> None:
        control = make(Clock(), tenant=Quota(requests_per_minute=60))
        for _ in range(60):
            control.arrive(Caller(tenant="acme"), 100)
        with pytest.raises(RefusedError) as caught:
            control.arrive(Caller(tenant="acme"), 100)
        assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
        control.arrive(Caller(tenant="other"), 100)

    in_loop(scenario)


def test_an_unknown_class_is_served_as_the_default_one() -> None:
    async def scenario() -> None:
        control = make(Clock())
        assert control.arrive(Caller(slo_class="urgent"), 100).slo_class == "interactive"
        assert control.counts.unknown_classes == 1

    in_loop(scenario)


def test_long_prompts_are_due_later_but_not_for_ever() -> None:
    async def scenario() -> None:
        control = make(Clock())
        short, long, huge = (
            control.arrive(Caller(), size).priority for size in (1_000, 65_536, 100_000_000)
        )
        assert short == 1_000_200
        assert long == 1_000_800
        assert huge == 1_001_600

    in_loop(scenario)


def test_a_request_without_a_first_token_burns_once_it_is_late() -> None:
    async def scenario() -> None:
        clock = Clock()
        control = make(clock)
        for _ in range(5):
            control.arrive(Caller(), 100).is_streamed = True
        assert control.burn() == 0
        clock.now_s += 1
        assert control.read()["interactive"].num_bad == 5
        assert control.tick() is not None

    in_loop(scenario)


def test_an_answer_in_one_piece_has_no_first_token_and_burns_nothing() -> None:
    async def scenario() -> None:
        clock = Clock()
        control = make(clock)
        control.arrive(Caller(), 100).is_streamed = False
        clock.now_s += 100
        assert control.read() == {}

    in_loop(scenario)


def test_limits_reach_the_engine_and_are_taken_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = Clock()
        file = LimitsFile.create(tmp_path / "limits")
        config = ControlConfig(classes=CLASSES, default_class="interactive", recover_s=1.0)
        control = Control(config, 4, file, clock)
        for _ in range(4):
            burn(control, clock, 40)
            control.tick()
        assert LimitsFile(tmp_path / "limits").read() == EngineLimits(0.25, 0.0)
        for _ in range(200):
            clock.now_s += 1
            control.tick()
        assert control.level == 0
        assert file.read() == EngineLimits()

    in_loop(scenario)


def test_the_kill_switch_is_in_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = Clock()
        path = tmp_path / "control.toml"
        path.write_text("mode = 'act'\n[tenant]\nactive = 1\n")
        control = make(clock)
        events: list[tuple[str, dict[str, Any]]] = []
        service = ControlService(
            control, path, lambda name, attributes, *_: events.append((name, dict(attributes)))
        )
        burn(control, clock)
        service.tick()
        assert control.level == 1

        path.write_text("mode = nonsense")
        service.tick()
        assert control.config.mode is Mode.ACT
        assert control.level == 1

        path.write_text("mode = 'off'")
        service.tick()
        assert control.config.mode is Mode.OFF
        assert control.level == 0
        service.close()
        levers = [attributes["evenkeel.control.lever"] for _, attributes in events]
        assert levers == ["shed", "mode"]
        assert {name for name, _ in events} == {"evenkeel.control"}
        assert events[0][1]["evenkeel.control.burn_before"] == pytest.approx(100)

    in_loop(scenario)
