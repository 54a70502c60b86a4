"""The OTLP message of a batch, whole."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.spans import Status
from evenkeel_runtime.exporter.otlp import build_request
from evenkeel_runtime.ledger.phases import num_spans
from evenkeel_runtime.wire.caller import Caller, TraceParent
from evenkeel_runtime.wire.observation import Observation

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
    emission_tokens=(1, 2),
)


def counting_ids() -> Callable[[int], bytes]:
    numbers = iter(range(1, 100))
    return lambda size: next(numbers).to_bytes(size, "big")


def spans_of(seen: Observation) -> list[dict[str, object]]:
    request = build_request([seen], {"service.name": "s"}, 100, counting_ids())
    message = MessageToDict(request)
    return list(message["resourceSpans"][0]["scopeSpans"][0]["spans"])


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
    assert num_spans(SEEN) == 4


def test_the_callers_trace_goes_on_with_its_flags_and_state() -> None:
    parent = TraceParent(bytes(range(16)), bytes(range(8)), 0)
    server, queue, *_ = spans_of(replace(SEEN, caller=Caller(parent=parent, trace_state="a=1")))
    assert server["traceId"] == queue["traceId"] == "AAECAwQFBgcICQoLDA0ODw=="
    assert server["parentSpanId"] == "AAECAwQFBgc="
    assert server["traceState"] == "a=1"
    assert server["flags"] == 0x300


def test_errors_have_the_error_status_and_aborts_do_not() -> None:
    failed = spans_of(replace(SEEN, status=Status.ERROR, error_type="NotFoundError"))[0]
    assert failed["status"] == {"code": "STATUS_CODE_ERROR", "message": "NotFoundError"}
    assert "status" not in spans_of(replace(SEEN, status=Status.ABORTED))[0]


def test_an_empty_batch_has_no_span() -> None:
    request = build_request([], {}, 100)
    assert len(request.resource_spans[0].scope_spans[0].spans) == 0


series = st.one_of(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.integers(0, 200), min_size=1),
    st.lists(st.text(), min_size=1),
)


@given(series)
def test_every_array_arrives_as_it_was(values: list[float] | list[int] | list[str]) -> None:
    request = build_request([], {"a": values}, 100)  # type: ignore[dict-item]
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
    request = build_request([], {"a": value, "b": 1}, 100)  # type: ignore[dict-item]
    assert [pair.key for pair in request.resource_spans[0].resource.attributes] == ["b"]
