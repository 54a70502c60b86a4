"""Requests for tests of redaction, and what is in them."""

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import SecretStr

from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from tests.fixtures.otlp_payload import key_values

KEY = SecretStr("0123456789abcdef0123456789abcdef")
RULES = load_rules()
REDACTOR = Redactor(RULES, KEY)
SECRET = "ana.torres@example.org"
CONTENT = "how do I reset my router?"


def request(attributes: dict[str, Any] | None = None, **fields: Any) -> ExportTraceServiceRequest:
    message = ExportTraceServiceRequest()
    scope_spans = message.resource_spans.add().scope_spans.add()
    scope_spans.spans.add(
        trace_id=bytes(range(16)),
        span_id=bytes(8),
        attributes=key_values(attributes or {}),
        **fields,
    )
    return message


def only_span(message: ExportTraceServiceRequest) -> Span:
    return message.resource_spans[0].scope_spans[0].spans[0]


def attributes_of(holder: Any) -> dict[str, AnyValue]:
    return {pair.key: pair.value for pair in holder.attributes}
