import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.intake.metric_points import GAUGE, Point, encode_points
from evenkeel_collector.intake.otlp_logs import check_logs_protobuf
from evenkeel_collector.log.isolation import MAX_CHECKS, first_part, isolate
from evenkeel_collector.log.repeats import mark, read_mark

DIGEST = bytes(range(16))


def body(*names: str) -> bytes:
    """A request with its spans spread over two scopes and two resources."""
    request = ExportTraceServiceRequest()
    for index, name in enumerate(names):
        if index % 3 == 0:
            request.resource_spans.add().scope_spans.add()
        elif index % 3 == 1:
            request.resource_spans[-1].scope_spans.add()
        request.resource_spans[-1].scope_spans[-1].spans.add(name=name)
    return request.SerializeToString()


def names_in(bodies: list[bytes]) -> list[str]:
    return [
        span.name
        for one in bodies
        for resource in ExportTraceServiceRequest.FromString(one).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def refuse(*poison: str) -> Callable[[list[bytes]], str | None]:
    def refusal(bodies: list[bytes]) -> str | None:
        found = [name for name in names_in(bodies) if name in poison]
        return f"bad {found[0]}" if found else None

    return refusal


@given(st.lists(st.lists(st.booleans(), max_size=9), max_size=6))
def test_exactly_the_bad_spans_are_set_aside_one_by_one_and_order_stays(
    shapes: list[list[bool]],
) -> None:
    number = 0
    bodies, bad, good = [], [], []
    for shape in shapes:
        names = []
        for is_bad in shape:
            number += 1
            (bad if is_bad else good).append(str(number))
            names.append(str(number))
        bodies.append(body(*names))
    found = isolate(bodies, refuse(*bad))
    assert names_in(found.good) == good
    assert [names_in(poison.bodies) for poison in found.poison] == [[name] for name in bad]
    assert [poison.reason for poison in found.poison] == [f"bad {name}" for name in bad]


def test_a_body_that_cannot_be_read_is_set_aside_whole() -> None:
    garbage = b"\x0a\x02\xff\xff"
    found = isolate(
        [body("a"), garbage, body("b")],
        lambda bodies: "cannot parse" if garbage in bodies else None,
    )
    assert names_in(found.good) == ["a", "b"]
    assert [poison.bodies for poison in found.poison] == [[garbage]]


def test_where_everything_is_bad_the_checks_are_bounded_and_nothing_is_lost() -> None:
    names = [str(number) for number in range(2000)]
    num_checks = 0

    def refusal(bodies: list[bytes]) -> str | None:
        nonlocal num_checks
        num_checks += 1
        return "bad"

    found = isolate([body(*names)], refusal)
    assert num_checks <= MAX_CHECKS + 20
    assert found.good == []
    assert [name for poison in found.poison for name in names_in(poison.bodies)] == names


def mixed_body(num: int) -> bytes:
    """Return spans, log records and metric points, `num` of each, as the intake encodes them."""
    logs = ExportLogsServiceRequest()
    for index in range(num):
        if index % 3 == 0:
            logs.resource_logs.add(schema_url="of logs").scope_logs.add()
        logs.resource_logs[-1].scope_logs[-1].log_records.add(event_name=f"<record {index}>")
    records = check_logs_protobuf(logs.SerializeToString()).payload
    points = [Point(name=f"<point {index}>", time_ns=1, kind=GAUGE) for index in range(num)]
    groups = encode_points([({"of": "a"}, points[:2]), ({"of": "b"}, points[2:])])
    return mark(records + body(*(f"<span {index}>" for index in range(num))) + groups, DIGEST)


def items_in(bodies: list[bytes]) -> list[str]:
    return [item.decode() for one in bodies for item in re.findall(rb"<[a-z]+ \d+>", one)]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(["<span 2>"], id="a span"),
        pytest.param(["<record 1>"], id="a record"),
        pytest.param(["<point 3>"], id="a point"),
        pytest.param(["<span 0>", "<record 3>", "<point 0>"], id="one of each"),
    ],
)
def test_what_a_body_holds_besides_the_bad_is_kept_once(bad: list[str]) -> None:
    whole = mixed_body(4)

    def refusal(bodies: list[bytes]) -> str | None:
        return "bad" if set(items_in(bodies)) & set(bad) else None

    found = isolate([whole], refusal)
    good = [item for item in items_in([whole]) if item not in bad]
    assert sorted(items_in(found.good)) == sorted(good)
    assert [items_in(poison.bodies) for poison in found.poison] == [[one] for one in bad]
    pieces = [*found.good, *(one for poison in found.poison for one in poison.bodies)]
    # A retry after a restart is still recognised, by the piece that has the digest.
    assert [read_mark(one) for one in pieces].count(DIGEST) == 1
    # Points keep the attributes of their resource.
    for one in pieces:
        assert (b"<point 0>" in one or b"<point 1>" in one) == (b"\n\x02of\x12\x01a" in one)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        pytest.param(100, ["1", "2", "3", "4", "5"], id="all fits"),
        pytest.param(3, ["1", "2"], id="a body fits"),
        pytest.param(1, ["1"], id="a span fits"),
        pytest.param(0, ["1", "2", "3", "4", "5"], id="nothing fits"),
    ],
)
def test_the_first_part_that_fits_is_found_by_halving(room: int, expected: list[str]) -> None:
    bodies = [body("1", "2"), body("3", "4", "5")]
    part, rest = first_part(bodies, lambda some: len(names_in(some)) <= room)
    assert names_in(part) == expected
    assert names_in(part + rest) == ["1", "2", "3", "4", "5"]
