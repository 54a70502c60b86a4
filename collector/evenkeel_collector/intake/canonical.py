"""Checks a received OTLP trace body and flattens it into the bytes that the log keeps.

upb, which is stricter than the store, parses the body and encodes it again, so that the store never
sees an encoding that two parsers could read differently.

OTLP attribute values nest without bound; the store's schema (schema/otlp_traces.proto) holds
scalars and arrays of scalars. To find deeper values without a Python loop over every attribute,
the parser's schema declares them as messages with a required field that is never sent: upb parses
them as unknown fields and refuses to encode them. Only then does Python walk the body.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import re2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

COMMON = "opentelemetry.proto.common.v1"


# An attribute's value (field 2) that is an empty array (field 5), as protobuf encodes it. Every
# value starts with the tag, where RE2 would stop: searching for the rest takes a tenth of it.
_VALUE_TAG = 0x12
_EMPTY_ARRAY = re2.compile(re2.escape(b"\x02\x2a\x00"))


class MalformedError(ValueError):
    """The body is not an OTLP trace request."""


@dataclass(frozen=True, slots=True)
class CheckedBody:
    """A checked request: the protobuf bytes that the log keeps, and their contents."""

    payload: bytes
    num_spans: int = 0
    num_points: int = 0


# Changes a parsed trace request in place and returns its encoding: redaction, sampling, tenant.
# Raises EncodeError if the flat schema cannot encode it; it is then called again with another.
Finish = Callable[[Any], bytes]


def serialize(message: Any) -> bytes:
    """Return a message's encoding, unchanged."""
    return bytes(message.SerializeToString())


def check_protobuf(body: bytes, finish: Finish = serialize) -> CheckedBody:
    """Return the canonical form of a received protobuf body; an empty body has no spans.

    Raises:
        MalformedError: If upb cannot parse it.
    """
    try:
        message = _FlatRequest.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"not an OTLP ExportTraceServiceRequest: {error}") from error
    if len(UnknownFieldSet(message)):
        # At the top level they could be mistaken for the log's own fields (log/segment_format.py).
        message.DiscardUnknownFields()
    if _has_empty_array(body):
        # The store could not distinguish it from no value.
        return _flatten_body(body, finish)
    num_spans = _count_spans(message)
    try:
        return CheckedBody(finish(message), num_spans)
    except EncodeError:
        return _flatten_body(body, finish)


def _has_empty_array(body: bytes) -> bool:
    return any(body[match.start() - 1] == _VALUE_TAG for match in _EMPTY_ARRAY.finditer(body))


def check_message(message: ExportTraceServiceRequest, finish: Finish = serialize) -> CheckedBody:
    """Return the canonical form of an already parsed request, such as one from JSON."""
    message.DiscardUnknownFields()
    # Before flattening: in JSON text, names and values can no longer be distinguished.
    finish(message)
    for value in _values(message):
        _flatten(value)
    return CheckedBody(serialize(message), _count_spans(message))


def _flatten_body(body: bytes, finish: Finish) -> CheckedBody:
    try:
        return check_message(ExportTraceServiceRequest.FromString(body), finish)
    except DecodeError as error:
        raise MalformedError(f"not an OTLP ExportTraceServiceRequest: {error}") from error


def _count_spans(message: Any) -> int:
    return sum(
        len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans
    )


def _values(message: ExportTraceServiceRequest) -> Iterator[Any]:
    for resource_spans in message.resource_spans:
        yield from (pair.value for pair in resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield from (pair.value for pair in span.attributes)
                for holder in (*span.events, *span.links):
                    yield from (pair.value for pair in holder.attributes)


def _flatten(value: Any) -> None:
    """Replace a map, an empty array, or an array of arrays or maps with its JSON text."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value" or (
        kind == "array_value"
        and (
            not value.array_value.values
            or any(
                element.WhichOneof("value") in ("array_value", "kvlist_value")
                for element in value.array_value.values
            )
        )
    ):
        value.string_value = json.dumps(_to_json(value), ensure_ascii=False, separators=(",", ":"))


def to_text(value: Any) -> str:
    """Return any attribute value as the store would show it: scalars plain, the rest as JSON."""
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "string_value":
        return str(value.string_value)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return json.dumps(_to_json(value), ensure_ascii=False, separators=(",", ":"))


def _to_json(value: Any) -> Any:
    """Return what the OpenTelemetry Collector writes for a value: bytes are base64.

    Recursion is bounded: upb refuses bodies of more than 100 nested messages.
    """
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_to_json(element) for element in value.array_value.values]
    if kind == "kvlist_value":
        # A repeated key keeps its last value: JSON objects cannot express more.
        return {pair.key: _to_json(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return None
    return getattr(value, kind)


def _build_flat_request() -> Any:
    """Return the request class whose arrays hold scalars, and whose maps cannot be encoded."""
    pool = descriptor_pool.DescriptorPool()
    deep = descriptor_pb2.FileDescriptorProto(
        name="deep.proto", package="evenkeel", syntax="proto2"
    )
    deep.message_type.add(name="Deep").field.add(
        name="never",
        number=536_870_911,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED,
    )
    pool.Add(deep)
    for module in (common_pb2, resource_pb2, trace_pb2, trace_service_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        if module is common_pb2:
            _bound_nesting(file)
        pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(ExportTraceServiceRequest.DESCRIPTOR.full_name)
    )


def _bound_nesting(common: Any) -> None:
    common.dependency.append("deep.proto")
    messages = {message.name: message for message in common.message_type}
    scalar = common.message_type.add()
    scalar.CopyFrom(messages["AnyValue"])
    scalar.name = "Scalar"
    for message, names in (
        (scalar, ("array_value", "kvlist_value")),
        (messages["AnyValue"], ("kvlist_value",)),
    ):
        for field in message.field:
            if field.name in names:
                field.type_name = ".evenkeel.Deep"
    messages["ArrayValue"].field[0].type_name = f".{COMMON}.Scalar"


_FlatRequest = _build_flat_request()
