"""Converts OTLP logs requests, protobuf or JSON, to what the log keeps.

Log records share segments with spans, in a field of the segment's message that OTLP does not use
(schema/otlp_traces.proto), so that they get the same durability and deduplication. Calls that
events describe come with them as spans (event_spans.py).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from evenkeel_collector.intake.begun_requests import BegunRequests
from evenkeel_collector.intake.event_spans import calls_of, may_hold_calls
from evenkeel_collector.intake.otlp_body import (
    LOGS_REQUEST,
    REQUEST_TAG,
    CheckedBody,
    Finish,
    MalformedError,
    flatten_message,
    flatten_protobuf,
    read_length,
    serialize,
)
from evenkeel_collector.intake.otlp_json import fill, items_of, read_document, rewrite_ids

# ResourceLogs is field 1 of the request, as ResourceSpans is of a segment. There it is 1006.
SEGMENT_TAG = b"\xf2\x3e"


def check_logs_protobuf(
    body: bytes,
    finish: Finish = serialize,
    *,
    is_hasty: bool = False,
    begun: BegunRequests | None = None,
) -> CheckedBody:
    """Return the records of a protobuf logs request.

    Raises:
        MalformedError: If it is not such a request.
        TooManyError: If it has nested values and holds too much to be read in Python.
        OverBudgetError: If that is too much for a hasty check, or it has too many events for one.
    """
    payload, message = flatten_protobuf(LOGS_REQUEST, body, finish, is_hasty=is_hasty)
    return _checked(payload, message, is_hasty, begun)


def check_logs_json(
    body: bytes,
    finish: Finish = serialize,
    *,
    is_hasty: bool = False,
    begun: BegunRequests | None = None,
) -> CheckedBody:
    """Return the records of an OTLP/JSON logs request.

    Raises:
        MalformedError: If it is not such a request.
        OverBudgetError: If it has too many events for a hasty check.
    """
    document = read_document(body)
    message = ExportLogsServiceRequest()
    try:
        for resource_logs in items_of(document, "resourceLogs", "resource_logs"):
            for scope_logs in items_of(resource_logs, "scopeLogs", "scope_logs"):
                for record in items_of(scope_logs, "logRecords", "log_records"):
                    rewrite_ids(record)
        fill(message, document)
        payload = flatten_message(LOGS_REQUEST, message, finish)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedError(f"not an OTLP {LOGS_REQUEST.name}: {error}") from error
    return _checked(payload, message, is_hasty, begun)


def _checked(
    payload: bytes, message: Any, is_hasty: bool, begun: BegunRequests | None
) -> CheckedBody:
    num_records = sum(
        len(scope.log_records)
        for resource in message.resource_logs
        for scope in resource.scope_logs
    )
    encoded = _for_segment(payload)
    if not may_hold_calls(payload):
        return CheckedBody(encoded, num_records=num_records)
    calls = calls_of(message, is_hasty=is_hasty, begun=begun)
    return CheckedBody(
        encoded + calls.payload, calls.num_spans, num_records=num_records, awaited=calls.awaited
    )


def _for_segment(payload: bytes) -> bytes:
    """Return a request that protobuf wrote with the segment's number for its only field."""
    parts: list[bytes] = []
    position = 0
    while position < len(payload):
        begin = position + len(REQUEST_TAG)
        position = sum(read_length(payload, begin))
        parts += (SEGMENT_TAG, payload[begin:position])
    return b"".join(parts)
