"""Finds the spans, log records and metric points that make the store refuse a whole segment.

It halves the segment, its bodies, and then what a body holds, until what is refused is found. A
segment that the store has too little memory for is divided in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from evenkeel_collector.log.repeats import mark, read_mark

# One bad span among 8,192 takes about 30 checks. If everything is bad, larger pieces are set aside
# instead of single items.
MAX_CHECKS = 256


@dataclass(frozen=True, slots=True)
class Poison:
    """Refused bodies, as small as possible, and the reason."""

    bodies: list[bytes]
    reason: str


@dataclass(slots=True)
class Isolated:
    """A segment's bodies, split; those that can be stored keep their order."""

    good: list[bytes] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)


def isolate(bodies: list[bytes], refusal: Callable[[list[bytes]], str | None]) -> Isolated:
    """Split bodies into those that can be stored and those that cannot.

    Args:
        bodies: The bodies of a segment, each with its digest, if it has one.
        refusal: Returns why these bodies cannot be stored together; None if they can.
    """
    found = Isolated()
    num_checks = 0
    waiting = [bodies]
    while waiting:
        part = waiting.pop()
        reason = refusal(part)
        num_checks += 1
        if reason is None:
            found.good += part
            continue
        halves = _halve(part) if num_checks < MAX_CHECKS else None
        if halves is None:
            found.poison.append(Poison(part, reason))
        else:
            waiting += reversed(halves)
    return found


def first_part(
    bodies: list[bytes], fits: Callable[[list[bytes]], bool]
) -> tuple[list[bytes], list[bytes]]:
    """Return the part at the front that fits, found by halving, and the rest.

    The rest is empty if everything fits, or if not even a single item does.
    """
    part: list[bytes] = bodies
    rest: list[bytes] = []
    while not fits(part):
        halves = _halve(part)
        if halves is None:
            return bodies, []
        part, rest = halves[0], halves[1] + rest
    return part, rest


def _halve(bodies: list[bytes]) -> tuple[list[bytes], list[bytes]] | None:
    """Return the two halves, or None for a single item or an unreadable body."""
    if len(bodies) > 1:
        middle = len(bodies) // 2
        return bodies[:middle], bodies[middle:]
    digest = read_mark(bodies[0])
    head = b"" if digest is None else mark(b"", digest)
    try:
        message = _Body.FromString(bodies[0][len(head) :])
    except DecodeError:
        return None
    num_items = sum(len(items) for items in _lists_of(message))
    if num_items < 2:
        return None
    middle = num_items // 2
    # The digest stays in front of the first half: there it is read after a restart.
    return [head + _keep(message, 0, middle)], [_keep(message, middle, num_items)]


def _keep(message: Any, first: int, end: int) -> bytes:
    """Return the body with only its items from `first` up to `end`, in running order."""
    kept = _Body()
    kept.CopyFrom(message)
    index = 0
    for items in _lists_of(kept):
        num_items = len(items)
        del items[max(end - index, 0) :]
        del items[: max(first - index, 0)]
        index += num_items
    for resource in kept.resource_spans:
        _remove_empty(resource.scope_spans, "spans")
    for resource in kept.resource_logs:
        _remove_empty(resource.scope_logs, "log_records")
    _remove_empty(kept.resource_spans, "scope_spans")
    _remove_empty(kept.resource_logs, "scope_logs")
    _remove_empty(kept.metric_groups, "points")
    return bytes(kept.SerializeToString())


def _lists_of(message: Any) -> Iterator[Any]:
    """Yield the lists of a body's items: spans, log records and metric points."""
    for resource in message.resource_spans:
        yield from (scope.spans for scope in resource.scope_spans)
    for resource in message.resource_logs:
        yield from (scope.log_records for scope in resource.scope_logs)
    yield from (group.points for group in message.metric_groups)


def _remove_empty(holders: Any, name: str) -> None:
    for index in reversed(range(len(holders))):
        if not getattr(holders[index], name):
            del holders[index]


def _build_body() -> Any:
    """Return the class of a body: the fields of a Segment (otlp_traces.proto) that hold items."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="log_body.proto", package="evenkeel", syntax="proto3"
    )
    # Points are moved, not read. The attributes of their resource remain as an unknown field.
    group = file.message_type.add(name="MetricGroup")
    group.field.add(name="points", number=2, type=kinds.TYPE_BYTES, label=kinds.LABEL_REPEATED)
    body = file.message_type.add(name="Body")
    for name, number, of in (
        ("resource_spans", 1, trace_pb2.ResourceSpans.DESCRIPTOR),
        ("resource_logs", 1006, logs_pb2.ResourceLogs.DESCRIPTOR),
    ):
        file.dependency.append(of.file.name)
        body.field.add(
            name=name, number=number, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED,
            type_name=f".{of.full_name}",
        )  # fmt: skip
    body.field.add(
        name="metric_groups", number=1002, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED,
        type_name=".evenkeel.MetricGroup",
    )  # fmt: skip
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("evenkeel.Body"))


_Body = _build_body()
