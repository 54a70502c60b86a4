"""A call that its client, a gateway and the server trace is one request, in whatever order."""

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.checkout import ROOT
from tests.fixtures.collector_process import (
    PROTOBUF,
    CollectorProcess,
    post,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import SentSpan, id_bytes, whole_trace

CLIENT = SentSpan(
    "client", "app", 0, 100, "chat", "app", 3,
    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "support",
     "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20},
)  # fmt: skip
WRAPPER = SentSpan(
    "wrapper", "app", 0, 110, "ChatOpenAI", "app", 1,
    {"openinference.span.kind": "LLM", "llm.model_name": "support", "llm.token_count.prompt": 100},
)  # fmt: skip
POST = SentSpan("post", "client", 1, 98, "POST", "app", 3, {"http.request.method": "POST"})
GATEWAY = SentSpan("gateway", "post", 20, 62, "POST /v1", "gate", 2)
SERVER = SentSpan(
    "server", "gateway", 25, 50, "chat support", "vllm", 2,
    {"evenkeel.status": "ok", "evenkeel.request.id": "r", "gen_ai.request.model": "support",
     "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20,
     "evenkeel.e2e_s": 0.05},
)  # fmt: skip


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("holding")
    with running_collector(folder, ("--client-hold-s", "12")) as collector:
        yield collector


@pytest.fixture
def briefly_holding(tmp_path: Path) -> Iterator[CollectorProcess]:
    with running_collector(tmp_path, ("--client-hold-s", "1")) as collector:
        yield collector


def send(collector: CollectorProcess, trace: str, *spans: SentSpan) -> None:
    body = whole_trace(trace, time.time_ns(), *spans).SerializeToString()
    assert post(collector, body, PROTOBUF).status_code == 200


def requests_of(collector: CollectorProcess, traces: Sequence[str]) -> list[tuple[str, str]]:
    """Return trace and source of each request of these traces."""
    names = {id_bytes(trace, 16).hex(): trace for trace in traces}
    found = collector.rows(
        "SELECT trace_id, source FROM requests WHERE trace_id IN {ids:Array(String)}",
        {"ids": list(names)},
    )
    return sorted((names[trace], source) for trace, source in found)


def wait_until_settled(collector: CollectorProcess, num_held: int) -> None:
    sql = "SELECT count() FROM settled_requests WHERE trace_id != ''"
    wait_for(lambda: collector.rows(sql) == [(num_held,)])


def test_client_gateway_and_server_are_one_request_in_every_order(
    holding: CollectorProcess,
) -> None:
    orders = list(itertools.permutations((CLIENT, POST, GATEWAY, SERVER)))
    traces = [f"order {number}" for number in range(len(orders))]
    for place in range(4):
        # In one body: on a slow machine, 24 would take longer than the hold.
        body = ExportTraceServiceRequest()
        for trace, order in zip(traces, orders, strict=True):
            body.MergeFrom(whole_trace(trace, time.time_ns(), order[place]))
        assert post(holding, body.SerializeToString(), PROTOBUF).status_code == 200
    # Nobody else traces these: the client's record counts, the innermost of two.
    send(holding, "alone", CLIENT)
    send(holding, "nested", WRAPPER)
    send(
        holding, "nested", SentSpan("inner", "wrapper", 1, 90, "chat", "app", 3, CLIENT.attributes)
    )
    assert requests_of(holding, ["alone"]) == []
    wait_until_settled(holding, len(orders) + 3)
    wait_for(lambda: len(requests_of(holding, ["alone", "nested"])) == 2)
    assert requests_of(holding, [*traces, "alone", "nested"]) == sorted(
        [(trace, "evenkeel") for trace in traces] + [("alone", "gen_ai"), ("nested", "gen_ai")]
    )
    num = len(orders) + 2
    rolled = "SELECT sum(num_requests), sum(input_tokens), sum(output_tokens) FROM requests_"
    for width in ("1m", "1h"):
        sql = rolled + width
        wait_for(lambda sql=sql: holding.rows(sql) == [(num, num * 100, num * 20)])  # type: ignore[misc]
    # What the client traced has all its columns.
    (found,) = holding.rows(
        "SELECT detail_probability, model, output_tokens, e2e_s FROM requests"
        " WHERE trace_id = {t:String}",
        {"t": id_bytes("alone", 16).hex()},
    )
    assert found == (1, "support", 20, 0.1)


def test_a_wrapper_that_comes_after_its_calls_decision_is_a_view(
    briefly_holding: CollectorProcess,
) -> None:
    collector = briefly_holding
    send(
        collector, "late", SentSpan("inner", "wrapper", 1, 90, "chat", "app", 3, CLIENT.attributes)
    )
    wait_until_settled(collector, 1)
    send(collector, "late", WRAPPER)
    send(collector, "late", WRAPPER)
    wait_until_settled(collector, 2)
    wait_for(lambda: requests_of(collector, ["late"]) == [("late", "gen_ai")])


def test_what_is_held_when_the_collector_is_killed_counts_once_after_the_next_start(
    holding: CollectorProcess,
) -> None:
    send(holding, "killed", CLIENT)
    held = "SELECT count() FROM held_requests WHERE trace_id = {t:String}"
    trace = {"t": id_bytes("killed", 16).hex()}
    wait_for(lambda: holding.rows(held, trace) == [(1,)])
    (before,) = holding.rows("SELECT count() FROM settled_requests WHERE trace_id != ''")[0]
    holding.kill()
    with running_collector(holding.data_dir, ("--client-hold-s", "0")) as again:
        wait_until_settled(again, before + 1)
        wait_for(lambda: requests_of(again, ["killed"]) == [("killed", "gen_ai")])
        # A batch that a crash interrupts is copied again: nothing changes.
        num = again.rows("SELECT count() FROM requests")
    with running_collector(holding.data_dir, ("--client-hold-s", "0")) as again:
        send(again, "another", CLIENT)
        wait_until_settled(again, before + 2)
        wait_for(lambda: requests_of(again, ["another"]) != [])
        assert again.rows("SELECT count() - 1 FROM requests") == num


def test_what_is_held_when_the_collector_stops_is_counted_then(tmp_path: Path) -> None:
    """Held requests are kept for a day, and a stop may be longer. A late server still replaces."""
    hold = ("--client-hold-s", "600")
    with running_collector(tmp_path, hold) as collector:
        send(collector, "last", replace(CLIENT, id="other"))
        send(collector, "both", CLIENT)
        wait_for(lambda: collector.rows("SELECT count() FROM held_requests") == [(2,)])
    with running_collector(tmp_path, hold) as again:
        assert requests_of(again, ["last", "both"]) == [("both", "gen_ai"), ("last", "gen_ai")]
        send(again, "both", POST, GATEWAY, SERVER)
        wait_for(lambda: requests_of(again, ["both"]) == [("both", "evenkeel")], timeout_s=60)
        assert requests_of(again, ["last"]) == [("last", "gen_ai")]


RECORDED = json.loads((ROOT / "tests" / "fixtures" / "sdk_traces.json").read_text())["traces"]
INNERMOST = {
    "openinference-instrumentation-openai 0.1.66": "openinference",
    "opentelemetry-instrumentation-openai 0.62.4": "gen_ai",
    "opentelemetry-instrumentation-openai-v2 2.4b0": "gen_ai",
    "openinference-instrumentation-openai 0.1.66 within opentelemetry-instrumentation-openai "
    "0.62.4": "openinference",
}


def replayed(name: str, trace: str) -> tuple[ExportTraceServiceRequest, bytes]:
    """Return what an instrumentation sent, as a trace of its own from now; and its HTTP span."""
    body = ParseDict(RECORDED[name]["body"], ExportTraceServiceRequest())
    spans = [
        span
        for of_resource in body.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]
    later_ns = time.time_ns() - min(span.start_time_unix_nano for span in spans)
    for span in spans:
        span.trace_id = id_bytes(trace, 16)
        span.start_time_unix_nano += later_ns
        span.end_time_unix_nano += later_ns
    return body, bytes.fromhex(RECORDED[name]["traceparent"].split("-")[2])


@pytest.mark.parametrize("name", INNERMOST)
def test_what_real_instrumentations_send_is_one_request(
    collector: CollectorProcess, name: str
) -> None:
    alone, _ = replayed(name, f"{name} alone")
    assert post(collector, alone.SerializeToString(), PROTOBUF).status_code == 200
    wait_for(lambda: requests_of(collector, [f"{name} alone"]) != [])
    assert requests_of(collector, [f"{name} alone"]) == [(f"{name} alone", INNERMOST[name])]
    (found,) = collector.rows(
        "SELECT model, input_tokens, output_tokens FROM requests WHERE trace_id = {t:String}",
        {"t": id_bytes(f"{name} alone", 16).hex()},
    )
    assert found == ("support", 11, 3)

    # The same call below, served by us.
    body, http_span = replayed(name, name)
    served = whole_trace(name, time.time_ns(), SERVER)
    (span,) = served.resource_spans[0].scope_spans[0].spans
    span.parent_span_id = http_span
    body.MergeFrom(served)
    assert post(collector, body.SerializeToString(), PROTOBUF).status_code == 200
    held = "SELECT count() FROM settled_requests WHERE trace_id = {t:String}"
    trace = {"t": id_bytes(name, 16).hex()}
    wait_for(lambda: collector.rows(held, trace)[0][0] == 1 + (" within " in name))
    wait_for(lambda: requests_of(collector, [name]) == [(name, "evenkeel")])
