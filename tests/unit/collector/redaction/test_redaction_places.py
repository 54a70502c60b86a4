"""Whether a search of the whole request leads back to the attribute that holds the secret."""

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fixtures.otlp_payload import key_values
from tests.unit.collector.redaction.redaction_requests import (
    REDACTOR,
    SECRET,
    only_span,
    request,
)


def many_spans() -> ExportTraceServiceRequest:
    """Return spans of many lengths whose digits the first search takes for a card or a phone."""
    message = ExportTraceServiceRequest()
    scope_spans = message.resource_spans.add().scope_spans.add()
    for index in range(60):
        attributes: dict[str, Any] = {f"a{i}": f"{index:08}{i:08}" for i in range(index % 7)}
        attributes |= {"x": "." * (index * 5), "n": index, "list": [index, "0049" + "5" * 9]}
        span = scope_spans.spans.add(
            trace_id=bytes([index] * 16), attributes=key_values(attributes)
        )
        span.name = "n" * (index % 3)
    return message


@pytest.mark.parametrize("place", ["attribute", "array", "name", "event", "key", "two attributes"])
def test_a_secret_among_hits_that_are_none_is_found_in_any_span(place: str) -> None:
    for index in range(0, 60, 7):
        message = many_spans()
        span = message.resource_spans[0].scope_spans[0].spans[index]
        if place in ("attribute", "two attributes"):
            span.attributes.extend(key_values({"to": SECRET, "n2": 1}))
        if place == "two attributes":
            span.attributes.extend(key_values({"password": "hunter2", "z": SECRET}))
        if place == "array":
            span.attributes.extend(key_values({"to": ["", [SECRET]]}))
        if place == "name":
            span.name = f"mail to {SECRET}"
        if place == "event":
            span.events.add(attributes=key_values({"to": SECRET}))
        if place == "key":
            span.attributes.extend(key_values({SECRET: 1}))
        ids = [each.trace_id for each in message.resource_spans[0].scope_spans[0].spans]
        redacted = REDACTOR.redact(message)
        assert SECRET.encode() not in redacted.payload
        assert b"hunter2" not in redacted.payload
        after = ExportTraceServiceRequest.FromString(redacted.payload)
        assert [each.trace_id for each in after.resource_spans[0].scope_spans[0].spans] == ids
        assert redacted.counts["email"] == 1 + (place == "two attributes")


def test_unknown_fields_of_a_hit_attribute_go_with_their_secret() -> None:
    message = request({"a": "0049" + "5" * 9})
    body = message.SerializeToString()
    # An attribute of field 9 whose field 15 nobody knows.
    value = SECRET.encode()
    unknown = b"\x0a\x01k\x7a" + bytes([len(value)]) + value
    span = only_span(message).SerializeToString() + b"\x4a" + bytes([len(unknown)]) + unknown
    scope = b"\x12" + varint(len(span)) + span
    resource = b"\x12" + varint(len(scope)) + scope
    sent = ExportTraceServiceRequest.FromString(b"\x0a" + varint(len(resource)) + resource)
    assert value in sent.SerializeToString() and value not in body
    assert value not in REDACTOR.redact(sent).payload


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
