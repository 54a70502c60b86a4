"""Counts what a body holds before it is parsed, and refuses what no sender sends.

An empty message takes two bytes of a body, next to nothing once compressed, and hundreds of bytes
in memory. A parser whose messages have only the framing counts them at a tenth of the cost of
parsing (docs/decisions/0363).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

# The OpenTelemetry Collector sends 8,192 records per body by default, the SDKs 512.
MAX_RECORDS = 100_000
MAX_PARTS = 2_000_000
# Bodies with more than this are not parsed in the event loop, however short they are.
INLINE_RECORDS = 1_000
INLINE_PARTS = 50_000
# Most memory that parsing takes: per byte of an ordinary body, and per record, point and part.
BYTES_PER_BYTE = 3
BYTES_PER_JSON_BYTE = 10
BYTES_PER_RECORD = 300
BYTES_PER_POINT = 1_000
BYTES_PER_PART = 100
BYTES_PER_JSON_PART = 350
# Counted at once: that holds the interpreter for at most a few hundredths of a second.
PIECE_BYTES = 1 << 20
# Fields that are read one by one, of messages larger than that.
MAX_FIELDS = 250_000
# A body too short to cost anything.
NEGLIGIBLE_BYTES = 4 << 10
# upb refuses bodies with more nested messages.
MAX_NESTED = 100
MAX_VARINT_BYTES = 10
# So many levels of repeated messages are counted without a copy of their contents.
NUM_LEVELS = 7
# Resources, scopes, records and their attributes. What lists hold is counted in longer bodies only:
# that takes twice as long, and in short ones it cannot be much.
SHORT_LEVELS = 4
PACKAGE = "evenkeel.framing"
DELIMITED = 2
FIXED_BYTES = {1: 8, 5: 4}
_PACKED_BYTES = {
    descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE: 8,
    descriptor_pb2.FieldDescriptorProto.TYPE_FIXED64: 8,
}
# Texts as bytes and enums as integers: the values do not matter.
_PLAIN_TYPES = {
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING: descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    descriptor_pb2.FieldDescriptorProto.TYPE_ENUM: descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
}
POINTS = frozenset(
    each.DESCRIPTOR.full_name
    for each in (
        metrics_pb2.NumberDataPoint,
        metrics_pb2.HistogramDataPoint,
        metrics_pb2.ExponentialHistogramDataPoint,
        metrics_pb2.SummaryDataPoint,
        # The store has each as a point of its own.
        metrics_pb2.SummaryDataPoint.ValueAtQuantile,
    )
)
RECORDS = POINTS | {Span.DESCRIPTOR.full_name, LogRecord.DESCRIPTOR.full_name}


class TooManyError(Exception):
    """The body holds more than any sender sends: sending it again will not help."""


@dataclass(slots=True)
class BodyWeight:
    """What a body holds.

    Attributes:
        num_records: Spans, log records, or metric points.
        num_points: Those that are metric points.
        num_parts: Everything else that repeats: attributes, events, values in lists, buckets.
        memory_bytes: Most memory that it takes to parse, including the body's own.
    """

    num_records: int = 0
    num_points: int = 0
    num_parts: int = 0
    memory_bytes: int = 0

    @property
    def is_light(self) -> bool:
        """Whether it is parsed in a few milliseconds, if the body is short."""
        return self.num_records <= INLINE_RECORDS and self.num_parts <= INLINE_PARTS

    def add(self, kind: str | None, number: int) -> None:
        """Count messages of a kind, by its full name; None for others.

        Raises:
            TooManyError: If the body has too many.
        """
        if kind in RECORDS:
            self.num_records += number
            self.num_points += number * (kind in POINTS)
        else:
            self.num_parts += number
        if self.num_records > MAX_RECORDS:
            raise TooManyError(
                f"body has more than {MAX_RECORDS:,} spans, records or points: send smaller batches"
            )
        if self.num_parts > MAX_PARTS:
            raise TooManyError(
                f"body has more than {MAX_PARTS:,} attributes, events, buckets and values: "
                "send smaller batches"
            )


def weigh_protobuf(request: Any, body: bytes) -> BodyWeight:
    """Return what a protobuf body holds; a negligible one is not counted.

    Args:
        request: The class of its request.
        body: As received, decompressed.

    Raises:
        TooManyError: If it holds too much.
        DecodeError: If it is not such a request.
    """
    weight = BodyWeight()
    if len(body) > NEGLIGIBLE_BYTES:
        is_short = len(body) <= PIECE_BYTES and request is not ExportMetricsServiceRequest
        num_levels = SHORT_LEVELS if is_short else NUM_LEVELS
        for kind, piece in _pieces(request.DESCRIPTOR, body, weight):
            _count(kind, piece, weight, num_levels, MAX_NESTED)
    num_others = weight.num_records - weight.num_points
    weight.memory_bytes = len(body) + max(
        len(body) * (BYTES_PER_BYTE - 1),
        num_others * BYTES_PER_RECORD
        + weight.num_points * BYTES_PER_POINT
        + weight.num_parts * BYTES_PER_PART,
    )
    return weight


def weigh_json(body: bytes) -> BodyWeight:
    """Return what a JSON body holds at most: every object and list, and what texts have of both.

    Raises:
        TooManyError: If that is too much.
    """
    weight = BodyWeight()
    weight.add(None, body.count(b"{") + body.count(b"["))
    weight.memory_bytes = max(
        len(body) * BYTES_PER_JSON_BYTE, len(body) + weight.num_parts * BYTES_PER_JSON_PART
    )
    return weight


def _pieces(kind: Any, data: bytes, weight: BodyWeight) -> Iterator[tuple[Any, bytes]]:
    """Yield a message in pieces of up to PIECE_BYTES, with the descriptor of each.

    Only the frames of larger messages are read here, and those that repeat are counted.
    """
    waiting = [(kind, data, MAX_NESTED)]
    num_fields = 0
    while waiting:
        kind, data, depth = waiting.pop()
        if len(data) <= PIECE_BYTES:
            yield kind, data
            continue
        if not depth:
            raise DecodeError(f"more than {MAX_NESTED} nested messages")
        begin = position = 0
        while position < len(data):
            num_fields += 1
            if num_fields > MAX_FIELDS:
                raise TooManyError(f"body has a message of more than {MAX_FIELDS:,} fields")
            number, first, after = _read_field(data, position)
            if after - begin > PIECE_BYTES:
                yield kind, data[begin:position]
                begin = position
                if after - first > PIECE_BYTES:
                    begin = after
                    found = kind.fields_by_number.get(number)
                    if found is not None and found.message_type is not None:
                        if found.is_repeated:
                            weight.add(found.message_type.full_name, 1)
                        waiting.append((found.message_type, data[first:after], depth - 1))
                    elif found is not None and found.is_repeated:
                        weight.add(None, (after - first) // _PACKED_BYTES.get(found.type, 1))
            position = after
        yield kind, data[begin:]


def _count(kind: Any, piece: bytes, weight: BodyWeight, num_levels: int, depth: int) -> None:
    """Count what repeats in an encoded message, level by level."""
    for level in _levels(kind)[:num_levels]:
        message = level.request.FromString(piece)
        num = 0
        for path, child in level.repeated:
            number = len(_follow(message, path))
            num += number
            weight.add(child and child.full_name, number)
        if not num:
            return
    if num_levels < NUM_LEVELS or depth <= NUM_LEVELS:
        return
    for path, child in level.repeated:
        values = _follow(message, path) if child else ()
        if values:
            # Protobuf merges messages that follow each other: their children are counted together.
            _count(child, b"".join(values), weight, num_levels, depth - NUM_LEVELS)


@dataclass(frozen=True, slots=True)
class _Level:
    """A class that merges all levels above one, and has what repeats there as bytes.

    Attributes:
        request: The class.
        repeated: The path to each repeated field, and its message's descriptor; None for numbers.
    """

    request: Any
    repeated: tuple[tuple[tuple[str, ...], Any], ...]


def _follow(message: Any, path: tuple[str, ...]) -> Any:
    """Return a repeated field; an empty one if a message on the path is missing."""
    for name in path[:-1]:
        if not message.HasField(name):
            return ()
        message = getattr(message, name)
    return getattr(message, path[-1])


@cache
def _levels(kind: Any) -> tuple[_Level, ...]:
    """Return the levels of a message by its descriptor, outermost first."""
    file = descriptor_pb2.FileDescriptorProto(name="framing.proto", package=PACKAGE)
    file.syntax = "proto3"
    todo, done = [(kind, level) for level in range(NUM_LEVELS)], set()
    while todo:
        of, level = todo.pop()
        if (of.full_name, level) not in done:
            done.add((of.full_name, level))
            todo += _add_class(file, of, level)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return tuple(
        _Level(
            message_factory.GetMessageClass(
                pool.FindMessageTypeByName(f"{PACKAGE}.{_class_name(kind, level)}")
            ),
            tuple(_repeated(kind, level, ())),
        )
        for level in range(NUM_LEVELS)
    )


def _add_class(file: Any, of: Any, level: int) -> list[tuple[Any, int]]:
    """Add the class of a message at a level; return those that it needs."""
    kinds = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name=_class_name(of, level))
    needed = []
    for each in of.fields:
        field = message.field.add(name=each.name, number=each.number, label=kinds.LABEL_OPTIONAL)
        if each.message_type is None:
            # Declared, though not needed: it takes upb three times as long to keep unknown fields.
            field.type = _PLAIN_TYPES.get(each.type, each.type)
            field.label = kinds.LABEL_REPEATED if each.is_repeated else kinds.LABEL_OPTIONAL
        elif each.is_repeated and not level:
            field.type, field.label = kinds.TYPE_BYTES, kinds.LABEL_REPEATED
        else:
            below = level - each.is_repeated
            needed.append((each.message_type, below))
            field.type = kinds.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{_class_name(each.message_type, below)}"
    return needed


def _class_name(of: Any, level: int) -> str:
    return f"{of.full_name.replace('.', '_')}_{level}"


def _repeated(of: Any, level: int, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the paths to what repeats at a level below a message."""
    for each in of.fields:
        below = level - each.is_repeated
        if each.is_repeated and not level:
            yield (*path, each.name), each.message_type
        elif each.message_type is not None:
            yield from _repeated(each.message_type, below, (*path, each.name))


def _read_field(data: bytes, position: int) -> tuple[int, int, int]:
    """Return (field number, start, end) of the value of the field that begins at `position`."""
    tag, first = _read_varint(data, position)
    wire_type = tag & 7
    if wire_type == DELIMITED:
        length, first = _read_varint(data, first)
        after = first + length
    elif wire_type in FIXED_BYTES:
        after = first + FIXED_BYTES[wire_type]
    elif wire_type == 0:
        after = _read_varint(data, first)[1]
    else:
        raise DecodeError(f"wire type {wire_type}")
    if after > len(data):
        raise DecodeError("a field is longer than its message")
    return tag >> 3, first, after


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise DecodeError("a number is cut short or too long")
