"""Exports live evaluation results as spans that are children of the requests they judge."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from evenkeel import spans
from evenkeel.spans import AttributeValue
from evenkeel_evals.production.live import LiveWindow, Row
from evenkeel_evals.production.live_estimate import LiveEstimate
from evenkeel_evals.report.spans import make_context, make_span
from evenkeel_evals.stats.verdict_names import Verdict

SERVICE = "evenkeel-live"


def window_spans(monitor: str, window: LiveWindow) -> Iterator[ReadableSpan]:
    """Yield a span per scored request of a window."""
    resource, now_ns = Resource.create({"service.name": SERVICE}), time.time_ns()
    for row in window.rows:
        trace_id = int(row.trace_id, 16)
        yield make_span(
            spans.SPAN_LIVE_EVALUATION,
            make_context(trace_id, int(row.span_id, 16)),
            _attributes(monitor, row),
            resource,
            (now_ns, now_ns),
            parent=make_context(trace_id, int(row.request_span_id, 16)),
        )


def _attributes(monitor: str, row: Row) -> dict[str, AttributeValue | None]:
    return {
        spans.LIVE_MONITOR: monitor,
        spans.LIVE_STRATUM: row.stratum,
        spans.LIVE_PROBABILITY: row.probability,
        spans.LIVE_LAG_S: row.lag_s,
        spans.EVAL_NAME: row.scorer,
        spans.EVAL_SCORE: row.value,
        spans.EVAL_LABEL: row.label,
        spans.EVAL_EXPLANATION: row.reason,
        spans.REQUEST_MODEL: row.model,
        spans.TENANT: row.tenant,
        spans.PROMPT_NAME: row.prompt_name,
        spans.PROMPT_VERSION: row.prompt_version,
    }


def alert_spans(monitor: str, estimates: Sequence[LiveEstimate]) -> Iterator[ReadableSpan]:
    """Yield a regressed-gate span per drifting scorer, in the format of an evaluation run."""
    resource, now_ns = Resource.create({"service.name": SERVICE}), time.time_ns()
    for found in estimates:
        if not found.is_drifting or found.good_at_least is None:
            continue
        gate = f"{found.scorer}>={found.good_at_least:.1%}"
        digest = hashlib.sha256(f"{monitor} {gate} {now_ns}".encode()).digest()
        attributes: dict[str, AttributeValue | None] = {
            spans.EVAL_NAME: found.scorer,
            spans.EVAL_RUN_ID: f"live-{monitor}",
            spans.EVAL_GATE: gate,
            spans.EVAL_SLICE: "overall",
            spans.EVAL_VERDICT: Verdict.REGRESSED.value,
            spans.EVAL_ESTIMATE: found.share,
            spans.EVAL_LOWER: found.lower,
            spans.EVAL_UPPER: found.upper,
            spans.EVAL_NUM_PAIRS: found.num_scored,
            spans.EVAL_EXPLANATION: f"anytime-valid p = {found.drift_p:.3g}",
            spans.EVAL_RUN_VERDICT: Verdict.REGRESSED.value,
            spans.EVAL_RUN_HEADLINE: found.describe(),
        }
        context = make_context(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]))
        yield make_span(spans.SPAN_EVALUATION_RUN, context, attributes, resource, (now_ns, now_ns))
