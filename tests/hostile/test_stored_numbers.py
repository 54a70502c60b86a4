"""Rows of another writer with numbers that are none: they stop no query and no SLO."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenkeel.slo.query import Span, event_parameters, slo_parts
from evenkeel.store import read_query
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.evidence import gather
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.store.storage import Storage
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.new_store import open_new_store
from tests.fixtures.slo_files import slo_file
from tests.hostile.test_numbers import SECOND_NS, SLOS
from tests.integration.dashboard.test_store_queries import QUERIES
from tests.queries import query

NO_CORRECTIONS: dict[str, list[int]] = {"corrected_from_ns": [], "corrected_to_ns": []}
# In each table a row that its view would refuse.
BAD_ROWS = (
    "INSERT INTO requests (time, model, service, status, e2e_s, ttft_s, queue_s, sample_weight,"
    " detail_probability, drafted_tokens, accepted_tokens, input_tokens, ledger, emission_time_s,"
    " emission_tokens) SELECT now64(9) - number, 'm', 's', 'ok',"
    " [nan, inf, -inf, 1e300][number + 1], [inf, nan, 1e18, 0.1][number + 1], inf,"
    " [1e18, inf, nan, -1][number + 1], nan, 1, 4000000000, 4000000000,"
    " map('a', nan, 'b', inf, 'c', 0.5), [nan, inf], [0] FROM numbers(4)",
    "INSERT INTO eval_results (time, kind, score, client_e2e_s, estimate)"
    " SELECT now64(9), 'answer', nan, inf, -inf",
    "INSERT INTO feedback (time, score) SELECT now64(9), nan",
    "INSERT INTO live_evaluations (time, monitor, scorer, label, probability, score)"
    " SELECT now64(9), 'm', 's', 'right', nan, inf",
    "INSERT INTO engine_steps (time, model, duration_s, busy_s) SELECT now64(9), 'm', nan, inf",
    "INSERT INTO engine_state (time, name, kind, value, sum, bounds, bucket_counts)"
    " SELECT now64(9), 'm', 'gauge', nan, inf, [nan], [1, 2]",
    "INSERT INTO slo_status (time, slo, good, total, sli) SELECT now64(9), 'fast', nan, inf, nan",
    "INSERT INTO requests_1m (minute, model, queue_sum_s, num_queue) SELECT"
    " toStartOfMinute(now()), 'm', inf, 2",
)


def numbers_of(client: Any) -> list[tuple[str, str, float]]:
    """Return every number in every table that is not finite."""
    columns = client.query(
        "SELECT table, name, type FROM system.columns WHERE database = 'evenkeel' AND"
        " match(type, 'Float64') AND NOT match(type, 'AggregateFunction')"
        " AND table IN ('requests', 'requests_1m', 'requests_1h', 'eval_results', 'feedback',"
        " 'live_evaluations', 'engine_steps', 'engine_state', 'slo_status')"
    ).result_rows
    found = []
    for table, name, kind in columns:
        values = f"mapValues({name})" if kind.startswith("Map") else f"[{name}]"
        if kind.startswith("Array"):
            values = name
        if kind.startswith("SimpleAggregateFunction(sumMap"):
            values = f"mapValues({name})"
        bad = f"arrayExists(x -> NOT isFinite(x), {values})"
        rows = client.query(f"SELECT {values} FROM {table} WHERE {bad}").result_rows
        found += [(table, name, row[0]) for row in rows]
    return found


@pytest.fixture(scope="module")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = open_new_store(tmp_path_factory.mktemp("hostile") / "store")
    client = storage.connect()
    for statement in BAD_ROWS:
        client.command(statement)
    assert len(numbers_of(client)) > 15
    client.close()
    yield storage
    storage.close()


def parameters_of(name: str) -> dict[str, object]:
    now_ms = time.time_ns() // 10**6
    ends: dict[str, object] = {"from_ms": now_ms - 3_600_000, "to_ms": now_ms + 60_000}
    ends |= {"from_ns": (now_ms - 3_600_000) * 10**6, "to_ns": (now_ms + 60_000) * 10**6}
    ends |= {"before_ms": now_ms - 7_200_000, "width_ns": 60 * SECOND_NS}
    return ends | QUERIES.get(name, {})


@pytest.mark.parametrize("name", QUERIES)
def test_no_row_stops_a_query_of_the_dashboard(hostile_store: Storage, name: str) -> None:
    client = hostile_store.connect()
    try:
        list(client.query(read_query(query(name)), parameters=parameters_of(name)).named_results())
    finally:
        client.close()


@pytest.mark.parametrize(
    "name", ["demo_report", "rule_measures", "latency_heatmap", "slo_eval_counts"]
)
def test_no_row_stops_another_query(hostile_store: Storage, name: str) -> None:
    parameters: dict[str, object] = {
        **parameters_of(name), **NO_FILTER, "since": "2020-01-01 00:00:00", "route": "",
        "prompt_name": "", "prompt_version": "", "max_request_ns": 3600 * SECOND_NS,
        "dataset": "live:m", "scorer": "", "engine": "",
    }  # fmt: skip
    client = hostile_store.connect()
    try:
        list(client.query(read_query(query(name)), parameters=parameters).named_results())
    finally:
        client.close()


def test_no_row_stops_an_slo_or_its_evidence(hostile_store: Storage, tmp_path: Path) -> None:
    file = slo_file(tmp_path, SLOS)
    failures: list[Exception] = []
    client = hostile_store.connect()
    book = AlertBook(tmp_path / "alerts.db")
    try:
        store = SloStore(client)
        now_ns = time.time_ns()
        statuses = Evaluator(file, store, book, None, failures.append).cycle(now_ns)
        assert failures == [] and len(statuses) == len(file.slos)
        for slo in file.slos:
            facts = gather(slo, now_ns - 3600 * SECOND_NS, now_ns, None, store)
            assert "evidence" not in facts
            span = Span(now_ns - 3600 * SECOND_NS, now_ns)
            more = {"width_ns": [SECOND_NS], "limit": 5, **NO_CORRECTIONS}
            for name in ("slo_spent", "slo_cohorts", "slo_minutes", "slo_burned"):
                store.read(query(name), event_parameters(slo_parts(slo), span) | more)
            counts = store.read(query("slo_counts"), event_parameters(slo_parts(slo), span) | more)
            assert all(0 <= row["bad_sum"] <= row["total_sum"] < 1e15 for row in counts)
    finally:
        book.close()
        client.close()
