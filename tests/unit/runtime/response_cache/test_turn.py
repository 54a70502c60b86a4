"""A request that the cache does not answer waits for its turn, and goes in as what it is then."""

import asyncio
from types import SimpleNamespace
from typing import Any

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.gate import Standing
from evenkeel_runtime.request.hook import enter_engine
from evenkeel_runtime.response_cache.replays import EngineCall
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.control_files import control_of


def test_who_is_late_when_its_turn_comes_is_late_in_vllms_queue_too() -> None:
    async def enter() -> tuple[int, int]:
        control = AdmissionControl(control_of(""), num_slots=1)
        visit = control.arrive(Caller(), 0)
        early = visit.priority

        async def come_late() -> None:
            control.queue(visit)
            assert visit.ticket is not None
            visit.ticket.standing = Standing.LATE

        request = SimpleNamespace(door=SimpleNamespace(enter=come_late), visit=visit)
        run: Any = SimpleNamespace(request=request, submitted_ns=0)
        call = EngineCall(run, "prompt", None, "id", {"priority": early})
        await enter_engine(call.run, call.options)
        return early, call.options["priority"]

    early, late = asyncio.run(enter())
    assert late > early
