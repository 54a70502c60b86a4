"""Shows speculation on the server's own `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.draft_sources import Source
from runtime.speculation_server import SpeculationServer

_PREFIX = "evenkeel_speculation_"


class SpeculationMetrics(Collector):
    """A Prometheus collector over what the server knows; it reads only when scraped."""

    def __init__(self, speculation: SpeculationServer) -> None:
        self._speculation = speculation

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of docs/speculation.md."""
        totals = self._speculation.totals
        engine = totals.engine
        yield _counter("drafted_tokens", "Tokens drafted", "source", totals.drafted_tokens)
        yield _counter(
            "accepted_tokens", "Drafted tokens accepted", "source", totals.accepted_tokens
        )
        yield _counter("verify_steps", "Steps that verified a draft", "source", totals.verify_steps)
        yield _counter(
            "canary",
            "Greedy answers made again without drafts",
            "result",
            self._speculation.canary.counts,
        )
        yield CounterMetricFamily(
            f"{_PREFIX}errors",
            "Failures that left an engine without drafts",
            engine.get("errors", 0),
        )
        yield CounterMetricFamily(
            f"{_PREFIX}drafting_seconds", "Time spent making drafts", engine.get("drafting_s", 0.0)
        )
        yield from _sampled(engine)
        for name, what in (("tokens", "Tokens of past answers kept"), ("bytes", "Memory for them")):
            yield GaugeMetricFamily(f"{_PREFIX}store_{name}", what, engine.get(f"store_{name}", 0))
        drafted = GaugeMetricFamily(
            f"{_PREFIX}mean_drafted_tokens", "Drafted a request and step lately", labels=["batch"]
        )
        for batch, mean in engine.get("mean_drafted", ()):
            drafted.add_metric([str(batch)], mean)
        yield drafted
        yield _gain(engine)


def _sampled(engine: Mapping[str, Any]) -> Iterator[Metric]:
    """What the watch over sampled tokens found; nothing before an engine has told."""
    if "sampled_drafts" not in engine:
        return
    yield GaugeMetricFamily(
        f"{_PREFIX}sampled_drafts", "1 if sampled requests get drafts", engine["sampled_drafts"]
    )
    yield CounterMetricFamily(
        f"{_PREFIX}sampled_watched_tokens",
        "Sampled tokens compared with what the model found likely",
        engine["sampled_watched"],
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}sampled_evidence",
        "Evidence (log10) that sampled tokens are not drawn as the model says; at 6 drafts end",
        engine["sampled_evidence"],
    )


def _gain(engine: Mapping[str, object]) -> Metric:
    """The measured speed-up and its interval, over all batch sizes and at each."""
    family = GaugeMetricFamily(
        f"{_PREFIX}speedup_ratio",
        "Decoding with drafts over decoding without, from the holdout",
        labels=["batch", "bound"],
    )
    whole, by_batch = engine.get("gain"), engine.get("gain_by_batch")
    rows: list[tuple[str, list[float]]] = []
    if isinstance(whole, list):
        rows.append(("all", whole))
    if isinstance(by_batch, list):
        rows += [(str(batch), numbers) for batch, *numbers in by_batch]
    for batch, (ratio, lower, upper, *_) in rows:
        for bound, value in (("estimate", ratio), ("lower", lower), ("upper", upper)):
            family.add_metric([batch, bound], value)
    return family


def _counter(name: str, help_text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}{name}", help_text, labels=[label])
    known = {source.value: 0 for source in Source} if label == "source" else {}
    for key, value in sorted((known | dict(values)).items()):
        family.add_metric([key], value)
    return family
