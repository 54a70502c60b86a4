"""Redacts secrets in metrics with the same rules and code as for spans.

Attributes and names are copied into a trace request: a resource stays a resource, a metric or a
point becomes a span, whose status message is the metric's unit. Few metrics requests need that; one
search over the encoding decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.intake.metric_points import Point
from evenkeel_collector.redaction.field_redactor import Redactor


@dataclass(frozen=True, slots=True)
class RedactedPoints:
    """Points after redaction, and the number of replacements or removals by rule."""

    points: list[Point]
    counts: Mapping[str, int]


def redact_metrics(
    message: Any, redactor: Redactor, tenant: str | None, *, is_hasty: bool = False
) -> Mapping[str, int]:
    """Redact an ExportMetricsServiceRequest in place; return replacements or removals by rule.

    Raises:
        OverBudgetError: If a hasty redaction takes too long.
    """
    if not redactor.may_match(message.SerializeToString()):
        return {}
    request = ExportTraceServiceRequest()
    holders = []
    for resource_metrics in message.resource_metrics:
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend(resource_metrics.resource.attributes)
        holders.append((resource_metrics.resource, resource_spans.resource))
        spans = resource_spans.scope_spans.add().spans
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                span = spans.add(name=metric.name)
                span.status.message = metric.unit
                holders.append((metric, span))
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points if kind else ():
                    holders.append((point, spans.add(attributes=point.attributes)))
    counts = redactor.redact(request, tenant, is_hasty=is_hasty).counts
    for original, redacted in holders if counts else ():
        if hasattr(original, "attributes"):
            del original.attributes[:]
            original.attributes.extend(redacted.attributes)
        else:
            original.name, original.unit = redacted.name, redacted.status.message
    return counts


def redact_points(points: Sequence[Point], redactor: Redactor) -> RedactedPoints:
    """Return the points without secrets in labels and names."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for point in points:
        span = spans.add(name=point.name)
        for key, value in point.attributes.items():
            span.attributes.add(key=key).value.string_value = value
    counts = redactor.redact(request).counts
    if not counts:
        return RedactedPoints(list(points), {})
    return RedactedPoints(
        [
            replace(
                point,
                name=span.name,
                attributes={pair.key: pair.value.string_value for pair in span.attributes},
            )
            for point, span in zip(points, spans, strict=True)
        ],
        counts,
    )
