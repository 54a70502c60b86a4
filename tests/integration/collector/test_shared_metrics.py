"""OpenTelemetry's GenAI server metrics, by its SDK and on Prometheus pages, on the Engine page."""

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from evenkeel.conventions import (
    SERVER_DURATION,
    SERVER_METRIC_BOUNDS_S,
    SERVER_TIME_PER_OUTPUT_TOKEN,
    SERVER_TIME_TO_FIRST_TOKEN,
)
from evenkeel.engines.metric_query import mapped_metrics, metric_parameters, sender_parameters
from evenkeel.store import Store
from evenkeel_dashboard.pages.engine.metrics import (
    HISTOGRAMS,
    HistogramRow,
    engines_of,
    histogram_rows,
)
from tests.fixtures.collector_process import PROTOBUF, CollectorProcess, wait_for
from tests.fixtures.engine_pages import PAGES, SECOND, metrics_request
from tests.queries import query

PROVIDER, MODEL = "gen_ai.provider.name", "gen_ai.request.model"
SHARED = PAGES["opentelemetry"].read_text(encoding="utf-8")
# A request, and three later.
REQUESTS_S = ((0.5,), (0.5, 1.0, 2.0))


@pytest.fixture(scope="module")
def store(collector: CollectorProcess) -> Iterator[Store]:
    opened = Store(collector.query_url)
    yield opened
    opened.close()


def send(
    collector: CollectorProcess,
    model: str,
    attributes: Mapping[str, str],
    resource: Mapping[str, str],
    temporality: AggregationTemporality = AggregationTemporality.CUMULATIVE,
    prefix: str = "gen_ai.server.",
) -> None:
    """Send the three histograms with the SDK, at two moments; the service is named as the model."""
    exporter = OTLPMetricExporter(
        endpoint=f"{collector.http_url}/v1/metrics", preferred_temporality={Histogram: temporality}
    )
    provider = MeterProvider(
        [PeriodicExportingMetricReader(exporter, export_interval_millis=600_000)],
        resource=Resource({"service.name": model, **resource}),
    )
    meter = provider.get_meter("tests")
    duration, first, per_token = (
        meter.create_histogram(
            name.replace("gen_ai.server.", prefix),
            unit="s",
            explicit_bucket_boundaries_advisory=SERVER_METRIC_BOUNDS_S[name],
        )
        for name in (SERVER_DURATION, SERVER_TIME_TO_FIRST_TOKEN, SERVER_TIME_PER_OUTPUT_TOKEN)
    )
    said = {"gen_ai.operation.name": "chat", MODEL: model, **attributes}
    for durations in REQUESTS_S:
        for e2e_s in durations:
            duration.record(e2e_s, said)
            first.record(e2e_s / 10, said)
            per_token.record(e2e_s / 100, said)
        assert provider.force_flush()
    provider.shutdown()
    sql = (
        "SELECT uniqExact(time) FROM engine_state WHERE service = {m:String} AND kind = 'histogram'"
    )
    wait_for(lambda: collector.rows(sql, {"m": model})[0][0] >= len(REQUESTS_S))


def read(store: Store, model: str) -> list[dict[str, Any]]:
    """Return what the Engine page reads of a model's histograms in the last minutes."""
    now_ms = time.time_ns() // 10**6
    return store.rows(
        query("engine_histograms"),
        {
            **metric_parameters(mapped_metrics(HISTOGRAMS)),
            **sender_parameters(),
            "from_ms": now_ms - 600_000,
            "to_ms": now_ms + 60_000,
            "model": model,
        },
    )


def shown(rows: list[dict[str, Any]]) -> dict[str, HistogramRow]:
    return {row.name: row for row in histogram_rows(rows, engines_of(rows))}


def test_the_sdks_histograms_are_on_the_engine_page(
    store: Store, collector: CollectorProcess
) -> None:
    send(collector, "plain", {}, {})
    rows = read(store, "plain")
    assert engines_of(rows) == ["opentelemetry"]
    found = shown(rows)
    assert {row.engine for row in found.values()} == {"OpenTelemetry GenAI"}
    counted = {name: row.num_observations for name, row in found.items()}
    for name in ("total", "time to first token", "time per output token"):
        assert counted.pop(name) == "3", "since the first reading"
    assert set(counted.values()) == {"not reported"}
    # One of three is in (0.32, 0.64], one in (0.64, 1.28], one in (1.28, 2.56].
    assert found["total"].values[0] == "960 ms"


def test_deltas_count_each_for_itself(store: Store, collector: CollectorProcess) -> None:
    send(collector, "deltas", {}, {}, AggregationTemporality.DELTA)
    assert shown(read(store, "deltas"))["total"].num_observations == "4"


@pytest.mark.parametrize(
    ("attributes", "resource", "engine"),
    [
        pytest.param({PROVIDER: "AWS.Bedrock"}, {}, "bedrock", id="provider"),
        pytest.param({"gen_ai.system": "az.ai.openai"}, {}, "azure-openai", id="its old name"),
        pytest.param({}, {PROVIDER: "sglang"}, "sglang", id="provider of the resource"),
        pytest.param({PROVIDER: "my-cloud"}, {}, "opentelemetry", id="nobody knows it"),
        pytest.param(
            {PROVIDER: "openai"}, {"evenkeel.engine.name": "My-Engine.2"}, "my-engine.2", id="told"
        ),
        pytest.param(
            {PROVIDER: "openai"}, {"evenkeel.engine.name": "no name"}, "openai", id="no name"
        ),
    ],
)
def test_the_sender_says_which_engine_it_is(
    store: Store,
    collector: CollectorProcess,
    request: pytest.FixtureRequest,
    attributes: dict[str, str],
    resource: dict[str, str],
    engine: str,
) -> None:
    model = f"said by {request.node.callspec.id}"
    send(collector, model, attributes, resource)
    assert engines_of(read(store, model)) == [engine]


def test_what_clients_measure_is_no_servers(store: Store, collector: CollectorProcess) -> None:
    send(collector, "client", {PROVIDER: "openai"}, {}, prefix="gen_ai.client.")
    assert read(store, "client") == []


def scrape(
    collector: CollectorProcess,
    text: str,
    service: str,
    moments: Mapping[int, float] = MappingProxyType({60: 0.0, 1: 0.5}),
) -> None:
    """Send a page as a Collector that scrapes it does: ages in seconds, each with its growth."""
    for age_s, growth in moments.items():
        body = metrics_request(text, service, time.time_ns() - age_s * SECOND, growth)
        httpx.post(
            f"{collector.http_url}/v1/metrics", content=body.SerializeToString(), headers=PROTOBUF
        ).raise_for_status()
    sql = "SELECT uniqExact(time) FROM engine_state WHERE service = {s:String}"
    wait_for(lambda: collector.rows(sql, {"s": service})[0][0] == len(moments))


def test_a_page_with_underscores_is_the_same(store: Store, collector: CollectorProcess) -> None:
    page = SHARED.replace("support", "paged").replace("my-cloud", "tgi")
    scrape(collector, page, "a gateway")
    rows = read(store, "paged")
    assert engines_of(rows) == ["tgi"], "found by the label of the model"
    # 100 successful and 20 failed requests, and half of them again.
    assert shown(rows)["total"].num_observations == "60"
    assert shown(rows)["time per output token"].num_observations == "50"


def test_requests_before_and_after_a_restart_count(
    store: Store, collector: CollectorProcess
) -> None:
    # Of 100 successful requests, and 20 failed ones: ten times as many; after a restart half, then
    # more than at first.
    moments = {50: 0.0, 40: 9.0, 30: -0.5, 20: 1.0}
    scrape(collector, SHARED.replace("support", "restarted"), "a server", moments)
    rows = read(store, "restarted")
    assert shown(rows)["total"].num_observations == "1,320", "9 + 0.5 + 1.5 times 120"


def test_a_page_of_ours_is_counted_once(store: Store, collector: CollectorProcess) -> None:
    page = PAGES["vllm"].read_text(encoding="utf-8") + SHARED.replace("my-cloud", "vllm")
    scrape(collector, page.replace("support", "ours"), "evenkeel")
    rows = read(store, "ours")
    assert {row["mapped_as"] for row in rows} == {"vllm"}
    alone = PAGES["vllm"].read_text(encoding="utf-8").replace("support", "bare")
    scrape(collector, alone, "bare vLLM")
    assert rows == read(store, "bare")


def test_an_engine_with_names_of_its_own_is_no_second_engine(
    store: Store, collector: CollectorProcess
) -> None:
    # Although llama.cpp has no histograms of its own.
    page = PAGES["llama.cpp"].read_text(encoding="utf-8") + SHARED.replace("support", "mixed")
    scrape(collector, page, "llama")
    assert read(store, "mixed") == []
