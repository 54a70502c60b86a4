"""Which requests keep their detail, and that what is estimated from the kept ones is not biased."""

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel import spans
from evenkeel.errors import ConfigurationError
from evenkeel_collector.intake.sampling import (
    DETAIL_DECISION,
    DETAIL_PROBABILITY,
    SCALE,
    LatencyObjective,
    SampledRequest,
    Sampler,
    SamplingReason,
    read_trace_state,
    threshold_of,
)

OBJECTIVES = [
    LatencyObjective("ttft_s", 0.5),
    LatencyObjective("itl_p99_s", 0.1, {"slo_class": "chat"}),
]
LOW, HIGH = bytes(15) + b"\x01", b"\xff" * 16  # trace ids that chance drops and keeps


def request(trace_id: bytes = LOW, trace_state: str = "", /, **attributes: Any) -> SampledRequest:
    return SampledRequest(
        trace_id, trace_state, {spans.STATUS: "ok", "evenkeel.ttft_s": 0.1, **attributes}
    )


CASES: dict[str, tuple[SampledRequest, SamplingReason, float]] = {
    "a good request that chance drops": (request(), SamplingReason.DROPPED, 0.25),
    "a good request that chance keeps": (request(HIGH), SamplingReason.PROBABILITY, 0.25),
    "a failed request": (request(**{spans.STATUS: "error"}), SamplingReason.STATUS, 1.0),
    "an aborted request": (request(**{spans.STATUS: "aborted"}), SamplingReason.STATUS, 1.0),
    "a shed request": (request(**{spans.STATUS: "shed"}), SamplingReason.STATUS, 1.0),
    "one that missed its objective": (
        request(**{"evenkeel.ttft_s": 0.51}),
        SamplingReason.OBJECTIVE,
        1.0,
    ),
    "one exactly at its objective": (
        request(**{"evenkeel.ttft_s": 0.5}),
        SamplingReason.DROPPED,
        0.25,
    ),
    "a miss that chance would keep too": (
        request(HIGH, **{"evenkeel.ttft_s": 9}),
        SamplingReason.OBJECTIVE,
        1.0,
    ),
    "an objective of its class": (
        request(**{"evenkeel.itl_p99_s": 0.2, spans.SLO_CLASS: "chat"}),
        SamplingReason.OBJECTIVE,
        1.0,
    ),
    "an objective of another class": (
        request(**{"evenkeel.itl_p99_s": 0.2, spans.SLO_CLASS: "batch"}),
        SamplingReason.DROPPED,
        0.25,
    ),
    "no value to judge": (
        SampledRequest(LOW, "", {spans.STATUS: "ok"}),
        SamplingReason.DROPPED,
        0.25,
    ),
    "no trace id to draw from": (request(bytes(16)), SamplingReason.UNTRACED, 1.0),
    "randomness in the tracestate": (
        request(LOW, "x=1,ot=rv:ffffffffffffff"),
        SamplingReason.PROBABILITY,
        0.25,
    ),
    "a sender that sampled less": (request(HIGH, "ot=th:8"), SamplingReason.PROBABILITY, 0.5),
    "a sender that sampled more": (request(HIGH, "ot=th:e"), SamplingReason.PROBABILITY, 1.0),
    "a threshold that contradicts itself": (request(LOW, "ot=th:8"), SamplingReason.DROPPED, 0.25),
}


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [
        (503, True),
        ("503", True),
        (429, True),
        (200, False),
        (504, False),
        ("x", False),
        (None, False),
    ],
)
def test_a_status_that_counts_as_bad_is_kept(status: int | str | None, is_kept: bool) -> None:
    sampler = Sampler(0.25).with_objectives(OBJECTIVES, {429, 503})
    answered = {} if status is None else {spans.HTTP_STATUS: status}
    assert sampler.decide(request(**answered)).is_kept is is_kept


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_and_with_which_probability(case: str) -> None:
    drawn, reason, probability = CASES[case]
    decision = Sampler(0.25, OBJECTIVES).decide(drawn)
    assert decision.reason is reason
    assert decision.detail_probability == pytest.approx(probability)


@pytest.mark.parametrize(
    ("probability", "threshold"),
    [(1.0, 0), (0.5, SCALE // 2), (0.25, 3 * SCALE // 4), (0.0, SCALE), (1e-30, SCALE - 1)],
)
def test_thresholds_are_those_of_the_specification(probability: float, threshold: int) -> None:
    assert threshold_of(probability) == threshold


@pytest.mark.parametrize(
    ("trace_state", "threshold"),
    [
        ("ot=th:0", 0),
        ("ot=th:c", 0xC << 52),
        ("vendor=1, ot=rv:ffffffffffffff;th:fd70a4 ,b=2", 0xFD70A4 << 32),
        ("ot=th:C", 0),  # upper case is not valid
        ("ot=th:123456789abcdef", 0),  # too long
        ("not=th:8", 0),
        ("", 0),
    ],
)
def test_the_senders_threshold_is_read_as_specified(trace_state: str, threshold: int) -> None:
    assert read_trace_state(trace_state, HIGH)[1] == threshold


@pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan, math.inf])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ConfigurationError, match="fraction from 0 to 1"):
        Sampler(probability)


def test_an_objective_on_an_unknown_column_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'ttft'"):
        Sampler(0.5, [LatencyObjective("ttft", 1.0)])


@given(st.binary(min_size=16, max_size=16), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_probability_keeps_all_that_a_lower_one_keeps(
    trace_id: bytes, one: float, other: float
) -> None:
    low, high = sorted([one, other])
    if Sampler(low).decide(request(trace_id)).is_kept:
        assert Sampler(high).decide(request(trace_id)).is_kept


@given(st.binary(min_size=16, max_size=16), st.floats(0, 1))
def test_the_requests_of_one_trace_share_their_fate(trace_id: bytes, probability: float) -> None:
    first, second = Sampler(probability), Sampler(probability, OBJECTIVES)
    others = [request(trace_id, **{"evenkeel.ttft_s": ttft_s}) for ttft_s in (0.0, 0.2, 0.5)]
    assert len({first.decide(other) for other in others} | {second.decide(others[0])}) == 1


@given(st.binary(min_size=16, max_size=16).filter(any))
def test_one_keeps_all_and_zero_keeps_none_that_is_good(trace_id: bytes) -> None:
    everything = Sampler(1.0, OBJECTIVES).decide(request(trace_id))
    assert (everything.is_kept, everything.detail_probability) == (True, 1.0)
    nothing = Sampler(0.0, OBJECTIVES).decide(request(trace_id))
    assert (nothing.is_kept, nothing.detail_probability) == (False, 0.0)
    assert Sampler(0.0, OBJECTIVES).decide(request(trace_id, **{"evenkeel.ttft_s": 1.0})).is_kept


@pytest.mark.parametrize("sent_hex", ["", "8", "f"], ids=["no sender", "1 in 2", "1 in 16"])
@pytest.mark.parametrize("probability", [0.05, 0.3, 1.0])
def test_weighted_estimates_are_unbiased(probability: float, sent_hex: str) -> None:
    """Slow requests have longer stalls: the unweighted mean over what is kept would be far off."""
    rng = random.Random(20261121)
    sampler = Sampler(probability, OBJECTIVES)
    sent = int(sent_hex.ljust(14, "0"), 16) if sent_hex else 0
    stalls_s = [rng.expovariate(4.0) for _ in range(400)]
    population = [(stall_s, stall_s > 0.5) for stall_s in stalls_s]
    truth = sum(stalls_s)
    estimates, unweighted = [], []
    for _ in range(120):
        total, kept = 0.0, []
        for stall_s, is_slow in population:
            trace_id = rng.randbytes(16)
            if int.from_bytes(trace_id[-7:], "big") < sent:
                continue  # the sender did not send it
            state = f"ot=th:{sent_hex}" if sent_hex else ""
            ttft_s = 1.0 if is_slow else 0.1
            decision = sampler.decide(request(trace_id, state, **{"evenkeel.ttft_s": ttft_s}))
            if decision.is_kept:
                total += decision.sample_weight / decision.detail_probability * stall_s
                kept.append(stall_s)
        estimates.append(total)
        unweighted.append(statistics.fmean(kept) if kept else 0.0)
    error = statistics.fmean(estimates) - truth
    standard_error = statistics.stdev(estimates) / math.sqrt(len(estimates))
    assert abs(error) <= 4 * standard_error + 1e-9
    if probability < 1 and not sent_hex:
        assert statistics.fmean(unweighted) > 1.2 * truth / len(stalls_s)


def span_of(message: ExportTraceServiceRequest, trace_id: bytes, **attributes: Any) -> Any:
    scope_spans = message.resource_spans.add().scope_spans.add()
    span = scope_spans.spans.add(trace_id=trace_id, name="chat support-4m")
    for key, value in {spans.STATUS: "ok", "evenkeel.ttft_s": 0.1, **attributes}.items():
        target = span.attributes.add(key=key).value
        if isinstance(value, str):
            target.string_value = value
        else:
            target.double_value = value
    for key in ("evenkeel.emission_time_s", "evenkeel.emission_tokens"):
        span.attributes.add(key=key).value.array_value.values.add(double_value=1.0)
    span.events.add(name="evenkeel.step")
    span.events.add(name="exception")
    return span


def values_of(span: Any) -> dict[str, Any]:
    return {pair.key: pair.value for pair in span.attributes}


def test_only_the_detail_goes_and_the_row_says_how_likely_it_was_kept() -> None:
    message = ExportTraceServiceRequest()
    dropped = span_of(message, LOW)
    kept = span_of(message, HIGH)
    failed = span_of(message, LOW, **{spans.STATUS: "error"})
    assert Sampler(0.25).apply(message) == {"dropped": 1, "probability": 1, "status": 1}
    assert list(values_of(dropped)) == [
        spans.STATUS,
        "evenkeel.ttft_s",
        DETAIL_PROBABILITY,
        DETAIL_DECISION,
    ]
    assert [event.name for event in dropped.events] == ["exception"]
    for span, probability in ((dropped, 0.25), (kept, 0.25), (failed, 1.0)):
        assert values_of(span)[DETAIL_PROBABILITY].double_value == probability
    for span in (kept, failed):
        assert "evenkeel.emission_time_s" in values_of(span)
        assert len(span.events) == 2


def test_a_second_collector_leaves_the_firsts_decision() -> None:
    message = ExportTraceServiceRequest()
    span_of(message, HIGH)
    Sampler(0.25).apply(message)
    before = message.SerializeToString()
    assert Sampler(0.1).apply(message) == {}
    assert message.SerializeToString() == before


def test_with_probability_one_nothing_changes_but_the_senders_weight() -> None:
    message = ExportTraceServiceRequest()
    span_of(message, HIGH)
    before = message.SerializeToString()
    assert Sampler(1.0).apply(message) == {}
    assert message.SerializeToString() == before

    sampled = span_of(message, HIGH)
    sampled.trace_state = "ot=th:8"
    sampled_by_default = span_of(message, HIGH, **{spans.SAMPLE_WEIGHT: 1.0})
    sampled_by_default.trace_state = "ot=th:c"
    own = span_of(message, HIGH, **{spans.SAMPLE_WEIGHT: 3.0})
    own.trace_state = "ot=th:8"
    Sampler(1.0).apply(message)
    assert values_of(sampled)[spans.SAMPLE_WEIGHT].double_value == 2.0
    assert values_of(sampled_by_default)[spans.SAMPLE_WEIGHT].double_value == 4.0
    assert values_of(own)[spans.SAMPLE_WEIGHT].double_value == 3.0


def test_spans_that_are_no_requests_are_left() -> None:
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add(trace_id=LOW)
    span.attributes.add(key="evenkeel.emission_time_s").value.double_value = 1.0
    assert Sampler(0.0).apply(message) == {}
    assert len(span.attributes) == 1


def test_a_sampled_span_of_other_instrumentation_gets_the_senders_weight() -> None:
    message = ExportTraceServiceRequest()
    spans_ = message.resource_spans.add().scope_spans.add().spans
    sampled = spans_.add(trace_id=HIGH, trace_state="ot=th:c")
    sampled.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
    own = spans_.add(trace_id=HIGH, trace_state="ot=th:c")
    own.attributes.add(key=spans.SAMPLE_WEIGHT).value.double_value = 3.0
    unsampled = spans_.add(trace_id=HIGH, trace_state="vendor=1")
    assert Sampler(0.5).apply(message) == {}
    assert values_of(sampled)[spans.SAMPLE_WEIGHT].double_value == 4.0
    assert values_of(own)[spans.SAMPLE_WEIGHT].double_value == 3.0
    assert not unsampled.attributes
