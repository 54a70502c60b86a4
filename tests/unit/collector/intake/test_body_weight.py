"""What a body holds is known before it is parsed, and more than any sender sends is refused."""

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint, SummaryDataPoint

from evenkeel.privacy.cpu_budget import OverBudgetError
from evenkeel_collector.intake.body_weight import (
    COUNTED_BYTES,
    INLINE_BYTES,
    INLINE_PARTS,
    INLINE_READ_BYTES,
    INLINE_VALUES,
    MAX_NESTED,
    MAX_PARTS,
    MAX_RECORDS,
    NEGLIGIBLE_BYTES,
    RECORDS,
    BodyWeight,
    TooManyError,
    weigh_json,
    weigh_protobuf,
)
from evenkeel_collector.intake.otlp_body import CheckedBody, MalformedError, check_protobuf
from evenkeel_collector.intake.otlp_json import fill
from evenkeel_collector.intake.otlp_logs import check_logs_protobuf
from evenkeel_collector.intake.otlp_metrics import check_metrics_protobuf
from evenkeel_collector.intake.signals import JSON, PROTOBUF, SIGNALS, Signal
from tests.fixtures.otlp_payload import key_values, trace_request
from tests.hostile.dense_bodies import (
    DENSE_JSON,
    DENSE_LOGS,
    DENSE_METRICS,
    DENSE_TRACES,
    LONG_NAME,
    METRIC,
    SPAN,
    bushy,
    wrap,
)

TRACES, METRICS, LOGS = SIGNALS
CHECKS: Mapping[str, Callable[[bytes], CheckedBody]] = {
    TRACES.path: check_protobuf,
    METRICS.path: check_metrics_protobuf,
    LOGS.path: check_logs_protobuf,
}
DENSE = [
    *((TRACES, name, body) for name, body in DENSE_TRACES.items()),
    *((METRICS, name, body) for name, body in DENSE_METRICS.items()),
    *((LOGS, name, body) for name, body in DENSE_LOGS.items()),
]


def metrics_of(fill: Callable[[Any], None]) -> bytes:
    request = ExportMetricsServiceRequest()
    fill(request.resource_metrics.add().scope_metrics.add().metrics)
    return request.SerializeToString()


def read(signal: Signal, body: bytes) -> CheckedBody:
    """Weigh and check a protobuf body, as the intake does."""
    signal.weigh(PROTOBUF, body)
    return CHECKS[signal.path](body)


def fill_at_random(message: Any, rng: random.Random, depth: int = 0) -> None:
    """Fill any fields of a message, with fewer and fewer messages inside it."""
    for field in message.DESCRIPTOR.fields:
        number = rng.randrange(4) if depth < 12 and rng.random() < 1 - depth / 12 else 0
        if field.message_type is None:
            value: Any = b"x" if field.type == field.TYPE_BYTES else "x"
            value = value if field.cpp_type == field.CPPTYPE_STRING else 1
            if field.is_repeated:
                getattr(message, field.name).extend([value] * number)
            elif number:
                setattr(message, field.name, value)
        elif field.is_repeated:
            for _ in range(number):
                fill_at_random(getattr(message, field.name).add(), rng, depth + 1)
        elif number:
            getattr(message, field.name).SetInParent()
            fill_at_random(getattr(message, field.name), rng, depth + 1)


def contents_of(message: Any) -> Iterator[str]:
    """Yield the full name of each message that repeats, and "" for each number that does."""
    for field, value in message.ListFields():
        if field.message_type is None:
            yield from [""] * (len(value) if field.is_repeated else 0)
        else:
            for each in value if field.is_repeated else [value]:
                if field.is_repeated:
                    yield field.message_type.full_name
                yield from contents_of(each)


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.path)
def test_what_is_counted_is_what_the_parsed_body_has(signal: Signal) -> None:
    rng = random.Random(1)
    for _ in range(5):
        message = signal.request()
        while message.ByteSize() <= NEGLIGIBLE_BYTES:
            more = signal.request()
            fill_at_random(more, rng)
            message.MergeFrom(more)
        names = list(contents_of(message))
        num_records = sum(name in RECORDS for name in names)
        body = message.SerializeToString()
        weight = weigh_protobuf(signal.request, body, is_whole=True)
        num_numbers = names.count("")
        num_parts = len(names) - num_records - num_numbers
        assert weight == BodyWeight(num_records, num_parts, num_numbers)
        assert signal.weigh(PROTOBUF, body).num_records == num_records
        read(signal, body)


def test_each_signal_has_the_class_of_its_requests() -> None:
    classes: list[Any] = [
        ExportTraceServiceRequest,
        ExportMetricsServiceRequest,
        ExportLogsServiceRequest,
    ]
    assert [signal.request for signal in SIGNALS] == classes


@pytest.mark.parametrize("num_spans", [100, 600])
def test_spans_are_counted_in_any_body_and_what_they_hold_if_asked(num_spans: int) -> None:
    body = trace_request(num_spans, {f"a.{index}": "x" * 20 for index in range(10)})
    encoded = body.SerializeToString()
    # The resource and the scope; the resource's attribute.
    assert weigh_protobuf(ExportTraceServiceRequest, encoded) == BodyWeight(num_spans + 2, 1)
    of_all = weigh_protobuf(ExportTraceServiceRequest, encoded, is_whole=True)
    assert of_all == BodyWeight(num_spans + 2, 10 * num_spans + 1)


def test_what_spans_hold_is_counted_in_a_long_body() -> None:
    body = trace_request(2, {"a": "x" * (COUNTED_BYTES // 2)}).SerializeToString()
    assert weigh_protobuf(ExportTraceServiceRequest, body).num_parts == 3


def test_events_links_and_their_attributes_are_counted() -> None:
    request = trace_request(100)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.events.add(name="e").attributes.extend(key_values({"a": 1, "b": 2}))
        span.links.add()
    body = request.SerializeToString()
    assert weigh_protobuf(ExportTraceServiceRequest, body, is_whole=True).num_parts == 100 * 4 + 1


def test_what_nested_lists_and_maps_hold_is_counted() -> None:
    value = [[[[[[[[[[1, 2], {"a": 3, "b": "x" * NEGLIGIBLE_BYTES}]]]]]]]]]
    body = trace_request(1, {"deep": value}).SerializeToString()
    weight = weigh_protobuf(ExportTraceServiceRequest, body, is_whole=True)
    # The resource's attribute and this one, lists of one, and what the inner two have.
    assert weight.num_parts == 2 + 8 + 2 + 2 + 2


def test_points_quantiles_and_buckets_are_counted() -> None:
    def fill(metrics: Any) -> None:
        metrics.add(name="g").gauge.data_points.extend([NumberDataPoint()] * 1_000)
        histogram = metrics.add(name="h").histogram.data_points.add()
        histogram.bucket_counts.extend([1] * 500)
        histogram.explicit_bounds.extend([1.0] * 499)
        metrics.add(name="q").summary.data_points.add().quantile_values.extend(
            [SummaryDataPoint.ValueAtQuantile()] * 40
        )

    weight = weigh_protobuf(ExportMetricsServiceRequest, metrics_of(fill))
    # The resource, the scope and three metrics are records, too.
    assert weight == BodyWeight(5 + 1_000 + 1 + 1 + 40, 0, 999)


@pytest.mark.parametrize(
    ("signal", "body"), [pytest.param(of, body, id=name) for of, name, body in DENSE]
)
def test_a_body_of_next_to_nothing_is_refused(signal: Signal, body: bytes) -> None:
    with pytest.raises(TooManyError, match="more than"):
        read(signal, body)


@pytest.mark.parametrize("body", DENSE_JSON.values(), ids=DENSE_JSON)
def test_so_is_one_in_json(body: bytes) -> None:
    with pytest.raises(TooManyError, match="more than"):
        weigh_json(body)


def test_records_of_json_are_counted_once_it_is_read() -> None:
    message = ExportTraceServiceRequest.FromString(b"\x0a\0" * (MAX_RECORDS + 1))
    with pytest.raises(TooManyError, match="more than"):
        fill(message, {})


def test_json_that_cannot_be_counted_is_malformed() -> None:
    message = ExportMetricsServiceRequest()
    value = message.resource_metrics.add().resource.attributes.add(key="a").value
    for _ in range(MAX_NESTED):
        value = value.array_value.values.add()
    value.string_value = "x" * NEGLIGIBLE_BYTES
    with pytest.raises(ParseError):
        fill(message, {})


HEAVY = [
    pytest.param(METRICS, PROTOBUF, wrap(b"\x0a\0" * 1_025, 0x2A, *METRIC), id="points"),
    pytest.param(METRICS, PROTOBUF, b"\x0a" * (INLINE_READ_BYTES + 1), id="long metrics"),
    pytest.param(METRICS, PROTOBUF, wrap(b"\0" * 3_000, 0x12, 0x42, 0x0A, 0x52, *METRIC),
                 id="buckets"),
    pytest.param(TRACES, PROTOBUF, wrap(b"\x12\0" * 1_025, 0x12, 0x0A), id="spans"),
    pytest.param(TRACES, PROTOBUF, wrap(b"\x4a\0" * 20_001, *SPAN), id="attributes"),
    pytest.param(TRACES, PROTOBUF, b"\x0a" * (INLINE_BYTES + 1), id="a long body"),
    pytest.param(LOGS, PROTOBUF, wrap(b"\x32\0" * 240_000, *SPAN), id="attributes of a record"),
    pytest.param(TRACES, JSON, b"[{}" + b",{}" * INLINE_VALUES + b"]", id="objects"),
    pytest.param(METRICS, JSON, b"[1" + b",1" * INLINE_VALUES + b"]", id="numbers"),
    pytest.param(TRACES, JSON, b'"' + b"x" * INLINE_READ_BYTES + b'"', id="a long text"),
]  # fmt: skip


@pytest.mark.parametrize(("signal", "media_type", "body"), HEAVY)
def test_what_takes_long_is_not_parsed_in_the_event_loop(
    signal: Signal, media_type: str, body: bytes
) -> None:
    assert not signal.is_light(media_type, body)


def test_what_an_sdk_sends_is_parsed_in_the_event_loop() -> None:
    spans = trace_request(512, {f"a.{index}": "x" * 60 for index in range(10)})
    assert TRACES.is_light(PROTOBUF, spans.SerializeToString())

    def fill(metrics: Any) -> None:
        for index in range(10):
            points = metrics.add(name=f"metric.{index}").gauge.data_points
            points.add(as_double=1.0, time_unix_nano=1, attributes=key_values({"a": 1, "b": "c"}))

    assert METRICS.is_light(PROTOBUF, metrics_of(fill))
    assert TRACES.is_light(JSON, json.dumps({"resourceSpans": [{"scopeSpans": []}]}).encode())


def test_many_nested_values_are_not_read_in_the_event_loop() -> None:
    lists: list[list[int]] = [[]] * INLINE_PARTS
    body = trace_request(1, {"a": lists}).SerializeToString()
    with pytest.raises(OverBudgetError):
        check_protobuf(body, is_hasty=True)
    checked = ExportTraceServiceRequest.FromString(check_protobuf(body).payload)
    span = checked.resource_spans[0].scope_spans[0].spans[0]
    assert span.attributes[0].value.string_value == str(lists).replace(" ", "")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(wrap(b"\x12\x7f" + b"\0" * 9_000, 0x12, 0x0A), id="short"),
        pytest.param(b"\x0a" + b"\xff" * 9_000, id="a length without end"),
        pytest.param(b"\x0b" * 9_000, id="groups"),
        pytest.param(b"\x0a\xff\xff\xff\x7f" + b"\0" * 9_000, id="longer than it is"),
    ],
)
def test_a_body_that_is_none_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError, match="not an OTLP ExportTraceServiceRequest"):
        TRACES.weigh(PROTOBUF, body)


def test_json_is_weighed_as_json() -> None:
    body = b'{"resourceSpans": [{"a": {}}]}'
    assert TRACES.weigh(JSON, body).num_parts == 4


def num_calls_of(function: Callable[[], object]) -> int:
    """Return how many Python functions a function calls."""
    num_calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return num_calls


def test_counting_takes_no_longer_the_more_ways_values_nest() -> None:
    weigh = partial(weigh_protobuf, ExportTraceServiceRequest, is_whole=True)
    body = bushy(12)
    num_parts = weigh(body).num_parts
    assert num_parts == 1 + 3 * (2**12 - 1)
    assert num_calls_of(partial(weigh, body)) < num_parts / 4


def test_bushy_values_are_not_even_counted_in_the_event_loop() -> None:
    body = bushy(12)
    assert INLINE_READ_BYTES < len(body) < INLINE_BYTES

    def check() -> None:
        assert TRACES.is_light(PROTOBUF, body)
        with pytest.raises(OverBudgetError):
            check_protobuf(body, is_hasty=True)

    check()
    assert num_calls_of(check) < 500


def test_a_message_cut_short_does_not_hide_those_behind_it() -> None:
    hidden = wrap(b"\x0a\0" * 10_000, 0x2A, 0x12)
    # A key that would be as long as what is counted after it.
    cut = wrap(hidden, 0x0A)[: -len(hidden)]
    scope = wrap(cut, 0x0A, 0x32, 0x12, 0x1A, 0x0A)
    body = wrap(wrap(hidden, 0x4A, 0x12) + scope, 0x12, 0x0A)
    with pytest.raises(DecodeError):
        weigh_protobuf(ExportTraceServiceRequest, body, is_whole=True)


def test_a_long_name_is_not_copied_to_each_of_many_points() -> None:
    assert METRICS.weigh(PROTOBUF, LONG_NAME).num_records < MAX_RECORDS
    with pytest.raises(TooManyError, match=r"names, units .*: send smaller batches"):
        check_metrics_protobuf(LONG_NAME)


def test_a_name_is_as_long_as_its_bytes() -> None:
    def fill(metrics: Any) -> None:
        metrics.add(name="漢" * 400_000).gauge.data_points.extend([NumberDataPoint()] * 30)

    with pytest.raises(TooManyError, match="36,000,000 bytes"):
        check_metrics_protobuf(metrics_of(fill))


def test_attributes_are_not_copied_to_each_of_many_quantiles() -> None:
    def fill(metrics: Any) -> None:
        point = metrics.add(name="q").summary.data_points.add()
        point.attributes.add(key="x" * 1_000_000)
        point.quantile_values.extend([SummaryDataPoint.ValueAtQuantile()] * 100)

    with pytest.raises(TooManyError, match="attributes copied to its points"):
        check_metrics_protobuf(metrics_of(fill))


def test_the_largest_body_of_ordinary_points_is_not_refused() -> None:
    # The Collector's batch processor has no limit by default; bodies have one of 20 MiB.
    def fill(metrics: Any) -> None:
        names = {"model_name": "llama-3", "engine": "0", "instance": "gpu-17:8000"}
        point = NumberDataPoint(as_double=1.5, time_unix_nano=1_700_000_000_000_000_000)
        point.attributes.extend(key_values(names))
        metrics.add(name="vllm.requests").gauge.data_points.extend([point] * 1_000)

    body = metrics_of(fill)
    weight = METRICS.weigh(PROTOBUF, body)
    num_bodies = (20 << 20) / len(body)
    assert weight.num_records * num_bodies < MAX_RECORDS
    assert weight.num_parts * num_bodies < MAX_PARTS


def test_a_batch_of_histograms_with_all_their_buckets_is_not_refused() -> None:
    def fill(metrics: Any) -> None:
        for _ in range(8_192):
            point = metrics.add(name="h").exponential_histogram.data_points.add(count=320)
            point.positive.bucket_counts.extend([1] * 160)
            point.negative.bucket_counts.extend([1] * 160)

    METRICS.weigh(PROTOBUF, metrics_of(fill))
