"""Control metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.metrics.scraped import ScrapedMetrics


class ControlMetrics(ScrapedMetrics):
    """The metrics of docs/guide/control.md."""

    def __init__(self, control: AdmissionControl) -> None:
        super().__init__("evenkeel_control_")
        self._control = control

    def collect(self) -> Iterator[Metric]:
        """Return the state and counters of control."""
        control, counts = self._control, self._control.counts
        yield self.gauge("level", "Ladder steps in force", control.level)
        yield self.gauge("burn_rate", "Highest burn rate over all classes", control.burn())
        yield self.gauge("inside", "Requests let in", control.gate.num_inside)
        waiting = control.gate.count_waiting()
        yield self.gauges("waiting", "Requests waiting at the gate", "class", waiting)
        yield self.counters(
            "admitted", "Requests let in, some refused after", "class", counts.admitted
        )
        reasons = ("class", "reason")
        yield self.counters("refused", "Requests refused", reasons, counts.refused)
        yield self.counters(
            "would_refuse",
            "Requests that a dry run would have refused",
            reasons,
            counts.would_refuse,
        )
        yield self.counter(
            "unknown_classes",
            "Requests naming a class that is not configured",
            counts.unknown_classes,
        )
        prompts = {"total": 0, "cached": 0, "estimated_cached": 0}
        prompts |= control.costs.counts.prompt_tokens
        yield self.counters(
            "prompt_tokens", "Prompt tokens of measured requests, by kind", "kind", prompts
        )
        shares = control.costs.shares
        yield self.gauge("kv_waiting", "Requests waiting for a KV share", shares.count_waiting())
        yield self.counter("errors", "Burn checks that failed", counts.errors)
        yield self.counters("changes", "Steps taken", "lever", counts.changes)
