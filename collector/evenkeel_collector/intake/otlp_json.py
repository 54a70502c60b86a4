"""Converts OTLP/JSON to protobuf, by the rules in which OTLP differs from proto3 JSON.

Trace and span ids are hex in either case, not base64; enums are integers; 64-bit integers are
strings or numbers; unknown fields are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import re2
from google.protobuf import json_format
from google.protobuf.message import DecodeError, EncodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.intake.body_weight import weigh_protobuf
from evenkeel_collector.intake.otlp_body import (
    CheckedBody,
    Finish,
    MalformedError,
    check_message,
    serialize,
)

# Escaped surrogates; valid pairs match, too.
_SURROGATE = re2.compile(rb"\\u[dD][89a-fA-F]")
# proto3 JSON accepts both spellings of a field.
ID_FIELDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


def check_json(body: bytes, finish: Finish = serialize) -> CheckedBody:
    """Return the canonical protobuf form of an OTLP/JSON trace request.

    Raises:
        MalformedError: If it is not JSON, or not an ExportTraceServiceRequest.
    """
    document = read_document(body)
    message = ExportTraceServiceRequest()
    try:
        for span in _spans(document):
            rewrite_ids(span)
            for link in items_of(span, "links"):
                rewrite_ids(link)
        fill(message, document)
        return check_message(message, finish)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedError(f"not an OTLP ExportTraceServiceRequest: {error}") from error


def read_document(body: bytes) -> dict[str, Any]:
    """Return a JSON object; an empty body is an empty one.

    Raises:
        MalformedError: If it is not a JSON object.
    """
    try:
        # Per RFC 8259: UTF-8, byte order mark ignored, no NaN.
        text = body.decode("utf-8-sig") if body else "{}"
        document = json.loads(text, parse_constant=_refuse_constant)
        if _SURROGATE.search(body):
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedError(f"expected a JSON object, got {type(document).__name__}")
    return document


def fill(message: Any, document: dict[str, Any]) -> None:
    """Write a document into a request.

    Raises:
        json_format.ParseError: If it is not such a request.
        TooManyError: If it holds more than any sender sends.
    """
    json_format.ParseDict(document, message, ignore_unknown_fields=True)
    try:
        # Before, only its objects and lists were counted: encoded, spans and buckets can be told
        # apart.
        weigh_protobuf(type(message), message.SerializeToString())
    except (DecodeError, EncodeError) as error:
        raise json_format.ParseError(str(error)) from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def items_of(holder: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """Return the objects in the first of these fields that exists; skip other shapes."""
    for name in names:
        items = holder.get(name)
        if isinstance(items, list):
            return [item for item in items if isinstance(item, dict)]
    return []


def _spans(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        span
        for resource_spans in items_of(document, "resourceSpans", "resource_spans")
        for scope_spans in items_of(resource_spans, "scopeSpans", "scope_spans")
        for span in items_of(scope_spans, "spans")
    ]


def rewrite_ids(holder: dict[str, Any]) -> None:
    """Convert hex ids to the base64 that proto3 JSON expects."""
    for name in ID_FIELDS:
        text = holder.get(name)
        if not text:
            continue
        try:
            holder[name] = base64.b64encode(binascii.unhexlify(text)).decode()
        except (binascii.Error, TypeError, ValueError) as error:
            raise MalformedError(f"{name} is not hex: {str(text)[:64]!r}") from error
