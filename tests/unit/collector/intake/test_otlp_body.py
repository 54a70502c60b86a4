import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.intake.otlp_body import MalformedError, check_protobuf
from tests.fixtures.otlp_payload import key_values, trace_request


def attribute_after_check(value: Any) -> Any:
    body = trace_request(1, {"a": value}).SerializeToString()
    checked = ExportTraceServiceRequest.FromString(check_protobuf(body).payload)
    return checked.resource_spans[0].scope_spans[0].spans[0].attributes[0].value


@pytest.mark.parametrize(
    "value",
    ["text", "", 0, -(2**63), True, False, 0.5, b"\x00\xff", ["a", 1, 0.5, True, b"x", None]],
    ids=repr,
)
def test_scalars_and_arrays_of_scalars_stay_as_they_are(value: Any) -> None:
    assert attribute_after_check(value) == key_values({"a": value})[0].value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"x": 1}, {"x": 1}),
        ({}, {}),
        ([], []),
        ([[1, 2], []], [[1, 2], []]),
        ([{"role": "user"}], [{"role": "user"}]),
        ({"x": {"y": [{"z": None}]}}, {"x": {"y": [{"z": None}]}}),
        ({"x": b"\x00\xff"}, {"x": "AP8="}),
        ({"x": float("nan")}, {"x": None}),
        ({"ключ": "é\n"}, {"ключ": "é\n"}),
    ],
)
def test_deeper_values_become_json_text(value: Any, expected: Any) -> None:
    checked = attribute_after_check(value)
    assert checked.WhichOneof("value") == "string_value"
    assert json.loads(checked.string_value) == expected


def test_deep_values_are_found_wherever_attributes_stand() -> None:
    request = trace_request(1)
    resource_spans = request.resource_spans[0]
    span = resource_spans.scope_spans[0].spans[0]
    deep = key_values({"deep": {"x": 1}})
    resource_spans.resource.attributes.extend(deep)
    span.events.add(name="event", attributes=deep)
    span.links.add(attributes=deep)
    checked = ExportTraceServiceRequest.FromString(
        check_protobuf(request.SerializeToString()).payload
    )
    resource_spans = checked.resource_spans[0]
    span = resource_spans.scope_spans[0].spans[0]
    for attributes in (
        resource_spans.resource.attributes,
        span.events[0].attributes,
        span.links[0].attributes,
    ):
        assert attributes[-1].value.string_value == '{"x":1}'


def test_a_value_of_forty_levels_is_kept() -> None:
    value: Any = "end"
    for _ in range(40):
        value = [value]
    assert json.loads(attribute_after_check(value).string_value) == value


def test_a_value_without_end_is_malformed_and_not_a_crash() -> None:
    value = b""
    for _ in range(2000):
        # AnyValue { array_value { values { ... } } }
        inner = b"\x0a" + varint(len(value)) + value
        value = b"\x2a" + varint(len(inner)) + inner
    for tag in (b"\x12", b"\x4a", b"\x12", b"\x12", b"\x0a"):
        value = tag + varint(len(value)) + value
    with pytest.raises(MalformedError):
        check_protobuf(value)


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def test_spans_are_counted_over_all_resources_and_concatenated_bodies() -> None:
    body = trace_request(3).SerializeToString() + trace_request(2).SerializeToString()
    assert check_protobuf(body).num_spans == 5


def test_an_empty_body_is_a_request_without_spans() -> None:
    checked = check_protobuf(b"")
    assert (checked.payload, checked.num_spans) == (b"", 0)


def test_fields_that_could_pose_as_the_logs_own_are_dropped() -> None:
    forged = b"\xc1\x3e" + b"\x00" * 8  # field 1000, fixed64: the segment's begin
    body = trace_request(1).SerializeToString()
    assert check_protobuf(body + forged).payload == check_protobuf(body).payload


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a", id="a length is missing"),
        pytest.param(b"\x0a\x05abc", id="a message is cut short"),
        pytest.param(b"not protobuf at all", id="text"),
        pytest.param(b"\xff" * 20, id="no end of a varint"),
    ],
)
def test_what_upb_refuses_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError, match="ExportTraceServiceRequest"):
        check_protobuf(body)


def test_a_name_that_is_not_utf_8_is_malformed() -> None:
    body = trace_request(1, name="abcdef").SerializeToString().replace(b"abcdef", b"abc\xffef")
    with pytest.raises(MalformedError):
        check_protobuf(body)


def test_a_deep_value_that_is_not_utf_8_is_malformed() -> None:
    body = trace_request(1, {"a": {"x": "abcdef"}}).SerializeToString()
    with pytest.raises(MalformedError):
        check_protobuf(body.replace(b"abcdef", b"abc\xffef"))
