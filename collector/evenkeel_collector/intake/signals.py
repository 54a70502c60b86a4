"""The OTLP signals that the collector accepts: their endpoints and parsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evenkeel_collector.intake.canonical import CheckedBody, check_protobuf
from evenkeel_collector.intake.otlp_json import check_json
from evenkeel_collector.intake.otlp_logs import check_logs_json, check_logs_protobuf
from evenkeel_collector.intake.otlp_metrics import check_metrics_json, check_metrics_protobuf
from evenkeel_collector.intake.pipeline import IntakePipeline

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_SERVICES = "opentelemetry.proto.collector"

# The body, the processing to apply, and the tenant that its sender proved.
Parser = Callable[[bytes, IntakePipeline, str | None], CheckedBody]


@dataclass(frozen=True, slots=True)
class Signal:
    """One OTLP signal; `parsers` are keyed by media type."""

    path: str
    grpc_service: str
    parsers: Mapping[str, Parser]


SIGNALS = (
    Signal(
        path="/v1/traces",
        grpc_service=f"{_SERVICES}.trace.v1.TraceService",
        parsers={
            PROTOBUF: lambda body, pipeline, tenant: check_protobuf(
                body, pipeline.finish_for(tenant)
            ),
            JSON: lambda body, pipeline, tenant: check_json(body, pipeline.finish_for(tenant)),
        },
    ),
    Signal(
        path="/v1/metrics",
        grpc_service=f"{_SERVICES}.metrics.v1.MetricsService",
        parsers={
            PROTOBUF: lambda body, pipeline, tenant: check_metrics_protobuf(
                body, tenant, pipeline.redact_metrics
            ),
            JSON: lambda body, pipeline, tenant: check_metrics_json(
                body, tenant, pipeline.redact_metrics
            ),
        },
    ),
    Signal(
        path="/v1/logs",
        grpc_service=f"{_SERVICES}.logs.v1.LogsService",
        parsers={
            PROTOBUF: lambda body, pipeline, tenant: check_logs_protobuf(
                body,
                pipeline.finish_logs_for(tenant),
                is_hasty=pipeline.is_hasty,
                begun=pipeline.begun,
            ),
            JSON: lambda body, pipeline, tenant: check_logs_json(
                body,
                pipeline.finish_logs_for(tenant),
                is_hasty=pipeline.is_hasty,
                begun=pipeline.begun,
            ),
        },
    ),
)
