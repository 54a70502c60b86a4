"""Encodes simulated requests as OTLP: a SERVER span and its phases, as the runtime sends them."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as SpanStatus

from evenkeel import spans
from evenkeel.request_record import RequestRecord
from evenkeel.spans import AttributeValue, Status
from evenkeel_demo.simulate.requests import SimulatedRequest

SERVICE_NAME = "evenkeel-simulator"


def encode(requests: Sequence[SimulatedRequest]) -> tuple[bytes, int]:
    """Return one ExportTraceServiceRequest holding all requests, and its number of spans."""
    message = ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    resource_spans.resource.attributes.append(_key_value("service.name", SERVICE_NAME))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = spans.SCOPE_NAME
    for request in requests:
        _add_request(scope_spans, request)
    return message.SerializeToString(), len(scope_spans.spans)


def _add_request(scope_spans: ScopeSpans, request: SimulatedRequest) -> None:
    record = request.record
    span = scope_spans.spans.add(
        trace_id=request.trace_id,
        span_id=request.span_id,
        name=f"{record.operation} {record.model}",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=request.arrival_ns,
        end_time_unix_nano=request.arrival_ns + _ns(record.e2e_s or 0.0),
    )
    span.attributes.extend(_key_value(k, v) for k, v in record.to_attributes().items())
    if record.status in (Status.ERROR, Status.SHED):
        span.status.code = SpanStatus.STATUS_CODE_ERROR
        span.status.message = record.error_type or ""
    _add_phases(scope_spans, request, record)


def _add_phases(scope_spans: ScopeSpans, request: SimulatedRequest, record: RequestRecord) -> None:
    start_ns = request.arrival_ns
    phases = (
        (spans.SPAN_QUEUE, record.queue_s),
        (spans.SPAN_PREFILL, record.prefill_s),
        (spans.SPAN_DECODE, record.decode_s),
    )
    for number, (name, seconds) in enumerate(phases, start=1):
        if seconds is None:
            return
        end_ns = start_ns + _ns(seconds)
        scope_spans.spans.add(
            trace_id=request.trace_id,
            span_id=_child_id(request.span_id, number),
            parent_span_id=request.span_id,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start_ns,
            end_time_unix_nano=end_ns,
        )
        start_ns = end_ns


def _child_id(parent: bytes, number: int) -> bytes:
    """Return an id that differs from the parent's and its siblings', and is never zero."""
    return (int.from_bytes(parent, "big") ^ (number << 60) or 1).to_bytes(8, "big")


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _key_value(key: str, value: AttributeValue) -> KeyValue:
    return KeyValue(key=key, value=_any_value(value))


def _any_value(value: AttributeValue) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[_any_value(item) for item in value]))
