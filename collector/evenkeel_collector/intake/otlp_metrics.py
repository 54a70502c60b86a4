"""Converts OTLP metrics requests, protobuf or JSON, to the points that the log keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from evenkeel import spans
from evenkeel_collector.intake.body_weight import TooManyError
from evenkeel_collector.intake.metric_points import (
    Point,
    copied_bytes,
    encode_points,
    points_of,
    texts_of,
)
from evenkeel_collector.intake.otlp_body import CheckedBody, MalformedError
from evenkeel_collector.intake.otlp_json import fill, read_document

# A metric's name is sent once and stored with every point, a summary's attributes per quantile.
MAX_COPIED_BYTES = 32 << 20
REQUEST = "not an OTLP ExportMetricsServiceRequest"


# Redacts a request in place; receives the tenant that its sender proved.
Redact = Callable[[Any, str | None], None]


def _keep_all(message: Any, tenant: str | None) -> None:
    pass


def check_metrics_protobuf(
    body: bytes, tenant: str | None = None, redact: Redact = _keep_all
) -> CheckedBody:
    """Return the points of a protobuf metrics request.

    Args:
        body: As received, decompressed.
        tenant: The tenant that the sender proved, if any: written to each resource.
        redact: Removes secrets.

    Raises:
        MalformedError: If it is not such a request.
        TooManyError: If its points would take too much.
    """
    try:
        return _check(ExportMetricsServiceRequest.FromString(body), tenant, redact)
    except DecodeError as error:
        raise MalformedError(f"{REQUEST}: {error}") from error


def check_metrics_json(
    body: bytes, tenant: str | None = None, redact: Redact = _keep_all
) -> CheckedBody:
    """Return the points of an OTLP/JSON metrics request.

    Raises:
        MalformedError: If it is not such a request.
        TooManyError: If its points would take too much.
    """
    document = read_document(body)
    message = ExportMetricsServiceRequest()
    try:
        # Their ids are hex, not base64 as in proto3 JSON, and are not used here.
        _drop(document, "exemplars")
        fill(message, document)
        return _check(message, tenant, redact)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedError(f"{REQUEST}: {error}") from error


def _check(message: ExportMetricsServiceRequest, tenant: str | None, redact: Redact) -> CheckedBody:
    redact(message, tenant)
    num_copied = sum(
        copied_bytes(metric)
        for resource_metrics in message.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
    )
    if num_copied > MAX_COPIED_BYTES:
        raise TooManyError(
            f"the names, units and attributes copied to its points would take {num_copied:,} "
            f"bytes, more than {MAX_COPIED_BYTES:,}: send smaller batches"
        )
    groups: list[tuple[dict[str, str], list[Point]]] = []
    for resource_metrics in message.resource_metrics:
        attributes = texts_of(resource_metrics.resource.attributes)
        if tenant is not None:
            attributes[spans.TENANT] = tenant
        points = [
            point
            for scope_metrics in resource_metrics.scope_metrics
            for metric in scope_metrics.metrics
            for point in points_of(metric)
        ]
        if points:
            groups.append((attributes, points))
    num_points = sum(len(points) for _, points in groups)
    return CheckedBody(encode_points(groups), num_points=num_points)


def _drop(holder: Any, name: str) -> None:
    if isinstance(holder, dict):
        holder.pop(name, None)
        for value in holder.values():
            _drop(value, name)
    elif isinstance(holder, list):
        for value in holder:
            _drop(value, name)
