"""Makes spans of log events that describe calls, so that requests, tools and results are counted.

Agents such as Claude Code and Codex CLI report only events. Each event of a finished call becomes
a span under OpenTelemetry's names, which the store then reads like everybody else's: a request, a
call of a tool, or a result of an evaluation. The event itself stays a log record.

An event that has a span's ids may be about a span that is still on its way; such a call is
returned as awaited, and counted only if its span does not come (awaited_calls.py).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import re2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from evenkeel import conventions, spans
from evenkeel.privacy.cpu_budget import MAX_HASTY_VALUES, OverBudgetError
from evenkeel_collector.intake.begun_requests import AgentConversation, BegunRequest, BegunRequests
from evenkeel_collector.intake.event_calls import READERS, DescribedCall, begins, number_of
from evenkeel_collector.intake.otlp_body import AwaitedCall, to_text

SCOPE = "evenkeel.events"
# What the store writes for a span whose times it replaced (store/schema/0031_base/01_spans.sql).
CLAMPED_START = "evenkeel.clamped.start_unix_nano"
CLAMPED_END = "evenkeel.clamped.end_unix_nano"
# A sender that speaks of so many calls at once waits behind others.
MAX_HASTY_EVENTS = 256
MAX_MS = 1e9
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
# Names that only Claude Code's scope makes unique.
CLAUDE_CODE = "claude_code."
# One of them is in every event that describes a call.
_MARKERS = (b"claude_code", b"codex.", b"gen_ai.")
_HEX_ID = re2.compile(r"[0-9a-fA-F]{32}")
# Where a trace may be named that has no id: a prompt's events are one trace, else a session's.
_TRACE_NAMES = ("prompt.id", conventions.SESSION_ID, "conversation.id", conventions.CONVERSATION_ID)


@dataclass(frozen=True, slots=True)
class CallSpans:
    """Calls that events describe: spans for the log, and those whose own span may still come."""

    payload: bytes = b""
    num_spans: int = 0
    awaited: tuple[AwaitedCall, ...] = ()


@dataclass(slots=True)
class _Found:
    """Spans under construction."""

    request: Any = field(default_factory=ExportTraceServiceRequest)
    num_spans: int = 0
    awaited: list[AwaitedCall] = field(default_factory=list)


def may_hold_calls(payload: bytes) -> bool:
    """Whether an encoded logs request could have events that describe calls; False is definite."""
    return any(marker in payload for marker in _MARKERS)


def calls_of(
    message: Any, *, is_hasty: bool = False, begun: BegunRequests | None = None
) -> CallSpans:
    """Return the calls that the events of an ExportLogsServiceRequest describe.

    Args:
        message: After redaction and flattening.
        is_hasty: Whether others wait meanwhile.
        begun: Requests that earlier messages began; only this one's if it is None.

    Raises:
        OverBudgetError: If there are too many for a hasty conversion.
    """
    found = _Found()
    begun = begun or BegunRequests()
    num_events = num_values = 0
    copies: Counter[bytes] = Counter()
    for of_resource in message.resource_logs:
        group = resource = None
        of_all = _tenant_in(of_resource.resource.attributes)
        for of_scope in of_resource.scope_logs:
            is_claude_code = "claude_code" in of_scope.scope.name
            for record in of_scope.log_records:
                name = _name_of(record, is_claude_code)
                if name is None:
                    continue
                num_events += 1
                if is_hasty:
                    num_values += _num_values(record.attributes)
                    if num_events > MAX_HASTY_EVENTS or num_values > MAX_HASTY_VALUES:
                        raise OverBudgetError
                attributes = {pair.key: to_text(pair.value) for pair in record.attributes}
                if (conversation := begins(name, attributes)) is not None:
                    of = AgentConversation(attributes.get(spans.TENANT) or of_all, conversation)
                    begun.add(of, _begun_of(record, attributes))
                call = READERS[name](attributes)
                if call is None:
                    continue
                encoded = record.SerializeToString(deterministic=True)
                copies[encoded] += 1
                span = _span_of(record, name, attributes, call, encoded, copies[encoded])
                if call.ends:
                    of = AgentConversation(attributes.get(spans.TENANT) or of_all, call.ends)
                    _begin(span, begun.ended(of, span.end_time_unix_nano))
                if name == conventions.EVENT_INFERENCE and _has_span(record):
                    span.trace_id, span.span_id = record.trace_id, record.span_id
                    span.parent_span_id = b""
                    if resource is None:
                        resource = of_resource.resource.SerializeToString()
                    found.awaited.append(
                        AwaitedCall(
                            record.trace_id.hex(),
                            record.span_id.hex(),
                            resource,
                            span.SerializeToString(),
                            attributes.get(spans.TENANT) or of_all,
                        )
                    )
                    continue
                if group is None:
                    # Copied as bytes: the message may be of another class.
                    group = _add_group(found.request, of_resource.resource.SerializeToString())
                group.append(span)
                found.num_spans += 1
    return CallSpans(
        bytes(found.request.SerializeToString()), found.num_spans, tuple(found.awaited)
    )


def call_of_row(
    time_ns: int,
    trace_id: str,
    span_id: str,
    attributes: Mapping[str, str],
    resource: Mapping[str, str],
) -> AwaitedCall | None:
    """Return the call that a stored event about a request describes; None without a span's ids."""
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add()
    for key, text in resource.items():
        group.resource.attributes.add(key=key).value.string_value = text
    record = group.scope_logs.add().log_records.add(
        time_unix_nano=time_ns,
        trace_id=bytes.fromhex(trace_id),
        span_id=bytes.fromhex(span_id),
        event_name=conventions.EVENT_INFERENCE,
    )
    for key, text in attributes.items():
        record.attributes.add(key=key).value.string_value = text
    return next(iter(calls_of(message).awaited), None)


def spans_of_calls(calls: Iterable[AwaitedCall]) -> bytes:
    """Return calls as an encoded ExportTraceServiceRequest, with each resource once."""
    request = ExportTraceServiceRequest()
    groups: dict[bytes, Any] = {}
    for call in calls:
        if call.resource not in groups:
            groups[call.resource] = _add_group(request, call.resource)
        groups[call.resource].append(Span.FromString(call.span))
    return bytes(request.SerializeToString())


def _add_group(request: Any, resource: bytes) -> Any:
    """Add an encoded resource to a request and return its list of spans."""
    group = request.resource_spans.add()
    group.resource.ParseFromString(resource)
    scope = group.scope_spans.add()
    scope.scope.name = SCOPE
    return scope.spans


def _name_of(record: Any, is_claude_code: bool) -> str | None:
    """Return the name of an event that describes a call; None for other records.

    Senders put it into the record's own field, an attribute, or the body.
    """
    named = ""
    for pair in record.attributes:
        if pair.key == conventions.EVENT_NAME:
            named = pair.value.string_value
    for name in (record.event_name, named, record.body.string_value):
        if name in READERS:
            return str(name)
    if is_claude_code and CLAUDE_CODE + named in READERS:
        return CLAUDE_CODE + named
    return None


def _num_values(attributes: Any) -> int:
    """Return the number of attributes and of their lists' elements, which lists may not contain."""
    return len(attributes) + sum(
        len(pair.value.array_value.values)
        for pair in attributes
        if pair.value.WhichOneof("value") == "array_value"
    )


def _has_span(record: Any) -> bool:
    return (
        len(record.trace_id) == TRACE_ID_BYTES
        and any(record.trace_id)
        and len(record.span_id) == SPAN_ID_BYTES
        and any(record.span_id)
    )


def _span_of(
    record: Any,
    name: str,
    attributes: Mapping[str, str],
    call: DescribedCall,
    encoded: bytes,
    copy: int,
) -> Any:
    """Return the span of an event's call; `copy` counts the same bytes in one request, from 1."""
    end_ns = record.time_unix_nano or record.observed_time_unix_nano
    span = Span(
        trace_id=_trace_id_of(record, attributes, encoded),
        # The same event sent again gives the same span, among whatever others it comes.
        span_id=hashlib.sha256(b"%d:%b" % (copy, encoded)).digest()[:SPAN_ID_BYTES],
        parent_span_id=record.span_id if _has_span(record) else b"",
        name=call.name,
        kind=call.kind,
        start_time_unix_nano=end_ns,
        end_time_unix_nano=end_ns,
    )
    told = {key: text for key, text in attributes.items() if key.startswith("evenkeel.")}
    told |= {key: text for key, text in call.attributes.items() if text}
    # It would make the span one of our own runtime's.
    told.pop(spans.STATUS, None)
    told[spans.FROM_EVENT] = name
    duration_ns = _duration_ns(call.duration_ms)
    if duration_ns is None or duration_ns > end_ns:
        # As for a span that does not say when it started: it has no duration.
        told |= {CLAMPED_START: "0", CLAMPED_END: str(end_ns)}
    else:
        span.start_time_unix_nano = end_ns - duration_ns
    for key, text in told.items():
        span.attributes.add(key=key).value.string_value = text
    if call.error is not None:
        span.status.code = Status.STATUS_CODE_ERROR
        span.status.message = call.error
    return span


def _tenant_in(attributes: Any) -> str:
    return next((pair.value.string_value for pair in attributes if pair.key == spans.TENANT), "")


def _begun_of(record: Any, attributes: Mapping[str, str]) -> BegunRequest:
    end_ns = record.time_unix_nano or record.observed_time_unix_nano
    start_ns = max(0, end_ns - (_duration_ns(attributes.get("duration_ms")) or 0))
    return BegunRequest(start_ns, *((record.trace_id, record.span_id) if _has_span(record) else ()))


def _begin(span: Any, begun: BegunRequest | None) -> None:
    """Give a span the start of its request, and its place in a trace if it has none."""
    if begun is None:
        return
    span.start_time_unix_nano = begun.start_ns
    kept = [pair for pair in span.attributes if pair.key not in (CLAMPED_START, CLAMPED_END)]
    del span.attributes[:]
    span.attributes.extend(kept)
    if begun.trace_id and not span.parent_span_id:
        span.trace_id, span.parent_span_id = begun.trace_id, begun.span_id


def _trace_id_of(record: Any, attributes: Mapping[str, str], encoded: bytes) -> bytes:
    if len(record.trace_id) == TRACE_ID_BYTES and any(record.trace_id):
        return bytes(record.trace_id)
    named = next((text for key in _TRACE_NAMES if (text := attributes.get(key))), None)
    if named is None:
        return hashlib.sha256(encoded).digest()[:TRACE_ID_BYTES]
    plain = named.replace("-", "")
    if _HEX_ID.fullmatch(plain) and int(plain, 16):
        return bytes.fromhex(plain)
    return hashlib.sha256(named.encode()).digest()[:TRACE_ID_BYTES]


def _duration_ns(text: str | None) -> int | None:
    number = number_of(text)
    return None if number is None or number > MAX_MS else int(number * 1e6)
