"""The collector's settings: section `[collector]`, variables `EVENKEEL_COLLECTOR_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from evenkeel.secret_text import SecretAddress
from evenkeel.settings import DEFAULT_DATA_DIR, Host, Settings, SplitAtCommas

MEBIBYTE = 1 << 20


class CollectorSettings(Settings):
    """The settings of `evenkeel collect`, listed in docs/reference/settings.md."""

    section: ClassVar[str] = "collector"

    host: Host = Field(default="127.0.0.1", description="address to listen on")
    allowed_hosts: Annotated[tuple[str, ...], SplitAtCommas] = Field(
        default=(),
        description="other host names and addresses that the query port and /api/ answer "
        "to, comma-separated; by default only loopback and the host (docs/guide/collector.md)",
    )
    http_port: int = Field(
        default=4318, ge=0, le=65535, description="OTLP/HTTP, /metrics, /healthz and /readyz"
    )
    grpc_port: int = Field(default=4317, ge=0, le=65535, description="OTLP/gRPC")
    query_port: int = Field(
        default=8123, ge=0, le=65535, description="ClickHouse HTTP over the embedded store"
    )
    data_dir: Path = Field(default=DEFAULT_DATA_DIR, description="log, store and alert state")
    clickhouse: SecretAddress | None = Field(
        default=None, description="store in this ClickHouse server instead of chDB"
    )
    clickhouse_cluster: str | None = Field(
        default=None,
        description="create the tables on every server of this cluster (docs/guide/collector.md)",
    )
    slos: Path | None = Field(default=None, description="the SLO file to evaluate")
    prices: Path | None = Field(
        default=None,
        description="price file for tokens and engines, TOML (docs/guide/cost.md); without it, "
        "only costs that senders report are stored",
    )
    dashboard_url: str | None = Field(
        default=None, description="dashboard URL that alert notifications link to"
    )
    prompts_dir: Path | None = Field(
        default=None,
        description="prompt registry in which operators may promote and roll back",
    )
    max_http_body_bytes: int = Field(
        default=20 * MEBIBYTE,
        gt=0,
        description="larger bodies are refused with 413, also after decompression",
    )
    max_grpc_body_bytes: int = Field(
        default=4 * MEBIBYTE,
        gt=0,
        description="larger messages are refused with RESOURCE_EXHAUSTED",
    )
    max_log_bytes: int = Field(
        default=1024 * MEBIBYTE,
        gt=0,
        description="maximum bytes in the write-ahead log; beyond it senders get 503 and retry",
    )
    min_free_bytes: int = Field(
        default=256 * MEBIBYTE,
        ge=0,
        description="below this much free disk space, nothing is written to the embedded store "
        "and spans wait in the log",
    )
    replay_quarantine: bool = Field(
        default=False,
        description="at start, retry rows that the store rejected and recover the readable parts "
        "of damaged log segments",
    )
    client_hold_s: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="seconds that a request traced by its client waits for the server's record "
        "of the same call before it is counted (docs/guide/data-model.md)",
    )
    max_connections: int = Field(
        default=1024,
        gt=0,
        description="concurrent connections per port, up to half of them from one address; "
        "fewer if the process cannot open enough files",
    )
    max_inflight_bytes: int = Field(
        default=384 * MEBIBYTE,
        gt=0,
        description="memory for all request bodies in flight; beyond it senders get 503 and retry",
    )
    access: Path | None = Field(
        default=None, description="tokens and limits of tenants, TOML (docs/guide/collector.md)"
    )
    tls_certificate: Path | None = Field(
        default=None,
        description="certificate, PEM; together with its key it enables TLS on every port",
    )
    tls_key: Path | None = Field(default=None, description="the certificate's private key, PEM")
    tls_client_ca: Path | None = Field(
        default=None, description="accept only clients with a certificate from this authority"
    )
    detail_probability: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="share of good requests whose detail is kept (docs/guide/sampling.md)",
    )
    scrape: Annotated[tuple[SecretAddress, ...], SplitAtCommas] = Field(
        default=(), description="Prometheus endpoint to scrape; may be repeated"
    )
    scrape_interval_s: float = Field(default=15.0, gt=0, description="seconds between scrapes")
    scrape_service: str = Field(default="vllm", description="service name of scraped points")
    retention: str = Field(
        default="",
        description="how long rows are kept, such as 'spans=14d, acme/requests=30d'; forever "
        "without a rule (docs/guide/collector.md)",
    )
    query_threads: int = Field(default=4, ge=1, le=64, description="maximum concurrent queries")
    query_timeout_s: float = Field(
        default=30.0, gt=0, description="maximum run time of a query, in seconds"
    )
    query_memory_bytes: int = Field(
        default=2048 * MEBIBYTE, gt=0, description="maximum memory of a query"
    )
    query_result_rows: int = Field(
        default=1_000_000, gt=0, description="maximum rows a query may return"
    )
