"""Builds the OTLP message of a batch of requests: one SERVER span each, with its phases below it.

The messages are filled directly: the SDK's span objects cost several times the CPU, and that CPU is
shared with the model (docs/decisions/0022-exporter-process.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from os import urandom
from typing import Any, cast

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel.spans import (
    CANARY_DIFFERS_AT,
    CANARY_RESULT,
    CANARY_TOKENS,
    REQUEST_ID,
    SCOPE_NAME,
    SPAN_CANARY,
    AttributeValue,
    Status,
)
from evenkeel_runtime.exporter.record import to_record
from evenkeel_runtime.ledger.explanation import Explanation
from evenkeel_runtime.ledger.phases import find_phases
from evenkeel_runtime.wire.observation import CanaryResult, Observation

# opentelemetry.proto.trace.v1: Span.SpanKind, Status.StatusCode and SpanFlags.
_KIND_INTERNAL = 1
_KIND_SERVER = 2
_STATUS_ERROR = 2
_FLAG_HAS_IS_REMOTE = 0x100
_FLAG_IS_REMOTE = 0x200
_FLAG_SAMPLED = 0x01

# Elements of ArrayValue.values (field 1) on the wire: the AnyValue's length, its double_value
# (field 4) or its int_value (field 3).
_FLOAT_ELEMENT = np.dtype([("head", "S3"), ("value", "<f8")])
_FLOAT_HEAD = b"\x0a\x09\x21"
_COUNT_ELEMENTS = [b"\x0a\x02\x18" + bytes((value,)) for value in range(128)]

NewId = Callable[[int], bytes]


def build_request(
    batch: Sequence[Observation],
    resource: Mapping[str, str],
    max_emissions: int,
    new_id: NewId = urandom,
    explained: Sequence[Explanation | None] = (),
) -> ExportTraceServiceRequest:
    """Return the export request for a batch; an empty batch gives a request without spans.

    Args:
        batch: The requests.
        resource: Attributes of the sender.
        max_emissions: Longest emission series kept on a span.
        new_id: Makes an id of so many bytes.
        explained: What is known of each request besides; nothing where it is shorter.
    """
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    set_attributes(resource_spans.resource, resource)
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = SCOPE_NAME
    scope_spans.scope.version = own_version()
    for seen, explanation in zip_longest(batch, explained):
        if seen.canary is not None:
            _add_canary(scope_spans, seen, seen.canary, new_id)
            continue
        _add_spans(scope_spans, seen, max_emissions, new_id, explanation)
    return request


def find_servers(request: ExportTraceServiceRequest) -> list[Any]:
    """Return the spans of the requests, without those of their phases, in the batch's order."""
    spans = request.resource_spans[0].scope_spans[0].spans
    return [span for span in spans if span.kind == _KIND_SERVER]


def _add_spans(
    scope_spans: Any,
    seen: Observation,
    max_emissions: int,
    new_id: NewId,
    explanation: Explanation | None,
) -> None:
    parent = seen.caller.parent
    # What one HTTP request sends to the engine more than once shares a trace only with a caller's.
    trace_id = new_id(16) if parent is None else parent.trace_id
    flags = _FLAG_SAMPLED if parent is None else parent.flags
    # Both clocks were read together at arrival; every later time is that plus monotonic time.
    unix_offset_ns = seen.arrival_unix_ns - seen.arrival_ns

    span = scope_spans.spans.add()
    span.trace_id = trace_id
    span.span_id = new_id(8)
    span.flags = flags | _FLAG_HAS_IS_REMOTE
    if parent is not None:
        span.parent_span_id = parent.span_id
        span.flags |= _FLAG_IS_REMOTE
        span.trace_state = seen.caller.trace_state
    span.name = f"{seen.operation} {seen.model}"
    span.kind = _KIND_SERVER
    span.start_time_unix_nano = seen.arrival_unix_ns
    span.end_time_unix_nano = seen.end_ns + unix_offset_ns
    ledger = None if explanation is None else explanation.ledger
    set_attributes(span, to_record(seen, max_emissions, ledger).to_attributes())
    if explanation is not None:
        set_attributes(span, explanation.to_attributes(seen))
    if seen.status in (Status.ERROR, Status.SHED):
        span.status.code = _STATUS_ERROR
        span.status.message = seen.error_type or ""

    for phase in find_phases(seen):
        child = scope_spans.spans.add()
        child.trace_id = trace_id
        child.span_id = new_id(8)
        child.parent_span_id = span.span_id
        child.flags = flags | _FLAG_HAS_IS_REMOTE
        child.name = phase.name
        child.kind = _KIND_INTERNAL
        child.start_time_unix_nano = phase.start_ns + unix_offset_ns
        child.end_time_unix_nano = phase.end_ns + unix_offset_ns


def _add_canary(scope_spans: Any, seen: Observation, canary: CanaryResult, new_id: NewId) -> None:
    """Add the event that a canary is, as a span of no duration."""
    span = scope_spans.spans.add()
    span.trace_id = new_id(16)
    span.span_id = new_id(8)
    span.name = SPAN_CANARY
    span.kind = _KIND_INTERNAL
    span.start_time_unix_nano = span.end_time_unix_nano = seen.arrival_unix_ns
    attributes: dict[str, AttributeValue] = {
        REQUEST_ID: canary.of_request_id,
        CANARY_RESULT: canary.result,
        CANARY_TOKENS: canary.num_tokens,
    }
    if canary.first_difference is not None:
        attributes[CANARY_DIFFERS_AT] = canary.first_difference
        span.status.code = _STATUS_ERROR
    set_attributes(span, attributes)


def set_attributes(owner: Any, attributes: Mapping[str, AttributeValue]) -> None:
    """Set the attributes of a span or a resource; a number that is none has no attribute."""
    for name, value in attributes.items():
        if not _is_number_or_text(value):
            continue
        attribute = owner.attributes.add()
        attribute.key = name
        _set_value(attribute.value, value)


def _is_number_or_text(value: AttributeValue) -> bool:
    """Whether the store takes a value: no NaN, no infinity, nothing beyond OTLP's 64 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    if isinstance(value, str) or not value or isinstance(value[0], str):
        return True
    numbers = cast("Sequence[float]", value)
    if isinstance(numbers[0], float):
        return all(map(math.isfinite, numbers))
    return _is_number_or_text(min(numbers)) and _is_number_or_text(max(numbers))


def _set_value(target: Any, value: AttributeValue) -> None:
    if isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif not _set_packed(target.array_value, value):
        add = target.array_value.values.add
        for item in value:
            _set_value(add(), item)


def _set_packed(array: Any, values: Sequence[Any]) -> bool:
    """Set an array of floats or of small counts from its wire bytes; whether `values` is one.

    An emission series has an element a token. One call for all of them, in place of three an
    element, is a third off the cost of a request's spans.
    """
    kinds = set(map(type, values))
    if kinds <= {float}:
        elements = np.empty(len(values), _FLOAT_ELEMENT)
        elements["head"] = _FLOAT_HEAD
        elements["value"] = values
        array.MergeFromString(elements.tobytes())
        return True
    if kinds == {int} and 0 <= min(values) and max(values) < len(_COUNT_ELEMENTS):
        array.MergeFromString(b"".join(map(_COUNT_ELEMENTS.__getitem__, values)))
        return True
    return False


@cache
def own_version() -> str:
    """Return the version of this package; empty where it is not installed."""
    try:
        return version("evenkeel")
    except PackageNotFoundError:
        return ""
