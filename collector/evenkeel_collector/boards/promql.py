"""PromQL that several boards use."""

from __future__ import annotations

from evenkeel_collector.boards.board import Prom, Variable

# Prometheus' own label, filtered by the boards' menu of the same name.
INSTANCE = 'instance=~"$instance"'
MODEL = 'model_name=~"$model"'

SERVERS = Variable(
    "instance", "label_values(evenkeel_engine_requests, instance)", "Servers (`evenkeel serve`)"
)
MODELS = Variable(
    "model",
    'label_values(vllm:num_requests_running{instance=~"$instance"}, model_name)',
    "Served models; only for vLLM's own metrics, ours have no model",
)
COLLECTORS = Variable(
    "instance",
    "label_values(evenkeel_collector_log_bytes, instance)",
    "Collectors (`evenkeel collect`)",
)


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """Return the summed rate of a counter, per second."""
    labels = f" by ({by})" if by else ""
    inside = ", ".join((INSTANCE, *matchers))
    return f"sum{labels} (rate({metric}{{{inside}}}[$__rate_interval]))"


def total(metric: str, *matchers: str, by: str = "") -> str:
    """Return the sum of a gauge."""
    labels = f" by ({by})" if by else ""
    return f"sum{labels} ({metric}{{{', '.join((INSTANCE, *matchers))}}})"


def highest(metric: str, *matchers: str, by: str = "") -> str:
    """Return the highest value of a gauge."""
    labels = f" by ({by})" if by else ""
    return f"max{labels} ({metric}{{{', '.join((INSTANCE, *matchers))}}})"


def quantile(share: str, histogram: str, *matchers: str) -> str:
    """Return a quantile of a histogram over all servers; within its buckets, interpolated."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', *matchers, by='le')})"


def quantiles(histogram: str, *matchers: str) -> tuple[Prom, ...]:
    """Return median, 95th and 99th percentile."""
    shares = (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"))
    return tuple(Prom(quantile(share, histogram, *matchers), name) for share, name in shares)


def mean(seconds: str, count: str) -> str:
    """Return the ratio of two rates."""
    return f"{rate(seconds)} / {rate(count)}"
