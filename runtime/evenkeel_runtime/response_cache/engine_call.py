"""One call of the engine, and waiting for its turn."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from evenkeel_runtime.request.trace import EngineRun


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the engine."""

    run: EngineRun
    prompt: Any
    params: Any
    request_id: str
    options: dict[str, Any]


async def enter(call: Call) -> None:
    """Wait for the request's turn if control queues it: the engine must answer it."""
    run = call.run
    if run.request is not None and run.request.door is not None:
        await run.request.door.enter()
        if run.request.visit is not None:
            # Its lateness is known now that the gate has admitted it.
            call.options["priority"] = run.request.visit.priority
    run.submitted_ns = monotonic_ns()
