"""Settings of speculation: section `[speculation]`, variables `EVENKEEL_SPECULATION_…`.

The server and the engine's process both read them; the latter inherits the server's environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.settings import Settings

REPORTS_VARIABLE = "EVENKEEL_SPECULATION_REPORTS"


class SpeculationSettings(Settings):
    """What speculation can be told; docs/speculation.md explains each.

    Attributes:
        max_tokens: Longest draft.
        store_bytes: Memory for past answers in each engine.
        store_file: Where past answers are kept between runs; nowhere where unset.
        canary_ratio: Share of finished greedy requests answered again without drafts.
        reports: Whether the engine tells the server of drafts; `evenkeel serve` sets it.
        raise_internal_errors: Raise the hook's own errors instead of switching it off (tests).
    """

    section: ClassVar[str] = "speculation"

    max_tokens: int = Field(default=15, ge=1, le=64)
    store_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    store_file: Path | None = None
    canary_ratio: float = Field(default=0.001, ge=0, le=1)
    reports: bool = False
    raise_internal_errors: bool = False
