"""Builds the OTLP message of a batch of requests: a SERVER span each, with hooks and phases below.

The messages are built directly: the SDK's span objects cost several times the CPU, which is shared
with the model (docs/decisions/0022-exporter-process.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
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
    SPAN_CACHE,
    SPAN_CACHE_REPLAY,
    SPAN_CANARY,
    SPAN_COMPRESSION,
    SPAN_GATE,
    SPAN_PROMPT,
    STATUS,
    AttributeValue,
    Status,
)
from evenkeel_runtime.exporter.record import FinishedRequest, NewId
from evenkeel_runtime.wire.cause import Cause
from evenkeel_runtime.wire.observation import CanaryResult, Observation

# opentelemetry.proto.trace.v1: Span.SpanKind, Status.StatusCode and SpanFlags.
_KIND_INTERNAL = 1
_KIND_SERVER = 2
_STATUS_ERROR = 2
_FLAG_HAS_IS_REMOTE = 0x100
_FLAG_IS_REMOTE = 0x200
_FLAG_SAMPLED = 0x01

# The span of each hook that may hold a request before the engine has it.
_HOOK_SPANS: Mapping[str, str] = {
    Cause.HOST_PROMPT: SPAN_PROMPT,
    Cause.HOST_COMPRESSION: SPAN_COMPRESSION,
    Cause.HOST_CACHE: SPAN_CACHE,
    Cause.QUEUE_GATE: SPAN_GATE,
}

# Elements of ArrayValue.values (field 1) on the wire: the AnyValue's length, its double_value
# (field 4) or its int_value (field 3).
_FLOAT_ELEMENT = np.dtype([("head", "S3"), ("value", "<f8")])
_FLOAT_HEAD = b"\x0a\x09\x21"
_COUNT_ELEMENTS = [b"\x0a\x02\x18" + bytes((value,)) for value in range(128)]


def build_request(
    batch: Sequence[FinishedRequest | CanaryResult],
    resource: Mapping[str, str],
    new_id: NewId = urandom,
) -> ExportTraceServiceRequest:
    """Return the export request for a batch; an empty batch gives a request without spans.

    Args:
        batch: Complete requests, and canary results.
        resource: Resource attributes of the sender.
        new_id: Returns a new ID of the given number of bytes.
    """
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    set_attributes(resource_spans.resource, resource)
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = SCOPE_NAME
    scope_spans.scope.version = own_version()
    for message in batch:
        if isinstance(message, CanaryResult):
            _add_canary(scope_spans, message, new_id)
        elif message.seen.is_replay:
            _add_replay(scope_spans, message)
        else:
            _add_spans(scope_spans, message, new_id)
    return request


def count_spans(request: ExportTraceServiceRequest) -> int:
    """Return the number of spans in an export request."""
    return len(request.resource_spans[0].scope_spans[0].spans)


def _add_spans(scope_spans: Any, request: FinishedRequest, new_id: NewId) -> None:
    seen = request.seen
    parent = seen.parent
    flags = _FLAG_SAMPLED if parent is None else parent.flags
    # Both clocks were read together at arrival; later times add the monotonic difference.
    unix_offset_ns = seen.arrival_unix_ns - seen.arrival_ns

    span = scope_spans.spans.add()
    span.trace_id = request.trace_id
    span.span_id = request.span_id
    span.flags = flags | _FLAG_HAS_IS_REMOTE
    if parent is not None:
        span.parent_span_id = parent.span_id
        span.flags |= _FLAG_IS_REMOTE
        span.trace_state = seen.trace_state
    span.name = f"{seen.operation} {seen.model}"
    span.kind = _KIND_SERVER
    span.start_time_unix_nano = seen.arrival_unix_ns
    span.end_time_unix_nano = seen.end_ns + unix_offset_ns
    set_attributes(span, seen.to_attributes())
    if seen.status in (Status.ERROR, Status.SHED):
        span.status.code = _STATUS_ERROR
        span.status.message = seen.error_type or ""

    phases = ((phase.name, phase.start_ns, phase.end_ns) for phase in request.phases.phases)
    for name, start_ns, end_ns in (*_hook_times(seen), *phases):
        child = scope_spans.spans.add()
        child.trace_id = request.trace_id
        child.span_id = new_id(8)
        child.parent_span_id = request.span_id
        child.flags = flags | _FLAG_HAS_IS_REMOTE
        child.name = name
        child.kind = _KIND_INTERNAL
        child.start_time_unix_nano = start_ns + unix_offset_ns
        child.end_time_unix_nano = end_ns + unix_offset_ns


def _hook_times(seen: Observation) -> list[tuple[str, int, int]]:
    """Return name, start and end of each hook that held the request, if it took time."""
    found = []
    for cause in seen.long_holds:
        if name := _HOOK_SPANS.get(cause):
            start_ns = min(max(seen.hold_starts_ns[cause], seen.arrival_ns), seen.end_ns)
            end_ns = min(start_ns + round(seen.holds[cause] * 1e9), seen.end_ns)
            found.append((name, start_ns, end_ns))
    return sorted(found, key=lambda hook: hook[1])


def _add_replay(scope_spans: Any, request: FinishedRequest) -> None:
    """Add a replay of a cached answer; without a status, readers do not take it for a request."""
    seen = request.seen
    span = scope_spans.spans.add()
    span.trace_id = request.trace_id
    span.span_id = request.span_id
    span.name = SPAN_CACHE_REPLAY
    span.kind = _KIND_INTERNAL
    span.start_time_unix_nano = seen.arrival_unix_ns
    span.end_time_unix_nano = seen.arrival_unix_ns + seen.end_ns - seen.arrival_ns
    attributes = seen.to_attributes()
    del attributes[STATUS]
    set_attributes(span, attributes)
    if seen.status is not Status.OK:
        span.status.code = _STATUS_ERROR
        span.status.message = seen.error_type or ""


def _add_canary(scope_spans: Any, canary: CanaryResult, new_id: NewId) -> None:
    """Add a canary result as a span of zero duration."""
    span = scope_spans.spans.add()
    span.trace_id = new_id(16)
    span.span_id = new_id(8)
    span.name = SPAN_CANARY
    span.kind = _KIND_INTERNAL
    span.start_time_unix_nano = span.end_time_unix_nano = canary.unix_ns
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
    """Set the attributes of a span or resource, omitting numbers that cannot be stored."""
    for name, value in attributes.items():
        if not _is_number_or_text(value):
            continue
        attribute = owner.attributes.add()
        attribute.key = name
        _set_value(attribute.value, value)


def _is_number_or_text(value: AttributeValue) -> bool:
    """Return whether a value can be stored: not NaN or infinite, and within OTLP's 64 bits."""
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
    """Set an array of floats or small counts from its wire bytes; return whether `values` is one.

    An emission series has one element per token. One call for the whole array instead of three per
    element cuts the cost of a request's spans by a third.
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
    """Return the version of this package; empty if it is not installed."""
    try:
        return version("evenkeel")
    except PackageNotFoundError:
        return ""
