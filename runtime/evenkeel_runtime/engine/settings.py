"""Settings of the step hook: section `[steps]`, variables `EVENKEEL_STEPS_…`.

The engine's process learns them from its environment, which it inherits from the server however
vLLM starts it; vLLM's own `--additional-config` would enter the key of its compile cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.settings import Settings, handed_down

SOCKET_VARIABLE = "EVENKEEL_STEPS_SOCKET"


class StepSettings(Settings):
    """What the step hook can be told; docs/ledger.md explains each."""

    section: ClassVar[str] = "steps"
    flag_prefix: ClassVar[str] = "steps-"

    socket: str | None = handed_down(
        None, "ZeroMQ address that step records go to; without one nothing is recorded"
    )
    limits_file: Path | None = handed_down(
        None, "where control writes its limits on steps; without it none are applied"
    )
    interval_s: float = Field(
        default=0.05,
        ge=0,
        le=10,
        description="longest a record waits for others in the engine's process, in seconds",
    )
    queue_batches: int = Field(
        default=256,
        ge=1,
        description="most batches that wait there for a slow reader; later ones are dropped and "
        "counted",
    )
    seen_blocks: int = Field(
        default=65_536,
        ge=0,
        description="most prefix-cache blocks remembered, to tell a lost hit from a new prompt",
    )
