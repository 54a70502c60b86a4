"""The dashboard's queries on the real store: each runs, and raw and rollup reads agree."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from evenkeel.engines.metric_query import mapped_metrics, metric_parameters, sender_parameters
from evenkeel.errors import StoreError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.slo.query import Span, event_parameters, slo_parts
from evenkeel.store import Store
from evenkeel_dashboard.pages import PAGES
from tests.fixtures.dashboard_process import NO_FILTER, NUM_REQUESTS, ROOT, RUN_ID, SLO, Platform
from tests.queries import query

LATENCY: dict[str, object] = {
    **NO_FILTER, "measure": "ttft", "definition": "ours", "dimension": "tenant", "one_in": 1,
    "column": "ttft_s",
}  # fmt: skip
EXPLORE: dict[str, object] = {
    **NO_FILTER, "order_by": "ttft", "status": "", "finish_reason": "", "session": "",
    "route": "faq", "response_cache": "exact", "engine": "", "min_ttft_s": 0.5, "min_e2e_s": 0.0,
    "min_stall_s": 0.0, "min_input_tokens": 0.0, "min_output_tokens": 0.0,
    "min_reasoning_tokens": 0.0, "min_repeated_share": 0.0, "answer": "", "limit": 5,
}  # fmt: skip
SLICED: dict[str, object] = {"period_s": 60, "slice_s": 60}
ANY_GROUP = dict.fromkeys(SELECTOR_COLUMNS, "")
QUERIES: dict[str, dict[str, Any]] = {
    "health": {**NO_FILTER, "step_s": 60, "data_from_ms": 0},
    "health_counts_1m": {**NO_FILTER, "step_s": 60, "before_ms": 0, "data_from_ms": 0},
    "health_percentiles_1m": {**NO_FILTER, "step_s": 60, "before_ms": 0},
    "health_percentiles_1h": {**NO_FILTER, "step_s": 3600, "before_ms": 0},
    "first_request": {},
    "range_contents": {},
    "range_contents_1m": {},
    "requests_named": {"models": ["m"], "times_ns": [0], "ids": ["none"]},
    "slo_rollup_counts": {**ANY_GROUP, "slo_name": SLO, "width_s": 3600},
    "newest_request": {"now_ms": 0},
    "newest_in_range": NO_FILTER,
    "slowest_requests": {**NO_FILTER, "rank_by": "ttft", "limit": 5},
    "request": {"id": "none", "near_ms": 0},
    "request_spans": {"trace_id": "none", "names": ["db.system"], "limit": 5},
    "request_span": {"trace_id": "none", "span_id": "none"},
    "request_trace": {"trace_id": "none", "near_ms": 0},
    "request_calls": {"trace_id": "none", "limit": 5},
    "request_neighbours": {
        "model": "m", "request_id": "r", "start_ns": 0, "end_ns": 1, "limit": 5,
    },
    "slo_now": {},
    "slo_history": {"step_s": 60},
    "alerts": {},
    "latency_cohorts": LATENCY,
    "latency_cohorts_1m": LATENCY,
    "latency_definitions": {**LATENCY, **SLICED},
    "latency_series": {**LATENCY, "step_s": 60, "cohorts": ["acme"]},
    "latency_series_1m": {**LATENCY, "step_s": 60, "cohorts": ["acme"]},
    "latency_heatmap": {**LATENCY, "step_s": 60},
    "latency_heatmap_1m": {**LATENCY, "step_s": 60},
    "latency_behind": {
        **LATENCY, "low_s": 0.1, "high_s": 0.5, "near_s": 0.3, "cohort": "acme", "limit": 5,
    },
    "engine_state_series": {
        "model": "", "step_s": 60, **metric_parameters(mapped_metrics(["num_running"])),
    },
    "engine_histograms": {
        "model": "", **metric_parameters(mapped_metrics(["ttft_s"])), **sender_parameters(),
    },
    "latency_sources": NO_FILTER,
    "compare_engines": {},
    "engine_steps_series": {"model": "", "step_s": 60},
    "engine_steps_waiting": {"model": "", "step_s": 60},
    "acceptance_positions": {**SLICED, **NO_FILTER},
    "control_steps": {},
    "cache_series": {**SLICED, **NO_FILTER, "step_s": 60},
    "cache_cohorts": {**SLICED, **NO_FILTER, "dimension": "tenant"},
    "response_cache_counts": NO_FILTER,
    "response_cache_details": NO_FILTER,
    "response_cache_bound": {"step_s": 60},
    "response_cache_classes": NO_FILTER,
    "speculation_gain": {},
    "canary_results": {},
    "control_effect": {"model": "", "step_s": 10, "busy_s": [0], "switched_ms": 0},
    "engine_step_spread": {"model": ""},
    "wasted_tokens": {**SLICED, **NO_FILTER},
    "cost_cohorts": {**NO_FILTER, "dimension": "tenant"},
    "cost_series": {**NO_FILTER, "dimension": "tenant", "step_s": 60, "cohorts": ["acme"]},
    "cost_models": NO_FILTER,
    "compressed_tokens": {**SLICED, **NO_FILTER},
    "health_recovery": {},
    "request_canary": {"request_id": "none"},
    "compression_verdicts": {**SLICED, **NO_FILTER},
    "request_why": {"id": "none"},
    "request_by_tail": {"tail": "none"},
    "acceptance_sources": {**SLICED, "model": ""},
    "engine_evictions": {**SLICED, "model": "", "step_s": 60},
    "prefix_misses": {**SLICED, **NO_FILTER},
    "cache_near_misses": {**SLICED, **NO_FILTER, "limit": 5},
    "eval_latency_split": {"run_id": RUN_ID},
    "live_eval_series": {"step_s": 3600},
    "golden_candidates": {"limit": 5},
    "newest_feedback": {"limit": 5},
    "request_contents": {"trace_ids": ["none"], "from_ns": 0, "to_ns": 1},
    "compare_sample": {
        **NO_FILTER, "service": "", "setup": "", "engine": "", "measure": "ttft", "limit": 5,
    },
    "compare_cohort": {**NO_FILTER, "service": "", "setup": "", "engine": ""},
    "compare_setups": {},
    "explore_requests": EXPLORE | {"offset": 0},
    "explore_count": EXPLORE,
    "explore_example": {},
    "request_logs": {"trace_id": "none"},
    "engine_contents": {"model": "", "tenant": "acme"},
    "engine_names": {"tenant": "acme"},
    "engine_requests": {"origin_ms": 0},
    "engine_runs": {"origin_ms": 0},
    "session_keys": {
        **NO_FILTER, "route": "", "outcome": "", "order_by": "e2e", "limit": 5, "offset": 0,
        "most": 5,
    },
    "sessions": {"tenants": ["none"], "session_ids": ["none"]},
    "session": {"session_id": "none", "tenant": ""},
    "session_steps": {"session_id": "none", "tenant": "", "limit": 5},
    "any_session": {},
    "request_evaluations": {"trace_id": "none", "request_id": "none"},
    "changes": {},
    "prompt_versions": {"model": ""},
    "eval_runs": {"run_id": RUN_ID},
    "eval_gates": {"run_id": RUN_ID},
    "eval_slices": {"run_id": RUN_ID},
    "eval_changed_items": {"run_id": RUN_ID, "limit": 5},
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_the_dashboard_runs(platform: Platform, name: str) -> None:
    store = Store(platform.query_url)
    store.rows(query(name), platform.range() | QUERIES[name])
    store.close()


def rolled_health(
    store: Store, ends: dict[str, object], step_s: int, by: str
) -> list[dict[str, Any]]:
    """Return the rows of `health` from the rollups, digests merged by minute or by hour."""
    before_ms = 2 * int(str(ends["from_ms"])) - int(str(ends["to_ms"]))
    parameters = {**ends, "before_ms": before_ms, "step_s": step_s, "data_from_ms": 0}
    counts = store.rows(query("health_counts_1m"), parameters)
    percentiles = store.rows(query(f"health_percentiles_{by}"), parameters)
    return [count | row for count, row in zip(counts, percentiles, strict=True)]


def requests_of(store: Store) -> pd.DataFrame:
    """Return the arrival and latencies of each request."""
    # Other files that share this platform send requests of ten days ago.
    sql = """
        SELECT toUnixTimestamp64Milli(time) AS time_ms, ttft_s, tpot_s, itl_p99_s FROM requests
        WHERE time > now() - INTERVAL 2 DAY
    """
    found = store.free_frame(sql, 2 * NUM_REQUESTS, 30.0)
    assert len(found) == NUM_REQUESTS
    return found


def is_quantile(value: float, values: pd.Series[float], q: float) -> bool:
    """Return whether a digest's quantile is within two percent in rank of the exact one.

    Neighbouring values far apart, as around a stall, still have close ranks.
    """
    known = values.dropna()
    margin = max(0.02, 2 / len(known))
    low, high = known.quantile(max(0.0, q - margin)), known.quantile(min(1.0, q + margin))
    return bool(0.99 * low <= value <= 1.01 * high)


@pytest.mark.parametrize(
    ("before_ms", "length_ms"),
    [
        pytest.param(0, 7_200_000, id="all in the range"),
        pytest.param(-1_800_000, 7_200_000, id="a part of it in the previous range"),
    ],
)
def test_the_rollup_says_what_the_requests_say(
    platform: Platform, before_ms: int, length_ms: int
) -> None:
    # Whole minutes: the rollup has nothing finer.
    begin_ms = platform.from_ms // 60_000 * 60_000 - before_ms
    ends = {"from_ms": begin_ms, "to_ms": begin_ms + length_ms, **NO_FILTER}
    store = Store(platform.query_url)
    raw = store.rows(query("health"), {**ends, "step_s": 600, "data_from_ms": 0})
    rollup = rolled_health(store, ends, 600, "1m")
    requests = requests_of(store)
    store.close()
    assert [(r["is_now"], r["bucket"]) for r in rollup] == [(r["is_now"], r["bucket"]) for r in raw]
    # The whole range and, if it has data, the previous one.
    assert [r["is_now"] for r in raw if not r["bucket"]] == ([0, 1] if before_ms else [1])
    assert sum(float(r["num_requests"]) for r in raw if not r["bucket"]) == NUM_REQUESTS
    whole = next(r["num_requests"] for r in raw if r["is_now"] and not r["bucket"])
    assert sum(r["num_requests"] for r in raw if r["bucket"]) == whole
    for row, exact in zip(rollup, raw, strict=True):
        for name in ("num_requests", "requests_per_s", "ok_per_s", "errors_per_s", "aborted_per_s",
                     "shed_per_s", "error_ratio", "aborted_ratio", "shed_ratio",
                     "output_tokens_per_s", "cached_token_ratio", "acceptance_rate",
                     "queue_mean_s", "prefill_mean_s", "decode_mean_s"):  # fmt: skip
            assert row[name] == pytest.approx(exact[name]), name
        if exact["bucket"]:
            begin, end = 1000 * exact["bucket"], 1000 * (exact["bucket"] + 600)
        else:
            begin = begin_ms if exact["is_now"] else begin_ms - length_ms
            end = begin + length_ms
        meant = requests[requests.time_ms.between(begin, end, inclusive="left")]
        for name in ("ttft_p50_s", "ttft_p95_s", "tpot_p95_s", "itl_p99_p95_s"):
            # With few requests, a digest's tail is coarse.
            if exact["num_requests"] > 100:
                column, q = f"{name[:-6]}_s", int(name[-4:-2]) / 100
                assert is_quantile(row[name], meant[column], q), (name, row[name], exact[name])


@pytest.mark.parametrize(
    ("before_ms", "after_ms"),
    [
        pytest.param(0, 0, id="whole hours alone"),
        pytest.param(17 * 60_000, 29 * 60_000, id="with minutes at both ends"),
    ],
)
def test_hours_and_minutes_count_each_request_once(
    platform: Platform, before_ms: int, after_ms: int
) -> None:
    hour_ms = 3_600_000
    wide: dict[str, object] = {
        "from_ms": platform.from_ms // hour_ms * hour_ms - hour_ms - before_ms,
        "to_ms": (platform.to_ms // hour_ms + 2) * hour_ms + after_ms,
        **NO_FILTER,
    }
    store = Store(platform.query_url)
    hourly = rolled_health(store, wide, 3600, "1h")
    by_minute = rolled_health(store, wide, 3600, "1m")
    exact = store.rows(query("health"), {**wide, "step_s": 3600, "data_from_ms": 0})
    found = requests_of(store)
    store.close()
    assert sum(float(str(row["num_requests"])) for row in hourly if row["bucket"]) == NUM_REQUESTS
    for row, minutes, requests in zip(hourly, by_minute, exact, strict=True):
        assert row["bucket"] == requests["bucket"]
        assert row["num_requests"] == requests["num_requests"]
        if requests["bucket"]:
            hour = 1000 * requests["bucket"]
            meant = found[found.time_ms.between(hour, hour + hour_ms, inclusive="left")]
            for each in (row, minutes):
                assert is_quantile(float(str(each["ttft_p95_s"])), meant.ttft_s, 0.95)


def test_the_store_counts_what_was_simulated(platform: Platform) -> None:
    store = Store(platform.query_url)
    sent = {**platform.range(), **NO_FILTER, "step_s": 60, "data_from_ms": 0}
    rows = store.rows(query("health"), sent)
    contents = store.rows(query("range_contents"), platform.range())[0]
    store.close()
    by_status = platform.simulated["by_status"]
    assert isinstance(by_status, dict)
    whole = next(row for row in rows if row["is_now"] and not row["bucket"])
    assert whole["num_requests"] == contents["num_requests"] == NUM_REQUESTS
    assert sum(contents["num_by_model"].values()) == NUM_REQUESTS
    assert set(contents["num_by_model"]) == set(contents["models"])
    assert whole["error_ratio"] == pytest.approx(by_status["error"] / NUM_REQUESTS)
    assert whole["aborted_ratio"] == pytest.approx(by_status["aborted"] / NUM_REQUESTS)


def test_every_query_that_the_dashboard_names_is_tested() -> None:
    named = {path.stem for path in (ROOT / "dashboard").rglob("*.sql")}
    for path in (ROOT / "dashboard").rglob("*.py"):
        named |= set(re.findall(r'"(\w+)\.sql"', path.read_text(encoding="utf-8")))
    elsewhere = {"slo_counts", "slo_session_counts", "slo_spent"}
    assert len(PAGES) == 12
    assert sorted(named - set(QUERIES) - elsewhere) == []


def test_latency_of_the_rollup_is_that_of_the_requests(platform: Platform) -> None:
    store = Store(platform.query_url)
    whole_minutes = {
        "from_ms": platform.from_ms // 60_000 * 60_000,
        "to_ms": (platform.to_ms // 60_000 + 1) * 60_000,
        **LATENCY,
    }
    raw = {r["cohort"]: r for r in store.rows(query("latency_cohorts"), whole_minutes)}
    rollup = {r["cohort"]: r for r in store.rows(query("latency_cohorts_1m"), whole_minutes)}
    store.close()
    assert raw.keys() == rollup.keys()
    for cohort, row in raw.items():
        assert rollup[cohort]["p50_s"] == pytest.approx(row["p50_s"], rel=0.1), cohort


def test_the_rollups_heatmap_is_that_of_the_requests(platform: Platform) -> None:
    store = Store(platform.query_url)
    whole_minutes = {
        "from_ms": platform.from_ms // 60_000 * 60_000,
        "to_ms": (platform.to_ms // 60_000 + 1) * 60_000,
        **LATENCY,
        "step_s": 3600,
    }
    found = []
    for name in ("latency_heatmap", "latency_heatmap_1m"):
        rows = store.rows(query(name), whole_minutes)
        total = sum(row["num_requests"] for row in rows)
        bins = dict.fromkeys(range(-60, 40), 0.0)
        for row in rows:
            bins[row["bin"]] += row["num_requests"] / total
        found.append(bins)
    store.close()
    # A digest moves a few requests across a bin boundary.
    assert sum(abs(found[0][b] - found[1][b]) for b in found[0]) < 0.2
    assert max(abs(found[0][b] - found[1][b]) for b in found[0]) < 0.03


@pytest.mark.parametrize(
    ("measure", "definition", "holds"),
    [
        pytest.param("ttft", "vllm_api", "lower", id="from scheduled, so without the queue"),
        pytest.param("tpot", "guidellm", "higher", id="with the first token's wait in it"),
        pytest.param("ttft", "mlperf", "same", id="the same as ours"),
    ],
)
def test_a_definition_changes_the_number_as_it_says(
    platform: Platform, measure: str, definition: str, holds: str
) -> None:
    store = Store(platform.query_url)
    parameters = platform.range() | LATENCY | SLICED | {"measure": measure}
    sql = query("latency_definitions")
    ours = store.rows(sql, parameters)[0]["p95_s"]
    theirs = store.rows(sql, parameters | {"definition": definition})[0]["p95_s"]
    store.close()
    found = "same" if theirs == ours else "higher" if theirs > ours else "lower"
    assert found == holds


def test_a_sample_weighs_what_it_leaves_out(platform: Platform) -> None:
    store = Store(platform.query_url)
    parameters = platform.range() | LATENCY | {"dimension": ""}
    everything = store.rows(query("latency_cohorts"), parameters)[0]["num_requests"]
    sampled = store.rows(query("latency_cohorts"), parameters | {"one_in": 4})[0]["num_requests"]
    span = "toUnixTimestamp64Milli(time) >= {from_ms} AND toUnixTimestamp64Milli(time) < {to_ms}"
    drawn = store.free_frame(
        "SELECT count() AS num FROM requests WHERE ttft_s IS NOT NULL AND "
        + span.format_map(platform.range())
        + " AND intHash64(toUnixTimestamp64Nano(time)) % 4 = 0",
        1,
        60,
    )
    store.close()
    # Sampling depends only on their times, so the count is exact.
    assert sampled == 4 * drawn["num"][0]
    assert 0 < sampled / 4 < everything


def test_requests_that_burned_a_budget_are_its_bad_events(platform: Platform) -> None:
    slo = read_slo_file(platform.slo_file).slos[0]
    span = Span(platform.from_ms * 10**6, platform.to_ms * 10**6)
    parameters = event_parameters(slo_parts(slo), span)
    store = Store(platform.query_url)
    nothing = {"corrected_from_ns": [], "corrected_to_ns": []}
    spent = store.rows(query("slo_spent"), parameters | nothing)
    middle_ns = (span.from_ns + span.to_ns) // 2
    first_half = parameters | {"to_ns": middle_ns}
    half = store.rows(query("slo_spent"), first_half | nothing)
    corrected = {"corrected_from_ns": [middle_ns], "corrected_to_ns": [span.to_ns]}
    uncorrected = store.rows(query("slo_spent"), parameters | corrected)
    causes = store.rows(query("slo_causes"), parameters)[0]
    by_cohort = store.rows(query("slo_cohorts"), parameters)
    cohorts = {(r["dimension"], r["cohort"]): r for r in by_cohort}
    burned = store.rows(query("slo_burned"), {**parameters, "limit": NUM_REQUESTS})
    whole = next(row for row in spent if not row["dimension"])
    named = store.rows(
        query("requests_named"),
        {"models": whole["worst_model"], "times_ns": whole["worst_ns"], "ids": whole["worst_id"]},
    )
    store.close()
    assert len(burned) == whole["num_bad"] > 15
    # One query's totals must equal the evaluator's own.
    assert {name: whole[name] for name in causes} == pytest.approx(causes)
    found = {(r["dimension"], r["cohort"]): r for r in spent if r["dimension"]}
    assert any(dimension == "prompt" for dimension, _ in found)
    assert found.keys() == cohorts.keys()
    for key in found:
        assert found[key]["total_sum"] == pytest.approx(cohorts[key]["total_sum"])
        assert found[key]["bad_sum"] == pytest.approx(cohorts[key]["bad_sum"])
    # Corrected time is excluded as if it were outside the range.
    sums = [
        {(r["dimension"], r["cohort"]): (r["num_events"], r["num_bad"]) for r in rows}
        for rows in (half, uncorrected)
    ]
    assert sums[0] == sums[1]
    assert 0 < sums[0]["", "all"][1] < whole["num_bad"]
    assert [row["request_id"] for row in named] == [r["request_id"] for r in burned[:15]]
    assert all(row["slo_class"] == "interactive" for row in named)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        pytest.param("DROP TABLE requests", "only reads", id="a write"),
        pytest.param("SELECT count() FROM numbers(1e13)", "TIMEOUT", id="one that takes too long"),
        pytest.param("SELECT nothing FROM nowhere", "UNKNOWN_TABLE", id="nonsense"),
    ],
)
def test_free_sql_is_refused(platform: Platform, sql: str, reason: str) -> None:
    store = Store(platform.query_url)
    with pytest.raises(StoreError, match=reason):
        store.free_frame(sql, 100, 1.0)
    store.close()


def test_free_sql_returns_no_more_rows_than_asked_for(platform: Platform) -> None:
    store = Store(platform.query_url)
    assert len(store.free_frame("SELECT number FROM numbers(1000)", 10, 5.0)) == 10
    store.close()
