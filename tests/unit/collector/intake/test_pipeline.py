from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.intake.otlp_body import check_message, check_protobuf
from evenkeel_collector.intake.pipeline import IntakePipeline, objectives_of
from evenkeel_collector.intake.sampling import LatencyObjective, Sampler
from evenkeel_collector.ports.access import Access, AccessScope, Token
from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from evenkeel_collector.telemetry.metrics import SelfMetrics
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.slo_files import slo_file

SLOS = Path(__file__).parents[4] / "slos.yaml"
CONTENT = {"gen_ai.input.messages": "my mail is ana@example.org", "note": "ana@example.org"}


def pipeline(
    content_tenants: tuple[str, ...] = (), probability: float = 1.0, tokens: Sequence[Token] = ()
) -> tuple[IntakePipeline, SelfMetrics]:
    metrics = SelfMetrics()
    sampler = Sampler(probability, [LatencyObjective("ttft_s", 0.5)])
    redactor = Redactor(load_rules(None), None, content_tenants)
    return IntakePipeline(redactor, sampler, metrics, Access(tokens)), metrics


def stored(body: bytes, **arguments: Any) -> list[dict[str, str]]:
    tenant, is_review = arguments.pop("tenant", None), arguments.pop("is_review", False)
    finish = pipeline(**arguments)[0].finish_for(tenant, is_review=is_review)
    message = ExportTraceServiceRequest.FromString(check_protobuf(body, finish).payload)
    return [
        {pair.key: pair.value.string_value for pair in span.attributes}
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_content_is_stored_for_named_tenants_only_and_secrets_never() -> None:
    body = trace_request(1, {**CONTENT, "evenkeel.tenant": "acme"}).SerializeToString()
    assert stored(body) == [{"note": "[email]", "evenkeel.tenant": "acme"}]
    (kept,) = stored(body, content_tenants=("acme",))
    assert kept["gen_ai.input.messages"] == "my mail is [email]"


def test_a_proved_tenant_stands_over_what_spans_say() -> None:
    body = trace_request(
        1, {**CONTENT, "evenkeel.tenant": "acme", "evenkeel.status": "ok"}
    ).SerializeToString()
    (span,) = stored(body, tenant="other", content_tenants=("acme",))
    assert span["evenkeel.tenant"] == "other"
    assert "gen_ai.input.messages" not in span


def test_a_request_span_without_a_tenant_gets_the_proved_one() -> None:
    body = trace_request(2, {"evenkeel.status": "ok"}).SerializeToString()
    assert [span["evenkeel.tenant"] for span in stored(body, tenant="acme")] == ["acme", "acme"]


@pytest.mark.parametrize(
    "name",
    [
        "evenkeel.feedback",
        "evenkeel.evaluation",
        "evenkeel.evaluation.run",
        "evenkeel.evaluation.live",
    ],
)
def test_a_judgement_without_a_tenant_gets_the_proved_one(name: str) -> None:
    body = trace_request(1, {"gen_ai.evaluation.score.value": 0.0}, name).SerializeToString()
    assert [span["evenkeel.tenant"] for span in stored(body, tenant="acme")] == ["acme"]
    assert ["evenkeel.tenant" in span for span in stored(body)] == [False]


def test_steps_of_engines_are_not_taken_from_a_tenants_token() -> None:
    request = trace_request(2, {"note": "steps"}, "evenkeel.engine.steps")
    request.MergeFrom(trace_request(1, {"note": "a span"}))
    body = request.SerializeToString()
    assert [span["note"] for span in stored(body)] == ["steps", "steps", "a span"]
    assert [span["note"] for span in stored(body, tenant="acme")] == ["a span"]
    made, metrics = pipeline()
    assert check_protobuf(body, made.finish_for("acme")).num_spans == 1
    counted = {"rule": "engine_steps"}
    name = "evenkeel_collector_redactions_total"
    assert metrics.registry.get_sample_value(name, counted) == 2.0


TOKENS = (Token(name="fleet", sha256="0" * 64, scopes=frozenset({AccessScope.INGEST})),)
LABEL = "gen_ai.evaluation.score.label"


@pytest.mark.parametrize("label", ["golden", "not golden"])
@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_sender_with_a_token_cannot_review(label: str, tenant: str | None) -> None:
    said = {LABEL: label, "gen_ai.evaluation.score.value": 0.0, "note": label}
    body = trace_request(1, said, "evenkeel.feedback").SerializeToString()
    (span,) = stored(body, tokens=TOKENS, tenant=tenant)
    assert LABEL not in span and span["note"] == label
    # Without tokens everybody is an operator, and the operators' API has checked the scope.
    assert stored(body)[0][LABEL] == label
    assert stored(body, tokens=TOKENS, is_review=True)[0][LABEL] == label


def test_a_label_that_is_no_review_stays() -> None:
    for name, label in (("evenkeel.feedback", "up"), ("evenkeel.evaluation", "golden")):
        body = trace_request(1, {LABEL: label}, name).SerializeToString()
        assert stored(body, tokens=TOKENS)[0][LABEL] == label


def test_a_review_cannot_hide_behind_another_label() -> None:
    request = trace_request(1, {LABEL: "up"}, "evenkeel.feedback")
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key=LABEL).value.string_value = "golden"
    made, metrics = pipeline(tokens=TOKENS)
    # A map nests: the message is parsed and finished twice, and the label counted once.
    span.attributes.add(key="deep").value.kvlist_value.values.add(key="a")
    payload = check_protobuf(request.SerializeToString(), made.finish_for(None)).payload
    (kept,) = ExportTraceServiceRequest.FromString(payload).resource_spans[0].scope_spans[0].spans
    assert [p.value.string_value for p in kept.attributes if p.key == LABEL] == ["up"]
    value = metrics.registry.get_sample_value
    assert value("evenkeel_collector_redactions_total", {"rule": "review"}) == 1


def test_nested_values_are_redacted_before_they_become_text() -> None:
    body = trace_request(1, {"deep": {"password": "hunter22", "x": [["ana@example.org"]]}})
    (span,) = stored(body.SerializeToString())
    assert span["deep"] == '{"password":"[password]","x":[["[email]"]]}'


def test_what_was_taken_out_is_counted_once_also_where_values_nest() -> None:
    made, metrics = pipeline(probability=0.0)
    request = trace_request(
        1,
        {
            "evenkeel.status": "ok",
            "evenkeel.emission_tokens": [1, 2],
            "note": "ana@example.org",
            "deep": {"a": {"b": 1}},
        },
    )
    checked = check_protobuf(request.SerializeToString(), made.finish_for(None))
    assert b"emission" not in checked.payload
    assert b"detail_probability" in checked.payload
    value = metrics.registry.get_sample_value
    assert value("evenkeel_collector_redactions_total", {"rule": "email"}) == 1
    assert value("evenkeel_collector_details_sampled_total", {"reason": "dropped"}) == 1


def test_json_gets_the_same_treatment() -> None:
    made, _ = pipeline()
    checked = check_message(trace_request(1, CONTENT), made.finish_for(None))
    assert b"ana@example" not in checked.payload


def test_the_repositorys_slos_give_objectives() -> None:
    objectives = objectives_of(read_slo_file(SLOS).slos)
    assert ("ttft_s", 0.5) in [(each.column, each.max_s) for each in objectives]


OF_AN_ENGINE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: sglang}
spec:
  indicator: {metric: ttft, select: {engine: sglang, model: m}}
  objectives: [{target: 0.9, value: 0.25}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def test_an_slo_of_an_engine_keeps_more_than_it_judges(tmp_path: Path) -> None:
    slos = slo_file(tmp_path, OF_AN_ENGINE).slos
    assert objectives_of(slos) == [LatencyObjective("ttft_s", 0.25, {"model": "m"})]
    made, _ = pipeline(probability=0.0)
    made.use_slos(slos)


BY_STATUS = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: answered}
spec:
  indicator: {metric: availability, httpStatus: {bad: 5xx, measured: 501}}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


@pytest.mark.parametrize(("status", "is_kept"), [(503, True), (501, False), (200, False)])
def test_a_request_that_is_bad_by_its_http_status_is_kept(
    tmp_path: Path, status: int, is_kept: bool
) -> None:
    made, _ = pipeline(probability=0.0)
    made.use_slos(slo_file(tmp_path, BY_STATUS).slos)
    body = trace_request(
        1,
        {
            "evenkeel.status": "ok",
            "http.response.status_code": status,
            "evenkeel.emission_tokens": [1],
        },
    ).SerializeToString()
    message = ExportTraceServiceRequest.FromString(
        check_protobuf(body, made.finish_for(None)).payload
    )
    span = message.resource_spans[0].scope_spans[0].spans[0]
    assert any(pair.key == "evenkeel.emission_tokens" for pair in span.attributes) is is_kept


def test_objectives_follow_the_slo_file() -> None:
    made, _ = pipeline(probability=0.0)
    request = {"evenkeel.status": "ok", "evenkeel.ttft_s": 0.6, "gen_ai.request.model": "support"}
    body = trace_request(1, {**request, "evenkeel.emission_tokens": [1]}).SerializeToString()

    def is_kept() -> bool:
        message = ExportTraceServiceRequest.FromString(
            check_protobuf(body, made.finish_for(None)).payload
        )
        span = message.resource_spans[0].scope_spans[0].spans[0]
        return any(pair.key == "evenkeel.emission_tokens" for pair in span.attributes)

    assert is_kept()
    slos = read_slo_file(SLOS).slos
    made.use_slos([slo for slo in slos if slo.indicator.threshold_s is None])
    assert not is_kept()
    made.use_slos(slos)
    assert is_kept()
