"""Engine step and ledger metrics on the server's `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from evenkeel.conventions import (
    ERROR_TYPE,
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    RESPONSE_MODEL,
    SERVER_DURATION,
    SERVER_TIME_PER_OUTPUT_TOKEN,
    SERVER_TIME_TO_FIRST_TOKEN,
)
from evenkeel_runtime.wire.snapshot import (
    STEP_BOUNDS_S,
    EngineFigures,
    Histogram,
    ServerHistogram,
    Snapshot,
)

_ENGINE = "evenkeel_engine_"
_RUNTIME = "evenkeel_runtime_"
_PROVIDER = "vllm"
_SERVER_ATTRIBUTES = (OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, ERROR_TYPE)
_SERVER_METRICS = {
    SERVER_DURATION: "Arrival to end of a request",
    SERVER_TIME_TO_FIRST_TOKEN: "Arrival to first token of a successful request",
    SERVER_TIME_PER_OUTPUT_TOKEN: "Mean time per token after the first of a successful request",
}


class EngineMetrics(Collector):
    """A Prometheus collector over the exporter's snapshot, read only on scrape.

    Args:
        read: Returns the latest snapshot; None before the first.
        missing_hooks: Hooks that this vLLM does not support.
    """

    def __init__(self, read: Callable[[], Snapshot | None], missing_hooks: Sequence[str]) -> None:
        self._read = read
        self._missing_hooks = missing_hooks

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of docs/metrics.md."""
        yield count_missing_hooks(self._missing_hooks)
        snapshot = self._read() or Snapshot()
        yield from _named_by_the_field(snapshot.engines)
        yield from _engines(snapshot.engines)
        yield from _ledgers(snapshot)
        for name, help_text, histogram in (
            ("ttft_seconds", "Arrival to first token", snapshot.ttft),
            ("e2e_seconds", "Arrival to end", snapshot.e2e),
        ):
            if histogram is not None:
                yield _histogram(f"{_RUNTIME}{name}", help_text, histogram)
        yield from _server_metrics(snapshot.server)


class MissingHooks(Collector):
    """A Prometheus collector of missing hooks only, for a server that does not record requests.

    Args:
        missing: Hooks that this vLLM does not support.
    """

    def __init__(self, missing: Sequence[str]) -> None:
        self._missing = missing

    def collect(self) -> Iterator[Metric]:
        """Return the counter."""
        yield count_missing_hooks(self._missing)


def count_missing_hooks(missing: Sequence[str]) -> Metric:
    """Return the counter of hooks that this vLLM does not support."""
    family = CounterMetricFamily(
        f"{_RUNTIME}missing_hooks",
        "Hooks that this vLLM does not support; requests are served without them",
        labels=["hook"],
    )
    for hook in missing:
        family.add_metric([hook], 1)
    return family


def _named_by_the_field(engines: Sequence[EngineFigures]) -> Iterator[Metric]:
    """The metric names that runbooks grep for; a metric without data has no samples."""
    named: tuple[tuple[str, str, Callable[[EngineFigures], float | None]], ...] = (
        (
            "kv_cache_hit_rate",
            "Cached / prompt tokens of the last 1000 requests (vllm:prefix_cache_hits / queries)",
            lambda e: e.recent_hit_ratio,
        ),
        (
            "speculative_draft_acceptance_rate",
            "Accepted / drafted tokens of the last 1000 steps",
            lambda e: e.recent_acceptance_ratio,
        ),
        ("batch_size", "Requests computed in the last step", lambda e: e.num_batched),
        (
            "batch_completion_time_avg",
            "Mean seconds of the last 1000 steps",
            lambda e: e.recent_step_s,
        ),
    )
    for name, help_text, value_of in named:
        family = GaugeMetricFamily(name, help_text, labels=["engine"])
        for engine in engines:
            value = value_of(engine)
            if value is not None:
                family.add_metric([str(engine.engine)], value)
        yield family


def _engines(engines: Sequence[EngineFigures]) -> Iterator[Metric]:
    requests = GaugeMetricFamily(
        f"{_ENGINE}requests", "Requests in the scheduler", labels=["engine", "state"]
    )
    blocks = GaugeMetricFamily(
        f"{_ENGINE}kv_blocks",
        "KV blocks: live (held by requests), resident (a later prompt can reuse them), total",
        labels=["engine", "state"],
    )
    tokens = CounterMetricFamily(f"{_ENGINE}tokens", "Tokens by use", labels=["engine", "kind"])
    preemptions = CounterMetricFamily(
        f"{_ENGINE}preemptions", "Requests preempted", labels=["engine"]
    )
    steps = HistogramMetricFamily(
        f"{_ENGINE}step_duration_seconds", "Duration of engine steps", labels=["engine"]
    )
    seconds = CounterMetricFamily(
        f"{_ENGINE}seconds",
        "Engine time by kind since its first request; the kinds add up",
        labels=["engine", "kind"],
    )
    energy = CounterMetricFamily(
        f"{_ENGINE}energy_joules",
        "Energy of the engine's GPUs by what it was spent on, since its first request",
        labels=["engine", "kind"],
    )
    for engine in engines:
        name = str(engine.engine)
        for kind, used_j in engine.joules_by_kind.items():
            energy.add_metric([name, kind], used_j)
        for kind, spent_s in engine.seconds_by_kind.items():
            seconds.add_metric([name, kind], spent_s)
        requests.add_metric([name, "running"], engine.num_running)
        requests.add_metric([name, "waiting"], engine.num_waiting)
        blocks.add_metric([name, "live"], engine.blocks_live)
        blocks.add_metric([name, "resident"], engine.blocks_resident)
        blocks.add_metric([name, "total"], engine.blocks_total)
        for kind in ("prefill", "decode", "drafted", "accepted", "prompt", "cached"):
            tokens.add_metric([name, kind], getattr(engine, f"{kind}_tokens"))
        preemptions.add_metric([name], engine.num_preempted)
        buckets = _cumulate(STEP_BOUNDS_S, engine.steps_by_duration)
        steps.add_metric([name], buckets, engine.step_seconds)
    yield from (requests, blocks, tokens, preemptions, steps, seconds, energy)


def _ledgers(snapshot: Snapshot) -> Iterator[Metric]:
    seconds = CounterMetricFamily(
        f"{_RUNTIME}ledger_seconds",
        "Request time by component, in seconds (docs/inside/ledger.md)",
        labels=["phase", "cause"],
    )
    for key, value in sorted(snapshot.ledger_seconds.items()):
        phase, _, cause = key.partition(".")
        seconds.add_metric([phase, cause], value)
    yield seconds
    yield CounterMetricFamily(f"{_RUNTIME}ledgers", "Requests with a ledger", snapshot.ledgers)
    yield CounterMetricFamily(
        f"{_RUNTIME}ledgers_missing",
        "Requests without a ledger because engine records are missing",
        snapshot.unmatched,
    )
    yield CounterMetricFamily(
        f"{_RUNTIME}ledger_errors", "Errors while computing ledgers", snapshot.errors
    )
    yield CounterMetricFamily(
        f"{_RUNTIME}steps_lost", "Engine steps with lost records", snapshot.lost_steps
    )
    yield CounterMetricFamily(
        f"{_RUNTIME}step_runs_dropped", "Runs of steps that were not stored", snapshot.dropped_runs
    )
    errors = GaugeMetricFamily(
        f"{_RUNTIME}cost_model_error_ratio",
        "Mean relative error of the step-cost model behind the ledgers",
        labels=["engine"],
    )
    for engine in snapshot.engines:
        if engine.cost_error_ratio is not None:
            errors.add_metric([str(engine.engine)], engine.cost_error_ratio)
    yield errors
    for name, help_text, values in (
        ("prefix_requests", "Requests by reason for a prefix cache miss", snapshot.prefix_misses),
        (
            "prefix_missed_tokens",
            "Tokens missed by the prefix cache",
            snapshot.prefix_missed_tokens,
        ),
    ):
        family = CounterMetricFamily(f"{_RUNTIME}{name}", help_text, labels=["miss"])
        for miss, value in sorted(values.items()):
            family.add_metric([miss], value)
        yield family
    yield CounterMetricFamily(
        f"{_RUNTIME}unstable_prompts",
        "Requests with static text after a changing part of the prompt",
        snapshot.unstable_prompts,
    )


def _server_metrics(found: Sequence[ServerHistogram]) -> Iterator[Metric]:
    """Return OpenTelemetry's GenAI server metrics, named as its specification says for Prometheus.

    https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
    """
    labels = [name.replace(".", "_") for name in _SERVER_ATTRIBUTES]
    for metric, help_text in _SERVER_METRICS.items():
        name = f"{metric.replace('.', '_')}_seconds"
        family = HistogramMetricFamily(name, help_text, labels=labels)
        for each in found:
            if each.metric == metric:
                response_model = "" if each.error_type else each.model
                values = [each.operation, _PROVIDER, each.model, response_model, each.error_type]
                family.add_metric(values, _cumulate(each.bounds, each.counts), each.total)
        yield family


def _cumulate(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _histogram(name: str, help_text: str, histogram: Histogram) -> Metric:
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    cumulated = _cumulate(histogram.bounds, histogram.counts)
    for bucket, exemplar in zip(cumulated, histogram.exemplars, strict=True):
        if exemplar is None:
            buckets.append(bucket)
            continue
        labels = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
        buckets.append((*bucket, Exemplar(labels, exemplar.value, exemplar.time_s)))
    family = HistogramMetricFamily(name, help_text)
    family.add_metric([], buckets, histogram.total)
    return family
