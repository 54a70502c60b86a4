"""Older metric names have the values of the newer ones."""

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from evenkeel_runtime.serve.metric_aliases import MetricAliases


def test_an_alias_has_the_gauges_labels_and_values() -> None:
    registry = CollectorRegistry()
    usage = Gauge("vllm:kv_cache_usage_perc", "usage", ["engine", "model_name"], registry=registry)
    usage.labels("0", "m").set(0.25)
    registry.register(MetricAliases(registry))
    page = generate_latest(registry).decode()
    assert 'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.25' in page
    assert page.count("vllm:kv_cache_usage_perc{") == 1


def test_there_is_no_alias_of_a_gauge_that_is_not_there() -> None:
    registry = CollectorRegistry()
    registry.register(MetricAliases(registry))
    assert generate_latest(registry) == b""
