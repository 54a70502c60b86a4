"""Redaction of any request: it keeps its shape, and holds no secret afterwards."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.redaction.field_redactor import Redactor
from tests.fixtures.otlp_payload import key_values
from tests.unit.collector.redaction.redaction_requests import (
    CONTENT,
    KEY,
    RULES,
    SECRET,
)
from tests.unit.collector.redaction.test_field_redactor import EVENT_NAMES

text = st.text(max_size=12) | st.sampled_from(
    [SECRET, "Bearer 9hT4kQz8Tn2WmY6rB1cVx9LdP3s", CONTENT]
)
scalar = text | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.binary(max_size=9)
value = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
name = text | st.sampled_from(
    ["password", "input.value", "x.token", "evenkeel.status", *EVENT_NAMES]
)
holder = st.dictionaries(name, value, max_size=4)


def shape(message: ExportTraceServiceRequest) -> Any:
    """What redaction must not touch: ids, times, codes, numbers and the order of spans."""
    return [
        [
            [
                [
                    s.trace_id,
                    s.start_time_unix_nano,
                    s.end_time_unix_nano,
                    s.status.code,
                    len(s.links),
                ]
                for s in scope_spans.spans
            ]
            for scope_spans in resource_spans.scope_spans
        ]
        for resource_spans in message.resource_spans
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(holder, holder, holder, name, name), max_size=4), st.booleans())
def test_any_request_keeps_its_shape_and_is_redacted_for_good(
    drawn: list[Any], stores_content: bool
) -> None:
    message = ExportTraceServiceRequest()
    for index, (resource, own, event, span_name, event_name) in enumerate(drawn):
        resource_spans = message.resource_spans.add()
        resource_spans.resource.attributes.extend(key_values(resource))
        span = resource_spans.scope_spans.add().spans.add(
            trace_id=bytes([index] * 16), start_time_unix_nano=index, end_time_unix_nano=2**63
        )
        span.name = span_name
        span.attributes.extend(key_values(own))
        span.events.add(name=event_name, attributes=key_values(event))
        span.links.add(attributes=key_values(own))
        span.status.code = index % 3
    before = shape(message)
    redactor = Redactor(RULES, KEY, ["*"] if stores_content else [])
    redacted = redactor.redact(message)
    assert shape(message) == before
    assert b"ana.torres@" not in redacted.payload
    assert b"9hT4kQz8Tn2WmY6rB1cVx9LdP3s" not in redacted.payload
    assert ExportTraceServiceRequest.FromString(redacted.payload) == message
    assert redactor.redact(message).counts == {}
