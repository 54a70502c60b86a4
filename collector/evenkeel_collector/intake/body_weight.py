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
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

# As many points of 84 bytes as 20 MiB hold, the largest body by default.
MAX_RECORDS = 250_000
# As much as 20 MiB hold, if each takes 20 bytes.
MAX_PARTS = 1_000_000
# As many as 8,192 exponential histograms of 160 positive and 160 negative buckets have, and more.
MAX_NUMBERS = 4_000_000
# Commas of a JSON body, in texts too; most stand between two members of an object or list.
MAX_COMMAS = 2_000_000
# Longer bodies, and bodies with more than this, are not parsed in the event loop. As much ordinary
# spans or log records take about a millisecond.
INLINE_BYTES = 512 << 10
INLINE_RECORDS = 1_000
INLINE_PARTS = 20_000
# The same for what Python reads value by value: metrics, JSON, and nested attributes.
INLINE_READ_BYTES = 8 << 10
INLINE_VALUES = 1_000
# What parts of records hold is counted in longer bodies only: a part takes at least two bytes.
COUNTED_BYTES = 8 << 20
# Resources, scopes and records; then what records have, such as attributes.
RECORD_LEVELS = 3
PART_LEVELS = 4
# A body too short to cost anything.
NEGLIGIBLE_BYTES = 2 << 10
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
        num_parts: Every other message that repeats: attributes, events, values in lists.
        num_numbers: Numbers that repeat without a message around each, such as buckets.
    """

    num_records: int = 0
    num_parts: int = 0
    num_numbers: int = 0

    def add(self, kind: Any, number: int) -> None:
        """Count messages, by their descriptor, or numbers, which have none.

        Raises:
            TooManyError: If the body has too many.
        """
        if kind is None:
            self.num_numbers += number
        elif kind.full_name in RECORDS:
            self.num_records += number
        else:
            self.num_parts += number
        if self.num_records > MAX_RECORDS:
            raise TooManyError(
                f"body has more than {MAX_RECORDS:,} spans, records or points: send smaller batches"
            )
        if self.num_parts > MAX_PARTS:
            raise TooManyError(
                f"body has more than {MAX_PARTS:,} attributes, events and values: "
                "send smaller batches"
            )
        if self.num_numbers > MAX_NUMBERS:
            raise TooManyError(f"body has more than {MAX_NUMBERS:,} buckets: send smaller batches")


def weigh_protobuf(request: Any, body: bytes, *, is_whole: bool = False) -> BodyWeight:
    """Return what a protobuf body holds; a negligible one is not counted.

    Args:
        request: The class of its request.
        body: As received, decompressed.
        is_whole: Whether to count what attributes, events and links hold in short bodies, too.

    Raises:
        TooManyError: If it holds too much.
        DecodeError: If it is not such a request.
    """
    # Python reads every part of a metric.
    is_whole |= len(body) > COUNTED_BYTES or request is ExportMetricsServiceRequest
    return _weigh(request, body, MAX_NESTED if is_whole else RECORD_LEVELS)


def is_light_protobuf(request: Any, body: bytes) -> bool:
    """Return whether a body can be parsed in the event loop; a long one is not counted.

    Raises:
        TooManyError: If it holds too much.
        DecodeError: If it is not such a request.
    """
    if request is ExportMetricsServiceRequest:
        if len(body) > INLINE_READ_BYTES:
            return False
        weight = weigh_protobuf(request, body)
        return weight.num_records + weight.num_parts + weight.num_numbers <= INLINE_VALUES
    if len(body) > INLINE_BYTES:
        return False
    # A part takes at least two bytes.
    is_short = len(body) <= 2 * INLINE_PARTS
    weight = _weigh(request, body, RECORD_LEVELS if is_short else PART_LEVELS)
    return weight.num_records <= INLINE_RECORDS and weight.num_parts <= INLINE_PARTS


def _weigh(request: Any, body: bytes, num_levels: int) -> BodyWeight:
    weight = BodyWeight()
    if len(body) > NEGLIGIBLE_BYTES:
        for kind, number in _repeated_in(request.DESCRIPTOR, body, num_levels):
            weight.add(kind, number)
    return weight


def weigh_json(body: bytes) -> BodyWeight:
    """Return what a JSON body holds at most: every object and list, and what texts have of both.

    Raises:
        TooManyError: If that is too much, or there are too many values.
    """
    weight = BodyWeight()
    if body.count(b",") > MAX_COMMAS:
        raise TooManyError(f"body has more than {MAX_COMMAS:,} JSON values: send smaller batches")
    weight.add(common_pb2.AnyValue.DESCRIPTOR, body.count(b"{") + body.count(b"["))
    return weight


def is_light_json(body: bytes) -> bool:
    """Return whether a JSON body can be parsed in the event loop, by its length and brackets."""
    return len(body) <= INLINE_READ_BYTES and sum(map(body.count, b"{[,")) <= INLINE_VALUES


def _repeated_in(kind: Any, body: bytes, num_levels: int) -> Iterator[tuple[Any, int]]:
    """Yield the kind and number of what repeats in a message, level by level.

    A kind is a message's descriptor; None for numbers.
    """
    merged = min(num_levels, PART_LEVELS) - 1
    for level in range(merged):
        counts = [(child, len(values)) for child, values in _repeated_at(level, kind, body)]
        yield from counts
        if not any(number for _, number in counts):
            return
    level, pending = merged, {kind: [body]}
    is_last = num_levels <= PART_LEVELS
    for _ in range(num_levels - merged):
        inner: dict[Any, list[bytes]] = {}
        for of, parts in pending.items():
            # Protobuf merges messages that follow each other: all of a kind are counted together.
            data = b"".join(parts)
            if not is_last:
                # Refuses what is cut short: joined, it would swallow the messages after it.
                _framing(of, level + 1).request.FromString(data)
            for child, values in _repeated_at(level, of, data):
                yield child, len(values)
                if not is_last and child is not None and values:
                    inner.setdefault(child, []).append(b"".join(values))
        if not inner:
            return
        level, pending = 0, inner
    raise DecodeError(f"more than {MAX_NESTED} nested messages")


def _repeated_at(level: int, kind: Any, data: bytes) -> Iterator[tuple[Any, Any]]:
    """Yield the kind and the values of each repeated field at a level of a message."""
    framing = _framing(kind, level)
    message = framing.request.FromString(data)
    for path, child in framing.repeated:
        yield child, _follow(message, path)


@dataclass(frozen=True, slots=True)
class _Framing:
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
def _framing(kind: Any, level: int) -> _Framing:
    """Return the class that counts a level of a message, which is given by its descriptor."""
    file = descriptor_pb2.FileDescriptorProto(name="framing.proto", package=PACKAGE)
    file.syntax = "proto3"
    todo, done = [(kind, level)], set()
    while todo:
        of, below = todo.pop()
        if (of.full_name, below) not in done:
            done.add((of.full_name, below))
            todo += _add_class(file, of, below)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    name = f"{PACKAGE}.{_class_name(kind, level)}"
    return _Framing(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name)),
        tuple(_repeated(kind, level, ())),
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
