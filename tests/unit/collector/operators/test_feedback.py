"""What people say of answers, as a body and as a span."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.operators.actions import read_model
from evenkeel_collector.operators.feedback import Feedback, identity_of, to_span

TRACE = "ab" * 16


def read(**fields: object) -> Feedback:
    return read_model(Feedback, {"trace_id": TRACE, **fields})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"trace_id": "xyz", "score": 1}, "trace_id is not 32 lower", id="no id"),
        pytest.param({"trace_id": "0" * 32, "score": 1}, "trace_id: an id of", id="zeros"),
        pytest.param({"score": 1.1}, "score", id="score above 1"),
        pytest.param({"score": "good"}, "score", id="score in words"),
        pytest.param({}, "^body: give at least one", id="nothing said"),
        pytest.param({"comment": "  "}, "comment", id="empty comment"),
        pytest.param({"score": 1, "mood": "fine"}, "mood is not a known field", id="unknown field"),
        pytest.param({"comment": "x" * 8193}, "comment", id="long comment"),
        pytest.param({"score": 1, "span_id": "12"}, "span_id is not 16 lower", id="half an id"),
    ],
)
def test_what_is_no_feedback_is_refused_by_name(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read(**fields)


def test_a_judgement_is_a_span_of_the_answers_trace() -> None:
    said = read(span_id="cd" * 8, score=0, label="down", comment="wrong price", corrected="9 EUR")
    span_id, encoded = to_span(said, now_ns=7)
    request = ExportTraceServiceRequest.FromString(encoded)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "cd" * 8)
    assert (span.span_id.hex(), span.name) == (span_id, "evenkeel.feedback")
    values = {a.key: a.value for a in span.attributes}
    assert values["gen_ai.evaluation.score.value"].double_value == 0.0
    assert values["evenkeel.feedback.corrected"].string_value == "9 EUR"
    assert "evenkeel.feedback.author" not in values


def test_the_same_judgement_sent_again_is_the_same_span() -> None:
    once, again = (to_span(read(score=1, id="k1"))[0] for _ in range(2))
    other = to_span(read(score=1))[0]
    assert once == again != other


@pytest.mark.parametrize(
    ("changed", "token_tenant", "is_same"),
    [
        pytest.param({"score": 0, "comment": "no"}, None, True, id="says something else"),
        pytest.param({"id": "k2"}, None, False, id="another id"),
        pytest.param({"trace_id": "cd" * 16}, None, False, id="another answer"),
        pytest.param({"tenant": "b"}, None, False, id="another tenant"),
        pytest.param({"tenant": "b"}, "a", True, id="another tenant than its token's"),
        pytest.param({}, "b", False, id="another tenant's token"),
    ],
)
def test_what_makes_feedback_the_same(
    changed: dict[str, object], token_tenant: str | None, is_same: bool
) -> None:
    first = identity_of(read(score=1, id="k1", tenant="a"), None)
    again = identity_of(read(**{"score": 1, "id": "k1", "tenant": "a", **changed}), token_tenant)
    assert (again == first) is is_same
    assert identity_of(read(score=1), None) is None
