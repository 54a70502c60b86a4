"""OTLP trace requests for tests, built with the protobuf classes and nothing of ours."""

import random
import struct
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList


def any_value(value: Any) -> AnyValue:
    """Return a Python value as OTLP says it."""
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=key_values(value)))
    if isinstance(value, list | tuple):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    return AnyValue(string_value=str(value))


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Return attributes as OTLP says them."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def trace_request(
    num_spans: int = 1,
    attributes: Mapping[str, Any] | None = None,
    name: str = "test",
    service: str = "test",
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> ExportTraceServiceRequest:
    """Return a request of spans that differ in their ids only."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(key_values({"service.name": service}))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "tests"
    start_ns = time.time_ns() if start_ns is None else start_ns
    for _ in range(num_spans):
        scope_spans.spans.add(
            trace_id=uuid.uuid4().bytes,
            span_id=uuid.uuid4().bytes[:8],
            name=name,
            kind=2,
            start_time_unix_nano=start_ns,
            end_time_unix_nano=start_ns + 1_000_000 if end_ns is None else end_ns,
            attributes=key_values(attributes or {}),
        )
    return request


def mutate(good: bytes, rng: random.Random) -> bytes:
    """Return the body with a few bytes changed, removed or added."""
    body = bytearray(good)
    for _ in range(rng.randint(1, 6)):
        position = rng.randrange(len(body))
        choice = rng.random()
        if choice < 0.6:
            body[position] = rng.randrange(256)
        elif choice < 0.8:
            del body[position : position + rng.randint(1, 8)]
        else:
            body[position:position] = rng.randbytes(rng.randint(1, 8))
    return bytes(body)


def old_segment(created_ns: int, bodies: Sequence[bytes]) -> bytes:
    """Return a log segment as versions before decision 0199 wrote it."""
    parts = [b"\xc1\x3e" + struct.pack("<Q", created_ns)]
    for body in bodies:
        length = struct.pack("<I", len(body))
        parts += (b"\xc9\x3e", length, struct.pack("<I", zlib.crc32(length + body)), body)
    return b"".join(parts)
