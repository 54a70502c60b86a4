"""Settings of speculation: section `[speculation]`, variables `EVENKEEL_SPECULATION_…`.

Both the server and the engine's process read them; the engine inherits the server's environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.settings import Ratio, Settings, handed_down

# vLLM's rejection sampler verifies no more tokens per request and step (MAX_SPEC_LEN in
# vllm/v1/sample/rejection_sampler.py).
MAX_VERIFIED_TOKENS = 128
REPORTS_VARIABLE = "EVENKEEL_SPECULATION_REPORTS"


class SpeculationSettings(Settings):
    """Settings of speculation; docs/guide/speculation.md explains each."""

    section: ClassVar[str] = "speculation"
    flag_prefix: ClassVar[str] = "speculation-"

    max_tokens: int = Field(
        default=15,
        ge=1,
        le=MAX_VERIFIED_TOKENS,
        description="longest draft per step from the request's own text, in tokens; on a GPU the "
        "longest draft of any kind",
    )
    answer_tokens: int = Field(
        default=MAX_VERIFIED_TOKENS,
        ge=1,
        le=MAX_VERIFIED_TOKENS,
        description="longest part of a cached or past answer verified per step, in tokens; on a "
        "GPU `max_tokens` applies instead",
    )
    store_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=64 * 1024,
        description="memory for past answers in each engine",
    )
    store_file: Path | None = Field(
        default=None,
        description="file that keeps past answers between runs, as unencrypted token ids; not kept "
        "if unset",
    )
    canary_ratio: Ratio = Field(
        default=0.001,
        ge=0,
        le=1,
        description="share of finished greedy requests regenerated without drafts",
    )
    reports: bool = handed_down(False, "whether the engine reports drafts to the server")
