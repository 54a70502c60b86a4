"""The simulated fleet: the same for a seed, and every record measured like a real one."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from evenkeel import spans
from evenkeel.request_record import RequestRecord
from evenkeel.spans import Status
from evenkeel.token_latency import Emissions, measure
from evenkeel_demo.simulate.otlp import encode
from evenkeel_demo.simulate.requests import (
    BLOCK_SIZE,
    BLOCK_TOKENS,
    FleetPlan,
    SimulatedIncident,
    SimulatedRequest,
    generate,
)

START_NS = 1_790_000_000_000_000_000


def requests(num_requests: int, **options: object) -> list[SimulatedRequest]:
    plan = FleetPlan(num_requests, START_NS, 3600.0, **options)  # type: ignore[arg-type]
    return [request for block in generate(plan) for request in block]


def test_a_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert encode(requests(300, seed=7)) == encode(requests(300, seed=7))
    assert encode(requests(300, seed=7)) != encode(requests(300, seed=8))


def test_the_same_seed_at_another_time_repeats_no_id() -> None:
    def ids(start_ns: int) -> set[bytes]:
        plan = FleetPlan(300, start_ns, 3600.0)
        return {request.trace_id for block in generate(plan) for request in block}

    assert ids(START_NS).isdisjoint(ids(START_NS + 10**9))


def test_requests_arrive_in_order_within_the_duration_and_all_of_them() -> None:
    arrivals = [r.arrival_ns for r in requests(BLOCK_SIZE + 5)]
    assert len(arrivals) == BLOCK_SIZE + 5
    assert arrivals == sorted(arrivals)
    assert START_NS <= arrivals[0] < arrivals[-1] <= START_NS + 3600 * 10**9


def test_ids_are_unique_and_never_zero() -> None:
    message = ExportTraceServiceRequest.FromString(encode(requests(BLOCK_SIZE))[0])
    ids = [span.span_id for span in message.resource_spans[0].scope_spans[0].spans]
    assert len(set(ids)) == len(ids)
    assert bytes(8) not in ids


def assert_measured(record: RequestRecord) -> None:
    """The record is one that the runtime could have written."""
    assert sum(record.emission_tokens) == (record.output_tokens or 0)
    assert len(record.emission_time_s) == len(record.emission_tokens)
    assert sum(record.emission_drafted) == (record.drafted_tokens or 0)
    assert sum(record.emission_accepted) == (record.accepted_tokens or 0)
    if record.drafted_tokens is not None and record.emission_tokens:
        assert len(record.emission_drafted) == len(record.emission_tokens)
    times_ns = [round(seconds * 1e9) for seconds in record.emission_time_s]
    latency = measure(0, Emissions(times_ns, record.emission_tokens))
    for name in ("ttft_s", "tpot_s", "itl_p50_s", "itl_p99_s", "stall_s"):
        assert getattr(record, name) == pytest.approx(getattr(latency, name)), name
    phases = (record.queue_s or 0) + (record.prefill_s or 0) + (record.decode_s or 0)
    assert record.e2e_s is not None
    assert phases <= record.e2e_s + 1e-6
    if record.ttft_s is not None:
        assert record.ttft_s == pytest.approx((record.queue_s or 0) + (record.prefill_s or 0))
    if record.cached_tokens is not None:
        assert 0 <= record.cached_tokens < (record.input_tokens or 0)
        assert record.cached_tokens % BLOCK_TOKENS == 0
    if record.drafted_tokens is None:
        assert record.accepted_tokens is None and record.drafted_by_position == []
    else:
        drafted, accepted = record.drafted_by_position, record.accepted_by_position
        assert sum(drafted) == record.drafted_tokens
        assert sum(accepted) == record.accepted_tokens
        assert all(a <= d for a, d in zip(accepted, drafted, strict=True))
        assert accepted == sorted(accepted, reverse=True), "a later position needs the earlier one"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(SimulatedIncident))
def test_every_record_is_measured_like_a_real_one(seed: int, incident: SimulatedIncident) -> None:
    for request in requests(60, seed=seed, incident=incident):
        assert_measured(request.record)


def test_the_incident_slows_its_window_only() -> None:
    def slow_share(incident: SimulatedIncident, low: float, high: float) -> float:
        window = [
            r.record.ttft_s
            for r in requests(1500, incident=incident)
            if low <= (r.arrival_ns - START_NS) / 3600e9 < high and r.record.ttft_s is not None
        ]
        return sum(ttft_s > 1.0 for ttft_s in window) / len(window)

    assert slow_share(SimulatedIncident.LONG_PROMPTS, 0.63, 0.71) > 0.3
    assert slow_share(SimulatedIncident.LONG_PROMPTS, 0.0, 0.59) < 0.1
    assert slow_share(SimulatedIncident.NONE, 0.63, 0.71) < 0.1


def test_all_ends_occur() -> None:
    statuses = {r.record.status for r in requests(4000, incident=SimulatedIncident.LONG_PROMPTS)}
    assert statuses == set(Status)


def test_a_request_is_a_server_span_with_its_phases_one_after_the_other() -> None:
    request = next(r for r in requests(20) if r.record.status is Status.OK)
    message = ExportTraceServiceRequest.FromString(encode([request])[0])
    server, *children = message.resource_spans[0].scope_spans[0].spans
    assert server.kind == Span.SPAN_KIND_SERVER
    assert server.name == f"{request.record.operation} {request.record.model}"
    assert [c.name for c in children] == [spans.SPAN_QUEUE, spans.SPAN_PREFILL, spans.SPAN_DECODE]
    assert {c.parent_span_id for c in children} == {server.span_id}
    assert children[0].start_time_unix_nano == server.start_time_unix_nano
    for before, after in pairwise(children):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert children[-1].end_time_unix_nano <= server.end_time_unix_nano + 3


def test_a_plan_without_requests_or_time_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be simulated"):
        list(generate(FleetPlan(0, START_NS, 60.0)))
