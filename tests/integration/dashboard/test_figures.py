"""What the figures of the pages count, by the queries that they are read from."""

from collections.abc import Sequence
from typing import Any

import pytest

from evenkeel.engines.metric_query import mapped_metrics, metric_parameters
from evenkeel.store import read_query
from evenkeel.times import to_datetime
from evenkeel_dashboard.pages.engine.metrics import state_rows
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.slo_requests import NOW, S, insert
from tests.queries import query

ENDS: dict[str, object] = {"from_ms": (NOW - 600 * S) // 10**6, "to_ms": NOW // 10**6}
FILTERED = {**ENDS, **NO_FILTER}
SLICED = {**FILTERED, "period_s": 60, "slice_s": 60}


def read(client: Any, name: str, **parameters: object) -> list[dict[str, Any]]:
    found = client.query(read_query(query(name)), parameters=parameters).named_results()
    return list(found)


def store(client: Any, *rows: dict[str, Any]) -> None:
    """Store requests that ended in the range."""
    names = {name for row in rows for name in row} - {"model", "status", "sample_weight"}
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
    rows = read(client, "health", **FILTERED, step_s=60, data_from_ms=0)
    health = next(row for row in rows if not row["bucket"])
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


def test_the_prefix_cache_is_that_of_all_cohorts_not_of_those_listed(client: Any) -> None:
    store(
        client,
        *(
            {"tenant": f"t{i}", "input_tokens": 100, "cached_tokens": 80 if i < 30 else 0}
            for i in range(60)
        ),
    )
    rows = read(client, "cache_cohorts", **SLICED, dimension="tenant")
    assert (len(rows), rows[0]["num_cohorts"], rows[0]["all_requests"]) == (30, 60, 60)
    assert rows[0]["all_cached_tokens"] / rows[0]["all_input_tokens"] == 0.4
    assert rows[0]["all_cold"] == 30


def test_a_model_without_a_rate_hides_no_other_models_savings(client: Any) -> None:
    cached = {"tenant": "a", "model": "support", "input_tokens": 1000, "cached_tokens": 500}
    store(
        client,
        cached | {"prefill_s": 0.5},
        cached | {"model": "other", "input_tokens": 20, "cached_tokens": 16},
    )
    (row,) = read(client, "cache_cohorts", **SLICED, dimension="tenant")
    assert row["saved_s"] == row["all_saved_s"] == pytest.approx(0.5)


OF_ACME = {
    "gen_ai.request.model": "support", "evenkeel.tenant": "acme", "evenkeel.slo_class": "chat",
    "evenkeel.prompt.name": "faq", "evenkeel.prompt.version": "2",
}  # fmt: skip
OF_CACHES = {
    "evenkeel.response_cache": "miss", "evenkeel.cache.similarity": "0.9",
    "evenkeel.cache.class.status": "served", "evenkeel.prefix.miss": "evicted",
    "evenkeel.compression.verdict": "sent", "evenkeel.compression.saved_tokens": "7",
}  # fmt: skip


@pytest.mark.parametrize(
    "chosen", [{"model": "support"}, {"tenant": "acme"}, {"prompt": "faq@2"}, {"slo_class": "chat"}]
)
@pytest.mark.parametrize(
    ("name", "column", "more"),
    [
        ("response_cache_counts", "num_requests", {}),
        ("response_cache_details", "num_requests", {}),
        ("response_cache_classes", "num_hits", {}),
        ("cache_near_misses", "", {"limit": 9}),
        ("prefix_misses", "num_requests", {}),
        ("compression_verdicts", "num_requests", {}),
        ("compressed_tokens", "saved_tokens", {}),
    ],
)
def test_every_figure_of_the_caches_is_of_the_chosen_requests(
    client: Any, name: str, column: str, more: dict[str, object], chosen: dict[str, str]
) -> None:
    of_others = {key: f"{value}0" for key, value in OF_ACME.items()}
    client.insert(
        "spans",
        [[to_datetime(NOW - S), OF_CACHES | whose] for whose in (OF_ACME, of_others, of_others)],
        column_names=["Timestamp", "SpanAttributes"],
    )
    client.command("TRUNCATE TABLE requests")
    acme = {
        "model": "support", "tenant": "acme", "slo_class": "chat", "prompt_name": "faq",
        "prompt_version": "2", "response_cache": "miss",
    }  # fmt: skip
    other = {key: f"{value}0" for key, value in acme.items()} | {"response_cache": "miss"}
    store(client, acme, other, other)
    counts = [
        sum(row[column] if column else 1 for row in read(client, name, **(sent | more)))
        for sent in (SLICED, SLICED | chosen)
    ]
    assert counts == ([21, 7] if name == "compressed_tokens" else [3, 1])


@pytest.mark.parametrize("num", [40, 3000], ids=["few", "many"])
def test_a_rollup_counts_the_requests_that_have_the_measure(client: Any, num: int) -> None:
    prompt = {"tenant": "a", "prompt_name": "faq", "prompt_version": None, "sample_weight": 2.0}
    answered = [prompt | {"ttft_s": 0.001 * (1 + i)} for i in range(num)]
    store(client, *answered, *[prompt | {"ttft_s": None, "status": "shed"}] * num)
    shed = {"tenant": "b", "prompt_name": "faq", "prompt_version": "1", "ttft_s": None}
    insert(client, {"end_ns": NOW - S, **shed})
    sent = {
        **FILTERED, "measure": "ttft", "definition": "ours", "one_in": 1, "column": "ttft_s",
        "dimension": "prompt",
    }  # fmt: skip
    for name in ("latency_cohorts", "latency_cohorts_1m"):
        rows = [(row["cohort"], row["num_requests"]) for row in read(client, name, **sent)]
        assert rows == [("faq@?", 2 * num)], name
    for name in ("latency_heatmap", "latency_heatmap_1m"):
        total = sum(row["num_requests"] for row in read(client, name, **sent, step_s=60))
        assert total == pytest.approx(2 * num), name


def test_as_many_cohorts_are_counted_as_there_are(client: Any) -> None:
    store(client, *({"tenant": f"t{i}"} for i in range(401)))
    sent = {
        **FILTERED, "measure": "ttft", "definition": "ours", "one_in": 1, "column": "ttft_s",
        "dimension": "tenant",
    }  # fmt: skip
    for name in ("latency_cohorts", "latency_cohorts_1m"):
        rows = read(client, name, **sent)
        assert (len(rows), rows[0]["num_cohorts"]) == (400, 401), name


def test_many_cohorts_with_full_digests_are_counted_in_little_memory(client: Any) -> None:
    client.command(
        "INSERT INTO requests (time, model, tenant, status, ttft_s) SELECT"
        f" toDateTime64({NOW // S - 60}, 9, 'UTC'), 'm', toString(number % 1500), 'ok',"
        " number FROM numbers(600000)"
    )
    sent = {
        **FILTERED, "measure": "ttft", "definition": "ours", "one_in": 1, "column": "ttft_s",
        "dimension": "tenant",
    }  # fmt: skip
    found = client.query(
        read_query(query("latency_cohorts_1m")), sent, settings={"max_memory_usage": 100_000_000}
    )
    assert {row["num_requests"] for row in found.named_results()} == {400}


def test_the_data_starts_with_the_hour_rollup_if_that_is_kept_longest(client: Any) -> None:
    def first_ms() -> int | None:
        (row,) = read(client, "first_request")
        return row["first_ms"]

    assert first_ms() is None
    old_s, new_s = (NOW // S - age_h * 3600 for age_h in (50, 2))
    insert(client, {"end_ns": old_s * S})
    found = first_ms()
    assert found is not None
    assert old_s - 120 < found // 1000 <= old_s
    client.command("TRUNCATE TABLE requests_1m")
    insert(client, {"end_ns": new_s * S})
    assert first_ms() == found // 3_600_000 * 3_600_000
    client.command("TRUNCATE TABLE requests_1h")
    found = first_ms()
    assert found is not None
    assert new_s - 120 < found // 1000 <= new_s


@pytest.mark.parametrize(
    ("ages_s", "state"),
    [
        pytest.param(range(5, 900, 5), "ok", id="evaluated"),
        pytest.param(range(605, 3600, 5), "stale", id="not for ten minutes"),
        pytest.param(range(1200, 14_400, 3600), "ok", id="evaluated once per hour"),
        pytest.param([10_900], "stale", id="not for three hours"),
        pytest.param(range(15_000, 20_000, 3600), "stale", id="not for four hours"),
    ],
)
def test_an_old_verdict_on_an_slo_is_stale(client: Any, ages_s: Sequence[int], state: str) -> None:
    rows = [[to_datetime(NOW - age_s * S), "chat", "ok"] for age_s in ages_s]
    client.insert("slo_status", rows, column_names=["time", "slo", "state"])
    (row,) = read(client, "slo_now", to_ms=ENDS["to_ms"])
    assert (row["state"], row["time_ms"]) == (state, (NOW // S - min(ages_s)) * 1000)


def test_the_reasons_of_a_queue_add_up_to_it_also_if_the_engine_was_idle_meanwhile(
    client: Any,
) -> None:
    for instance, age_s, num_waiting, held_by in (
        ("a", 50, 4, "budget"), ("a", 49, 2, "kv"), ("a", 48, 0, ""), ("b", 45, 3, "budget"),
    ):  # fmt: skip
        client.command(
            "INSERT INTO engine_steps (time, instance, num_steps, num_waiting, held_by, duration_s)"
            f" VALUES (toDateTime64({NOW // S - age_s}, 9, 'UTC'), '{instance}', 1, {num_waiting},"
            f" '{held_by}', 1)"
        )
    sent = {**ENDS, "step_s": 60, "model": ""}
    (series,) = read(client, "engine_steps_series", **sent)
    found = {r["reason"]: r["num_waiting"] for r in read(client, "engine_steps_waiting", **sent)}
    assert found == pytest.approx({"budget": 4 / 3 + 3, "kv": 2 / 3})
    assert sum(found.values()) == pytest.approx(series["num_waiting"])


def test_of_several_requests_with_one_id_the_newest_is_explained_and_all_are_counted(
    client: Any,
) -> None:
    of_trace = {"trace_id": "f" * 32}
    insert(client, *({"end_ns": NOW - age * S, **of_trace} for age in (9, 3, 6)))
    (row,) = read(client, "request_why", id="f" * 32)
    assert (row["request_id"], row["num_found"]) == ("r1", 3)


def test_a_repeated_item_has_changed_if_its_mean_has(client: Any) -> None:
    def answers(item: str, side: str, *scores: float) -> list[list[object]]:
        return [
            [to_datetime(NOW - S), "answer", "r", side, item, "exact", score, f"{side}{item}{i}"]
            for i, score in enumerate(scores)
        ]

    names = ["time", "kind", "run_id", "side", "item_id", "name", "score", "trace_id"]
    rows = [
        *answers("same", "A", 1, 1, 0), *answers("same", "B", 0, 1, 1),
        *answers("lost", "A", 0, 1, 1), *answers("lost", "B", 1, 0, 0),
        *answers("won", "A", 0), *answers("won", "B", 1),
    ]  # fmt: skip
    client.insert("eval_results", rows, column_names=names)
    found = read(client, "eval_changed_items", run_id="r", limit=9)
    shown = [
        (row["item_id"], row["trace_a"], row["trace_b"], row["num_lost"], row["num_changed"])
        for row in found
    ]
    assert shown[0][:2] in {("lost", "Alost1"), ("lost", "Alost2")}
    assert shown[0][2] in {"Blost1", "Blost2"}
    assert shown[1] == ("won", "Awon0", "Bwon0", 1, 2)
    assert found[0]["score_b"] - found[0]["score_a"] == pytest.approx(-1 / 3)


def test_an_old_run_is_found_behind_the_newest(client: Any) -> None:
    rows = [[to_datetime(NOW - age * S), "answer", f"run-{age}"] for age in range(1, 61)]
    client.insert("eval_results", rows, column_names=["time", "kind", "run_id"])
    newest = [row["run_id"] for row in read(client, "eval_runs", run_id="")]
    assert (len(newest), newest[0], newest[-1]) == (50, "run-1", "run-50")
    wanted = [row["run_id"] for row in read(client, "eval_runs", run_id="run-60")]
    assert (len(wanted), wanted[0], wanted[-1]) == (50, "run-1", "run-60")


def test_a_restart_of_many_servers_hides_no_new_prompt(client: Any) -> None:
    store(
        client,
        {"end_ns": NOW - 400 * S, "prompt_name": "faq", "prompt_version": "1"},
        {"end_ns": NOW - 200 * S, "prompt_name": "faq", "prompt_version": "2"},
    )
    client.command(
        "INSERT INTO engine_steps (time, service, instance) SELECT"
        f" toDateTime64({NOW // S - 100} + number, 9, 'UTC'), 'chat', toString(number)"
        " FROM numbers(20)"
    )
    found = read(client, "changes", **ENDS)
    assert [row["kind"] for row in found].count("server") == 5
    assert [(row["name"], row["before"]) for row in found if row["kind"] == "prompt"] == [
        ("faq@2", "1")
    ]


@pytest.mark.parametrize("step_s", [5, 60])
def test_a_rate_of_metrics_is_over_the_time_between_two_readings(client: Any, step_s: int) -> None:
    """Read every 15 seconds, while the range is drawn in steps of 5."""
    client.command(
        "INSERT INTO engine_state (time, name, kind, service, instance, value) SELECT"
        f" toDateTime64({NOW // S} - 600 + 15 * intDiv(number, 2), 9, 'UTC'),"
        " 'vllm:generation_tokens_total', 'sum', 'chat', toString(number % 2),"
        " 150 * intDiv(number, 2) FROM numbers(80)"
    )
    parameters = metric_parameters(mapped_metrics(["output_tokens"]))
    sent = {**ENDS, **parameters, "model": "", "step_s": step_s}
    first, *rows = state_rows(read(client, "engine_state_series", **sent))
    assert len(rows) == (39 if step_s == 5 else 9)
    assert {row["output_tokens_per_s"] for row in rows} == {20.0}
    assert first["output_tokens_per_s"] == (None if step_s == 5 else 20.0)
