"""Numbers that are none, or out of range: refused at arrival, harmless to SLOs."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tests.fixtures.collector_process import CollectorProcess, running_collector, wait_for
from tests.fixtures.number_ranges import BY_TABLE
from tests.fixtures.otlp_payload import key_values, trace_request

PROTOBUF = {"content-type": "application/x-protobuf"}
NAN, INF = float("nan"), float("inf")
SECOND_NS = 10**9
OURS: dict[str, Any] = {
    "evenkeel.status": "ok",
    "gen_ai.request.model": "m",
    "evenkeel.e2e_s": 1.0,
    "evenkeel.ttft_s": 0.1,
}
SLOS = """\
apiVersion: evenkeel/v1
kind: Alerting
spec:
  interval: 200ms
  scale: 1/300
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: fast}
spec:
  service: s
  indicator: {metric: ttft, aborted: measured}
  objectives: [{target: "0.99", value: 0.5}]
  timeWindow: [{duration: 30d, isRolling: true}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: drafts}
spec:
  service: s
  indicator: {metric: acceptance}
  objectives: [{target: "0.5"}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def case(name: str, sent: Mapping[str, Any], refused: Mapping[str, str], **row: Any) -> Any:
    """A request span with these attributes, what its row refuses, and what it has besides."""
    return pytest.param(sent, refused, row, id=name)


NOT_FINITE, OUT, NO_NUMBER = "not_finite", "out_of_range", "not_a_number"
SPANS = [
    case("NaN", {"evenkeel.e2e_s": NAN}, {"e2e_s": NOT_FINITE}, e2e_s=None, ttft_s=0.1),
    case("infinity", {"evenkeel.e2e_s": INF}, {"e2e_s": NOT_FINITE}, e2e_s=None),
    case("minus infinity", {"evenkeel.ttft_s": -INF}, {"ttft_s": NOT_FINITE}, ttft_s=None),
    case("a duration that is negative", {"evenkeel.queue_s": -0.5}, {"queue_s": OUT}, queue_s=None),
    case("a duration of an age", {"evenkeel.tpot_s": 1e18}, {"tpot_s": OUT}, tpot_s=None),
    case("minus zero", {"evenkeel.queue_s": -0.0}, {}, queue_s=0.0),
    case("the least there is", {"evenkeel.queue_s": 5e-324}, {}, queue_s=5e-324),
    case("the longest there may be", {"evenkeel.queue_s": 1e6}, {}, queue_s=1e6),
    case("a text that is a number", {"evenkeel.queue_s": "0.25"}, {}, queue_s=0.25),
    case("a text that is NaN", {"evenkeel.queue_s": "nan"}, {"queue_s": NOT_FINITE}, queue_s=None),
    case("a text over all bounds", {"evenkeel.queue_s": "1e999"}, {"queue_s": NOT_FINITE}),
    case("a text that is none", {"evenkeel.queue_s": "soon"}, {"queue_s": NO_NUMBER}, queue_s=None),
    case("a boolean", {"evenkeel.queue_s": True}, {"queue_s": NO_NUMBER}, queue_s=None),
    case("bytes", {"evenkeel.queue_s": b"\xff\x00"}, {"queue_s": NO_NUMBER}, queue_s=None),
    case("a list for a number", {"evenkeel.queue_s": [0.5]}, {"queue_s": NO_NUMBER}, queue_s=None),
    case("a map for a number", {"evenkeel.queue_s": {"a": 1}}, {"queue_s": NO_NUMBER}),
    case("an integer for seconds", {"evenkeel.queue_s": 2}, {}, queue_s=2.0),
    case("seconds for tokens", {"gen_ai.usage.input_tokens": 12.0}, {}, input_tokens=12),
    case("half a token", {"gen_ai.usage.input_tokens": 1.5}, {"input_tokens": OUT}),
    case("negative tokens", {"gen_ai.usage.output_tokens": -1}, {"output_tokens": OUT}),
    case("tokens beyond 32 bits", {"evenkeel.drafted_tokens": 1 << 32}, {"drafted_tokens": OUT}),
    case("tokens at the end", {"evenkeel.accepted_tokens": 2**63 - 1}, {"accepted_tokens": OUT}),
    case("tokens that are NaN", {"evenkeel.wasted_tokens": NAN}, {"wasted_tokens": NOT_FINITE}),
    case("no limit asked", {"gen_ai.request.max_tokens": 2**32 - 1}, {}, max_tokens=2**32 - 1),
    case("an HTTP status", {"http.response.status_code": 70_000}, {"http_status": OUT}),
    case("a heat", {"gen_ai.request.temperature": 1e300}, {"temperature": OUT}, temperature=None),
    case("a weight", {"evenkeel.sample_weight": 1e18}, {"sample_weight": OUT}, sample_weight=1),
    case("a weight without end", {"evenkeel.sample_weight": INF}, {"sample_weight": NOT_FINITE}),
    case("no weight", {"evenkeel.sample_weight": 0}, {"sample_weight": OUT}, sample_weight=1),
    case("a weight below 0", {"evenkeel.sample_weight": -5}, {"sample_weight": OUT}),
    case("a weight as text", {"evenkeel.sample_weight": "7"}, {}, sample_weight=7),
    case(
        "a probability", {"evenkeel.detail_probability": 1e-9 - 1}, {"detail_probability": OUT},
        detail_probability=1,
    ),
    case("an emission",
         {"evenkeel.emission_time_s": [0.1, NAN], "evenkeel.emission_tokens": [1, 1]},
         {"emission_time_s": OUT, "emission_tokens": "lengths_differ"}, emission_time_s=[],
         emission_tokens=[]),
    case("an emission's tokens",
         {"evenkeel.emission_time_s": [0.1, 0.2], "evenkeel.emission_tokens": [1, -1]},
         {"emission_time_s": "lengths_differ", "emission_tokens": OUT}, emission_tokens=[]),
    case("a series with more times",
         {"evenkeel.emission_time_s": [0.1, 0.2], "evenkeel.emission_tokens": [1]},
         {"emission_time_s": "lengths_differ", "emission_tokens": "lengths_differ"}),
    case("a series", {"evenkeel.emission_time_s": [0.1, 2], "evenkeel.emission_tokens": [1, 2]}, {},
         emission_time_s=[0.1, 2.0], emission_tokens=[1, 2]),
    case("a series as text",
         {"evenkeel.emission_time_s": "[0.5]", "evenkeel.emission_tokens": "[3]"}, {},
         emission_time_s=[0.5], emission_tokens=[3]),
    case("no list", {"evenkeel.drafted_by_position": "x"}, {"drafted_by_position": NO_NUMBER}),
    case("a list over all bounds", {"evenkeel.drafted_by_position": "[1e999]"},
         {"drafted_by_position": NO_NUMBER}, drafted_by_position=[]),
    case("positions of 2^40", {"evenkeel.accepted_by_position": [1 << 40]},
         {"accepted_by_position": OUT}, accepted_by_position=[]),
    case("an empty list", {"evenkeel.drafted_by_position": []}, {}, drafted_by_position=[]),
    case("a cause", {"evenkeel.ledger.a": NAN, "evenkeel.ledger.b": 1.5}, {"ledger": NOT_FINITE},
         ledger={"b": 1.5}),
    case("a cause of an age", {"evenkeel.ledger.a": 1e300}, {"ledger": OUT}, ledger={}),
    case("several", {"evenkeel.e2e_s": NAN, "evenkeel.sample_weight": 1e18},
         {"e2e_s": NOT_FINITE, "sample_weight": OUT}, e2e_s=None, sample_weight=1),
]  # fmt: skip


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("collector")
    (folder / "slos.yaml").write_text(SLOS, encoding="utf-8")
    with running_collector(folder / "data", ["--slos", str(folder / "slos.yaml")]) as running:
        yield running


@pytest.fixture(scope="module")
def rows(collector: CollectorProcess) -> dict[str, dict[str, Any]]:
    """All spans of SPANS in one go; their rows by the service that sent them."""
    for param in SPANS:
        body = trace_request(1, OURS | param.values[0], service=str(param.id))
        send(collector, body.SerializeToString())
    services = {"services": [param.id for param in SPANS]}
    of_them = "FROM requests WHERE service IN {services:Array(String)}"
    count = f"SELECT count() {of_them}"
    wait_for(lambda: collector.rows(count, services) == [(len(SPANS),)])
    client = collector.client()
    found = client.query(f"SELECT * {of_them}", parameters=services).named_results()
    client.close()
    return {row["service"]: row for row in found}


def send(collector: CollectorProcess, body: bytes, path: str = "/v1/traces") -> None:
    answer = httpx.post(f"{collector.http_url}{path}", content=body, headers=PROTOBUF, timeout=120)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("sent", "refused", "expected"), SPANS)
def test_a_request_has_the_numbers_that_are_in_range(
    rows: dict[str, dict[str, Any]],
    request: pytest.FixtureRequest,
    sent: Mapping[str, Any],
    refused: Mapping[str, str],
    expected: Mapping[str, Any],
) -> None:
    row = rows[request.node.callspec.id]
    assert row["refused_numbers"] == refused
    assert {name: row[name] for name in expected} == expected
    assert all(row[name] is None for name in set(refused) & set(NULLABLE))


NULLABLE = (
    "max_tokens", "input_tokens", "output_tokens", "cached_tokens", "wasted_tokens",
    "drafted_tokens", "accepted_tokens", "http_status", "temperature", "queue_s", "prefill_s",
    "decode_s", "ttft_s", "tpot_s", "itl_p50_s", "itl_p99_s", "stall_s", "e2e_s",
)  # fmt: skip


def metric_request(name: str) -> Any:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(key_values({"service.name": name}))
    metric = resource.scope_metrics.add().metrics.add(name="m")
    return request, metric


def gauge(name: str, value: float) -> bytes:
    request, metric = metric_request(name)
    metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=value)
    return bytes(request.SerializeToString())


def histogram(name: str, **fields: Any) -> bytes:
    request, metric = metric_request(name)
    whole: dict[str, Any] = {"count": 3, "sum": 1.5, "bucket_counts": [1, 1, 1]}
    whole |= {"explicit_bounds": [0.1, 1.0], "time_unix_nano": time.time_ns()} | fields
    metric.histogram.data_points.add(**whole)
    return bytes(request.SerializeToString())


def exponential(name: str, **fields: Any) -> bytes:
    request, metric = metric_request(name)
    point = metric.exponential_histogram.data_points.add(
        time_unix_nano=time.time_ns(), count=1, **fields
    )
    point.positive.bucket_counts.append(1)
    return bytes(request.SerializeToString())


METRICS: list[tuple[str, Any, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("a gauge that is NaN", gauge, {"value": NAN}, {"value": NOT_FINITE}, {"value": None}),
    ("a gauge without end", gauge, {"value": -INF}, {"value": NOT_FINITE}, {"value": None}),
    ("a gauge of an age", gauge, {"value": 1e300}, {"value": OUT}, {"value": None}),
    ("a gauge", gauge, {"value": -1.5}, {}, {"value": -1.5}),
    ("a sum without end", histogram, {"sum": INF}, {"sum": NOT_FINITE},
     {"sum": None, "count": 3, "bucket_counts": [1, 1, 1]}),
    ("extremes", histogram, {"min": NAN, "max": -INF}, {"min": NOT_FINITE, "max": NOT_FINITE},
     {"min": None, "max": None, "sum": 1.5}),
    ("a count of an age", histogram, {"count": 2**64 - 1}, {"count": OUT}, {"count": None}),
    ("counts of an age", histogram, {"bucket_counts": [2**64 - 1, 1, 1]}, {"bucket_counts": OUT},
     {"bounds": [], "bucket_counts": [], "count": 3}),
    ("bounds that are NaN", histogram, {"explicit_bounds": [NAN, 1.0]}, {"bounds": NOT_FINITE},
     {"bounds": [], "bucket_counts": []}),
    ("bounds that fall", histogram, {"explicit_bounds": [1.0, 0.1]}, {"bounds": OUT},
     {"bounds": [], "bucket_counts": []}),
    ("bounds up to infinity", histogram, {"explicit_bounds": [0.1, INF]}, {"bounds": NOT_FINITE},
     {"bounds": []}),
    ("a zero threshold that is NaN", exponential, {"zero_threshold": NAN, "scale": 1},
     {"bounds": NOT_FINITE}, {"count": 1, "bounds": []}),
    ("a scale of -2^31", exponential, {"scale": -(2**31)}, {}, {"count": 1}),
    ("a scale of 2^31", exponential, {"scale": 2**31 - 1}, {}, {"count": 1}),
]  # fmt: skip


@pytest.fixture(scope="module")
def points(collector: CollectorProcess) -> dict[str, dict[str, Any]]:
    for name, build, fields, _, _ in METRICS:
        send(collector, build(name, **fields), "/v1/metrics")
    wait_for(lambda: collector.rows("SELECT count() FROM engine_state") == [(len(METRICS),)])
    client = collector.client()
    found = client.query("SELECT * FROM engine_state").named_results()
    client.close()
    return {row["service"]: row for row in found}


@pytest.mark.parametrize(
    ("name", "refused", "expected"),
    [pytest.param(name, refused, row, id=name) for name, _, _, refused, row in METRICS],
)
def test_a_point_has_the_numbers_that_are_in_range(
    points: dict[str, dict[str, Any]], name: str, refused: Any, expected: Mapping[str, Any]
) -> None:
    assert points[name]["refused_numbers"] == refused
    assert {column: points[name][column] for column in expected} == expected


STEPS = {f"evenkeel.steps.{name}": [1, 1] for name in BY_TABLE["engine_steps"]}
OTHER_SPANS = [
    ("eval_results", "evenkeel.evaluation",
     {"gen_ai.evaluation.score.value": NAN, "evenkeel.eval.num_pairs": -1,
      "evenkeel.eval.client_e2e_s": 1e300, "evenkeel.eval.client_ttft_s": 0.5},
     {"score": NOT_FINITE, "num_pairs": OUT, "client_e2e_s": OUT},
     {"score": None, "num_pairs": None, "client_e2e_s": None, "client_ttft_s": 0.5}),
    ("feedback", "evenkeel.feedback", {"gen_ai.evaluation.score.value": 7.0}, {"score": OUT},
     {"score": None}),
    ("live_evaluations", "evenkeel.evaluation.live",
     {"evenkeel.live.probability": 1e-300, "gen_ai.evaluation.score.value": "good"},
     {"probability": OUT, "score": NO_NUMBER}, {"probability": 0.0, "score": None}),
    ("engine_steps", "evenkeel.engine.steps",
     STEPS | {"evenkeel.steps.start_s": [0.0, 1e18], "evenkeel.steps.busy_s": [NAN, 0.5],
              "evenkeel.steps.num_steps": [-3, 1], "evenkeel.steps.duration_s": [1e308, 0.25]},
     {"start_s": OUT, "busy_s": OUT, "num_steps": OUT, "duration_s": OUT},
     {"busy_s": 0.0, "num_steps": 0, "duration_s": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "name", "sent", "refused", "expected"),
    [pytest.param(*each, id=each[0]) for each in OTHER_SPANS],
)
def test_what_is_no_request_follows_the_same_rule(
    collector: CollectorProcess,
    table: str,
    name: str,
    sent: Mapping[str, Any],
    refused: Mapping[str, str],
    expected: Mapping[str, Any],
) -> None:
    send(collector, trace_request(1, sent, name=name).SerializeToString())
    wait_for(lambda: collector.rows(f"SELECT count() FROM {table}") != [(0,)])
    client = collector.client()
    row = next(iter(client.query(f"SELECT * FROM {table} ORDER BY ALL LIMIT 1").named_results()))
    client.close()
    assert row["refused_numbers"] == refused
    assert {column: row[column] for column in expected} == expected


def test_a_request_of_others_follows_the_same_rule(collector: CollectorProcess) -> None:
    now_ns = time.time_ns()
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.token_count.prompt": -5,
        "llm.token_count.completion": "1e300",
        "llm.invocation_parameters": '{"temperature": 1e300, "max_tokens": 12, "model": "asked"}',
        "evenkeel.sample_weight": NAN,
    }
    request = trace_request(1, attributes, service="others", start_ns=now_ns)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.events.add(name="First Token Stream Event", time_unix_nano=2**64 - 1)
    send(collector, request.SerializeToString())
    query = (
        "SELECT refused_numbers, ttft_s, max_tokens, model, sample_weight FROM requests"
        " WHERE service = 'others'"
    )
    wait_for(lambda: collector.rows(query) != [])
    refused = {
        "input_tokens": OUT, "output_tokens": OUT, "temperature": OUT, "ttft_s": OUT,
        "sample_weight": NOT_FINITE,
    }  # fmt: skip
    assert collector.rows(query) == [(refused, None, 12, "asked", 1.0)]


def test_refused_numbers_are_counted_by_reason(
    collector: CollectorProcess, rows: dict[str, dict[str, Any]]
) -> None:
    wanted = (
        'evenkeel_collector_numbers_refused_total{column="ledger",reason="not_finite",'
        'table="requests"} 1.0'
    )
    wait_for(lambda: wanted in httpx.get(f"{collector.http_url}/metrics").text)


def test_slos_go_on(collector: CollectorProcess, rows: dict[str, dict[str, Any]]) -> None:
    newest = "SELECT slo, max(time) FROM slo_status GROUP BY slo ORDER BY slo"
    wait_for(lambda: sorted(dict(collector.rows(newest))) == ["drafts", "fast"])
    now = dict(collector.rows(newest))
    wait_for(lambda: all(dict(collector.rows(newest))[slo] > now[slo] for slo in now))
    assert "slo evaluation failed" not in collector.stderr()


def test_a_weight_silences_no_slo(tmp_path: Path) -> None:
    (tmp_path / "slos.yaml").write_text(SLOS, encoding="utf-8")
    slow = trace_request(9, OURS | {"evenkeel.ttft_s": 3.0, "evenkeel.e2e_s": 4.0})
    heavy = trace_request(1, OURS | {"evenkeel.sample_weight": 1e18})
    with running_collector(tmp_path / "data", ["--slos", str(tmp_path / "slos.yaml")]) as collector:
        for body in (heavy, slow):
            send(collector, body.SerializeToString())
        found = "SELECT total, sli FROM slo_status WHERE slo = 'fast' ORDER BY time DESC LIMIT 1"
        wait_for(lambda: collector.rows(found) == [(10.0, 0.1)])
