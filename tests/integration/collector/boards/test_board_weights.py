"""Boards and the dashboard's pages read the same figures from requests of a sender that samples."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel.store import read_query
from evenkeel_collector.store.storage import Storage
from tests.fixtures.board_queries import store_queries
from tests.fixtures.clickhouse_macros import ALL, expand
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.slo_requests import NOW, S, insert
from tests.queries import query

TO_S = NOW // S // 3600 * 3600
FROM_S = TO_S - 3600
NOTHING = dict.fromkeys(("tenant", "model", "route", "slo"), ALL)
# Weights outside 1 to 1,000,000 are mistakes and count as 1.
WEIGHTS = [0.25, 1e18, *[1.0, 2.0, 5.0, 100.0] * 25]


@pytest.fixture(scope="module")
def client(storage: Storage) -> Iterator[Any]:
    client = storage.connect()
    choose = random.Random(7)
    insert(client, *(request(choose, weight) for weight in WEIGHTS))
    yield client
    client.close()


def request(choose: random.Random, weight: float) -> dict[str, Any]:
    ttft_s = choose.expovariate(1)
    return {
        "end_ns": (FROM_S + choose.randrange(1, 3599)) * S,
        "e2e_s": 0.5,
        "status": choose.choice(["ok", "ok", "error", "shed"]),
        "ttft_s": ttft_s,
        "queue_s": ttft_s / 4,
        "prefill_s": ttft_s * 3 / 4,
        "ledger": {"ttft.queue.budget": ttft_s / 4},
        "output_tokens": choose.randrange(90),
        "response_cache": choose.choice(["miss", "exact"]),
        "sample_weight": weight,
    }


def board(client: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a board's query over one step that is the range."""
    (text,) = (each.text for each in store_queries() if each.name == name)
    return list(client.query(expand(text, FROM_S, TO_S, 3600, NOTHING)).named_results())


def page(client: Any, name: str, **more: object) -> list[dict[str, Any]]:
    """Return the rows of a page's query over the same step."""
    ends = {"from_ms": FROM_S * 1000, "to_ms": TO_S * 1000, **NO_FILTER, "step_s": 3600}
    return list(client.query(read_query(query(name)), {**ends, **more}).named_results())


def test_boards_agree_with_health(client: Any) -> None:
    (health,) = (row for row in page(client, "health", data_from_ms=0) if row["bucket"])
    (traffic,) = board(client, "evenkeel-requests Requests by status A")
    for name, column in (("ok", "ok_per_s"), ("error", "errors_per_s"), ("shed", "shed_per_s")):
        assert traffic[name] == pytest.approx(health[column])
    (phases,) = board(client, "evenkeel-requests Queue, prefill, decode A")
    assert phases["queue"] == pytest.approx(health["queue_mean_s"])
    (cause,) = board(client, "evenkeel-requests Where the time goes A")
    assert cause["seconds_per_request"] == pytest.approx(health["queue_mean_s"])
    (ttft,) = board(client, "evenkeel-requests Time to first token A")
    assert ttft["p50"] == pytest.approx(health["ttft_p50_s"], rel=0.1)
    (tokens,) = board(client, "evenkeel-requests Tokens A")
    assert tokens["output"] == pytest.approx(health["output_tokens_per_s"])


def test_boards_agree_with_the_response_cache(client: Any) -> None:
    (series,) = page(client, "cache_series", period_s=60, slice_s=60)
    found = board(client, "evenkeel-requests Response cache A")
    rates = {row["outcome"]: row["requests"] for row in found}
    assert rates["exact"] / sum(rates.values()) == pytest.approx(series["exact_ratio"])
