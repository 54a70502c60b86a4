"""Settings of evaluation runs: `[eval]` in evenkeel.toml, `EVENKEEL_EVAL_…` in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr

from evenkeel.settings import Settings


class EvalSettings(Settings):
    """What a run needs besides its dataset, sides and gates."""

    section: ClassVar[str] = "eval"

    url: str = "http://127.0.0.1:8000"
    """Server of a side that names none."""
    otlp_endpoint: str = "http://127.0.0.1:4318"
    """Where results go as spans, OTLP over HTTP; `none` keeps them here."""
    store_url: str = "none"
    """Where the server's own times are read, to split a latency change by cause; `none`: not."""
    prompts_dir: Path = Path("prompts")
    """The prompt registry that sides refer to."""
    dashboard_url: str = "http://127.0.0.1:8501"
    """Where the HTML report's links to traces lead."""
    concurrency: int = Field(default=4, ge=1, le=1024)
    """Pairs in flight at once; both sides see the same load."""
    seed: int = 0
    """Order of items and sides, and the bootstrap."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Longest time one answer may take."""
    max_unmeasured_ratio: float = Field(default=0.05, ge=0, le=1)
    """Share of pairs without a score on both sides above which a run could not measure."""
    api_key: SecretStr | None = None
    """Bearer token for the servers; not needed for a runtime of our own."""
    judge_api_key: SecretStr | None = None
    """Bearer token for a judge on a server of its own; on a side's server `api_key` serves."""
