"""Says in which parts of a trace request some bytes of its protobuf encoding lie.

One search over a whole encoded request is ten times cheaper than looking at each attribute; this
leads from where the search hit back to the few spans that need looking at. Only the frames of the
outer messages are read (opentelemetry-proto 1.x: ResourceSpans, ScopeSpans and Span).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FIELD_RESOURCE_SPANS = 1
FIELD_SCOPE_SPANS = 2
FIELD_SPANS = 2
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


class UnframedError(ValueError):
    """A range lies in what OTLP does not define, or behind it, so its part cannot be told."""


@dataclass(frozen=True, slots=True)
class Place:
    """A span by its indexes; without `span` the scope itself, without `scope` the resource."""

    resource: int
    scope: int | None = None
    span: int | None = None


@dataclass(slots=True)
class _Hits:
    """Byte ranges in ascending order, consumed from the left as the frames go by."""

    ranges: Sequence[tuple[int, int]]
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


def locate(payload: bytes, ranges: Sequence[tuple[int, int]]) -> Iterator[Place]:
    """Yield the parts of an encoded ExportTraceServiceRequest that the byte ranges touch.

    Args:
        payload: A request that protobuf itself wrote.
        ranges: (start, end) offsets, ascending and disjoint.

    Raises:
        UnframedError: If a range lies in an unknown field of the request, or a group is met.
    """
    hits = _Hits(ranges)
    resource = -1
    for field, start, end in _fields(payload, 0, len(payload)):
        if field == FIELD_RESOURCE_SPANS:
            resource += 1
            if hits.touch(start, end):
                yield from _in_resource(payload, start, end, hits, resource)
        elif hits.touch(start, end):
            raise UnframedError(f"field {field} is not OTLP's")


def _in_resource(
    payload: bytes, start: int, end: int, hits: _Hits, resource: int
) -> Iterator[Place]:
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
        yield Place(resource)


def _in_scope(
    payload: bytes, start: int, end: int, hits: _Hits, resource: int, scope: int
) -> Iterator[Place]:
    span = -1
    is_own_part_hit = False
    for field, first, last in _fields(payload, start, end):
        if field == FIELD_SPANS:
            span += 1
            # Most spans are not hit: they are passed by as fast as Python can.
            if last > hits.start and hits.touch(first, last):
                yield Place(resource, scope, span)
        else:
            is_own_part_hit |= hits.touch(first, last)
    if is_own_part_hit:
        yield Place(resource, scope)


def _fields(payload: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, start, end) of each field's value."""
    position = start
    while position < end:
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
            stop = position + length
        elif wire_type == VARINT:
            _, stop = _varint(payload, position)
        elif wire_type == FIXED64:
            stop = position + 8
        elif wire_type == FIXED32:
            stop = position + 4
        else:
            raise UnframedError(f"wire type {wire_type} at byte {position}")
        yield tag >> 3, position, stop
        position = stop


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
