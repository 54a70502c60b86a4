import itertools
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Exemplar,
    ExponentialHistogramDataPoint,
    Metric,
)

from evenkeel.doctor.prometheus_page import read_prometheus_page
from evenkeel_collector.intake.metric_points import Point, encode_points, points_of
from evenkeel_collector.intake.otlp_body import MalformedError
from evenkeel_collector.intake.otlp_metrics import check_metrics_json, check_metrics_protobuf
from evenkeel_collector.intake.prometheus_text import read_page


def one(metric: Metric) -> Point:
    (point,) = points_of(metric)
    return point


def test_a_gauge_and_a_sum_keep_their_value_whatever_its_type() -> None:
    gauge = Metric(name="running", unit="1")
    gauge.gauge.data_points.add(as_int=0, time_unix_nano=5)
    total = Metric(name="tokens")
    total.sum.is_monotonic = True
    total.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    total.sum.data_points.add(as_double=1.5, start_time_unix_nano=3)
    assert one(gauge) == Point("running", 5, "gauge", value=0.0, unit="1")
    assert one(total) == Point(
        "tokens", 0, "sum", value=1.5, is_monotonic=True, temporality="cumulative", start_ns=3
    )


def test_a_point_without_a_recorded_value_is_no_point() -> None:
    metric = Metric(name="running")
    metric.gauge.data_points.add(flags=1)
    assert list(points_of(metric)) == []


def test_a_histogram_without_a_sum_has_none() -> None:
    metric = Metric(name="ttft")
    metric.histogram.data_points.add(count=3, explicit_bounds=[1, 2], bucket_counts=[1, 0, 2])
    point = one(metric)
    assert (point.sum, point.min, point.max) == (None, None, None)
    assert (point.bounds, point.bucket_counts) == ([1, 2], [1, 0, 2])


def test_a_histogram_of_a_wrong_shape_keeps_its_count_and_no_buckets() -> None:
    metric = Metric(name="ttft")
    metric.histogram.data_points.add(count=3, explicit_bounds=[1, 2], bucket_counts=[1])
    assert (one(metric).count, one(metric).bounds) == (3, [])


def exponential(**fields: Any) -> Point:
    metric = Metric(name="e")
    metric.exponential_histogram.data_points.append(ExponentialHistogramDataPoint(**fields))
    return one(metric)


def buckets(offset: int, counts: list[int]) -> Any:
    return ExponentialHistogramDataPoint.Buckets(offset=offset, bucket_counts=counts)


def test_exponential_buckets_become_the_bounds_of_the_data_model() -> None:
    # Scale 0: base 2. Bucket i is (2^i, 2^(i+1)]; negative buckets mirror it.
    point = exponential(
        scale=0, zero_count=7, positive=buckets(-1, [1, 2]), negative=buckets(1, [3]), count=13
    )
    assert point.bounds == [-4, -2, 0.5, 1, 2]
    assert point.bucket_counts == [0, 3, 7, 1, 2, 0]


@given(
    scale=st.integers(-2000, 30),
    offset=st.integers(-(2**31), 2**31 - 1),
    counts=st.lists(st.integers(0, 2**63), max_size=5),
    negative=st.lists(st.integers(0, 9), max_size=5),
)
def test_any_exponential_histogram_gives_finite_ascending_bounds_and_keeps_every_count(
    scale: int, offset: int, counts: list[int], negative: list[int]
) -> None:
    point = exponential(
        scale=scale, zero_count=1, positive=buckets(offset, counts), negative=buckets(0, negative)
    )
    assert len(point.bucket_counts) == len(point.bounds) + 1
    assert sum(point.bucket_counts) == sum(counts) + sum(negative) + 1
    assert all(math.isfinite(bound) for bound in point.bounds)
    assert all(a <= b for a, b in itertools.pairwise(point.bounds))
    assert max(map(abs, point.bounds)) <= sys.float_info.max


JSON_BODY = (
    b'{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":'
    b'{"stringValue":"v"}}]},"scopeMetrics":[{"metrics":[{"name":"n","gauge":{"dataPoints":'
    b'[{"timeUnixNano":"5","asInt":"3","exemplars":[{"traceId":"zz"}]}]}}]}]}]}'
)


def test_json_and_protobuf_say_the_same() -> None:
    body = check_metrics_json(JSON_BODY)
    assert body.num_points == 1
    assert (b"service.name" in body.payload, b"evenkeel.tenant" in body.payload) == (True, False)
    assert b"acme" in check_metrics_json(JSON_BODY, "acme").payload
    assert check_metrics_protobuf(b"").payload == b""
    assert Exemplar.DESCRIPTOR.fields_by_name["trace_id"]  # what the JSON above has as hex


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"resourceMetrics": 3}'])
def test_what_is_no_metrics_request_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedError):
        check_metrics_json(body)
    with pytest.raises(MalformedError):
        check_metrics_protobuf(b"\x0a\xff")


PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m",engine="0"} 2.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="m"} 120.0
vllm:prompt_tokens_created{model_name="m"} 1.7e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.5",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{le="1.0",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 5.0
vllm:time_to_first_token_seconds_count{model_name="m"} 5.0
vllm:time_to_first_token_seconds_sum{model_name="m"} 3.5
# TYPE no_data gauge
no_data NaN
"""


def test_a_page_of_vllm_gives_one_point_a_series() -> None:
    gauge, counter, histogram = read_page(PAGE, 9)
    assert gauge.value == 2.0
    assert gauge.attributes == {"model_name": "m", "engine": "0"}
    assert (counter.name, counter.value, counter.is_monotonic, counter.temporality) == (
        "vllm:prompt_tokens_total", 120.0, True, "cumulative",
    )  # fmt: skip
    assert histogram == Point(
        "vllm:time_to_first_token_seconds",
        9,
        "histogram",
        count=5,
        sum=3.5,
        bounds=[0.5, 1.0],
        bucket_counts=[1, 3, 1],
        attributes={"model_name": "m"},
        temporality="cumulative",
    )


def test_a_page_that_is_no_page_is_an_error() -> None:
    with pytest.raises(ValueError):
        read_page("<html>", 0)


@pytest.mark.parametrize("count", ["NaN", "+Inf", "-Inf", "-1", "1e300", "1e19"])
@pytest.mark.parametrize("bucket", ["3", "NaN", "+Inf", "1e300"])
def test_a_count_that_is_none_costs_its_own_series_alone(count: str, bucket: str) -> None:
    page = (
        f'# TYPE h histogram\nh_bucket{{le="1"}} {bucket}\nh_bucket{{le="+Inf"}} {bucket}\n'
        f"h_count {count}\nh_sum 1\n# TYPE s summary\ns_count {count}\ns_sum 2\n"
        f"# TYPE g gauge\ng 5\n"
    )
    points = read_page(page, 9)
    assert points[-1].value == 5.0
    assert encode_points([({}, points)])


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        pytest.param(
            ['_bucket{le="1"} 5', '_bucket{le="2"} 8', "_count 10"], [5, 3, 2], id="no +Inf"
        ),
        pytest.param(
            ['_bucket{le="1"} 5', '_bucket{le="2"} 3', '_bucket{le="+Inf"} 8', "_count 8"],
            [5, 0, 3],
            id="a bucket fell behind the one before",
        ),
        pytest.param(
            ['_bucket{a="b",c="d",le="1"} 5', '_bucket{c="d",a="b",le="2"} 7',
             '_bucket{a="b",c="d",le="+Inf"} 8', '_count{c="d",a="b"} 8'],
            [5, 2, 1],
            id="labels in another order",
        ),
    ],
)  # fmt: skip
def test_the_buckets_of_a_page_hold_each_observation_once(
    lines: list[str], counts: list[int]
) -> None:
    page = "# TYPE h histogram\n" + "".join(f"h{line}\n" for line in lines)
    (point,) = read_page(page, 9)
    assert (point.bounds, point.bucket_counts) == ([1, 2], counts)
    assert point.count == sum(counts)


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("a 1 1.7e12", True),
        ('a{c="d"} 1 +5', True),
        ('a{c="d"}1', True),
        ('{"a.b", c="d"} 1', True),
        ('{"a.b"} 1', True),
        ('a{"c.d"="e"} 1', True),
        ('a_bucket{le="+Inf"} 3 # {trace_id="x"} 0.05 1.5e9', True),
        ('a.b/c{d="e"} 1', True),
        ('a{c="d",,} 1', False),
        ('a{c="d"e="f"} 1', False),
        ('a{__c="d"} 1', False),
        ('a{"__c"="d"} 1', False),
        ("a.b 1", False),
        ("a{c=d} 1", False),
        ('a{c="d"} 1 # x', False),
        ("a 0x10", False),
        ("a 1_000", False),
        ("{} 1", False),
    ],
)
def test_the_doctor_and_the_collector_read_the_same_lines(line: str, is_read: bool) -> None:
    page = read_prometheus_page(f"{line}\n")
    assert (bool(page.metrics), page.num_wrong) == (is_read, 0 if is_read else 1)
    if is_read:
        assert read_page(f"{line}\n", 1)
        return
    with pytest.raises(ValueError):  # Some have no text.
        read_page(f"{line}\n", 1)
