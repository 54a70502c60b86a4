"""Maps byte ranges of an encoded OTLP request to the records and attributes that contain them.

One search over a whole encoded request is ten times cheaper than checking each attribute; this
module maps its hits back to the few attributes that must be checked. Only the frames of the outer
messages are read (opentelemetry-proto 1.x: ResourceSpans, ScopeSpans and Span; ResourceLogs,
ScopeLogs and LogRecord, which have the same numbers but for the attributes).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

FIELD_RESOURCE_SPANS = 1
FIELD_SCOPE_SPANS = 2
FIELD_SPANS = 2
SPAN_TAG = FIELD_SPANS << 3 | 2
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Shape:
    """How the fields of one signal's request are called, outermost first.

    `attributes` is the number of the record's field of attributes.
    """

    resources: str
    scopes: str
    records: str
    attributes: int


TRACES = Shape("resource_spans", "scope_spans", "spans", 9)
LOGS = Shape("resource_logs", "scope_logs", "log_records", 6)


class UnframedError(ValueError):
    """A range lies in or after a field that OTLP does not define, so it cannot be mapped."""


@dataclass(frozen=True, slots=True)
class SpanPath:
    """A span or log record by its indexes; without `span` the scope, without `scope` the resource.

    `attributes` are the only parts of it that were hit; None: others were hit, too.
    """

    resource: int
    scope: int | None = None
    span: int | None = None
    attributes: Sequence[int] | None = None


@dataclass(slots=True)
class _Hits:
    """Byte ranges in ascending order, consumed from the left as frames are read."""

    ranges: Sequence[tuple[int, int]]
    attributes: int  # the field's number in a record
    next: int = 0
    start: int = 0  # of the next range, or less

    def touch(self, start: int, end: int) -> bool:
        """Whether a range overlaps [start, end); calls must come with ascending starts."""
        while self.next < len(self.ranges) and self.ranges[self.next][1] <= start:
            self.next += 1
        if self.next == len(self.ranges):
            self.start = sys.maxsize
            return False
        self.start = self.ranges[self.next][0]
        return self.start < end


def locate(
    payload: bytes, ranges: Sequence[tuple[int, int]], shape: Shape = TRACES
) -> Iterator[SpanPath]:
    """Yield the parts of an encoded request that overlap the byte ranges.

    Args:
        payload: A request that protobuf itself wrote.
        ranges: (start, end) offsets, ascending and disjoint.
        shape: The request's signal.

    Raises:
        UnframedError: If a range lies in an unknown field of the request, or a group is met.
    """
    hits = _Hits(ranges, shape.attributes)
    resource = -1
    for field, start, end in _fields(payload, 0, len(payload)):
        if field == FIELD_RESOURCE_SPANS:
            resource += 1
            if hits.touch(start, end):
                yield from _in_resource(payload, start, end, hits, resource)
        elif hits.touch(start, end):
            raise UnframedError(f"field {field} is not OTLP's")


def every_place(message: Any, shape: Shape) -> Iterator[SpanPath]:
    """Yield every part of a request, for one that cannot be located by its encoding."""
    for r, of_resource in enumerate(getattr(message, shape.resources)):
        yield SpanPath(r)
        for s, of_scope in enumerate(getattr(of_resource, shape.scopes)):
            yield SpanPath(r, s)
            yield from (SpanPath(r, s, i) for i in range(len(getattr(of_scope, shape.records))))


def _in_resource(
    payload: bytes, start: int, end: int, hits: _Hits, resource: int
) -> Iterator[SpanPath]:
    scope = -1
    is_own_part_hit = False
    for field, first, last in _fields(payload, start, end):
        if field != FIELD_SCOPE_SPANS:
            is_own_part_hit |= hits.touch(first, last)
            continue
        scope += 1
        if hits.touch(first, last):
            yield from _in_scope(payload, first, last, hits, resource, scope)
    if is_own_part_hit:
        yield SpanPath(resource)


def _in_scope(
    payload: bytes, start: int, end: int, hits: _Hits, resource: int, scope: int
) -> Iterator[SpanPath]:
    span = -1
    is_own_part_hit = False
    position = start
    while position < end:
        # Most spans have 128 to 16,383 bytes and are not hit: a fast path skips them.
        unhit = hits.start
        while position < end and payload[position] == SPAN_TAG:
            low = payload[position + 1]
            if low < 0x80:
                break
            high = payload[position + 2]
            after = position + 3 + (low - 0x80) + (high << 7)
            if high > 0x7F or after > unhit:
                break
            position = after
            span += 1
        if position >= end:
            break
        field, first, position = _field(payload, position)
        if field != FIELD_SPANS:
            is_own_part_hit |= hits.touch(first, position)
            continue
        span += 1
        if position > hits.start and hits.touch(first, position):
            yield SpanPath(resource, scope, span, _attributes(payload, first, position, hits))
    if is_own_part_hit:
        yield SpanPath(resource, scope)


def _attributes(payload: bytes, start: int, end: int, hits: _Hits) -> Sequence[int] | None:
    """Return which attributes of a span were hit; None if any other part was.

    A text that a rule matches lies within a range, or overlaps one that begins before it: a rule's
    lookaround reaches no further than the attribute's own frame.
    """
    touched = []
    attribute = -1
    index = hits.next
    range_start, range_end = hits.ranges[index]
    while start < end and range_start < end:
        field, _, stop = _field(payload, start)
        attribute += field == hits.attributes
        if range_start < stop:
            if field != hits.attributes:
                return None
            touched.append(attribute)
        start = stop
        while range_end <= start:
            index += 1
            if index == len(hits.ranges):
                return touched
            range_start, range_end = hits.ranges[index]
    return touched


def _fields(payload: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, start, end) of each field's value."""
    while start < end:
        field, first, start = _field(payload, start)
        yield field, first, start


def _field(payload: bytes, position: int) -> tuple[int, int, int]:
    """Return (field number, start, end) of the value of the field that begins at `position`."""
    tag = payload[position]
    position += 1
    if tag & 0x80:
        tag, position = _varint(payload, position - 1)
    wire_type = tag & 7
    if wire_type == DELIMITED:
        length = payload[position]
        position += 1
        if length & 0x80:
            length, position = _varint(payload, position - 1)
        return tag >> 3, position, position + length
    if wire_type == VARINT:
        return tag >> 3, position, _varint(payload, position)[1]
    if wire_type == FIXED64:
        return tag >> 3, position, position + 8
    if wire_type == FIXED32:
        return tag >> 3, position, position + 4
    raise UnframedError(f"wire type {wire_type} at byte {position}")


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    byte = payload[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, position
