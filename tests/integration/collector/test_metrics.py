"""OTLP metrics over both transports and encodings, and the scraper, into `engine_state`."""

import json
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpExporter,
)
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource

from tests.fixtures.collector_process import (
    CollectorProcess,
    running_collector,
    start_collector,
    wait_for,
)
from tests.fixtures.http_stub import QuietHandler, serving
from tests.fixtures.otlp_payload import trace_request

PAGES = {
    "/metrics": 'vllm:num_requests_running{model_name="m"} 2.0\n'
    "# TYPE vllm:e2e_request_latency_seconds histogram\n"
    'vllm:e2e_request_latency_seconds_bucket{le="1.0"} 3.0\n'
    'vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 4.0\n'
    "vllm:e2e_request_latency_seconds_count 4.0\n"
    "vllm:e2e_request_latency_seconds_sum 5.5\n",
    "/broken": "<html>",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            page = PAGES[self.path].encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@pytest.fixture(scope="module")
def collector(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("collector")
    (folder / "evenkeel.toml").write_text("[collector]\nscrape_interval_s = 0.3\n")
    flags = ["--scrape", engine, "--scrape", f"{engine}/broken"]
    with running_collector(folder, flags) as running:
        yield running


def rows(collector: CollectorProcess, service: str) -> list[dict[str, Any]]:
    client = collector.client()
    found = client.query(
        "SELECT * FROM engine_state WHERE service = {s:String} ORDER BY name",
        parameters={"s": service},
    )
    result = list(found.named_results())
    client.close()
    return result


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_sdks_metrics_are_rows(collector: CollectorProcess, transport: str) -> None:
    exporter: Any = (
        HttpExporter(
            endpoint=f"{collector.http_url}/v1/metrics",
            preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()},
        )
        if transport == "http"
        else GrpcExporter(endpoint=collector.grpc_url, insecure=True)
    )
    provider = MeterProvider(
        [PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)],
        resource=Resource({"service.name": transport, "service.instance.id": "i-1"}),
    )
    meter = provider.get_meter("tests")
    meter.create_gauge("running").set(0, {"model_name": "m"})
    meter.create_counter("tokens", unit="{token}").add(7)
    histogram = meter.create_histogram("ttft", unit="s")
    for value in (0.1, 0.2, 3.0):
        histogram.record(value)
    assert provider.force_flush()
    provider.shutdown()
    wait_for(lambda: len(rows(collector, transport)) >= 3)
    by_name = {row["name"]: row for row in rows(collector, transport)}
    running, tokens, ttft = by_name["running"], by_name["tokens"], by_name["ttft"]
    assert (running["kind"], running["value"], running["model"]) == ("gauge", 0.0, "m")
    assert (running["instance"], running["is_time_clamped"]) == ("i-1", False)
    assert (tokens["kind"], tokens["value"], tokens["unit"]) == ("sum", 7.0, "{token}")
    assert (tokens["is_monotonic"], tokens["temporality"]) == (True, "cumulative")
    assert (ttft["kind"], ttft["count"], ttft["value"]) == ("histogram", 3, None)
    assert ttft["sum"] == pytest.approx(3.3)
    assert sum(ttft["bucket_counts"]) == 3
    assert len(ttft["bucket_counts"]) == len(ttft["bounds"]) + 1
    assert abs(ttft["start_time"].timestamp() - time.time()) < 600


def test_json_and_wrong_bodies(collector: CollectorProcess) -> None:
    url = f"{collector.http_url}/v1/metrics"
    point = {"timeUnixNano": str(time.time_ns()), "asDouble": 0.25}
    document = {
        "resourceMetrics": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "json"}}]
                },
                "scopeMetrics": [{"metrics": [{"name": "g", "gauge": {"dataPoints": [point]}}]}],
            }
        ]
    }
    answer = httpx.post(url, json=document)
    assert (answer.status_code, answer.content) == (200, b"{}")
    wait_for(lambda: [row["value"] for row in rows(collector, "json")] == [0.25])
    headers = {"content-type": "application/x-protobuf"}
    assert httpx.post(url, content=b"\x0a\xff", headers=headers).status_code == 400
    assert httpx.post(url, content=b"", headers=headers).status_code == 200


def test_prometheus_endpoints_are_read_again_and_again(
    collector: CollectorProcess, engine: str
) -> None:
    instance = engine.removeprefix("http://")
    sql = "SELECT count() FROM engine_state WHERE name = {n:String} AND instance = {i:String}"
    name = {"n": "vllm:num_requests_running", "i": instance}
    wait_for(lambda: collector.rows(sql, name)[0][0] >= 2)
    assert collector.rows(
        "SELECT DISTINCT service, kind, value, model FROM engine_state WHERE name = {n:String}",
        name,
    ) == [("vllm", "gauge", 2.0, "m")]
    assert collector.rows(
        "SELECT DISTINCT count, sum, bounds, bucket_counts FROM engine_state"
        " WHERE kind = 'histogram' AND service = 'vllm'"
    ) == [(4, 5.5, [1.0], [3, 1])]
    up = "SELECT DISTINCT value FROM engine_state WHERE name = 'up' ORDER BY 1"
    # Each endpoint is read by itself, the broken one perhaps later.
    wait_for(lambda: collector.rows(up) == [(0.0,), (1.0,)])

    def num_down() -> int:
        # On a busy machine the good one may be late for its 0.3 s, and is then read again.
        said = collector.stderr()
        return said.count("cannot scrape") - said.count("scraping again")

    wait_for(lambda: num_down() == 1)
    metrics = httpx.get(f"{collector.http_url}/metrics").text
    assert 'evenkeel_collector_scrapes_total{result="failed"' in metrics


def test_metrics_and_spans_share_a_segment_and_survive_a_kill_once(tmp_path: Path) -> None:
    collector = start_collector(tmp_path)
    for body in range(10):
        points = [
            {"metrics": [{"name": f"g{body}", "sum": {"dataPoints": [{"asInt": n}]}}]}
            for n in range(3)
        ]
        assert httpx.post(
            f"{collector.http_url}/v1/traces",
            content=trace_request(5).SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        ).is_success
        assert httpx.post(
            f"{collector.http_url}/v1/metrics",
            content=json.dumps({"resourceMetrics": [{"scopeMetrics": points}]}),
            headers={"content-type": "application/json"},
        ).is_success
    collector.kill()
    with running_collector(tmp_path) as again:
        wait_for(lambda: not any((tmp_path / "log").glob("*.sealed")))
        assert again.rows("SELECT count() FROM spans") == [(50,)]
        assert again.rows("SELECT count(), sum(value) FROM engine_state") == [(30, 30.0)]
