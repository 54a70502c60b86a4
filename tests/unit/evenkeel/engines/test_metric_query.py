"""What queries over engines' metrics are given, and which gauges a rule reads."""

import pytest

from evenkeel.engines.measures import MEASURES
from evenkeel.engines.metric_query import (
    equivalents,
    mapped_metrics,
    metric_parameters,
    sender_parameters,
)
from tests.fixtures.engine_pages import PAGES


def test_parameters_are_arrays_of_one_length() -> None:
    found = metric_parameters(mapped_metrics(["num_waiting", "output_tokens"]))
    keys = found["keys"]
    assert "nv_trt_llm_request_metrics{request_type=waiting}" in keys
    assert "vllm:generation_tokens" in keys, "senders differ in the suffix of counters"
    assert {"vllm:generation_tokens", "vllm:generation_tokens_total"} <= set(found["names"])
    for name in ("places", "measures", "engines", "scales", "are_sums", "are_deltas"):
        assert len(found[name]) == len(keys)
    assert len(set(keys)) == len(keys)
    tgi = keys.index("tgi_request_generated_tokens")
    assert (found["engines"][tgi], found["are_sums"][tgi], found["are_counters"][tgi]) == (
        "tgi", 1, 1,
    )  # fmt: skip


def test_every_engine_with_a_page_of_its_own_is_seen_by_a_name() -> None:
    senders = sender_parameters()
    assert senders["shared"] == ["opentelemetry"]
    every = {m.source.metric: m.engine for m in mapped_metrics(MEASURES)}
    seen = {every[name] for name in senders["own_names"]}
    assert seen == PAGES.keys() - {"opentelemetry"}
    by = dict(zip(senders["providers"], senders["provider_engines"], strict=True))
    assert (by["aws.bedrock"], by["sglang"]) == ("bedrock", "sglang")


def test_what_clients_measure_is_not_read_as_a_servers() -> None:
    names = metric_parameters(mapped_metrics(MEASURES))["names"]
    assert not any("client" in name for name in names)


@pytest.mark.parametrize(
    ("metric", "is_live_only", "expected"),
    [
        pytest.param(
            "vllm:kv_cache_usage_perc",
            False,
            {
                "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
                "trtllm_kv_cache_utilization",
                "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
            },
            id="vLLM's name stands for every engine's",
        ),
        pytest.param(
            "vllm:kv_cache_usage_perc",
            True,
            {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"},
            id="a leak is not told where blocks kept for reuse may count",
        ),
        pytest.param("kv_live_ratio", True,
            {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"},
            id="our own name"),
        pytest.param("evenkeel_engine_kv_blocks", False, {"evenkeel_engine_kv_blocks"},
            id="any other metric stands for itself"),
        pytest.param("vllm:prompt_tokens_total", False, {"vllm:prompt_tokens_total"},
            id="so does a counter"),
        pytest.param("sglang:token_usage", False, {"sglang:token_usage"},
            id="so does another engine's own name"),
    ],
)  # fmt: skip
def test_a_rule_about_a_gauge_reads_every_engines(
    metric: str, is_live_only: bool, expected: set[str]
) -> None:
    found = equivalents(metric, is_live_only=is_live_only)
    assert {source.exact_key for source in found} == expected
