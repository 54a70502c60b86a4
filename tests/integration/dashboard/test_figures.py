"""What the figures of the pages count, by the queries that they are read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel.store import read_query
from evenkeel_collector.store.storage import Storage
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.new_store import open_new_store
from tests.fixtures.slo_requests import NOW, S, insert
from tests.queries import query

pytestmark = pytest.mark.integration

ENDS: dict[str, object] = {"from_ms": (NOW - 600 * S) // 10**6, "to_ms": NOW // 10**6}
FILTERED = {**ENDS, **NO_FILTER}
TABLES = ("requests", "requests_1m", "requests_1h", "alert_history", "engine_steps")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = open_new_store(tmp_path_factory.mktemp("figures") / "store")
    yield storage
    storage.close()


@pytest.fixture
def client(storage: Storage) -> Iterator[Any]:
    client = storage.connect()
    for table in TABLES:
        client.command(f"TRUNCATE TABLE {table}")
    yield client
    client.close()


def read(client: Any, name: str, **parameters: object) -> list[dict[str, Any]]:
    found = client.query(read_query(query(name)), parameters=parameters).named_results()
    return list(found)


def store(client: Any, *rows: dict[str, Any]) -> None:
    """Store requests that ended in the range."""
    names = {name for row in rows for name in row}
    insert(client, *(dict.fromkeys(names) | {"end_ns": NOW - S} | row for row in rows))


@pytest.mark.parametrize("weight", [1.0, 4.0], ids=["every request", "one in four"])
def test_a_cause_is_compared_by_its_mean_over_all_requests(client: Any, weight: float) -> None:
    own = {"ttft.prefill.own": 1.0}
    ledgers: list[dict[str, float]] = [own, own, own, own | {"ttft.preemption": 8.0}, {}]
    store(client, *({"ledger": ledger, "sample_weight": weight} for ledger in ledgers))
    (row,) = read(client, "compare_cohort", **FILTERED, service="", setup="", engine="")
    assert row["ledger_s"] == pytest.approx({"ttft.prefill.own": 1.0, "ttft.preemption": 2.0})


def test_the_cached_share_is_the_same_on_every_page(client: Any) -> None:
    store(
        client,
        {"input_tokens": 100, "cached_tokens": 50},
        {"input_tokens": 900, "cached_tokens": None},
    )
    (compared,) = read(client, "compare_cohort", **FILTERED, service="", setup="", engine="")
    health = next(row for row in read(client, "health", **FILTERED, step_s=60) if not row["bucket"])
    assert compared["cached_ratio"] == health["cached_token_ratio"] == 0.5


def test_a_page_is_listed_and_counted_before_any_number_of_tickets(client: Any) -> None:
    client.command(
        "INSERT INTO alert_history (time, transition_id, alert_id, slo, severity, state, starts_at)"
        f" SELECT toDateTime64({NOW // S} - 500 + number, 9, 'UTC') AS at, toString(number),"
        " toString(number), 'chat', if(number = 0, 'page', 'ticket'), 'firing', at"
        " FROM numbers(151)"
    )
    rows = read(client, "alerts", **ENDS)
    assert rows[0]["severity"] == "page"
    assert [rows[0][f"num_{what}"] for what in ("alerts", "pages", "tickets", "pending")] == [
        151, 1, 150, 0,
    ]  # fmt: skip
