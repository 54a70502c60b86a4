"""Finds the few spans for whose sake the store refuses a whole segment, by halving it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# One bad span among 8,192 takes some 30 checks. Where everything is bad, larger pieces are set
# aside instead of each span by itself.
MAX_CHECKS = 256


@dataclass(frozen=True, slots=True)
class Poison:
    """Bodies that are refused, as small as they could be made, and why."""

    bodies: list[bytes]
    reason: str


@dataclass(slots=True)
class Isolated:
    """A segment's bodies, parted; those that can be stored keep their order."""

    good: list[bytes] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)


def isolate(bodies: list[bytes], refusal: Callable[[list[bytes]], str | None]) -> Isolated:
    """Part bodies into those that can be stored and those that cannot.

    Args:
        bodies: OTLP trace requests, as they lie in a segment.
        refusal: Says why these bodies cannot be stored together; None if they can.
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


def _halve(bodies: list[bytes]) -> tuple[list[bytes], list[bytes]] | None:
    """Return two smaller parts, or None if this is one span, or cannot be read."""
    if len(bodies) > 1:
        middle = len(bodies) // 2
        return bodies[:middle], bodies[middle:]
    try:
        message = ExportTraceServiceRequest.FromString(bodies[0])
    except DecodeError:
        return None
    num_spans = sum(len(scope.spans) for _, scope in _scopes(message))
    if num_spans < 2:
        return None
    middle = num_spans // 2
    return [_keep(message, 0, middle)], [_keep(message, middle, num_spans)]


def _keep(message: Any, first: int, end: int) -> bytes:
    """Return the request with the spans from `first` up to `end`, counted through."""
    kept = ExportTraceServiceRequest()
    kept.CopyFrom(message)
    index = 0
    for _, scope in _scopes(kept):
        num_spans = len(scope.spans)
        del scope.spans[max(end - index, 0) :]
        del scope.spans[: max(first - index, 0)]
        index += num_spans
    for resource in kept.resource_spans:
        _remove_empty(resource.scope_spans, lambda scope: bool(scope.spans))
    _remove_empty(kept.resource_spans, lambda resource: bool(resource.scope_spans))
    return bytes(kept.SerializeToString())


def _scopes(message: Any) -> list[tuple[Any, Any]]:
    return [
        (resource, scope) for resource in message.resource_spans for scope in resource.scope_spans
    ]


def _remove_empty(repeated: Any, is_kept: Callable[[Any], bool]) -> None:
    for index in reversed(range(len(repeated))):
        if not is_kept(repeated[index]):
            del repeated[index]
