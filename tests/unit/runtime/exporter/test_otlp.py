"""The OTLP message of a batch, whole."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel.spans import Status
from evenkeel_runtime.exporter.otlp import build_request
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.wire.caller import TraceParent
from evenkeel_runtime.wire.observation import CanaryResult, Observation

MS = 1_000_000
UNIX = 1_700_000_000_000_000_000
SEEN = Observation(
    request_id="chatcmpl-1",
    model="support",
    operation="chat",
    arrival_unix_ns=UNIX,
    arrival_ns=1000 * MS,
    end_ns=1050 * MS,
    reached_engine=True,
    finish_reason="stop",
    input_tokens=12,
    output_tokens=3,
    scheduled_ns=1010 * MS,
    emission_ns=(1020 * MS, 1040 * MS),
    emission_tokens=[1, 2],
)


def counting_ids() -> Callable[[int], bytes]:
    numbers = iter(range(1, 100))
    return lambda size: next(numbers).to_bytes(size, "big")


def spans_of(seen: Observation) -> list[dict[str, Any]]:
    new_id = counting_ids()
    request = FinishedRequest.begin(replace(seen), new_id)
    request.complete(100)
    return spans_in(build_request([request], {"service.name": "s"}, new_id))


def spans_in(request: ExportTraceServiceRequest) -> list[dict[str, Any]]:
    return list(MessageToDict(request)["resourceSpans"][0]["scopeSpans"][0]["spans"])


def test_a_request_becomes_one_server_span_with_its_phases_below() -> None:
    server, *phases = spans_of(SEEN)
    attributes = server.pop("attributes")
    assert server == {
        "traceId": "AAAAAAAAAAAAAAAAAAAAAQ==",
        "spanId": "AAAAAAAAAAI=",
        "flags": 0x101,
        "name": "chat support",
        "kind": "SPAN_KIND_SERVER",
        "startTimeUnixNano": str(UNIX),
        "endTimeUnixNano": str(UNIX + 50 * MS),
    }
    assert {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}} in attributes
    assert {"key": "evenkeel.ttft_s", "value": {"doubleValue": 0.02}} in attributes
    assert {
        "key": "evenkeel.emission_tokens",
        "value": {"arrayValue": {"values": [{"intValue": "1"}, {"intValue": "2"}]}},
    } in attributes
    assert [
        (p["name"], p["kind"], p["parentSpanId"], int(str(p["startTimeUnixNano"])) - UNIX)
        for p in phases
    ] == [
        ("evenkeel.queue", "SPAN_KIND_INTERNAL", "AAAAAAAAAAI=", 0),
        ("evenkeel.prefill", "SPAN_KIND_INTERNAL", "AAAAAAAAAAI=", 10 * MS),
        ("evenkeel.decode", "SPAN_KIND_INTERNAL", "AAAAAAAAAAI=", 20 * MS),
    ]
    assert SEEN.max_spans == 4


def test_a_hook_that_took_time_has_a_span_of_its_own() -> None:
    seen = replace(
        SEEN,
        holds={
            "host.prompt": 0.00005,
            "host.compression": 0.002,
            "queue.gate": 0.003,
            "host.cache": 0.001,
        },
        hold_starts_ns={
            "host.prompt": 1000 * MS,
            "host.compression": 1001 * MS,
            "queue.gate": 1005 * MS,
            "host.cache": 1003 * MS,
        },
    )
    _, *children = spans_of(seen)
    assert [
        (
            c["name"],
            c["parentSpanId"],
            (int(str(c["startTimeUnixNano"])) - UNIX) // MS,
            (int(str(c["endTimeUnixNano"])) - UNIX) // MS,
            "attributes" in c,
        )
        for c in children[:3]
    ] == [
        ("evenkeel.compression", "AAAAAAAAAAI=", 1, 3, False),
        ("evenkeel.cache", "AAAAAAAAAAI=", 3, 4, False),
        ("evenkeel.gate", "AAAAAAAAAAI=", 5, 8, False),
    ]
    assert len(children) == 6
    assert seen.max_spans == 7


def test_a_hooks_span_lies_within_the_request() -> None:
    held = {"queue.gate": 10.0}
    seen = replace(SEEN, holds=held, hold_starts_ns={"queue.gate": 999 * MS})
    gate = spans_of(seen)[1]
    assert int(str(gate["startTimeUnixNano"])) == UNIX
    assert int(str(gate["endTimeUnixNano"])) == UNIX + 50 * MS
    # Of an older server the start is not known.
    assert len(spans_of(replace(SEEN, holds=held))) == 4


def test_the_callers_trace_goes_on_with_its_flags_and_state() -> None:
    parent = TraceParent(bytes(range(16)), bytes(range(8)), 0)
    server, queue, *_ = spans_of(replace(SEEN, parent=parent, trace_state="a=1"))
    assert server["traceId"] == queue["traceId"] == "AAECAwQFBgcICQoLDA0ODw=="
    assert server["parentSpanId"] == "AAECAwQFBgc="
    assert server["traceState"] == "a=1"
    assert server["flags"] == 0x300


def test_errors_have_the_error_status_and_aborts_do_not() -> None:
    failed = spans_of(replace(SEEN, status=Status.ERROR, error_type="NotFoundError"))[0]
    assert failed["status"] == {"code": "STATUS_CODE_ERROR", "message": "NotFoundError"}
    assert "status" not in spans_of(replace(SEEN, status=Status.ABORTED))[0]


@pytest.mark.parametrize(
    ("result", "first_difference", "status"),
    [("match", None, {}), ("mismatch", 1, {"code": "STATUS_CODE_ERROR"})],
)
def test_a_canarys_result_is_a_span_of_no_duration(
    result: str, first_difference: int | None, status: dict[str, str]
) -> None:
    canary = CanaryResult(
        of_request_id="r",
        unix_ns=UNIX,
        result=result,
        num_tokens=3,
        first_difference=first_difference,
    )
    (span,) = spans_in(build_request([canary], {}, counting_ids()))
    attributes = {pair["key"]: next(iter(pair["value"].values())) for pair in span["attributes"]}
    differs = {} if first_difference is None else {"evenkeel.canary.differs_at": "1"}
    assert attributes == differs | {
        "evenkeel.request.id": "r",
        "evenkeel.canary.result": result,
        "evenkeel.canary.tokens": "3",
    }
    assert (span["name"], span["startTimeUnixNano"]) == ("evenkeel.speculation.canary", str(UNIX))
    assert span.get("status", {}) == status


def test_a_replay_of_a_cached_answer_is_one_span_and_no_request() -> None:
    cache = {"evenkeel.cache.verdict": "same"}
    replay = replace(SEEN, tenant="acme", response_cache="replay", cache=cache)
    (span,) = spans_of(replay)
    attributes = {pair["key"]: next(iter(pair["value"].values())) for pair in span["attributes"]}
    assert (span["name"], span["kind"]) == ("evenkeel.cache.replay", "SPAN_KIND_INTERNAL")
    assert attributes["evenkeel.response_cache"] == "replay"
    assert attributes["evenkeel.cache.verdict"] == "same"
    assert attributes["evenkeel.tenant"] == "acme"
    # The store takes a span with a status for a request.
    assert "evenkeel.status" not in attributes
    assert replay.max_spans == 1


def test_an_empty_batch_has_no_span() -> None:
    request = build_request([], {})
    assert len(request.resource_spans[0].scope_spans[0].spans) == 0


series = st.one_of(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.integers(0, 200), min_size=1),
    st.lists(st.text(), min_size=1),
)


@given(series)
def test_every_array_arrives_as_it_was(values: list[float] | list[int] | list[str]) -> None:
    request = build_request([], {"a": values})  # type: ignore[dict-item]
    back = type(request).FromString(request.SerializeToString())
    (attribute,) = back.resource_spans[0].resource.attributes
    array = attribute.value.array_value.values
    assert [getattr(item, item.WhichOneof("value")) for item in array] == values


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="NaN"),
        pytest.param(float("-inf"), id="minus infinity"),
        pytest.param(1 << 63, id="beyond 64 bits"),
        pytest.param([0.5, float("nan")], id="a NaN in a series"),
        pytest.param([1, -(1 << 64)], id="a count beyond 64 bits"),
    ],
)
def test_a_number_that_is_none_is_not_exported(value: float | list[float]) -> None:
    request = build_request([], {"a": value, "b": 1})  # type: ignore[dict-item]
    assert [pair.key for pair in request.resource_spans[0].resource.attributes] == ["b"]
