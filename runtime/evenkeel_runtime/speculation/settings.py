"""Settings of speculation: section `[speculation]`, variables `EVENKEEL_SPECULATION_…`.

Both the server and the engine's process read them; the engine inherits the server's environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.settings import Settings, handed_down

REPORTS_VARIABLE = "EVENKEEL_SPECULATION_REPORTS"


class SpeculationSettings(Settings):
    """Settings of speculation; docs/guide/speculation.md explains each."""

    section: ClassVar[str] = "speculation"
    flag_prefix: ClassVar[str] = "speculation-"

    max_tokens: int = Field(default=15, ge=1, le=64, description="longest draft, in tokens")
    store_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=64 * 1024,
        description="memory for past answers in each engine",
    )
    store_file: Path | None = Field(
        default=None,
        description="folder that stores past answers between runs, as plain text; not stored "
        "if unset",
    )
    canary_ratio: float = Field(
        default=0.001,
        ge=0,
        le=1,
        description="share of finished greedy requests regenerated without drafts",
    )
    reports: bool = handed_down(False, "whether the engine reports drafts to the server")
