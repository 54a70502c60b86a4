import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.intake.otlp_body import MalformedError
from evenkeel_collector.intake.otlp_json import check_json

TRACE_ID = "5B8EFFF798038103D269B633813FC60C"
SPAN_ID = "eee19b7ec3c1b174"


def document(**span: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def parse(body: bytes) -> Any:
    return ExportTraceServiceRequest.FromString(check_json(body).payload)


def parse_span(**span: Any) -> Any:
    return parse(document(**span)).resource_spans[0].scope_spans[0].spans[0]


@pytest.mark.parametrize("convert", [str.upper, str.lower])
def test_ids_are_hex_in_either_case(convert: Any) -> None:
    span = parse_span(
        traceId=convert(TRACE_ID),
        spanId=convert(SPAN_ID),
        parentSpanId=convert(SPAN_ID),
        links=[{"traceId": convert(TRACE_ID), "spanId": convert(SPAN_ID)}],
    )
    assert span.trace_id.hex() == TRACE_ID.lower()
    assert span.span_id.hex() == span.parent_span_id.hex() == SPAN_ID.lower()
    assert span.links[0].trace_id.hex() == TRACE_ID.lower()


@pytest.mark.parametrize("value", [1544712660000000001, "1544712660000000001"])
def test_64_bit_integers_are_numbers_or_strings(value: Any) -> None:
    span = parse_span(
        startTimeUnixNano=value, attributes=[{"key": "n", "value": {"intValue": value}}]
    )
    assert span.start_time_unix_nano == 1544712660000000001
    assert span.attributes[0].value.int_value == 1544712660000000001


def test_the_largest_timestamp_survives() -> None:
    assert parse_span(endTimeUnixNano=str(2**64 - 1)).end_time_unix_nano == 2**64 - 1


def test_enums_are_integers() -> None:
    span = parse_span(kind=2, status={"code": 2, "message": "no"})
    assert (span.kind, span.status.code, span.status.message) == (2, 2, "no")


def test_unknown_fields_are_ignored() -> None:
    assert parse_span(name="x", somethingNew={"a": [1]}).name == "x"


def test_snake_case_fields_are_read_too() -> None:
    body = {"resource_spans": [{"scope_spans": [{"spans": [{"trace_id": TRACE_ID}]}]}]}
    span = parse(json.dumps(body).encode()).resource_spans[0].scope_spans[0].spans[0]
    assert span.trace_id.hex() == TRACE_ID.lower()


def test_maps_become_json_text_as_they_do_from_protobuf() -> None:
    value = {"kvlistValue": {"values": [{"key": "x", "value": {"intValue": "1"}}]}}
    span = parse_span(attributes=[{"key": "a", "value": value}])
    assert span.attributes[0].value.string_value == '{"x":1}'


@pytest.mark.parametrize("body", [b"", b"{}", b'{"resourceSpans":[]}'])
def test_an_empty_request_has_no_spans(body: bytes) -> None:
    assert check_json(body).num_spans == 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="cut short"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b"null", id="null"),
        pytest.param(b"\xff\xfe", id="not text"),
        pytest.param(b'{"resourceSpans": 5}', id="a number for a list"),
        pytest.param(b'{"resourceSpans": [{"scopeSpans": [{"spans": [3]}]}]}', id="a number span"),
        pytest.param(document(traceId="xyz"), id="an id that is not hex"),
        pytest.param(document(traceId=5), id="an id that is a number"),
        pytest.param(document(startTimeUnixNano="soon"), id="a time that is text"),
        pytest.param(document(name="\ud800"), id="half a surrogate pair"),
        pytest.param(document(kind="\udfff"), id="half a surrogate pair for a number"),
        pytest.param(document(attributes=["\ud800"]), id="half a surrogate pair for an attribute"),
        pytest.param(b'{"unknown": "\\ud800"}', id="half a surrogate pair where nobody reads"),
        pytest.param(b'{"unknown": "\xed\xa0\x80"}', id="the same in UTF-8"),
        pytest.param(b'{"unknown": NaN}', id="NaN"),
        pytest.param(b'{"unknown": ' + b"9" * 5000 + b"}", id="a number of 5,000 digits"),
        pytest.param(document(kind=float("inf")), id="an infinite kind"),
        pytest.param(
            document(attributes=[{"key": "k", "value": {"doubleValue": 10**400}}]), id="10^400"
        ),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(b"[" * 100_000, id="nested without end"),
        pytest.param(b'{"a":' * 100_000, id="objects without end"),
    ],
)
def test_what_is_not_an_otlp_request_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError):
        check_json(body)
