"""Engines of any kind by their own metrics: one series per engine, named in evenkeel/engines."""

from __future__ import annotations

from collections.abc import Iterator

from evenkeel.engines.engine_map import MetricSource, known_engines
from evenkeel_collector.boards.board_model import Board, BoardRow, Panel, Prom, Variable
from evenkeel_collector.boards.promql import Fleet

_RUNNING = [
    source.metric
    for engine in known_engines().values()
    for source in engine.sources("num_running")[:1]
]
# Names that engines share.
_SHARED = [
    sources[0].metric
    for engine in known_engines().values()
    if engine.metrics and engine.metrics.is_shared
    for sources in engine.metrics.names.values()
]
_TARGET_NAMES = "|".join([*_RUNNING, *(f"{metric}_count" for metric in _SHARED)])
# Not `instance`, as for the collectors.
TARGETS = Variable(
    "target",
    f'label_values({{__name__=~"{_TARGET_NAMES}"}}, instance)',
    "Engines that Prometheus scrapes",
)
_FLEET = Fleet(TARGETS)
_SHARE = "0.95"
# Shared names do not count for a target with an engine's own.
_WITHOUT_OWN = f'unless on (job, instance) {{__name__=~"{"|".join(_RUNNING)}"}}'


def _sources(measure: str) -> Iterator[tuple[str, MetricSource]]:
    """Yield each engine's title and its newest metric for a measure, of those on a page."""
    for engine in known_engines().values():
        for source in engine.sources(measure)[:1]:
            if not source.is_delta:
                yield engine.title, source


def _matchers(source: MetricSource) -> tuple[str, ...]:
    return tuple(f'{label}="{value}"' for label, value in source.where.items())


def _scaled(expr: str, source: MetricSource) -> str:
    return expr if source.scale == 1 else f"{expr} * {source.scale!r}"


def _gauges(measure: str) -> tuple[Prom, ...]:
    return tuple(
        Prom(_scaled(_FLEET.total(source.metric, *_matchers(source)), source), title)
        for title, source in _sources(measure)
    )


def _highest(measure: str) -> tuple[Prom, ...]:
    return tuple(
        Prom(_scaled(_FLEET.highest(source.metric, *_matchers(source)), source), title)
        for title, source in _sources(measure)
    )


def _rates(measure: str) -> tuple[Prom, ...]:
    found = []
    for title, source in _sources(measure):
        name = f"{source.metric}_sum" if source.take == "sum" else source.metric
        found.append(Prom(_scaled(_FLEET.rate(name, *_matchers(source)), source), title))
    return tuple(found)


def _tails(measure: str) -> tuple[Prom, ...]:
    return tuple(Prom(_scaled(_tail(source), source), title) for title, source in _sources(measure))


def _tail(source: MetricSource) -> str:
    if source.metric not in _SHARED:
        return _FLEET.quantile(_SHARE, source.metric, *_matchers(source))
    buckets = f"rate({source.metric}_bucket{{{_FLEET.selector}}}[$__rate_interval])"
    return f"histogram_quantile({_SHARE}, sum by (le) ({buckets} {_WITHOUT_OWN}))"


_LOAD = BoardRow(
    "Load",
    (
        Panel("Requests running", "Requests being computed, by engine.", _gauges("num_running")),
        Panel("Requests waiting", "Requests in the queue, by engine.", _gauges("num_waiting")),
        Panel(
            "KV cache in use",
            "Highest share of the KV cache that requests use. TensorRT-LLM's and Triton's may"
            " include blocks kept for reuse.",
            _highest("kv_live_ratio"),
            "percentunit",
        ),
        Panel("Prompt tokens", "Prompt tokens per second.", _rates("prefill_tokens"), "cps"),
        Panel("Generated tokens", "Output tokens per second.", _rates("output_tokens"), "cps"),
        Panel(
            "Preemptions",
            "Requests evicted from the batch to make room; SGLang calls it retracted.",
            _rates("num_preempted"),
            "ops",
        ),
    ),
)
_LATENCY = BoardRow(
    "Latency, 95th percentile",
    (
        Panel("Time to first token", "From the engine's own histogram.", _tails("ttft_s"), "s"),
        Panel("Gap between tokens", "From the engine's own histogram.", _tails("itl_s"), "s"),
        Panel("Time in the queue", "From the engine's own histogram.", _tails("queue_s"), "s"),
        Panel("Time per output token", "From the engine's own histogram.", _tails("tpot_s"), "s"),
        Panel("Total time", "From the engine's own histogram.", _tails("e2e_s"), "s"),
    ),
)

ENGINES = Board(
    "evenkeel-engines",
    "evenkeel: engines of any kind",
    "For teams that serve with SGLang, TGI, TensorRT-LLM, Triton, llama.cpp, a bare vLLM, or"
    " with OpenTelemetry's GenAI metrics.",
    "engine",
    (TARGETS,),
    (_LOAD, _LATENCY),
)
