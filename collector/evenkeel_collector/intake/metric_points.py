"""Flattens OTLP metrics into the points that the log keeps and `engine_state` is filled from.

Points share segments with spans, in a field of the segment's message that OTLP does not use
(schema/otlp_traces.proto), so that they get the same durability and deduplication.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from evenkeel_collector.intake.otlp_body import to_text

GAUGE, SUM, HISTOGRAM, SUMMARY = "gauge", "sum", "histogram", "summary"
TEMPORALITIES = {0: "", 1: "delta", 2: "cumulative"}
POINTS_FIELD = 1002
NO_RECORDED_VALUE = 1  # DataPointFlags
# Finer than any sender's exponential histograms: a bucket is a factor of 2^(2^-scale) wide.
MAX_SCALE = 20


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement; attributes that do not apply are None or empty.

    Attributes:
        name: As sent.
        time_ns: Unix nanoseconds.
        kind: `gauge`, `sum`, `histogram` or `summary`.
        value: Of a gauge or sum.
        bounds: Upper bounds of a histogram's buckets, ascending, without the last, infinite one.
        bucket_counts: One more than the bounds; not cumulative over the buckets.
        start_ns: When a sum or histogram started counting; 0 if unknown.
    """

    name: str
    time_ns: int
    kind: str
    value: float | None = None
    count: int | None = None
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    bounds: Sequence[float] = ()
    bucket_counts: Sequence[int] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    temporality: str = ""
    is_monotonic: bool = False
    start_ns: int = 0


def encode_points(groups: Iterable[tuple[Mapping[str, str], Iterable[Point]]]) -> bytes:
    """Return the points encoded for the log, grouped by their resource's attributes."""
    segment = _PointSegment()
    for resource_attributes, points in groups:
        group = segment.metric_groups.add()
        group.resource_attributes.update(resource_attributes)
        for point in points:
            group.points.append(_message_of(point))
    return bytes(segment.SerializeToString())


def points_of(metric: Any) -> Iterable[Point]:
    """Yield the points of an OTLP Metric; those without a recorded value are left out."""
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    common: dict[str, Any] = {"name": metric.name, "unit": metric.unit}
    if kind in ("sum", "histogram", "exponential_histogram"):
        common["temporality"] = TEMPORALITIES.get(data.aggregation_temporality, "")
    for point in data.data_points:
        if point.flags & NO_RECORDED_VALUE:
            continue
        where = {
            **common,
            "time_ns": point.time_unix_nano,
            "start_ns": point.start_time_unix_nano,
            "attributes": texts_of(point.attributes),
        }
        if kind == "gauge" or kind == "sum":
            value = point.WhichOneof("value")
            yield Point(
                kind=GAUGE if kind == "gauge" else SUM,
                value=None if value is None else float(getattr(point, value)),
                is_monotonic=kind == "sum" and data.is_monotonic,
                **where,
            )
        elif kind == "summary":
            yield Point(kind=SUMMARY, count=point.count, sum=point.sum, **where)
            for each in point.quantile_values:
                # As in Prometheus: one gauge per quantile.
                attributes = {**where["attributes"], "quantile": repr(each.quantile)}
                yield Point(kind=GAUGE, value=each.value, **{**where, "attributes": attributes})
        else:
            bounds, counts = (
                _explicit_buckets(point) if kind == "histogram" else _exponential_buckets(point)
            )
            yield Point(
                kind=HISTOGRAM,
                count=point.count,
                sum=point.sum if point.HasField("sum") else None,
                min=point.min if point.HasField("min") else None,
                max=point.max if point.HasField("max") else None,
                bounds=bounds,
                bucket_counts=counts,
                **where,
            )


def copied_bytes(metric: Any) -> int:
    """Return the size of what an OTLP Metric has once and each of its points will have."""
    kind = metric.WhichOneof("data")
    points = getattr(metric, kind).data_points if kind else ()
    named = len(metric.name.encode()) + len(metric.unit.encode())
    size = len(points) * named
    if kind == "summary":
        for each in points:
            own = named + sum(pair.ByteSize() for pair in each.attributes)
            size += len(each.quantile_values) * own
    return size


def texts_of(attributes: Any) -> dict[str, str]:
    """Return OTLP attributes as strings, in the same form as those of spans."""
    return {pair.key: to_text(pair.value) for pair in attributes}


def _explicit_buckets(point: Any) -> tuple[list[float], list[int]]:
    bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    if len(counts) != len(bounds) + 1:
        return [], []  # a histogram may have no buckets; buckets of another shape are invalid
    return bounds, counts


def _exponential_buckets(point: Any) -> tuple[list[float], list[int]]:
    """Return explicit buckets with the same counts (OTLP metrics data model).

    Bucket i of the positive range is (base^i, base^(i+1)], base = 2^(2^-scale); the negative range
    mirrors it; values within the zero threshold are between them.
    """
    scale = min(point.scale, MAX_SCALE)
    bounds: list[float] = []
    counts: list[int] = []
    offset, negative = point.negative.offset, point.negative.bucket_counts
    if negative:
        bounds.append(-_power(scale, offset + len(negative)))
        counts.append(0)
        for index in reversed(range(len(negative))):
            bounds.append(-_power(scale, offset + index))
            counts.append(negative[index])
    zero = max(point.zero_threshold, 0.0)
    offset, positive = point.positive.offset, point.positive.bucket_counts
    first = _power(scale, offset) if positive else zero
    bounds.append(max(zero, first))
    counts.append(point.zero_count)
    for index in range(len(positive)):
        bounds.append(_power(scale, offset + index + 1))
        counts.append(positive[index])
    return bounds, [*counts, 0]


def _power(scale: int, index: int) -> float:
    try:
        return math.exp2(math.ldexp(index, -scale))
    except OverflowError:
        return sys.float_info.max


def _message_of(point: Point) -> Any:
    message = _MetricPoint(
        name=point.name,
        unit=point.unit,
        kind=point.kind,
        temporality=point.temporality,
        is_monotonic=point.is_monotonic,
        time_unix_nano=point.time_ns,
        start_unix_nano=point.start_ns,
        bounds=point.bounds,
        bucket_counts=point.bucket_counts,
    )
    message.attributes.update(point.attributes)
    for name in ("value", "count", "sum", "min", "max"):
        value = getattr(point, name)
        if value is not None:
            setattr(message, name, value)
    return message


def _build_classes() -> tuple[Any, Any]:
    """Return the classes MetricPoint and PointSegment of the store's schema."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="metric_points.proto", package="evenkeel", syntax="proto3"
    )

    def add(
        message: Any, name: str, number: int, kind: int, of: str = "", many: bool = False
    ) -> Any:
        label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
        return message.field.add(
            name=name, number=number, type=kind, label=label, type_name=of or None
        )

    def add_map(message: Any, name: str, number: int) -> None:
        entry = message.nested_type.add(name=_camel(name) + "Entry")
        entry.options.map_entry = True
        add(entry, "key", 1, kinds.TYPE_STRING)
        add(entry, "value", 2, kinds.TYPE_STRING)
        of = f".evenkeel.{message.name}.{entry.name}"
        add(message, name, number, kinds.TYPE_MESSAGE, of, many=True)

    point = file.message_type.add(name="MetricPoint")
    add(point, "time_unix_nano", 1, kinds.TYPE_FIXED64)
    add(point, "start_unix_nano", 2, kinds.TYPE_FIXED64)
    for number, name in enumerate(("name", "unit", "kind", "temporality"), 3):
        add(point, name, number, kinds.TYPE_STRING)
    add(point, "is_monotonic", 7, kinds.TYPE_BOOL)
    optional = (
        ("value", 8, kinds.TYPE_DOUBLE),
        ("count", 9, kinds.TYPE_UINT64),
        ("sum", 10, kinds.TYPE_DOUBLE),
        ("min", 11, kinds.TYPE_DOUBLE),
        ("max", 12, kinds.TYPE_DOUBLE),
    )
    for index, (name, number, kind) in enumerate(optional):
        point.oneof_decl.add(name=f"_{name}")
        made = add(point, name, number, kind)
        made.proto3_optional, made.oneof_index = True, index
    add(point, "bounds", 13, kinds.TYPE_DOUBLE, many=True)
    add(point, "bucket_counts", 14, kinds.TYPE_UINT64, many=True)
    add_map(point, "attributes", 15)
    group = file.message_type.add(name="MetricGroup")
    add_map(group, "resource_attributes", 1)
    add(group, "points", 2, kinds.TYPE_MESSAGE, ".evenkeel.MetricPoint", many=True)
    segment = file.message_type.add(name="PointSegment")
    add(
        segment, "metric_groups", POINTS_FIELD, kinds.TYPE_MESSAGE, ".evenkeel.MetricGroup",
        many=True,
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"evenkeel.{name}"))
        for name in ("MetricPoint", "PointSegment")
    )


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_MetricPoint, _PointSegment = _build_classes()
