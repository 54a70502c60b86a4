"""Settings of the runtime: section `[runtime]`, variables `EVENKEEL_RUNTIME_…`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.secret_text import SecretAddress
from evenkeel.settings import Host, Settings

_MEBIBYTE = 1 << 20


class RuntimeSettings(Settings):
    """Settings of `evenkeel serve`, listed in docs/reference/settings.md."""

    section: ClassVar[str] = "runtime"

    host: Host = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=1, le=65535, description="the OpenAI API and /metrics")
    data_dir: Path = Field(
        default=Path("data"),
        description="data kept between runs: vLLM's caches, "
        "and evidence and audit log of the response cache",
    )
    otlp_endpoint: SecretAddress | None = Field(
        default=None,
        description="destination of spans; default: the standard OTEL_EXPORTER_OTLP_* variables, "
        "else http://127.0.0.1:4318",
    )
    control_file: Path | None = Field(
        default=None, description="SLO classes, quotas and load control (docs/guide/control.md)"
    )
    queue_requests: int = Field(
        default=10_000,
        ge=1,
        description="maximum requests queued for the collector; more are dropped and counted",
    )
    queue_bytes: int = Field(
        default=64 * _MEBIBYTE, ge=1024, description="maximum memory for the queue"
    )
    export_batch: int = Field(default=256, ge=1, description="maximum requests per export")
    export_interval_s: float = Field(
        default=0.5,
        ge=0,
        le=60,
        description="maximum time a finished request waits to be exported in a batch, in seconds",
    )
    flush_timeout_s: float = Field(
        default=3.0,
        ge=0,
        le=60,
        description="maximum time to flush the last spans on shutdown, in seconds",
    )
    max_emissions: int = Field(
        default=2048, ge=2, description="maximum length of the emission series on a span"
    )
    stall_after_s: float = Field(
        default=10.0,
        ge=0.1,
        le=3600,
        description="seconds without a token after which a request in the engine counts as "
        "stalled; ten times its own mean gap if that is longer",
    )
    explain_text: bool = Field(
        default=False,
        description="show the text around a prompt divergence in /why, to its own tenant only",
    )
    prompts_dir: Path = Field(
        default=Path("prompts"),
        description="prompt registry that resolves `prompt: name@label` in chat requests "
        "(docs/guide/prompts.md)",
    )
    record_content: bool = Field(
        default=False,
        description="send prompts and answers with the spans; the collector keeps them only for "
        "its content_tenants (docs/guide/redaction.md)",
    )
    cache: Path | None = Field(
        default=None,
        description="response cache rules, TOML; without them the cache is "
        "off (docs/guide/cache.md)",
    )
    compression: Path | None = Field(
        default=None,
        description="prompt compression rules, TOML; without them prompts are sent "
        "unchanged (docs/guide/compression.md)",
    )

    def otlp_address(self) -> str | None:
        """Return the span destination, password included, for the sender."""
        return None if self.otlp_endpoint is None else self.otlp_endpoint.get_secret_value()
