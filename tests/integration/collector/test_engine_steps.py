"""Runs of engine steps, sent as the runtime sends them, are rows of `engine_steps`."""

import json
import subprocess
import sys
from random import Random

import httpx
import pytest

from evenkeel.otlp_target import OtlpTarget
from evenkeel.store import Store
from evenkeel.times import rfc3339
from evenkeel.whatif.batching import BatchLimits
from evenkeel_runtime.exporter.step_export import build_steps
from evenkeel_runtime.exporter.step_runs import StepRuns
from evenkeel_runtime.wire.steps import Held
from tests.fixtures.collector_process import PROTOBUF, CollectorProcess, post, wait_for
from tests.fixtures.stored_work import bodies_of
from tests.queries import query
from tests.unit.evenkeel.whatif.toy_engine import serve, some_tasks
from tests.unit.runtime.wire.step_builder import MS, Step, build, decode, prefill

RESOURCE = {"service.name": "support-1", "service.instance.id": "i-1"}
# running, waiting, three set aside, preempted, blocks: total, free, cached
QUEUED = (2, 3, 1, 0, 0, 0, 100, 60, 70)
# 2026-11-01T00:00:00Z, in the bounds of what the store takes.
MIDNIGHT_NS = 1_793_491_200_000_000_000


def test_runs_become_rows(collector: CollectorProcess) -> None:
    runs = StepRuns()
    steps = build(
        Step(0, 40, [decode(0), prefill(1, 2000)], Held.KV, state=QUEUED),
        *(Step(40 + i * 5, 44 + i * 5, [decode(0), decode(1)]) for i in range(3)),
    )
    runs.add(steps, lambda number: f"chatcmpl-b07bdf150785f4a{number}")
    target = OtlpTarget(collector.http_url, resource=RESOURCE)
    body = build_steps({0: runs.take()}, target, "support", MIDNIGHT_NS)
    headers = {"content-type": "application/x-protobuf"}
    response = httpx.post(
        f"{collector.http_url}/v1/traces", content=body.SerializeToString(), headers=headers
    )
    assert response.status_code == 200, response.text
    sql = "SELECT count() FROM engine_steps WHERE instance = 'i-1'"
    wait_for(lambda: collector.rows(sql) == [(2,)])

    columns = (
        "toUnixTimestamp64Nano(time), duration_s, busy_s, longest_s, num_steps, batch_size, "
        "num_running, num_waiting, num_set_aside, held_by, prefill_tokens, decode_tokens, "
        "blocks_live, blocks_resident, blocks_total, prefilling_request_id, prefilling_tokens"
    )
    first, second = collector.rows(
        f"SELECT {columns} FROM engine_steps WHERE service = 'support-1' AND model = 'support' "
        "AND engine = 0 ORDER BY time"
    )
    assert first == (
        *(MIDNIGHT_NS, 0.04, 0.04, 0.04, 1, 2),
        *(2, 3, 1, "kv", 2000, 1),
        *(40, 70, 100, ["chatcmpl-b07bdf150785f4a1"], [2000]),
    )
    assert second[0] == MIDNIGHT_NS + 40 * MS
    assert second[1:4] == pytest.approx((0.014, 0.012, 0.004))
    assert second[4:] == (3, 2, 0, 0, 0, "", 0, 6, 0, 0, 0, [], [])


def test_lists_of_unequal_lengths_are_filled_up(collector: CollectorProcess) -> None:
    """A span of anybody's with this name must not make an insert fail."""
    runs = StepRuns()
    runs.add(build(Step(0, 40, [prefill(1, 20)]), Step(40, 44, [decode(1)])), str)
    target = OtlpTarget(collector.http_url, resource=RESOURCE | {"service.name": "broken"})
    body = build_steps({0: runs.take()}, target, "support", MIDNIGHT_NS)
    (span,) = body.resource_spans[0].scope_spans[0].spans
    kept = [a for a in span.attributes if not a.key.endswith(("num_waiting", "prefilling_id"))]
    for attribute in kept:
        if attribute.key.endswith("busy_s"):
            del attribute.value.array_value.values[:]
    kept = [type(a).FromString(a.SerializeToString()) for a in kept]
    del span.attributes[:]
    span.attributes.extend(kept)
    headers = {"content-type": "application/x-protobuf"}
    response = httpx.post(
        f"{collector.http_url}/v1/traces", content=body.SerializeToString(), headers=headers
    )
    assert response.status_code == 200, response.text
    sql = "SELECT num_steps, busy_s, num_waiting FROM engine_steps WHERE service = 'broken'"
    wait_for(lambda: sorted(collector.rows(sql)) == [(1, 0.0, 0), (1, 0.0, 0)])


def test_another_instance_of_a_service_is_a_change(collector: CollectorProcess) -> None:
    """A deploy, a restart or one more replica: what the Health page says changed last."""
    headers = {"content-type": "application/x-protobuf"}
    for instance, minutes in (("old", 1), ("new", 10)):
        runs = StepRuns()
        runs.add(build(Step(0, 40, [decode(0)])), str)
        resource = {"service.name": "deployed", "service.instance.id": instance}
        target = OtlpTarget(collector.http_url, resource=resource)
        body = build_steps({0: runs.take()}, target, "m", MIDNIGHT_NS + minutes * 60_000 * MS)
        httpx.post(
            f"{collector.http_url}/v1/traces", content=body.SerializeToString(), headers=headers
        ).raise_for_status()
    sql = "SELECT count() FROM engine_steps WHERE service = 'deployed'"
    wait_for(lambda: collector.rows(sql) == [(2,)])
    begin_ms = MIDNIGHT_NS // MS
    store = Store(collector.query_url)
    ends = {"from_ms": begin_ms, "to_ms": begin_ms + 3_600_000}
    changes = store.rows(query("changes"), ends)
    found = [row for row in changes if row["name"].startswith("deployed@")]
    store.close()
    assert found == [
        {"kind": "server", "name": "deployed@new", "before": "old",
         "first_ms": begin_ms + 600_000}
    ]  # fmt: skip


def test_what_the_engine_would_save_without_a_tenant(collector: CollectorProcess) -> None:
    tasks = some_tasks(Random(5), 200, 60.0)
    limits = BatchLimits(seats=8, budget=200)
    served = serve(tasks, limits, tenants="ab")
    saved_s = served.busy_s - serve(tasks[::2], limits).busy_s
    begin_ns = MIDNIGHT_NS + 7200 * 10**9
    for body in bodies_of(served, RESOURCE | {"service.name": "whatif"}, begin_ns):
        post(collector, body, PROTOBUF).raise_for_status()
    sql = "SELECT count() FROM requests WHERE service = 'whatif'"
    wait_for(lambda: collector.rows(sql) == [(200,)])
    command = [
        *(sys.executable, "-m", "evenkeel", "whatif", "--store-url", collector.query_url, "--json"),
        *("--from", rfc3339(begin_ns), "--to", rfc3339(begin_ns + 120 * 10**9), "--without"),
    ]
    run = subprocess.run([*command, "b"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["saved_s"] == pytest.approx(saved_s, rel=0.05)
    assert found["busy_s"] == pytest.approx(served.busy_s)
    assert (found["num_requests"], found["replayed_ratio"]) == (200, 1.0)
    assert abs(found["replay_error_ratio"]) < 0.01
    run = subprocess.run([*command, "nobody"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 3
    assert "no requests of it are stored for this range; there are a, b" in run.stderr
