"""Every engine's spans become requests, and its metrics fill the Engine page's queries."""

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from evenkeel.engines.engine_map import known_engines
from evenkeel.engines.measures import MEASURES, MeasureKind
from evenkeel.engines.metric_query import mapped_metrics, metric_parameters, sender_parameters
from evenkeel.store import Store
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.engine.metrics import HISTOGRAMS, histogram_rows, state_rows
from tests.fixtures.collector_process import PROTOBUF, CollectorProcess, wait_for
from tests.fixtures.engine_pages import (
    PAGES,
    SECOND,
    SPANS,
    metrics_request,
    read_span,
    span_request,
)
from tests.fixtures.otlp_payload import key_values
from tests.queries import query

# Both readings are in one interval of the queries.
STEP_S = 600
NOW_NS = (time.time_ns() // (STEP_S * SECOND) * STEP_S - STEP_S // 2) * SECOND
WINDOW = Window(NOW_NS // 10**6 - 600_000, NOW_NS // 10**6 + 60_000, STEP_S)
RANGE = {"from_ms": WINDOW.from_ms, "to_ms": WINDOW.to_ms}
# Half of what was counted a minute ago came since.
GROWTH = 0.5
_SERIES = tuple(n for n, m in MEASURES.items() if m.kind is not MeasureKind.HISTOGRAM)


def post(collector: CollectorProcess, path: str, message: Any) -> None:
    answer = httpx.post(
        f"{collector.http_url}{path}", content=message.SerializeToString(), headers=PROTOBUF
    )
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def store(collector: CollectorProcess) -> Iterator[Store]:
    """The store with each engine's span, and each page read twice."""
    for engine in SPANS:
        post(collector, "/v1/traces", span_request(engine, NOW_NS))
    for engine, path in PAGES.items():
        text = path.read_text(encoding="utf-8")
        for age_s, growth in ((60, 0.0), (1, GROWTH)):
            at_ns = NOW_NS - age_s * SECOND
            post(collector, "/v1/metrics", metrics_request(text, engine, at_ns, growth))
    wait_for(lambda: collector.rows("SELECT count() FROM requests") == [(len(SPANS),)])
    pages = "SELECT uniqExact(service), uniqExact(time) FROM engine_state WHERE service != ''"
    wait_for(lambda: collector.rows(pages) == [(len(PAGES), 2)])
    opened = Store(collector.query_url)
    yield opened
    opened.close()


@pytest.mark.parametrize("engine", SPANS)
def test_an_engines_span_is_a_request(
    store: Store, collector: CollectorProcess, engine: str
) -> None:
    span = read_span(engine)
    client = collector.client()
    (row,) = client.query(
        "SELECT * FROM requests WHERE engine = {e:String}", parameters={"e": engine}
    ).named_results()
    client.close()
    assert {name: row[name] for name in span["row"]} == pytest.approx(span["row"])
    assert {name: row[name] for name in span.get("missing", {}).get("fields", [])} == dict.fromkeys(
        span.get("missing", {}).get("fields", [])
    ), "what is not reported is NULL"
    assert row["refused_numbers"] == {}
    assert row["status"] == "ok"


def test_the_engine_is_a_key_of_the_rollup(store: Store, collector: CollectorProcess) -> None:
    sql = "SELECT engine, sum(num_requests) FROM requests_1m GROUP BY engine"
    wait_for(lambda: dict(collector.rows(sql)) == dict.fromkeys(SPANS, 1.0))


@pytest.mark.parametrize(
    ("told", "expected"),
    [("My-Engine.2", "my-engine.2"), ("no spaces please", None), ("x" * 41, None)],
)
def test_anybody_may_name_an_engine(
    store: Store, collector: CollectorProcess, told: str, expected: str | None
) -> None:
    request = span_request("bedrock", NOW_NS)
    request.resource_spans[0].resource.attributes.extend(
        key_values({"evenkeel.engine.name": told, "told": told})
    )
    (span,) = request.resource_spans[0].scope_spans[0].spans
    span.attributes.extend(key_values({"gen_ai.response.id": f"told {told}"}))
    post(collector, "/v1/traces", request)
    sql = "SELECT engine FROM requests WHERE request_id = {id:String}"
    found = {"id": f"told {told}"}
    wait_for(lambda: len(collector.rows(sql, found)) == 1)
    # What is no name is ignored: the client's provider counts.
    assert collector.rows(sql, found) == [(expected or "bedrock",)]


STRANGERS: dict[str, tuple[str, str, set[str]]] = {
    "a model of some other framework": (
        "tgi", "predict", {"inference_time", "validation_time", "total_time"},
    ),
    "an application that copied vLLM's attributes": ("vllm", "handle", set()),
    "a tracer of its own name": ("sglang", "Req 1a2b3c4d", set()),
    "a child of Triton's span": ("triton", "compute", set()),
}  # fmt: skip


def test_spans_of_others_are_no_engines(store: Store, collector: CollectorProcess) -> None:
    for name, (engine, span_name, kept) in STRANGERS.items():
        request = span_request(engine, NOW_NS)
        (resource_spans,) = request.resource_spans
        resource_spans.resource.attributes.extend(key_values({"stranger": name}))
        resource_spans.scope_spans[0].scope.name = "my-app"
        (span,) = resource_spans.scope_spans[0].spans
        span.name = span_name
        if kept:
            attributes = [each for each in span.attributes if each.key in kept]
            del span.attributes[:]
            span.attributes.extend(attributes)
        for attribute in span.attributes:
            if attribute.key == "triton.trace_parent_id":
                attribute.value.int_value = 1
        post(collector, "/v1/traces", request)
    stored = (
        "SELECT ResourceAttributes['stranger'] AS name, TraceId, SpanId FROM spans WHERE name != ''"
    )
    wait_for(lambda: len(collector.rows(stored)) == len(STRANGERS))
    sql = f"""SELECT s.name, r.engine FROM requests AS r
        INNER JOIN ({stored}) AS s ON s.TraceId = r.trace_id AND s.SpanId = r.span_id"""
    assert collector.rows(sql) == []


def series(store: Store, model: str = "") -> list[dict[str, Any]]:
    parameters = metric_parameters(mapped_metrics(_SERIES))
    return store.rows(
        query("engine_state_series"), {**RANGE, **parameters, "model": model, "step_s": STEP_S}
    )


@cache
def values_of(store: Store, engine: str) -> dict[str, float]:
    """Return an engine's measures over the range, its intervals added up."""
    found: dict[str, float] = {}
    for row in series(store):
        if row["engine"] == engine:
            found[row["measure"]] = found.get(row["measure"], 0.0) + row["value"]
    return found


@pytest.mark.parametrize("engine", PAGES)
def test_the_engine_page_is_filled_by_what_an_engine_reports(store: Store, engine: str) -> None:
    metrics = known_engines()[engine].metrics
    assert metrics is not None
    expected = {m for m in metrics.names if MEASURES[m].kind is not MeasureKind.HISTOGRAM}
    assert set(values_of(store, engine)) == expected
    rows = state_rows([row for row in series(store) if row["engine"] == engine])
    for column in ("kv_live_ratio", "num_preempted"):
        is_there = any(row[column] is not None for row in rows)
        assert is_there == (column in metrics.names), f"{column} is absent, not 0"


@pytest.mark.parametrize(
    ("engine", "measure", "expected"),
    [
        ("sglang", "num_waiting", 7.0),
        # The total, and not what it has per priority besides.
        ("sglang", "num_running", 5.0),
        ("sglang", "kv_live_ratio", 0.83),
        ("sglang", "output_tokens", 1500.0),
        ("tgi", "num_running", 4.0),
        ("tgi", "output_tokens", 3000.0),
        ("tensorrt-llm", "accepted_tokens", 150.0),
        ("triton", "num_running", 8.0),
        ("triton", "kv_live_ratio", 0.256),
        ("triton", "prefill_tokens", 4500.0),
        ("llama.cpp", "num_waiting", 4.0),
    ],
)
def test_values_are_in_our_units(store: Store, engine: str, measure: str, expected: float) -> None:
    assert values_of(store, engine)[measure] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "engines"),
    [
        ("support", {"vllm", "sglang", "tensorrt-llm"}),
        ("tensorrt_llm", {"triton"}),
        # Engines that name no model are found by their service.
        ("tgi", {"tgi"}),
    ],
)
def test_a_model_selects_its_engines(store: Store, model: str, engines: set[str]) -> None:
    assert {row["engine"] for row in series(store, model)} == engines


def test_deltas_of_a_counter_are_added_up(store: Store, collector: CollectorProcess) -> None:
    for age_s, tokens in ((60, 30.0), (30, 20.0), (1, 50.0)):
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        resource.resource.attributes.extend(key_values({"service.name": "by deltas"}))
        metric = resource.scope_metrics.add().metrics.add(name="vllm:prompt_tokens")
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = 1, True
        metric.sum.data_points.add(time_unix_nano=NOW_NS - age_s * SECOND, as_double=tokens)
        post(collector, "/v1/metrics", request)
    stored = "SELECT count() FROM engine_state WHERE service = 'by deltas'"
    wait_for(lambda: collector.rows(stored) == [(3,)])
    found = [row["value"] for row in series(store, model="by deltas")]
    assert found == [100.0]


def test_histograms_become_percentiles_in_seconds(store: Store) -> None:
    parameters = metric_parameters(mapped_metrics(HISTOGRAMS)) | sender_parameters()
    rows = store.rows(query("engine_histograms"), {**RANGE, **parameters, "model": ""})
    found = {(r.engine, r.name): r for r in histogram_rows(rows, list(PAGES))}
    title = known_engines()["triton"].title
    assert found["SGLang", "time to first token"].values[0] != "no data"
    # Half of 50 below 100 ms, 40 below 500 ms, 10 below 2 s.
    assert found[title, "time to first token"].values == ("≤ 100 ms", "1.25 s", "1.85 s")
    assert found["llama.cpp", "total"].values == ("not reported",) * 3
