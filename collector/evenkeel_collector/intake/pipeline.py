"""Processes every request before the log: tenant, sampling of detail, redaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evenkeel import spans
from evenkeel.slo.model import Metric, Slo, Treatment
from evenkeel_collector.intake.begun_requests import BegunRequests
from evenkeel_collector.intake.metric_points import Point
from evenkeel_collector.intake.metric_redaction import redact_metrics, redact_points
from evenkeel_collector.intake.otlp_body import Finish
from evenkeel_collector.intake.sampling import ATTRIBUTE_OF_COLUMN, LatencyObjective, Sampler
from evenkeel_collector.ports.access import Access
from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.frames import LOGS
from evenkeel_collector.redaction.repeated_fields import remove
from evenkeel_collector.telemetry.metrics import SelfMetrics

# How removed reviews and steps are counted, among what redaction removes.
REVIEW = "review"
STEPS = "engine_steps"


class IntakePipeline:
    """The processing shared by all transports and encodings.

    Args:
        redactor: Removes secrets, prompts and answers.
        sampler: Drops the detail of some requests.
        metrics: Counts what was removed.
        access: While it has tokens, what senders label as a review is none.
        is_hasty: Whether to raise OverBudgetError if redaction takes too long.
        begun: Requests of agents that have begun; none yet if it is None.
    """

    def __init__(
        self,
        redactor: Redactor,
        sampler: Sampler,
        metrics: SelfMetrics,
        access: Access,
        *,
        is_hasty: bool = False,
        begun: BegunRequests | None = None,
    ) -> None:
        self._redactor = redactor
        self._is_hasty = is_hasty
        self._sampler = sampler
        self._metrics = metrics
        self._access = access
        self._slos: Sequence[Slo] | None = None
        self.begun = begun or BegunRequests()

    def use_slos(self, slos: Sequence[Slo]) -> None:
        """Keep the detail of requests that miss these SLOs from now on; cheap if unchanged."""
        if slos is not self._slos:
            self._sampler = self._sampler.with_objectives(
                objectives_of(slos), bad_statuses_of(slos)
            )
            self._slos = slos

    def in_haste(self) -> IntakePipeline:
        """Return a copy for the event loop: it raises OverBudgetError if redaction is slow."""
        return IntakePipeline(
            self._redactor,
            self._sampler,
            self._metrics,
            self._access,
            is_hasty=True,
            begun=self.begun,
        )

    @property
    def is_hasty(self) -> bool:
        """Whether to raise OverBudgetError rather than keep others waiting."""
        return self._is_hasty

    def redact_metrics(self, message: Any, tenant: str | None) -> None:
        """Remove secrets from an ExportMetricsServiceRequest in place."""
        self._count(redact_metrics(message, self._redactor, tenant, is_hasty=self._is_hasty))

    def redact_points(self, points: Sequence[Point]) -> list[Point]:
        """Return scraped points without secrets in their labels."""
        redacted = redact_points(points, self._redactor)
        self._count(redacted.counts)
        return redacted.points

    def _count(self, counts: Mapping[str, int]) -> None:
        for rule, number in counts.items():
            self._metrics.redactions.labels(rule).inc(number)

    def finish_for(self, tenant: str | None, *, is_review: bool = False) -> Finish:
        """Return the processing for a sender that proved this tenant, or none.

        Args:
            tenant: The proven tenant.
            is_review: Whether it proved that it may review answers.
        """

        def finish(message: Any) -> bytes:
            num_reviews = num_steps = 0
            if tenant is not None:
                claim(message, tenant)
                num_steps = remove_steps(message)
            if not (is_review or self._access.is_open):
                num_reviews = remove_reviews(message)
            decisions = self._sampler.apply(message)
            redacted = self._redactor.redact(message, tenant, is_hasty=self._is_hasty)
            # Last: if protobuf cannot encode the message, everything is repeated on another one.
            for reason, number in decisions.items():
                self._metrics.details_sampled.labels(reason).inc(number)
            self._count(redacted.counts)
            if num_reviews:
                self._count({REVIEW: num_reviews})
            if num_steps:
                self._count({STEPS: num_steps})
            return redacted.payload

        return finish

    def finish_logs_for(self, tenant: str | None) -> Finish:
        """Return the processing of log records for a sender that proved this tenant, or none."""

        def finish(message: Any) -> bytes:
            if tenant is not None:
                claim_logs(message, tenant)
            redacted = self._redactor.redact(message, tenant, shape=LOGS, is_hasty=self._is_hasty)
            self._count(redacted.counts)
            return redacted.payload

        return finish


def remove_reviews(message: Any) -> int:
    """Remove the labels of a review from feedback, and return their number."""
    num = 0
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if span.name == spans.SPAN_FEEDBACK:
                    found = [
                        index
                        for index, pair in enumerate(span.attributes)
                        if pair.key == spans.EVAL_LABEL and pair.value.string_value in spans.REVIEWS
                    ]
                    remove(span.attributes, found)
                    num += len(found)
    return num


def remove_steps(message: Any) -> int:
    """Remove the steps of engines, which no tenant owns, and return the number of their spans."""
    num = 0
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            found = [
                index
                for index, span in enumerate(scope_spans.spans)
                if span.name == spans.SPAN_ENGINE_STEPS
            ]
            remove(scope_spans.spans, found)
            num += len(found)
    return num


def claim_logs(message: Any, tenant: str) -> None:
    """Write the proven tenant to every resource, overwriting what records claim."""
    for resource_logs in message.resource_logs:
        attributes = resource_logs.resource.attributes
        if not _overwrite(attributes, tenant)[0]:
            attributes.add(key=spans.TENANT).value.string_value = tenant
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                _overwrite(record.attributes, tenant)


def claim(message: Any, tenant: str) -> None:
    """Write the proven tenant to everything the sender sent, overwriting its own claims."""
    for resource_spans in message.resource_spans:
        attributes = resource_spans.resource.attributes
        if not _overwrite(attributes, tenant)[0]:
            attributes.add(key=spans.TENANT).value.string_value = tenant
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                has_tenant, is_request = _overwrite(span.attributes, tenant)
                if not has_tenant and (is_request or span.name in spans.JUDGEMENTS):
                    span.attributes.add(key=spans.TENANT).value.string_value = tenant


def _overwrite(attributes: Any, tenant: str) -> tuple[bool, bool]:
    """Return whether a tenant was set, and whether this is one of our request spans."""
    has_tenant = is_request = False
    for pair in attributes:
        if pair.key == spans.TENANT:
            pair.value.string_value = tenant
            has_tenant = True
        elif pair.key == spans.STATUS:
            is_request = True
    return has_tenant, is_request


def objectives_of(slos: Iterable[Slo]) -> list[LatencyObjective]:
    """Return the thresholds of SLOs whose misses keep their detail; availability has none.

    Only single values of columns that a span has as it is narrow them: with lists, patterns and
    engines, more is kept than missed.
    """
    return [
        LatencyObjective(
            column,
            slo.indicator.threshold_s,
            {
                name: value
                for name, value in slo.indicator.select.items()
                if name in ATTRIBUTE_OF_COLUMN
            },
        )
        for slo in slos
        if slo.indicator.threshold_s is not None
        and (column := _COLUMN_OF_METRIC.get(slo.indicator.metric)) is not None
    ]


def bad_statuses_of(slos: Iterable[Slo]) -> set[int]:
    """Return the HTTP statuses that any of the SLOs counts as bad."""
    return {
        status
        for slo in slos
        for member in slo.indicator.parts
        for each in member.indicator.statuses
        if each.treatment == Treatment.BAD
        for status in range(each.first, each.last + 1)
    }


# The metric `itl` of an SLO is the request's 99th percentile.
_COLUMN_OF_METRIC = {
    Metric.TTFT: "ttft_s",
    Metric.TPOT: "tpot_s",
    Metric.ITL: "itl_p99_s",
    Metric.STALL: "stall_s",
    Metric.E2E: "e2e_s",
}
