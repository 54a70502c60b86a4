"""The collector's settings: section `[collector]`, variables `EVENKEEL_COLLECTOR_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SecretStr

from evenkeel.settings import Settings

MEBIBYTE = 1 << 20


def _split(value: Any) -> Any:
    """Let the environment say a list with commas."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


class CollectorSettings(Settings):
    """What `evenkeel collect` can be told; docs/collector.md explains each."""

    section: ClassVar[str] = "collector"

    host: str = "127.0.0.1"
    http_port: int = Field(default=4318, ge=0, le=65535)
    grpc_port: int = Field(default=4317, ge=0, le=65535)
    query_port: int = Field(default=8123, ge=0, le=65535)
    data_dir: Path = Path("data")
    clickhouse: SecretStr | None = None  # its address may hold a password
    clickhouse_cluster: str | None = None
    slos: Path | None = None
    dashboard_url: str | None = None
    prompts_dir: Path | None = None
    max_http_body_bytes: int = Field(default=20 * MEBIBYTE, gt=0)
    max_grpc_body_bytes: int = Field(default=4 * MEBIBYTE, gt=0)
    max_log_bytes: int = Field(default=1024 * MEBIBYTE, gt=0)
    min_free_bytes: int = Field(default=256 * MEBIBYTE, ge=0)
    replay_quarantine: bool = False
    max_inflight_bytes: int = Field(default=384 * MEBIBYTE, gt=0)
    access: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    detail_probability: float = Field(default=1.0, ge=0, le=1)
    scrape: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    scrape_interval_s: float = Field(default=15.0, gt=0)
    scrape_service: str = "vllm"
    retention: str = ""
    query_threads: int = Field(default=4, ge=1, le=64)
    query_timeout_s: float = Field(default=30.0, gt=0)
    query_memory_bytes: int = Field(default=2048 * MEBIBYTE, gt=0)
    query_result_rows: int = Field(default=1_000_000, gt=0)
