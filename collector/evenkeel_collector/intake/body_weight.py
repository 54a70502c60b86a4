"""Counts what a body holds before it is parsed, and refuses what no sender sends.

An empty message takes two bytes of a body, next to nothing once compressed, and hundreds of bytes
in memory. They are counted by classes whose repeated messages stay bytes: parsing with those costs
a hundredth as much (docs/decisions/0363).
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
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

# The OpenTelemetry Collector sends 8,192 records per body by default, the SDKs 512.
MAX_RECORDS = 100_000
# As much as 20 MiB hold, the largest body by default, if each takes 20 bytes.
MAX_PARTS = 1_000_000
# Commas of a JSON body, in texts too; most stand between two members of an object or list.
MAX_COMMAS = 2_000_000
# Bodies with more than this are not parsed in the event loop, however short they are.
INLINE_RECORDS = 1_000
INLINE_PARTS = 20_000
# What records hold is counted in longer bodies only: a part takes at least two bytes.
COUNTED_BYTES = 8 << 20
# Resources, scopes and records.
RECORD_LEVELS = 3
# So many levels of repeated messages are counted without a copy of their contents.
NUM_LEVELS = 7
# A body too short to cost anything.
NEGLIGIBLE_BYTES = 4 << 10
# upb refuses bodies with more nested messages.
MAX_NESTED = 100
PACKAGE = "evenkeel.framing"
# Texts as bytes and enums as integers: the values do not matter.
_PLAIN_TYPES = {
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING: descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    descriptor_pb2.FieldDescriptorProto.TYPE_ENUM: descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
}
RECORDS = frozenset(
    each.DESCRIPTOR.full_name
    for each in (
        trace_pb2.ResourceSpans,
        trace_pb2.ScopeSpans,
        trace_pb2.Span,
        logs_pb2.ResourceLogs,
        logs_pb2.ScopeLogs,
        logs_pb2.LogRecord,
        metrics_pb2.ResourceMetrics,
        metrics_pb2.ScopeMetrics,
        metrics_pb2.Metric,
        metrics_pb2.NumberDataPoint,
        metrics_pb2.HistogramDataPoint,
        metrics_pb2.ExponentialHistogramDataPoint,
        metrics_pb2.SummaryDataPoint,
        # The store has each as a point of its own.
        metrics_pb2.SummaryDataPoint.ValueAtQuantile,
    )
)


class TooManyError(Exception):
    """The body holds more than any sender sends: sending it again will not help."""


@dataclass(slots=True)
class BodyWeight:
    """What a body holds.

    Attributes:
        num_records: Spans, log records or metric points, and the resources, scopes and metrics
            that group them.
        num_parts: Everything else that repeats: attributes, events, values in lists, buckets.
    """

    num_records: int = 0
    num_parts: int = 0

    @property
    def is_light(self) -> bool:
        """Whether it is parsed in a few milliseconds, if the body is short."""
        return self.num_records <= INLINE_RECORDS and self.num_parts <= INLINE_PARTS

    def add(self, kind: Any, number: int) -> None:
        """Count messages, by their descriptor, or numbers, which have none.

        Raises:
            TooManyError: If the body has too many.
        """
        if kind is not None and kind.full_name in RECORDS:
            self.num_records += number
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


def weigh_protobuf(request: Any, body: bytes, *, is_whole: bool = False) -> BodyWeight:
    """Return what a protobuf body holds; a negligible one is not counted.

    Args:
        request: The class of its request.
        body: As received, decompressed.
        is_whole: Whether to count what spans and log records hold in short bodies, too.

    Raises:
        TooManyError: If it holds too much.
        DecodeError: If it is not such a request.
    """
    weight = BodyWeight()
    if len(body) <= NEGLIGIBLE_BYTES:
        return weight
    # Python reads every part of a metric.
    is_whole |= len(body) > COUNTED_BYTES or request is ExportMetricsServiceRequest
    num_levels = NUM_LEVELS if is_whole else RECORD_LEVELS
    _count(request.DESCRIPTOR, body, weight, num_levels, MAX_NESTED)
    return weight


def weigh_json(body: bytes) -> BodyWeight:
    """Return what a JSON body holds at most: every object and list, and what texts have of both.

    Raises:
        TooManyError: If that is too much, or there are too many values.
    """
    weight = BodyWeight()
    if body.count(b",") > MAX_COMMAS:
        raise TooManyError(f"body has more than {MAX_COMMAS:,} JSON values: send smaller batches")
    weight.add(None, body.count(b"{") + body.count(b"["))
    return weight


def _count(kind: Any, data: bytes, weight: BodyWeight, num_levels: int, depth: int) -> None:
    """Count what repeats in an encoded message, level by level."""
    for level in _levels(kind)[:num_levels]:
        message = None  # Freed first: large new memory costs more than parsing.
        message = level.request.FromString(data)
        num = 0
        for path, child in level.repeated:
            number = len(_follow(message, path))
            num += number
            weight.add(child, number)
        if not num:
            return
    if num_levels < NUM_LEVELS:
        return
    if depth <= NUM_LEVELS:
        raise DecodeError(f"more than {MAX_NESTED} nested messages")
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
