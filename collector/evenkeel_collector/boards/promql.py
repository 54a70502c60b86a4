"""PromQL that several boards use."""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel_collector.boards.board_model import Prom, Variable

MODEL = 'model_name=~"$model"'

SERVERS = Variable(
    "instance", "label_values(evenkeel_engine_requests, instance)", "Servers (`evenkeel serve`)"
)
MODELS = Variable(
    "model",
    'label_values(vllm:num_requests_running{instance=~"$instance"}, model_name)',
    "Served models; only for vLLM's own metrics, ours have no model",
)
# Not `instance`: links between boards carry the menus' values along.
COLLECTORS = Variable(
    "collector",
    "label_values(evenkeel_collector_log_bytes, instance)",
    "Collectors (`evenkeel collect`)",
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Writes PromQL over the processes that a menu selects.

    Attributes:
        menu: The menu with the values of Prometheus' own label `instance`.
    """

    menu: Variable

    @property
    def selector(self) -> str:
        """The matcher of the selected processes."""
        return f'instance=~"${self.menu.name}"'

    def rate(self, metric: str, *matchers: str, by: str = "") -> str:
        """Return the summed rate of a counter, per second."""
        labels = f" by ({by})" if by else ""
        inside = ", ".join((self.selector, *matchers))
        return f"sum{labels} (rate({metric}{{{inside}}}[$__rate_interval]))"

    def total(self, metric: str, *matchers: str, by: str = "") -> str:
        """Return the sum of a gauge."""
        labels = f" by ({by})" if by else ""
        return f"sum{labels} ({metric}{{{', '.join((self.selector, *matchers))}}})"

    def highest(self, metric: str, *matchers: str, by: str = "") -> str:
        """Return the highest value of a gauge."""
        labels = f" by ({by})" if by else ""
        return f"max{labels} ({metric}{{{', '.join((self.selector, *matchers))}}})"

    def quantile(self, share: str, histogram: str, *matchers: str) -> str:
        """Return a quantile of a histogram over all processes, interpolated within a bucket."""
        buckets = self.rate(f"{histogram}_bucket", *matchers, by="le")
        return f"histogram_quantile({share}, {buckets})"

    def quantiles(self, histogram: str, *matchers: str) -> tuple[Prom, ...]:
        """Return median, 95th and 99th percentile."""
        shares = (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"))
        return tuple(Prom(self.quantile(s, histogram, *matchers), name) for s, name in shares)

    def mean(self, seconds: str, count: str) -> str:
        """Return the ratio of two rates."""
        return f"{self.rate(seconds)} / {self.rate(count)}"
