"""Shows speculation on the server's own `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from evenkeel_runtime.metrics.scraped import ScrapedMetrics
from evenkeel_runtime.request.drafts import SpeculationServer
from evenkeel_runtime.speculation.sources import DraftSource


class SpeculationMetrics(ScrapedMetrics):
    """The metrics of docs/guide/speculation.md."""

    def __init__(self, speculation: SpeculationServer) -> None:
        super().__init__("evenkeel_speculation_")
        self._speculation = speculation

    def collect(self) -> Iterator[Metric]:
        """Return what the server knows of its engines' drafts."""
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
            "Greedy answers made again without drafts",
            "result",
            self._speculation.canary.counts,
        )
        yield self.counter(
            "errors", "Failures that left an engine without drafts", engine.get("errors", 0)
        )
        yield self.counter(
            "drafting_seconds", "Time spent making drafts", engine.get("drafting_s", 0.0)
        )
        yield from self._sampled(engine)
        for name, what in (("tokens", "Tokens of past answers kept"), ("bytes", "Memory for them")):
            yield self.gauge(f"store_{name}", what, engine.get(f"store_{name}", 0))
        yield self.gauges(
            "mean_drafted_tokens",
            "Drafted a request and step lately",
            "batch",
            {str(batch): mean for batch, mean in engine.get("mean_drafted", ())},
        )
        yield self._gain(engine)

    def _sampled(self, engine: Mapping[str, Any]) -> Iterator[Metric]:
        """What the watch over sampled tokens found; nothing before an engine has told."""
        if "sampled_drafts" not in engine:
            return
        yield self.gauge(
            "sampled_drafts", "1 if sampled requests get drafts", engine["sampled_drafts"]
        )
        yield self.counter(
            "sampled_watched_tokens",
            "Sampled tokens compared with what the model found likely",
            engine["sampled_watched"],
        )
        yield self.gauge(
            "sampled_evidence",
            "Evidence (log10) that sampled tokens are not drawn as the model says; at 6 drafts end",
            engine["sampled_evidence"],
        )

    def _gain(self, engine: Mapping[str, object]) -> Metric:
        """The measured speed-up and its interval, over all batch sizes and at each."""
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
            "Decoding with drafts over decoding without, from the holdout",
            ("batch", "bound"),
            bounds,
        )
