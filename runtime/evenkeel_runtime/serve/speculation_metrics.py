"""Speculation metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from evenkeel_runtime.metrics.scraped import ScrapedMetrics
from evenkeel_runtime.request.drafts import SpeculationServer
from evenkeel_runtime.speculation.sources import DraftSource


class SpeculationMetrics(ScrapedMetrics):
    """The metrics of docs/guide/speculation.md."""

    def __init__(self, speculation: SpeculationServer) -> None:
        super().__init__("evenkeel_speculation_")
        self._speculation = speculation

    def collect(self) -> Iterator[Metric]:
        """Return the draft metrics of the server's engines."""
        totals = self._speculation.totals
        engine = totals.engine
        for name, text, counts in (
            ("drafted_tokens", "Tokens drafted", totals.drafted_tokens),
            ("accepted_tokens", "Drafted tokens accepted", totals.accepted_tokens),
            ("verify_steps", "Steps that verified a draft", totals.verify_steps),
        ):
            by_source = {source.value: 0 for source in DraftSource} | dict(counts)
            yield self.counters(name, text, "source", by_source)
        yield self.counters(
            "canary",
            "Greedy answers regenerated without drafts",
            "result",
            self._speculation.canary.counts,
        )
        yield self.counter(
            "errors", "Failures that stopped an engine from drafting", engine.get("errors", 0)
        )
        yield self.counter(
            "drafting_seconds", "Time spent making drafts", engine.get("drafting_s", 0.0)
        )
        yield from self._sampled(engine)
        for name, what in (
            ("tokens", "Tokens of past answers stored"),
            ("bytes", "Memory that past answers use"),
        ):
            yield self.gauge(f"store_{name}", what, engine.get(f"store_{name}", 0))
        yield self.gauges(
            "mean_drafted_tokens",
            "Recent mean of tokens drafted per request and step",
            "batch",
            {str(batch): mean for batch, mean in engine.get("mean_drafted", ())},
        )
        yield self._gain(engine)
        yield _acceptance_length(totals.accepted_tokens, totals.verify_steps)

    def _sampled(self, engine: Mapping[str, Any]) -> Iterator[Metric]:
        """The sampled-token watch; no samples until an engine has reported."""
        if "sampled_drafts" not in engine:
            return
        yield self.gauge(
            "sampled_drafts", "1 if sampled requests get drafts", engine["sampled_drafts"]
        )
        yield self.counter(
            "sampled_watched_tokens",
            "Sampled tokens compared with the model's probabilities",
            engine["sampled_watched"],
        )
        yield self.gauge(
            "sampled_evidence",
            "Evidence (log10) that sampled tokens deviate from the model; drafts stop at 6",
            engine["sampled_evidence"],
        )

    def _gain(self, engine: Mapping[str, object]) -> Metric:
        """The measured speed-up with its interval, overall and per batch size."""
        whole, by_batch = engine.get("gain"), engine.get("gain_by_batch")
        rows: list[tuple[str, list[float]]] = []
        if isinstance(whole, list):
            rows.append(("all", whole))
        if isinstance(by_batch, list):
            rows += [(str(batch), numbers) for batch, *numbers in by_batch]
        bounds = {
            (batch, bound): value
            for batch, numbers in rows
            for bound, value in zip(("estimate", "lower", "upper"), numbers, strict=False)
        }
        return self.gauges(
            "speedup_ratio",
            "Decoding speed with drafts over without, measured on a holdout",
            ("batch", "bound"),
            bounds,
        )


def _acceptance_length(accepted: Mapping[str, int], steps: Mapping[str, int]) -> Metric:
    """The metric name that runbooks grep for; no sample before the first draft was verified."""
    family = GaugeMetricFamily(
        "spec_decode_draft_acceptance_length",
        "Tokens per step that verified a draft: 1 + accepted / steps, since the start",
    )
    num_steps = sum(steps.values())
    if num_steps:
        family.add_metric([], 1 + sum(accepted.values()) / num_steps)
    return family
