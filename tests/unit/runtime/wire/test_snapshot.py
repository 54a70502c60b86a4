"""The snapshot between exporter and server, and the metrics made of it."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from evenkeel_runtime.metrics.open_metrics import write_page
from evenkeel_runtime.serve.engine_metrics import EngineMetrics
from evenkeel_runtime.wire.snapshot import (
    STEP_BOUNDS_S,
    EngineFigures,
    Exemplar,
    Histogram,
    SharedSnapshot,
    Snapshot,
)

ENGINE = EngineFigures(
    engine=0,
    num_batched=3,
    num_running=4,
    num_waiting=1,
    blocks_live=10,
    blocks_resident=50,
    blocks_total=100,
    num_steps=2,
    step_seconds=0.01,
    steps_by_duration=[0, 1, 1, *[0] * (len(STEP_BOUNDS_S) - 2)],
    prefill_tokens=100,
    decode_tokens=20,
    drafted_tokens=40,
    accepted_tokens=30,
    prompt_tokens=200,
    cached_tokens=100,
    num_preempted=0,
    recent_step_s=0.005,
    recent_acceptance_ratio=None,
    recent_hit_ratio=0.5,
    cost_error_ratio=0.1,
)


@pytest.fixture
def memory() -> Iterator[SharedSnapshot]:
    memory = SharedSnapshot.create()
    yield memory
    memory.close()


def with_ttft(value: float) -> Snapshot:
    ttft = Histogram((0.1, 0.5))
    ttft.add(Exemplar(value, "ab" * 16, "cd" * 8, 1_700_000_000.0))
    return Snapshot(engines=[ENGINE], ledger_seconds={"ttft.queue.kv": 1.5}, ttft=ttft)


def test_the_newest_snapshot_is_read(memory: SharedSnapshot) -> None:
    assert memory.read() is None
    for value in (0.05, 0.2, 0.7):
        memory.write(with_ttft(value))
        snapshot = memory.read()
        assert snapshot is not None and snapshot.ttft is not None
        assert snapshot.ttft.total == value
        assert list(snapshot.engines) == [ENGINE]


def test_one_that_is_too_large_leaves_the_one_before(memory: SharedSnapshot) -> None:
    memory.write(with_ttft(0.2))
    with pytest.raises(ValueError, match="too large"):
        memory.write(Snapshot(ledger_seconds={str(i): 1.0 for i in range(20_000)}))
    assert memory.read() == with_ttft(0.2)


def registry(snapshot: Snapshot | None, *missing: str) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(EngineMetrics(lambda: snapshot, missing))
    return registry


def test_the_names_that_the_field_greps_for() -> None:
    page = generate_latest(registry(with_ttft(0.2))).decode()
    assert 'kv_cache_hit_rate{engine="0"} 0.5' in page
    assert 'batch_size{engine="0"} 3.0' in page
    assert 'batch_completion_time_avg{engine="0"} 0.005' in page
    # Nothing was drafted: the name is there, and no value.
    assert "# TYPE speculative_draft_acceptance_rate gauge" in page
    assert "speculative_draft_acceptance_rate{" not in page
    assert 'evenkeel_engine_kv_blocks{engine="0",state="live"} 10.0' in page
    assert 'evenkeel_engine_kv_blocks{engine="0",state="resident"} 50.0' in page
    assert 'evenkeel_runtime_ledger_seconds_total{cause="queue.kv",phase="ttft"} 1.5' in page


def test_buckets_lead_to_the_trace_that_fell_into_them() -> None:
    both = registry(with_ttft(0.2))
    Counter("vllm:drafts", "As vLLM names its own", ["position"], registry=both).labels("0").inc()
    page = write_page(both).decode()
    families = {f.name: f for f in text_string_to_metric_families(page)}
    buckets = {
        sample.labels["le"]: sample
        for sample in families["evenkeel_runtime_ttft_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert [buckets[le].value for le in ("0.1", "0.5", "+Inf")] == [0, 1, 1]
    exemplar = buckets["0.5"].exemplar
    assert exemplar is not None
    assert exemplar.labels == {"trace_id": "ab" * 16, "span_id": "cd" * 8}
    assert exemplar.value == 0.2
    assert buckets["0.1"].exemplar is None
    assert families["vllm:drafts"].samples[0].value == 1


def test_before_the_first_snapshot_only_missing_hooks_have_values() -> None:
    page = generate_latest(registry(None, "steps")).decode()
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert 'evenkeel_runtime_missing_hooks_total{hook="steps"} 1.0' in samples
    assert all(line.endswith(" 0.0") for line in samples if "missing_hooks" not in line)
