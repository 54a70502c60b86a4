"""Shows on the server's own `/metrics` what control does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.control import Control

_PREFIX = "evenkeel_control_"


class ControlMetrics(Collector):
    """A Prometheus collector over control's state; it reads it only when scraped."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of docs/control.md."""
        control, counts = self._control, self._control.counts
        yield GaugeMetricFamily(f"{_PREFIX}level", "Steps of the ladder in force", control.level)
        yield GaugeMetricFamily(
            f"{_PREFIX}burn_rate", "Highest burn of the classes", control.burn()
        )
        yield GaugeMetricFamily(f"{_PREFIX}inside", "Requests let in", control.gate.num_inside)
        waiting = GaugeMetricFamily(f"{_PREFIX}waiting", "Requests at the gate", labels=["class"])
        for name, count in sorted(control.gate.count_waiting().items()):
            waiting.add_metric([name], count)
        yield waiting
        admitted = CounterMetricFamily(f"{_PREFIX}admitted", "Requests let in", labels=["class"])
        for name, count in sorted(counts.admitted.items()):
            admitted.add_metric([name], count)
        yield admitted
        yield _by_reason("refused", "Requests refused", counts.refused)
        yield _by_reason("would_refuse", "Requests a dry run let in", counts.would_refuse)
        yield CounterMetricFamily(
            f"{_PREFIX}unknown_classes",
            "Requests of a class that is not configured",
            counts.unknown_classes,
        )
        yield CounterMetricFamily(f"{_PREFIX}errors", "Ticks that failed", counts.errors)
        changes = CounterMetricFamily(f"{_PREFIX}changes", "Steps taken", labels=["lever"])
        for lever, count in sorted(counts.changes.items()):
            changes.add_metric([lever], count)
        yield changes


def _by_reason(name: str, help_text: str, values: Mapping[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}{name}", help_text, labels=["class", "reason"])
    for (slo_class, reason), count in sorted(values.items()):
        family.add_metric([slo_class, reason], count)
    return family
