"""Settings of the runtime: section `[runtime]`, variables `EVENKEEL_RUNTIME_…`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from evenkeel.settings import Settings


class RuntimeSettings(Settings):
    """What `evenkeel serve` can be told; docs/runtime.md explains each.

    Attributes:
        host: Address to listen on.
        port: Port to listen on.
        data_dir: Folder for what the server keeps between runs (vLLM's caches).
        otlp_endpoint: Where spans go; the standard `OTEL_EXPORTER_OTLP_*` variables where unset.
        control_file: SLO classes, quotas and the ladder of control; without one, control is off.
        queue_requests: Most requests that may wait for the collector.
        queue_bytes: Most memory that they may take.
        export_batch: Most requests in one export.
        export_interval_s: Longest a finished request waits for others before it is exported.
        flush_timeout_s: Longest the server waits for the last spans when it stops.
        max_emissions: Longest emission series kept on a span.
        explain_text: Show the text around a divergence of prompts in `/why`, to its own tenant.
        prompts_dir: The prompt registry in which a chat request's `prompt: name@label` is found.
        record_content: Send prompts and answers with the spans; the collector stores them only for
            the tenants that its `content_tenants` names.
        cache: TOML file of the response cache; without one there is none.
        compression: TOML file of prompt compression; without one prompts are sent as they came.
        raise_internal_errors: Raise the telemetry's own errors instead of counting them (tests).
    """

    section: ClassVar[str] = "runtime"

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    data_dir: Path = Path("data")
    otlp_endpoint: str | None = None
    control_file: Path | None = None
    queue_requests: int = Field(default=10_000, ge=1)
    queue_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    export_batch: int = Field(default=256, ge=1)
    export_interval_s: float = Field(default=0.5, ge=0, le=60)
    flush_timeout_s: float = Field(default=3.0, ge=0, le=60)
    max_emissions: int = Field(default=2048, ge=2)
    explain_text: bool = False
    prompts_dir: Path = Path("prompts")
    record_content: bool = False
    cache: Path | None = None
    compression: Path | None = None
    raise_internal_errors: bool = False
