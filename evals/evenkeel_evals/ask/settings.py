"""Settings of evaluation runs: `[eval]` in evenkeel.toml, `EVENKEEL_EVAL_…` in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr

from evenkeel.secret_text import SecretAddress
from evenkeel.settings import Settings

NO_STORE = "none"


class EvalSettings(Settings):
    """What a run needs besides its dataset, sides and gates."""

    section: ClassVar[str] = "eval"

    url: str = Field(
        default="http://127.0.0.1:8000", description="server of a side that names none"
    )
    otlp_endpoint: SecretAddress = Field(
        default=SecretAddress("http://127.0.0.1:4318"),
        description="where results go as spans, OTLP over HTTP; `none` keeps them here",
    )
    collector_url: SecretAddress = Field(
        default=SecretAddress(NO_STORE),
        description="collector whose prompts `eval live --act` rolls back, with its audit; `none` "
        "takes the registry in prompts_dir",
    )
    collector_token: SecretStr | None = Field(
        default=None, description="token for that collector, with the scopes query and admin"
    )
    store_url: SecretAddress = Field(
        default=SecretAddress(NO_STORE),
        description="store with the server's own times, to split a latency change by cause; "
        "`eval live`, `grow` and `bisect` read http://127.0.0.1:8123 where it is `none`",
    )
    prompts_dir: Path = Field(
        default=Path("prompts"), description="the prompt registry that sides refer to"
    )
    cache_dir: Path = Field(
        default=Path("~/.cache/evenkeel"),
        description="where `eval grow` keeps the embeddings of questions; your own folder",
    )
    dashboard_url: str = Field(
        default="http://127.0.0.1:8501",
        description="where the HTML report's links to traces lead",
    )
    concurrency: int = Field(
        default=4, ge=1, le=1024, description="pairs in flight at once; both sides see that load"
    )
    seed: int = Field(default=0, description="order of items and sides, and the bootstrap")
    timeout_s: float = Field(
        default=120.0, gt=0, description="longest time one answer may take, in seconds"
    )
    retry_s: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="longest time to wait for a server that is gone or answers 429 or 503, in "
        "seconds; then the run pauses",
    )
    max_unmeasured_ratio: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="share of pairs without a score above which a run could not measure",
    )
    api_key: SecretStr | None = Field(
        default=None,
        description="bearer token for the servers; not needed for a runtime of our own",
    )
    judge_api_key: SecretStr | None = Field(
        default=None,
        description="bearer token for a judge on a server of its own; on a side's server api_key "
        "serves",
    )

    def store_address(self, default: str) -> str:
        """Return where the store is, password included; `default` where it is `none`."""
        address = self.store_url.get_secret_value()
        return default if address == NO_STORE else address
