"""Sends a run's results as spans: one per answer, and one per gate and slice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

import httpx
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from evenkeel import spans
from evenkeel.errors import ConfigurationError, first_line
from evenkeel.otlp_sender import deliver, open_sender, trust
from evenkeel.otlp_target import OtlpTarget, read_http_target
from evenkeel.prompts.registry import digest
from evenkeel.secret_text import hide_password
from evenkeel.settings import read_otel
from evenkeel.spans import AttributeValue
from evenkeel_evals.ask.answers import Answer
from evenkeel_evals.ask.sides import other_changes
from evenkeel_evals.verdict.finished_run import Outcome

SPANS_A_BATCH = 512
NO_ENDPOINT = "none"


def send(outcome: Outcome, endpoint: str) -> str | None:
    """Send a run's results to an OTLP/HTTP endpoint; return why that failed, or None.

    A missing collector causes a warning and never affects the verdict.
    """
    if endpoint == NO_ENDPOINT:
        return None
    return send_spans(list(result_spans(outcome)), endpoint)


def send_spans(batch: list[ReadableSpan], endpoint: str) -> str | None:
    """Send finished spans to an OTLP/HTTP endpoint; return why that failed, or None."""
    endpoint = endpoint.rstrip("/").removesuffix("/v1/traces")
    try:
        target = replace(read_http_target(read_otel(), endpoint), is_compressed=True)
        problem = _probe(endpoint, target)
        if problem is not None:
            return problem
        send_batch = open_sender(target)
    except ConfigurationError as error:
        return str(error)
    for start in range(0, len(batch), SPANS_A_BATCH):
        part = batch[start : start + SPANS_A_BATCH]
        delivery = deliver(send_batch, encode_spans(part).SerializeToString(), len(part))
        if not delivery.is_done or delivery.num_rejected:
            why = delivery.reason or f"{delivery.num_rejected} spans rejected"
            return f"the collector at {hide_password(endpoint)} did not accept the results ({why})"
    return None


def _probe(endpoint: str, target: OtlpTarget) -> str | None:
    """Return why the endpoint is unreachable, or None; retries would only delay the verdict."""
    try:
        httpx.get(endpoint, timeout=10.0, trust_env=False, verify=trust(target))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"no collector is answering at {hide_password(endpoint)} ({first_line(error)})"
    return None


def result_spans(outcome: Outcome) -> Iterator[ReadableSpan]:
    """Yield the spans of a run.

    An answer's span has the id that the request carried in `traceparent`, so the server's span is
    its child, and a wrong answer links to its server-side trace.
    """
    resource = Resource.create({"service.name": "evenkeel-eval"})
    for pair in outcome.pairs:
        for letter, answer in (("A", pair.a), ("B", pair.b)):
            side = outcome.sides[letter]
            attributes: dict[str, AttributeValue | None] = {
                spans.EVAL_NAME: pair.item.scorer.name,
                spans.EVAL_SCORE: answer.score.value,
                spans.EVAL_LABEL: answer.score.label.value,
                spans.EVAL_EXPLANATION: answer.score.reason,
                spans.EVAL_RUN_ID: outcome.run_id,
                spans.EVAL_DATASET: outcome.dataset_label,
                spans.EVAL_SIDE: letter,
                spans.EVAL_ITEM_ID: pair.item.id,
                spans.EVAL_PAIR: pair.index,
                spans.EVAL_TAGS: list(pair.item.tags) or None,
                spans.EVAL_OUTPUT_TOKENS: answer.reply.output_tokens,
                spans.EVAL_CLIENT_TTFT_S: answer.reply.ttft_s,
                spans.EVAL_CLIENT_E2E_S: answer.reply.e2e_s,
                spans.REQUEST_MODEL: side.model,
                spans.PROMPT_NAME: side.prompt_name,
                spans.PROMPT_VERSION: side.prompt_version,
                spans.ROUTE: spans.ROUTE_EVAL,
            }
            yield _answer_span(answer, attributes, resource)
    yield from _gate_spans(outcome, resource)


def _gate_spans(outcome: Outcome, resource: Resource) -> Iterator[ReadableSpan]:
    # Ids derive from the run: spans sent again after a crash are the same spans.
    trace_id, now = _id_of(outcome.run_id, 16), time.time_ns()
    texts = {letter: digest(side.system or "") for letter, side in outcome.sides.items()}
    others = other_changes(*(asdict(outcome.sides[letter]) for letter in "AB"))
    for result in outcome.results:
        effect = result.effect
        attributes: dict[str, AttributeValue | None] = {
            spans.EVAL_NAME: result.metric,
            spans.EVAL_RUN_ID: outcome.run_id,
            spans.EVAL_DATASET: outcome.dataset_label,
            spans.EVAL_GATE: result.gate.text,
            spans.EVAL_SLICE: result.slice_name,
            spans.EVAL_VERDICT: result.verdict.value,
            spans.EVAL_ESTIMATE: effect.estimate,
            spans.EVAL_LOWER: effect.lower,
            spans.EVAL_UPPER: effect.upper,
            spans.EVAL_NUM_PAIRS: effect.num_pairs,
            spans.EVAL_EXPLANATION: effect.note,
            spans.EVAL_SIDE: f"{outcome.sides['A'].name} -> {outcome.sides['B'].name}",
            spans.EVAL_RUN_VERDICT: outcome.decision.verdict,
            spans.EVAL_RUN_HEADLINE: outcome.decision.headline,
            spans.EVAL_BASELINE_TEXT: texts["A"],
            spans.EVAL_CANDIDATE_TEXT: texts["B"],
            spans.EVAL_OTHER_CHANGES: others,
        }
        yield make_span(
            spans.SPAN_EVALUATION_RUN,
            make_context(
                trace_id, _id_of(f"{outcome.run_id} {result.gate.text} {result.slice_name}", 8)
            ),
            attributes,
            resource,
            (outcome.start_ns, now),
        )


def _id_of(text: str, num_bytes: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:num_bytes])


def _answer_span(
    answer: Answer, attributes: Mapping[str, AttributeValue | None], resource: Resource
) -> ReadableSpan:
    reply = answer.reply
    return make_span(
        spans.SPAN_EVALUATION,
        make_context(int(answer.trace_id, 16), int(answer.span_id, 16)),
        attributes,
        resource,
        (reply.start_ns, reply.end_ns),
        Status(StatusCode.UNSET) if reply.error is None else Status(StatusCode.ERROR, reply.error),
    )


def make_context(trace_id: int, span_id: int) -> SpanContext:
    """Return the context of a span of this process."""
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))


def make_span(
    name: str,
    context: SpanContext,
    attributes: Mapping[str, AttributeValue | None],
    resource: Resource,
    times_ns: tuple[int, int],
    status: Status | None = None,
    parent: SpanContext | None = None,
) -> ReadableSpan:
    """Return a finished span; attributes that are None are left out."""
    return ReadableSpan(
        name=name,
        context=context,
        parent=parent,
        resource=resource,
        attributes={key: value for key, value in attributes.items() if value is not None},
        kind=SpanKind.CLIENT if name == spans.SPAN_EVALUATION else SpanKind.INTERNAL,
        status=status or Status(StatusCode.UNSET),
        start_time=times_ns[0],
        end_time=times_ns[1],
        instrumentation_scope=InstrumentationScope(spans.SCOPE_NAME),
    )
