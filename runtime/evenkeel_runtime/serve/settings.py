"""Settings of the runtime: section `[runtime]`, variables `EVENKEEL_RUNTIME_…`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.secret_text import SecretAddress
from evenkeel.settings import Settings

_MEBIBYTE = 1 << 20


class RuntimeSettings(Settings):
    """What `evenkeel serve` can be told; docs/configuration.md lists it."""

    section: ClassVar[str] = "runtime"

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=1, le=65535, description="the OpenAI API and /metrics")
    data_dir: Path = Field(
        default=Path("data"), description="what the server keeps between runs: vLLM's caches"
    )
    otlp_endpoint: SecretAddress | None = Field(
        default=None,
        description="where spans go; else where the standard OTEL_EXPORTER_OTLP_* variables say, "
        "else http://127.0.0.1:4318",
    )
    control_file: Path | None = Field(
        default=None, description="SLO classes, quotas and load control (docs/control.md)"
    )
    queue_requests: int = Field(
        default=10_000,
        ge=1,
        description="most requests that wait for the collector; more are dropped and counted",
    )
    queue_bytes: int = Field(
        default=64 * _MEBIBYTE, ge=1024, description="most memory that they may take"
    )
    export_batch: int = Field(default=256, ge=1, description="most requests in one export")
    export_interval_s: float = Field(
        default=0.5,
        ge=0,
        le=60,
        description="longest a finished request waits for others before it is exported, in seconds",
    )
    flush_timeout_s: float = Field(
        default=3.0,
        ge=0,
        le=60,
        description="longest the server waits for its last spans when it stops, in seconds",
    )
    max_emissions: int = Field(
        default=2048, ge=2, description="longest emission series kept on a span"
    )
    explain_text: bool = Field(
        default=False,
        description="show the text around a divergence of prompts in /why, to its own tenant",
    )
    prompts_dir: Path = Field(
        default=Path("prompts"),
        description="registry in which `prompt: name@label` of a chat request is found "
        "(docs/prompts.md)",
    )
    record_content: bool = Field(
        default=False,
        description="send prompts and answers with the spans; the collector keeps them only for "
        "its content_tenants (docs/redaction.md)",
    )
    cache: Path | None = Field(
        default=None,
        description="rules of the response cache, TOML; without them there is none (docs/cache.md)",
    )
    compression: Path | None = Field(
        default=None,
        description="rules of prompt compression, TOML; without them prompts are sent as they "
        "came (docs/compression.md)",
    )

    def otlp_address(self) -> str | None:
        """Return where spans go, with the password, for whoever sends them."""
        return None if self.otlp_endpoint is None else self.otlp_endpoint.get_secret_value()
