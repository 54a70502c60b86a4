"""The OTLP signals that the collector accepts: their endpoints and parsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.intake.body_weight import (
    BodyWeight,
    is_light_json,
    is_light_protobuf,
    weigh_json,
    weigh_protobuf,
)
from evenkeel_collector.intake.otlp_body import CheckedBody, MalformedError, check_protobuf
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
    """One OTLP signal; `parsers` are keyed by media type, `request` is its protobuf class."""

    path: str
    grpc_service: str
    parsers: Mapping[str, Parser]
    request: Any

    def weigh(self, media_type: str, body: bytes) -> BodyWeight:
        """Return what a body holds, without parsing it.

        Raises:
            TooManyError: If it holds more than any sender sends.
            MalformedError: If it is not such a request.
        """
        if media_type == JSON:
            return weigh_json(body)
        try:
            return weigh_protobuf(self.request, body)
        except DecodeError as error:
            raise self._malformed(error) from error

    def is_light(self, media_type: str, body: bytes) -> bool:
        """Return whether a body can be parsed in the event loop, without parsing it.

        Raises:
            TooManyError: If it holds more than any sender sends.
            MalformedError: If it is not such a request.
        """
        if media_type == JSON:
            return is_light_json(body)
        try:
            return is_light_protobuf(self.request, body)
        except DecodeError as error:
            raise self._malformed(error) from error

    def _malformed(self, error: Exception) -> MalformedError:
        return MalformedError(f"not an OTLP {self.request.DESCRIPTOR.name}: {error}")


SIGNALS = (
    Signal(
        path="/v1/traces",
        grpc_service=f"{_SERVICES}.trace.v1.TraceService",
        parsers={
            PROTOBUF: lambda body, pipeline, tenant: check_protobuf(
                body, pipeline.finish_for(tenant), is_hasty=pipeline.is_hasty
            ),
            JSON: lambda body, pipeline, tenant: check_json(body, pipeline.finish_for(tenant)),
        },
        request=ExportTraceServiceRequest,
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
        request=ExportMetricsServiceRequest,
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
        request=ExportLogsServiceRequest,
    ),
)
