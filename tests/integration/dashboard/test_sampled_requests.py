"""A request that stands for several, because its sender samples, is read as so many requests."""

import random
from pathlib import Path
from typing import Any

import pytest

from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.slo.query import Span, event_parameters, slo_parts
from evenkeel.store import read_query
from evenkeel.times import to_datetime
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.slo_requests import NOW, S, insert, slo_text
from tests.queries import query

FROM_NS = NOW - 600 * S
ENDS: dict[str, object] = {"from_ms": FROM_NS // 10**6, "to_ms": NOW // 10**6, **NO_FILTER}
LATENCY = {**ENDS, "definition": "ours", "dimension": "tenant", "one_in": 1}
COMPARED = {**ENDS, "service": "", "setup": "", "engine": ""}
SLICED = {**ENDS, "period_s": 60, "slice_s": 60}
RULE = {
    **dict.fromkeys(SELECTOR_COLUMNS, ""),
    "from_ns": FROM_NS, "to_ns": NOW, "width_ns": 600 * S, "max_request_ns": 600 * S,
}  # fmt: skip
QUERIES: dict[str, tuple[str, dict[str, object]]] = {
    "health": ("health", {**ENDS, "step_s": 60, "data_from_ms": 0}),
    "contents": ("range_contents", {"from_ms": ENDS["from_ms"], "to_ms": ENDS["to_ms"]}),
    "cohorts": ("latency_cohorts", {**LATENCY, "measure": "ttft"}),
    "gaps": ("latency_cohorts", {**LATENCY, "measure": "itl", "definition": "vllm"}),
    "definitions": ("latency_definitions", {**LATENCY, **SLICED, "measure": "e2e"}),
    "series": (
        "latency_series", {**LATENCY, "measure": "tpot", "step_s": 60, "cohorts": ["a", "b"]},
    ),
    "heatmap": ("latency_heatmap", {**LATENCY, "measure": "ttft", "step_s": 60}),
    "compared": ("compare_cohort", COMPARED),
    "cache series": ("cache_series", {**SLICED, "step_s": 60}),
    "cache cohorts": ("cache_cohorts", {**SLICED, "dimension": "tenant"}),
    "wasted": ("wasted_tokens", SLICED),
    "control": (
        "control_effect",
        {
            "from_ms": ENDS["from_ms"], "to_ms": ENDS["to_ms"], "model": "", "step_s": 86_400,
            "busy_s": [NOW // 10**9 // 86_400 * 86_400], "switched_ms": 0,
        },
    ),
    "SLO minutes": ("slo_minutes", {}),
    "SLO causes": ("slo_causes", {}),
    "SLO ledger": ("slo_ledger", {}),
    "SLO prompt sizes": ("slo_prompt_sizes", {}),
    "SLO cohorts": ("slo_cohorts", {}),
    "SLO spent": ("slo_spent", {"corrected_from_ns": [], "corrected_to_ns": []}),
}  # fmt: skip
# What names requests or their values instead of counting them, and what columns are read from.
SHOWN = {"worst_model", "worst_ns", "worst_id", "found", "ttft", "itl_p99", "tpot"}
SHOWN |= {"models", "tenants", "prompts", "slo_classes", "services"}


def requests(num: int = 60) -> list[dict[str, Any]]:
    """Return requests that weigh 1 to 5; one whose weight is none counts as 1."""
    choose = random.Random(5)
    rows: list[dict[str, Any]] = [
        {
            "end_ns": NOW - S - choose.randrange(500) * S,
            "tenant": choose.choice(["a", "b"]),
            "status": choose.choice(["ok", "ok", "ok", "error", "aborted", "shed"]),
            "ttft_s": choose.choice([None, choose.expovariate(1), choose.expovariate(1)]),
            "tpot_s": choose.expovariate(50),
            "itl_p99_s": choose.expovariate(20),
            "queue_s": choose.choice([None, choose.expovariate(5)]),
            "prefill_s": choose.expovariate(9),
            "decode_s": choose.expovariate(2),
            "stall_s": choose.expovariate(5),
            "e2e_s": choose.expovariate(0.5),
            "input_tokens": choose.randrange(1, 900),
            "cached_tokens": choose.choice([None, 0, choose.randrange(900)]),
            "output_tokens": choose.randrange(90),
            "drafted_tokens": 10,
            "accepted_tokens": choose.randrange(10),
            "wasted_tokens": choose.randrange(5),
            "response_cache": choose.choice([None, "exact", "miss"]),
            "ledger": {"ttft.queue": choose.random()} if choose.random() < 0.7 else {},
            "emission_time_s": [0.1, 0.2 + choose.random()],
            "sample_weight": float(choose.choice([1, 1, 2, 5])),
        }
        for _ in range(num)
    ]
    rows[0]["sample_weight"], rows[1]["sample_weight"] = 0.25, 1e18
    return rows


def repeated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each request as often as its weight says, with weight 1."""
    return [
        row | {"sample_weight": 1.0}
        for row in rows
        for _ in range(int(row["sample_weight"]) if 1 <= row["sample_weight"] <= 1e6 else 1)
    ]


def read(client: Any, name: str, parameters: dict[str, object], path: Path) -> list[dict[str, Any]]:
    if name.startswith("slo_"):
        path.write_text(slo_text(metric="ttft"), encoding="utf-8")
        parts = slo_parts(read_slo_file(path).slos[0])
        parameters = {**event_parameters(parts, Span(FROM_NS, NOW)), **parameters}
    found = client.query(read_query(query(name)), parameters=parameters).named_results()
    rows = [{c: value for c, value in row.items() if c not in SHOWN} for row in found]
    return sorted(rows, key=lambda row: str([v for v in row.values() if not isinstance(v, float)]))


@pytest.mark.parametrize(("name", "parameters"), QUERIES.values(), ids=QUERIES)
def test_a_row_weighs_as_much_as_the_requests_it_stands_for(
    client: Any, tmp_path: Path, name: str, parameters: dict[str, object]
) -> None:
    rows = requests()
    insert(client, *repeated(rows))
    every = read(client, name, parameters, tmp_path / "slos.yaml")
    client.command("TRUNCATE TABLE requests")
    insert(client, *rows)
    sampled = read(client, name, parameters, tmp_path / "slos.yaml")
    assert len(sampled) == len(every) > 0
    for some, all_of_them in zip(sampled, every, strict=True):
        for column, value in all_of_them.items():
            if isinstance(value, int | float | dict):
                assert some[column] == pytest.approx(value, nan_ok=True), column
            else:
                assert some[column] == value, column


def test_tokens_computed_are_those_of_the_engine(client: Any) -> None:
    at, used = {"end_ns": NOW - S}, {"output_tokens": 10, "cached_tokens": 15}
    computed = [at | used | {"response_cache": outcome} for outcome in (None, "miss", "verified")]
    cached = {"output_tokens": None, "cached_tokens": None}
    insert(client, *computed, *(at | cached | {"response_cache": c} for c in ("exact", "semantic")))
    columns = ["Timestamp", "SpanAttributes"]
    lost = {"evenkeel.prefix.lost_tokens": "8"}
    spans = [lost, lost | {"evenkeel.sample_weight": "5"}, lost | {"evenkeel.sample_weight": "0"}]
    client.insert("spans", [[to_datetime(NOW - S), each] for each in spans], column_names=columns)
    (row,) = client.query(read_query(query("wasted_tokens")), parameters=SLICED).named_results()
    assert (row["useful_and_failed"], row["evicted"]) == (3 * (10 + 40 - 15), 8 * 7)
    client.command("TRUNCATE TABLE spans")


SLOW_ONES = [{"ttft_s": 5.0, "tpot_s": 0.5} for _ in range(50)]
FAST_ONES = [{"ttft_s": 0.2, "tpot_s": 0.05, "sample_weight": 100.0} for _ in range(50)]


def test_a_rule_alerts_on_the_percentiles_of_all_requests(client: Any) -> None:
    insert(client, *({"end_ns": NOW - S} | row for row in SLOW_ONES + FAST_ONES))
    rows = client.query(read_query(query("rule_measures")), parameters=RULE).named_results()
    (row,) = rows
    assert (row["requests"], row["ttft_p50_s"], row["ttft_p95_s"]) == (5050, 0.2, 0.2)
    assert row["output_tokens_per_s_p50"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("rows", "num_slow"),
    [
        pytest.param(SLOW_ONES, 50, id="all weigh 1"),
        pytest.param([r | {"sample_weight": 9.0} for r in SLOW_ONES], 50, id="all weigh the same"),
        pytest.param(SLOW_ONES + FAST_ONES, 0.5, id="one in a hundred of what weighs so much less"),
    ],
)
def test_a_sample_to_compare_is_drawn_by_weight(
    client: Any, rows: list[dict[str, Any]], num_slow: float
) -> None:
    # Chosen by the nanoseconds of their arrival.
    insert(client, *({"end_ns": NOW - (1 + i) * S} | row for i, row in enumerate(rows)))
    sent = {**COMPARED, "measure": "ttft", "limit": 200}
    found = client.query(read_query(query("compare_sample")), parameters=sent).named_results()
    values = [row["value_s"] for row in found]
    assert values.count(0.2) == len(rows) - 50
    assert values.count(5.0) == pytest.approx(num_slow, abs=2 if num_slow < 50 else 0)
