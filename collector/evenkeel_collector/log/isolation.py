"""Finds the spans that make the store refuse a whole segment, by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# One bad span among 8,192 takes about 30 checks. If everything is bad, larger pieces are set aside
# instead of single spans.
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
        bodies: OTLP trace requests, as stored in a segment.
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


def _halve(bodies: list[bytes]) -> tuple[list[bytes], list[bytes]] | None:
    """Return the two halves, or None for a single span or an unreadable body."""
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
    """Return the request with only its spans from `first` up to `end`, in running order."""
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
