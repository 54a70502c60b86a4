"""Every SQL query of every board, on a real store with rows in every table that it reads."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel.times import to_datetime
from evenkeel_collector.store.storage import Storage
from tests.fixtures.board_queries import BoardQuery, store_queries
from tests.fixtures.clickhouse_macros import ALL, expand

S = 10**9
TO_S = 1_795_168_800
FROM_S = TO_S - 3600
STEP_S = 120
TENANTS, MODELS, ROUTES, SLOS = ["acme", "globex"], ["support"], ["chat"], ["support-ttft"]
NOTHING = dict.fromkeys(("tenant", "model", "route", "slo"), ALL)
CHOSEN = {"tenant": TENANTS, "model": MODELS, "route": ROUTES, "slo": SLOS}
ABSENT = {name: ["it's none"] for name in CHOSEN}
# Tables about no single tenant, model, route or SLO.
UNFILTERED = ("Live scores", "Feedback", "Evaluation gates", "$")


def insert(client: Any, table: str, rows: list[dict[str, Any]]) -> None:
    columns = list(rows[0])
    client.insert(table, [[row[c] for c in columns] for row in rows], column_names=columns)


def request(choose: random.Random, number: int) -> dict[str, Any]:
    ttft_s = choose.uniform(0.1, 2)
    return {
        "time": to_datetime((FROM_S + number * 12) * S),
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "request_id": f"chatcmpl-{number}",
        "service": "support",
        "tenant": choose.choice(TENANTS),
        "model": MODELS[0],
        "route": ROUTES[0],
        "status": choose.choice(["ok", "ok", "ok", "error", "aborted", "shed"]),
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 50,
        "wasted_tokens": 3,
        "drafted_tokens": 10,
        "accepted_tokens": 6,
        "queue_s": ttft_s / 2,
        "prefill_s": ttft_s / 2,
        "decode_s": 0.5,
        "ttft_s": ttft_s,
        "itl_p99_s": 0.05,
        "e2e_s": ttft_s + 0.5,
        "response_cache": choose.choice(["miss", "exact"]),
        "ledger": {"ttft.queue.budget": ttft_s / 2, "ttft.prefill.own": ttft_s / 2},
        "sample_weight": 1.0,
    }


@pytest.fixture(scope="module")
def client(storage: Storage) -> Iterator[Any]:
    client = storage.connect()
    choose = random.Random(3)
    insert(client, "requests", [request(choose, number) for number in range(300)])
    times = [to_datetime((FROM_S + minute * 60) * S) for minute in range(60)]
    insert(
        client, "engine_steps",
        [
            {"time": time, "duration_s": 30.0, "model": MODELS[0], "num_steps": 10,
             "batch_size": 4, "num_waiting": 2, "held_by": "budget"}
            for time in times
        ],
    )  # fmt: skip
    insert(
        client, "slo_status",
        [
            {"time": time, "slo": SLOS[0], "objective": "ttft", "target": 0.95, "period_s": 3600.0,
             "scale": 1.0, "state": "ok", "good": 90.0, "total": 100.0, "sli": 0.9,
             "budget_left_ratio": 0.4, "windows.severity": ["page", "ticket"],
             "windows.factor": [14.4, 1.0], "windows.long_s": [3600.0, 86400.0],
             "windows.short_s": [300.0, 7200.0], "windows.burn_long": [2.0, None],
             "windows.burn_short": [2.0, 1.0]}
            for time in times
        ],
    )  # fmt: skip
    insert(
        client, "alert_history",
        [{"time": times[5], "transition_id": "t", "slo": SLOS[0], "severity": "page",
          "state": "firing", "annotations": {"summary": "the queue waits for the budget"}}],
    )  # fmt: skip
    insert(
        client, "live_evaluations",
        [
            {"time": time, "monitor": "helpful", "scorer": "judge", "probability": 0.5,
             "score": 0.8, "label": "right"}
            for time in times
        ],
    )  # fmt: skip
    insert(client, "feedback", [{"time": t, "score": 1.0, "tenant": TENANTS[0]} for t in times])
    insert(
        client, "eval_results",
        [{"time": times[9], "kind": "gate", "run_id": "r", "gate": "accuracy",
          "verdict": "passed", "estimate": 0.0, "lower": -0.1, "upper": 0.1, "num_pairs": 90}],
    )  # fmt: skip
    yield client
    client.close()


@pytest.mark.parametrize("query", store_queries(), ids=lambda query: query.name)
def test_every_query_finds_rows(query: BoardQuery, client: Any) -> None:
    counts = []
    for chosen in (NOTHING, CHOSEN):
        result = client.query(expand(query.text, FROM_S, TO_S, STEP_S, chosen))
        assert result.row_count > 0
        counts.append(result.row_count)
        assert set(query.names) <= set(result.column_names)
        if query.kind == "timeseries":
            check_series(query, result)
    assert counts[0] == counts[1]


def check_series(query: BoardQuery, result: Any) -> None:
    """A column `time` within the range, at most one that names the series, others numbers."""
    types = dict(zip(result.column_names, (t.name for t in result.column_types), strict=True))
    assert types.pop("time").startswith("DateTime")
    named = {name for name, type_ in types.items() if "String" in type_}
    assert named == set(query.names)
    assert all("Float" in types[name] for name in types.keys() - named)
    rows = list(result.named_results())
    assert {row["time"].timestamp() % STEP_S for row in rows} == {0}
    assert len({(row["time"], *(row[name] for name in named)) for row in rows}) == len(rows)
    values = [row[name] for row in rows for name in types.keys() - named]
    assert any(value for value in values if value is not None)


@pytest.mark.parametrize("query", store_queries(), ids=lambda query: query.name)
def test_the_range_and_the_menus_select_the_rows(query: BoardQuery, client: Any) -> None:
    before = client.query(expand(query.text, FROM_S - 7200, FROM_S - 3600, STEP_S, NOTHING))
    assert before.row_count == 0
    if not any(word in query.name for word in UNFILTERED):
        absent = client.query(expand(query.text, FROM_S, TO_S, STEP_S, ABSENT))
        assert absent.row_count == 0


# Callers choose the names of tenants, models and routes.
NAMES = ["o'brien", 'q"x', "x\\", "a\\') OR 1=1 --", "\\'"]


def test_each_name_that_a_menu_offers_selects_only_its_rows(client: Any) -> None:
    queries = {query.name: query.text for query in store_queries()}
    choose = random.Random(5)
    from_s = FROM_S - 86400
    rows = [request(choose, 1000 + number) for number in range(len(NAMES))]
    for row, name in zip(rows, NAMES, strict=True):
        names = {"tenant": name, "model": name, "route": name}
        row |= {"time": to_datetime((from_s + 60) * S), **names}
    insert(client, "requests", rows)
    status = {"objective": "ttft", "target": 0.95, "period_s": 3600.0, "scale": 1.0}
    status |= {"time": to_datetime((from_s + 60) * S), "state": "ok"}
    insert(client, "slo_status", [{**status, "slo": f"chat/{name}"} for name in NAMES])

    def column(query: str, **chosen: list[str]) -> list[Any]:
        text = expand(queries[query], from_s, from_s + 3600, STEP_S, {**NOTHING, **chosen})
        return [row[0] for row in client.query(text).result_rows]

    for variable in ("tenant", "model", "route"):
        offered = column(f"evenkeel-requests ${variable}")
        assert offered == NAMES[:2]
        for name in offered:
            assert column("evenkeel-requests Tenants A", **{variable: [name]}) == [name]
    assert column("evenkeel-quality $slo") == [f"chat/{name}" for name in NAMES[:2]]


def test_values_are_what_the_rows_say(client: Any) -> None:
    texts = {query.name: query.text for query in store_queries()}

    def rows(name: str) -> list[dict[str, Any]]:
        result = client.query(expand(texts[name], FROM_S, TO_S, STEP_S, NOTHING))
        return list(result.named_results())

    traffic = rows("evenkeel-requests Requests by status A")
    counted = sum(row[name] for row in traffic for name in ("ok", "error", "aborted", "shed"))
    assert counted * STEP_S == pytest.approx(300)
    savings = rows("evenkeel-requests Cached and accepted A")
    assert {(row["cached"], row["accepted"]) for row in savings} == {(0.5, 0.6)}
    causes = rows("evenkeel-requests Where the time goes A")
    phases = rows("evenkeel-requests Queue, prefill, decode A")
    queued = [row["seconds_per_request"] for row in causes if row["cause"] == "ttft.queue.budget"]
    assert queued == pytest.approx([row["queue"] for row in phases])
    held = rows("evenkeel-requests What the queue waited for A")
    assert {row["share"] for row in held[:-1]} == {0.5}
    (score,) = {row["mean_score"] for row in rows("evenkeel-quality Live scores A")}
    assert score == pytest.approx(0.8)
    slowest = rows("evenkeel-requests Slowest requests A")
    assert slowest[0]["largest_cause"].startswith("ttft.")
    assert slowest[0]["largest_cause_s"] == pytest.approx(slowest[0]["ttft_s"] / 2)
