"""What a body holds is known before it is parsed, and more than any sender sends is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint, SummaryDataPoint

from evenkeel_collector.intake.body_weight import (
    MAX_PARTS,
    MAX_RECORDS,
    PIECE_BYTES,
    TooManyError,
    weigh_json,
    weigh_protobuf,
)
from evenkeel_collector.intake.canonical import MalformedError
from evenkeel_collector.intake.otlp_json import check_json
from evenkeel_collector.intake.otlp_metrics import check_metrics_protobuf
from evenkeel_collector.intake.signals import JSON, PROTOBUF, SIGNALS
from tests.fixtures.otlp_payload import any_value, key_values, trace_request
from tests.hostile.dense_bodies import (
    DENSE_JSON,
    DENSE_LOGS,
    DENSE_METRICS,
    DENSE_TRACES,
    LONG_NAME,
    wrap,
)

TRACES, METRICS, LOGS = (signal.request for signal in SIGNALS)
DENSE = [
    *((TRACES, name, body) for name, body in DENSE_TRACES.items()),
    *((METRICS, name, body) for name, body in DENSE_METRICS.items()),
    *((LOGS, name, body) for name, body in DENSE_LOGS.items()),
]


def metrics_of(fill: Callable[[Any], None]) -> bytes:
    request = ExportMetricsServiceRequest()
    fill(request.resource_metrics.add().scope_metrics.add().metrics)
    return request.SerializeToString()


def test_the_classes_are_those_of_the_signals() -> None:
    assert (TRACES, METRICS, LOGS) == (
        ExportTraceServiceRequest,
        ExportMetricsServiceRequest,
        ExportLogsServiceRequest,
    )


@pytest.mark.parametrize("num_spans", [200, 8_192])
def test_spans_and_attributes_are_counted_in_bodies_of_any_length(num_spans: int) -> None:
    body = trace_request(num_spans, {f"a.{index}": "x" * 20 for index in range(10)})
    encoded = body.SerializeToString()
    weight = weigh_protobuf(TRACES, encoded)
    assert weight.num_records == num_spans
    # The resource with its attribute, and the scope.
    assert weight.num_parts == 10 * num_spans + 3
    assert weight.memory_bytes >= 3 * len(encoded)


def test_events_links_and_their_attributes_are_counted() -> None:
    request = trace_request(100)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.events.add(name="e").attributes.extend(key_values({"a": 1, "b": 2}))
        span.links.add()
    request.resource_spans[0].resource.attributes.add(key="x" * PIECE_BYTES)
    assert weigh_protobuf(TRACES, request.SerializeToString()).num_parts == 100 * 4 + 4


def test_what_nested_lists_hold_is_counted_in_a_long_body() -> None:
    value = any_value([[[[[[[[[[1, 2], 3]]]]]]]]])
    request = trace_request(1)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key="deep", value=value)
    request.resource_spans[0].resource.attributes.add(key="x" * PIECE_BYTES)
    assert weigh_protobuf(TRACES, request.SerializeToString()).num_parts == 3 + 1 + 1 + 12


def test_points_quantiles_and_buckets_are_counted() -> None:
    def fill(metrics: Any) -> None:
        metrics.add(name="g").gauge.data_points.extend([NumberDataPoint()] * 1_000)
        histogram = metrics.add(name="h").histogram.data_points.add()
        histogram.bucket_counts.extend([1] * 500)
        histogram.explicit_bounds.extend([1.0] * 499)
        metrics.add(name="q").summary.data_points.add().quantile_values.extend(
            [SummaryDataPoint.ValueAtQuantile()] * 40
        )

    weight = weigh_protobuf(METRICS, metrics_of(fill))
    assert weight.num_points == weight.num_records == 1_000 + 1 + 1 + 40
    # The resource, the scope and three metrics.
    assert weight.num_parts == 999 + 5


@pytest.mark.parametrize(
    ("request_class", "body"), [pytest.param(of, body, id=name) for of, name, body in DENSE]
)
def test_a_body_of_next_to_nothing_is_refused(request_class: Any, body: bytes) -> None:
    with pytest.raises(TooManyError, match="more than"):
        weigh_protobuf(request_class, body)


@pytest.mark.parametrize("body", DENSE_JSON.values(), ids=DENSE_JSON)
def test_so_is_one_in_json(body: bytes) -> None:
    with pytest.raises(TooManyError, match="more than"):
        weigh_json(body)
        check_json(body)


def test_memory_is_what_the_contents_take() -> None:
    empty = wrap(b"\x0a\0" * MAX_RECORDS, 0x2A, 0x12, 0x12, 0x0A)
    assert weigh_protobuf(METRICS, empty).memory_bytes > 500 * len(empty)
    assert not weigh_protobuf(METRICS, empty).is_light
    spans = trace_request(512, {f"a.{index}": "x" * 20 for index in range(10)})
    assert weigh_protobuf(TRACES, spans.SerializeToString()).is_light


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(wrap(b"\x12\x7f" + b"\0" * 9_000, 0x12, 0x0A), id="short"),
        pytest.param(b"\x0a" + b"\xff" * (2 * PIECE_BYTES), id="a length without end"),
        pytest.param(b"\x0b" * (2 * PIECE_BYTES), id="groups"),
        pytest.param(b"\x0a\xff\xff\xff\x7f" + b"\0" * 2 * PIECE_BYTES, id="longer than it is"),
    ],
)
def test_a_body_that_is_none_is_malformed(body: bytes) -> None:
    with pytest.raises(DecodeError):
        weigh_protobuf(TRACES, body)
    with pytest.raises(MalformedError, match="not an OTLP ExportTraceServiceRequest"):
        SIGNALS[0].weigh(PROTOBUF, body)


def test_json_is_weighed_as_json() -> None:
    body = b'{"resourceSpans": [{"a": {}}]}'
    assert SIGNALS[0].weigh(JSON, body).num_parts == 4


def test_a_long_name_is_not_copied_to_each_of_many_points() -> None:
    assert weigh_protobuf(METRICS, LONG_NAME).num_points <= MAX_RECORDS
    with pytest.raises(TooManyError, match="names of its points"):
        check_metrics_protobuf(LONG_NAME)


def test_attributes_are_not_copied_to_each_of_many_quantiles() -> None:
    def fill(metrics: Any) -> None:
        point = metrics.add(name="q").summary.data_points.add()
        point.attributes.add(key="x" * 1_000_000)
        point.quantile_values.extend([SummaryDataPoint.ValueAtQuantile()] * 100)

    with pytest.raises(TooManyError, match="names of its points"):
        check_metrics_protobuf(metrics_of(fill))


def test_the_limits_are_far_above_what_senders_send() -> None:
    # The Collector's default batch is 8,192 records; an SDK's span has up to 128 attributes.
    assert MAX_RECORDS > 10 * 8_192
    assert MAX_PARTS > 8_192 * 128
