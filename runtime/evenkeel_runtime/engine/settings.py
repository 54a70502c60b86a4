"""Settings of the step hook: section `[steps]`, variables `EVENKEEL_STEPS_…`.

The engine's process reads them from its environment, which it inherits from the server however vLLM
starts it. vLLM's own `--additional-config` would change the key of its compile cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.settings import Settings, handed_down

SOCKET_VARIABLE = "EVENKEEL_STEPS_SOCKET"


class StepSettings(Settings):
    """Settings of the step hook; docs/inside/ledger.md explains each."""

    section: ClassVar[str] = "steps"
    flag_prefix: ClassVar[str] = "steps-"

    socket: str | None = handed_down(
        None, "ZeroMQ address to send step records to; if unset, nothing is recorded"
    )
    limits_file: Path | None = handed_down(
        None, "file to which control writes its limits on steps; if unset, none are applied"
    )
    interval_s: float = Field(
        default=0.05,
        ge=0,
        le=10,
        description="maximum time to collect step records before sending them, in seconds",
    )
    queue_batches: int = Field(
        default=256,
        ge=1,
        description="maximum number of batches queued for a slow reader; more are dropped and "
        "counted",
    )
    seen_blocks: int = Field(
        default=65_536,
        ge=0,
        description="maximum number of prefix-cache blocks to remember, to distinguish lost hits "
        "from new prompts",
    )
