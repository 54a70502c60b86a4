"""Settings of evaluation runs: `[eval]` in evenkeel.toml, `EVENKEEL_EVAL_…` in the environment."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr

from evenkeel.secret_text import SecretAddress
from evenkeel.settings import Ratio, Settings

NO_STORE = "none"


class EvalSettings(Settings):
    """Settings of a run other than its dataset, sides and gates."""

    section: ClassVar[str] = "eval"

    url: SecretAddress = Field(
        default=SecretAddress("http://127.0.0.1:8000"),
        description="server for sides that do not name one",
    )
    otlp_endpoint: SecretAddress = Field(
        default=SecretAddress("http://127.0.0.1:4318"),
        description="where to send results as OTLP spans over HTTP; `none` sends nothing",
    )
    collector_url: SecretAddress = Field(
        default=SecretAddress(NO_STORE),
        description="collector that rolls back prompts for `eval live --act`, with an entry in its "
        "audit log; `none` uses the registry in prompts_dir",
    )
    collector_token: SecretStr | None = Field(
        default=None, description="token for that collector, with scopes query and admin"
    )
    store_url: SecretAddress = Field(
        default=SecretAddress(NO_STORE),
        description="store from which `eval run` reads times to split a latency change by cause, "
        "and `eval live`, `grow` and `bisect` read requests (http://127.0.0.1:8123 if `none`)",
    )
    prompts_dir: Path = Field(
        default=Path("prompts"), description="prompt registry that sides refer to"
    )
    cache_dir: Path = Field(
        default=Path("~/.cache/evenkeel"),
        description="where `eval grow` caches the embeddings of questions; must be your own folder",
    )
    dashboard_url: str = Field(
        default="http://127.0.0.1:8501",
        description="dashboard that trace links in the HTML report open",
    )
    concurrency: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="pairs in flight at once, the same load for both sides",
    )
    slo_class: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,256}$",
        description="SLO class of the requests: with looser limits than users' classes, admission "
        "control lets users' requests go first; without it, they count as the default class",
    )
    seed: int = Field(
        default=0, ge=0, description="seed for the order of items and sides, and for the bootstrap"
    )
    timeout_s: float = Field(default=120.0, gt=0, description="timeout per answer, in seconds")
    retry_s: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="how long to retry a server that is down or answers 429 or 503, in seconds, "
        "before the run pauses",
    )
    max_unmeasured_ratio: Ratio = Field(
        default=0.05,
        ge=0,
        le=1,
        description='largest share of pairs without a score; above it, the run ends as "could '
        'not measure"',
    )
    api_key: SecretStr | None = Field(
        default=None,
        description="bearer token for the servers; an evenkeel runtime needs none",
    )
    judge_api_key: SecretStr | None = Field(
        default=None,
        description="bearer token for a judge on a separate server; for a judge on a side's "
        "server, api_key is used",
    )

    def judge_key(self, judge_url: str, side_urls: Collection[str | None]) -> str | None:
        """Return the judge's key; one server's key is never sent to another."""
        secret = self.judge_api_key
        if secret is None and judge_url in side_urls:
            secret = self.api_key
        return None if secret is None else secret.get_secret_value()

    def store_address(self, default: str) -> str:
        """Return the store's URL, password included; `default` if it is set to `none`."""
        address = self.store_url.get_secret_value()
        return default if address == NO_STORE else address
