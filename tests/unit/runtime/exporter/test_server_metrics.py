"""OpenTelemetry's GenAI server metrics: what is counted, and as what it is shown."""

import json

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from evenkeel.conventions import OTHER, SERVER_DURATION, SERVER_TIME_TO_FIRST_TOKEN
from evenkeel.spans import Status
from evenkeel_runtime.exporter.server_metrics import MAX_SERIES, ServerMetrics
from evenkeel_runtime.serve.engine_metrics import EngineMetrics
from evenkeel_runtime.wire.observation import Observation
from evenkeel_runtime.wire.snapshot import SharedSnapshot, Snapshot
from tests.checkout import ROOT

MODEL = json.loads((ROOT / "tests/fixtures/semantic_conventions.json").read_text(encoding="utf-8"))
OK = Observation(
    request_id="r",
    model="support",
    operation="chat",
    arrival_unix_ns=0,
    arrival_ns=0,
    end_ns=0,
    ttft_s=0.04,
    tpot_s=0.02,
    e2e_s=0.5,
)


def count(*requests: Observation) -> ServerMetrics:
    metrics = ServerMetrics()
    for seen in requests:
        metrics.add(seen)
    return metrics


def page_of(metrics: ServerMetrics) -> str:
    """Return the server's page, from a snapshot that went through shared memory."""
    memory = SharedSnapshot.create()
    memory.write(Snapshot(server=metrics.read()))
    registry = CollectorRegistry()
    registry.register(EngineMetrics(memory.read, ()))
    page = generate_latest(registry).decode()
    memory.close()
    return page


def test_the_names_and_attributes_are_the_conventions_as_prometheus_has_them() -> None:
    facts = MODEL["server_metrics"]
    page = page_of(count(OK))
    for name, boundaries in facts["boundaries"].items():
        shown = f"{name.replace('.', '_')}_seconds"
        assert f"# TYPE {shown} {facts['instrument']}" in page
        buckets = [line for line in page.splitlines() if line.startswith(f"{shown}_bucket")]
        assert len(buckets) == len(boundaries) + 1
        for attribute in facts["attributes"]:
            assert f'{attribute.replace(".", "_")}="' in buckets[0]


@pytest.mark.parametrize(
    ("value", "le"), [(0.04, "0.04"), (0.040001, "0.06"), (0.0, "0.001"), (11.0, "+Inf")]
)
def test_a_value_at_a_boundary_is_in_the_bucket_that_ends_there(value: float, le: str) -> None:
    page = page_of(count(replace(OK, ttft_s=value)))
    name = "gen_ai_server_time_to_first_token_seconds_bucket"
    found = [line for line in page.splitlines() if line.startswith(name) and line.endswith(" 1.0")]
    assert f'le="{le}"' in found[0]


@pytest.mark.parametrize(
    ("change", "error_type"),
    [
        pytest.param({"status": Status.ERROR, "error_type": "http_400"}, "http_400", id="error"),
        pytest.param({"status": Status.ERROR, "error_type": None}, OTHER, id="nobody knows why"),
        pytest.param({"status": Status.SHED, "error_type": "quota"}, "quota", id="refused"),
        pytest.param({"status": Status.ABORTED}, "aborted", id="the client left"),
    ],
)
def test_only_the_duration_of_what_failed_counts(
    change: dict[str, object], error_type: str
) -> None:
    (found,) = count(replace(OK, **change)).read()
    assert (found.metric, found.error_type, found.total) == (SERVER_DURATION, error_type, 0.5)


def test_what_was_not_measured_is_not_counted() -> None:
    found = count(replace(OK, tpot_s=None)).read()
    assert {each.metric for each in found} == {SERVER_DURATION, SERVER_TIME_TO_FIRST_TOKEN}


def test_clients_cannot_make_series_without_end() -> None:
    named = [
        replace(OK, model=f"{'m' * (n % 200)}{n}", status=Status.ERROR, error_type=f"e{n}")
        for n in range(2000)
    ]
    metrics = count(*named, OK)
    found = [each for each in metrics.read() if each.metric == SERVER_DURATION]
    assert len(found) <= MAX_SERIES + 2
    assert sum(sum(each.counts) for each in found) == 2001
    assert all(len(each.model) <= 100 for each in found)
    # All of them fit into the snapshot.
    assert "gen_ai_server_request_duration_seconds_bucket" in page_of(metrics)
