"""Parameters of queries over `engine_state` that read every engine's metrics under our names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.engines.engine_map import MetricSource, by_provider, known_engines, sources_of
from evenkeel.engines.measures import MEASURES, MeasureKind

# Rules may name a measure by vLLM's metric for it.
REFERENCE = "vllm"


@dataclass(frozen=True, slots=True)
class MappedMetric:
    """A metric of an engine, and the measure it stands for."""

    engine: str
    measure: str
    source: MetricSource


def mapped_metrics(measures: Iterable[str]) -> list[MappedMetric]:
    """Return the metrics that these measures are read from, of every engine."""
    return [
        MappedMetric(engine, measure, source)
        for measure in measures
        for engine, source in sources_of(measure)
    ]


def metric_parameters(mapped: Sequence[MappedMetric]) -> dict[str, list[Any]]:
    """Return the parameters of a query that reads these metrics.

    A query computes each row's key, `name` or `name{label=value}`, and finds its place in `keys`.
    """
    labelled = {m.source.base: label for m in mapped for label in m.source.where}
    bases = sorted({m.source.base for m in mapped})
    return {
        "names": [*bases, *(f"{base}_total" for base in bases)],
        "labelled": list(labelled) or [""],
        "label_names": list(labelled.values()) or [""],
        "keys": [m.source.key for m in mapped],
        "places": list(range(1, len(mapped) + 1)),
        "measures": [m.measure for m in mapped],
        "engines": [m.engine for m in mapped],
        "scales": [m.source.scale for m in mapped],
        "are_sums": [int(m.source.take == "sum") for m in mapped],
        "are_deltas": [int(m.source.is_delta) for m in mapped],
        "are_counters": [int(MEASURES[m.measure].kind == MeasureKind.COUNTER) for m in mapped],
    }


def sender_parameters() -> dict[str, list[str]]:
    """Return by what a query knows whose metrics have names that engines share.

    A source with one of `own_names` has an engine of its own, and its `shared` names do not count.
    Those are each engine's names for what shared ones measure too, and for a gauge that is always
    on its page; all names would take longer to look up.
    """
    engines = known_engines().values()
    shared = {e.name: e.metrics for e in engines if e.metrics and e.metrics.is_shared}
    measures = {"num_running", *(name for metrics in shared.values() for name in metrics.names)}
    own = [m.source for m in mapped_metrics(measures) if m.engine not in shared]
    providers = by_provider(engines)
    return {
        "shared": list(shared),
        "own_names": sorted({each.metric for each in own}),
        "providers": list(providers),
        "provider_engines": list(providers.values()),
    }


def equivalents(metric: str, *, is_live_only: bool = False) -> list[MetricSource]:
    """Return what a rule's gauge is read from: the metric, and other engines' names for the same.

    Args:
        metric: A measure of ours, vLLM's metric for one, or any other metric.
        is_live_only: Leave out shares of the KV cache that may include blocks kept for reuse.
    """
    measure = metric if metric in MEASURES else _measure_of(metric)
    if measure is None:
        return [MetricSource(metric=metric)]
    return [
        source
        for _, source in sources_of(measure)
        if not (is_live_only and source.may_count_cached)
    ]


def _measure_of(metric: str) -> str | None:
    """Return the gauge that vLLM reports under this name."""
    reference = known_engines()[REFERENCE].metrics
    assert reference is not None
    for measure, sources in reference.names.items():
        if MEASURES[measure].kind == MeasureKind.GAUGE:
            if any(metric in (source.metric, source.base) for source in sources):
                return measure
    return None
