"""Checks a received body of spans or log records and flattens it into the bytes the log keeps.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import re2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from evenkeel.privacy.cpu_budget import OverBudgetError
from evenkeel_collector.intake.body_weight import INLINE_READ_BYTES, weigh_protobuf

COMMON = "opentelemetry.proto.common.v1"


# An attribute's value (field 2) or a log record's body (field 5) that is an empty array (field 5),
# as protobuf encodes it. Every value starts with the tag, where RE2 would stop: searching for the
# rest takes a tenth of it.
_VALUE_TAGS = (0x12, 0x2A)
_EMPTY_ARRAY = re2.compile(re2.escape(b"\x02\x2a\x00"))
MAX_HITS = 1_000
# The only field of every OTLP request: resources, field 1.
REQUEST_TAG = b"\x0a"


class MalformedError(ValueError):
    """The body is not an OTLP request of its signal."""


@dataclass(frozen=True, slots=True)
class AwaitedCall:
    """A call that a log event describes, whose span may still come: encoded as that span.

    Attributes:
        trace_id: In hex, as the store has it.
        span_id: In hex.
        resource: The encoded resource; calls of one request share it, and it may be large.
        span: The encoded span.
        tenant: '' if it has none.
    """

    trace_id: str
    span_id: str
    resource: bytes
    span: bytes
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class CheckedBody:
    """A checked request: the protobuf bytes that the log keeps, and their contents."""

    payload: bytes
    num_spans: int = 0
    num_points: int = 0
    num_records: int = 0
    awaited: Sequence[AwaitedCall] = ()


# Changes a parsed trace request in place and returns its encoding: redaction, sampling, tenant.
# Raises EncodeError if the flat schema cannot encode it; it is then called again with another.
Finish = Callable[[Any], bytes]


def serialize(message: Any) -> bytes:
    """Return a message's encoding, unchanged."""
    return bytes(message.SerializeToString())


def check_protobuf(
    body: bytes, finish: Finish = serialize, *, is_hasty: bool = False
) -> CheckedBody:
    """Return the canonical form of a received protobuf body; an empty body has no spans.

    Raises:
        MalformedError: If upb cannot parse it.
        TooManyError: If it holds too much to be read in Python, as nested values are.
        OverBudgetError: If it has nested values and is too long for a hasty check to read them.
    """
    payload, message = flatten_protobuf(TRACE_REQUEST, body, finish, is_hasty=is_hasty)
    return CheckedBody(payload, _count_spans(message))


def flatten_protobuf(
    kind: RequestKind, body: bytes, finish: Finish, *, is_hasty: bool
) -> tuple[bytes, Any]:
    """Return a request's canonical encoding, and the message as `finish` left it.

    Raises:
        MalformedError: If upb cannot parse it.
        TooManyError: If it has nested values and holds too much to be read in Python.
        OverBudgetError: If it has nested values and is too long for a hasty check to read them.
    """
    try:
        message = kind.flat.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"not an OTLP {kind.name}: {error}") from error
    if not _has_only_resources(body):
        # At the top level they could be mistaken for the log's own fields (log/segment_format.py).
        message.DiscardUnknownFields()
    # The store could not distinguish an empty array from no value.
    if not _has_empty_array(body):
        try:
            return finish(message), message
        except EncodeError:
            pass
    if is_hasty and len(body) > INLINE_READ_BYTES:
        raise OverBudgetError
    try:
        weigh_protobuf(kind.full, body, is_whole=True)
        message = kind.full.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"not an OTLP {kind.name}: {error}") from error
    return flatten_message(kind, message, finish), message


def flatten_message(kind: RequestKind, message: Any, finish: Finish) -> bytes:
    """Return the canonical encoding of an already parsed request; the message becomes it."""
    message.DiscardUnknownFields()
    # Before flattening: in JSON text, names and values can no longer be distinguished.
    finish(message)
    for value in kind.values(message):
        _flatten(value)
    return serialize(message)


def check_message(message: ExportTraceServiceRequest, finish: Finish = serialize) -> CheckedBody:
    """Return the canonical form of an already parsed request, such as one from JSON."""
    return CheckedBody(flatten_message(TRACE_REQUEST, message, finish), _count_spans(message))


def _has_only_resources(body: bytes) -> bool:
    """Return whether a request that upb parsed has no other fields at its top level.

    Reading them as an UnknownFieldSet would take Python a microsecond for each of them.
    """
    position = 0
    while position < len(body):
        if not body.startswith(REQUEST_TAG, position):
            return False
        position = sum(read_length(body, position + len(REQUEST_TAG)))
    return True


def read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return the length that is encoded at a position, and the position after it."""
    length = shift = 0
    while True:
        byte = data[position]
        position += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length, position


def _has_empty_array(body: bytes) -> bool:
    """Return whether a value may be an empty array; among too many of them, none is looked at."""
    for number, match in enumerate(_EMPTY_ARRAY.finditer(body)):
        if number == MAX_HITS or body[match.start() - 1] in _VALUE_TAGS:
            return True
    return False


def _count_spans(message: Any) -> int:
    return sum(
        len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans
    )


def _span_values(message: ExportTraceServiceRequest) -> Iterator[Any]:
    for resource_spans in message.resource_spans:
        yield from (pair.value for pair in resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield from (pair.value for pair in span.attributes)
                for holder in (*span.events, *span.links):
                    yield from (pair.value for pair in holder.attributes)


def _record_values(message: ExportLogsServiceRequest) -> Iterator[Any]:
    for resource_logs in message.resource_logs:
        yield from (pair.value for pair in resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            yield from (pair.value for pair in scope_logs.scope.attributes)
            for record in scope_logs.log_records:
                yield record.body
                yield from (pair.value for pair in record.attributes)


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


def _build_flat_requests(names: Iterable[str]) -> Iterator[Any]:
    """Yield the request classes whose arrays hold scalars, and whose maps cannot be encoded."""
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
    for module in (
        common_pb2, resource_pb2, trace_pb2, trace_service_pb2, logs_pb2, logs_service_pb2,
    ):  # fmt: skip
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        if module is common_pb2:
            _bound_nesting(file)
        pool.Add(file)
    for name in names:
        yield message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


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


@dataclass(frozen=True, slots=True)
class RequestKind:
    """One signal's request: its class, the class without nesting, and its attributes' values."""

    name: str
    full: Any
    flat: Any
    values: Callable[[Any], Iterator[Any]]


_FLAT = tuple(
    _build_flat_requests(
        each.DESCRIPTOR.full_name for each in (ExportTraceServiceRequest, ExportLogsServiceRequest)
    )
)
TRACE_REQUEST = RequestKind(
    "ExportTraceServiceRequest", ExportTraceServiceRequest, _FLAT[0], _span_values
)
LOGS_REQUEST = RequestKind(
    "ExportLogsServiceRequest", ExportLogsServiceRequest, _FLAT[1], _record_values
)
