"""Rules on the real store."""

from pathlib import Path
from typing import Any

import pytest

from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.slo.rules import CACHE_MEASURES, MEASURES
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.templates import find_template
from tests.fixtures.slo_requests import NOW, S, counting_evaluator, insert, slo_text
from tests.queries import query


def test_every_measure_of_a_rule_is_worked_out(client: Any, tmp_path: Path) -> None:
    speculated = {"drafted_tokens": 10, "accepted_tokens": 4, "drafted_by_position": [5, 5]}
    insert(
        client,
        {"end_ns": NOW - S, "cached_tokens": 10, "session_id": "s"} | speculated,
        {"end_ns": NOW - S, "status": "aborted", "ttft_s": None, "cached_tokens": 30}
        | {"session_id": None, "drafted_tokens": None, "accepted_tokens": None}
        | {"drafted_by_position": []},
    )
    parameters = dict.fromkeys(SELECTOR_COLUMNS, "")
    bounds = {"from_ns": NOW - 60 * S, "to_ns": NOW, "width_ns": 60 * S}
    (row,) = SloStore(client).read(
        query("rule_measures"), {**parameters, **bounds, "max_request_ns": 3600 * S}
    )
    assert sorted(set(MEASURES) - set(row)) == []
    found = {name: row[name] for name in ("requests", "ttft_p99_s", "aborted_ratio", "itl_p99_s")}
    assert found == {"requests": 2, "ttft_p99_s": 0.1, "aborted_ratio": 0.5, "itl_p99_s": None}
    assert (row["abandoned_ratio"], row["output_tokens_per_s_p50"]) == (0.5, pytest.approx(100))
    assert (row["prefix_hit_ratio"], row["session_hit_ratio"]) == (0.5, 0.25)
    assert (row["acceptance_ratio"], row["accepted_tokens_per_step"]) == (0.4, 0.8)


def test_a_rule_fires_and_resolves(client: Any, tmp_path: Path) -> None:
    rule = "---\napiVersion: evenkeel/v1\nkind: Rule\nmetadata: {name: tail}\nspec:\n"
    rule += "  threshold: {measure: e2e_p99_s, op: gt, value: 5, over: 15m, minRequests: 2}\n"
    engine = counting_evaluator(client, tmp_path, slo_text(metric="availability") + rule)
    insert(client, *({"end_ns": NOW - S, "e2e_s": 9.0} for _ in range(3)))
    engine.cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    (alert,) = book.alerts()
    assert alert.details.annotations["summary"] == "tail: e2e_p99_s is 9, above 5"
    insert(client, *({"end_ns": NOW + 900 * S} for _ in range(3)))
    engine.cycle(NOW + 901 * S)
    assert [a.life.state.value for a in book.alerts() if a.slo == "tail"] == ["resolved"]
    book.close()


def engine_rows(client: Any, *rows: tuple[str, str, dict[str, str], int, float]) -> None:
    """Insert readings: metric, instance, labels, seconds before NOW, value."""
    client.insert(
        "engine_state",
        [
            [to_datetime(NOW - age * S), name, "gauge", "vllm", instance, labels, value]
            for name, instance, labels, age, value in rows
        ],
        column_names=["time", "name", "kind", "service", "instance", "attributes", "value"],
    )


GAUGE = """\
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {{name: kv}}
spec:
  gauge: {gauge}
"""
BLOCKS = "evenkeel_engine_kv_blocks"
LIVE = "{metric: BLOCKS, where: {state: live}, per: {metric: BLOCKS, where: {state: total}}, "
LIVE = LIVE.replace("BLOCKS", BLOCKS) + "op: gt, value: 0.8, over: 1m}"
KV_ROWS = [
    (BLOCKS, "a:1", {"engine": str(engine), "state": state}, age, value)
    for age in (10, 20)
    for engine, state, value in ((0, "live", 50.0), (0, "total", 100.0), (1, "live", 90.0))
] + [(BLOCKS, "a:1", {"engine": "1", "state": "total"}, age, 100.0) for age in (10, 20)]


def test_a_gauge_is_judged_series_by_series(client: Any, tmp_path: Path) -> None:
    """Half full on average, and one engine of the two is at its limit."""
    engine_rows(client, *KV_ROWS, (BLOCKS, "b:1", {"state": "live"}, 10, 99.0))
    text = slo_text(metric="availability") + GAUGE.format(gauge=LIVE)
    counting_evaluator(client, tmp_path, text).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    (alert,) = book.alerts()
    book.close()
    assert alert.details.annotations["summary"] == (
        f"kv: {BLOCKS}{{state=live}} / {BLOCKS}{{state=total}} is 0.9 on a:1 (engine=1), above 0.8"
    )


@pytest.mark.parametrize(
    ("gauge", "state"),
    [
        pytest.param("{metric: free, op: lt, value: 1024, over: 1m}", "firing", id="the least"),
        pytest.param("{metric: free, op: lt, value: 100, over: 1m}", None, id="all above"),
        pytest.param("{metric: none, op: lt, value: 100, over: 1m}", None, id="nothing read"),
        pytest.param("{metric: free, op: lt, value: 1024, over: 5s}", None, id="nothing read yet"),
    ],
)
def test_a_gauge_without_a_divisor(
    client: Any, tmp_path: Path, gauge: str, state: str | None
) -> None:
    engine_rows(client, ("free", "a:1", {"gpu": "0"}, 10, 900.0), ("free", "a:1", {}, 10, 5000.0))
    text = slo_text(metric="availability") + GAUGE.format(gauge=gauge)
    counting_evaluator(client, tmp_path, text).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    assert [alert.life.state.value for alert in book.alerts()] == ([state] if state else [])
    book.close()


@pytest.mark.parametrize(
    ("running", "usage", "state"),
    [
        pytest.param([0.0, 0.0], [0.0, 0.02], "firing", id="in use with nothing running"),
        pytest.param([0.0, 0.0], [0.0, 0.0], None, id="all given back"),
        pytest.param([3.0, 3.0], [0.4, 0.5], None, id="in use by running requests"),
        pytest.param([3.0, 0.0], [0.9, 0.0], None, id="only idle readings count"),
    ],
)
def test_blocks_in_use_with_nothing_running_are_a_leak(
    client: Any, tmp_path: Path, running: list[float], usage: list[float], state: str | None
) -> None:
    labels = {"engine": "0", "model_name": "m"}
    for age, busy, used in zip((20, 10), running, usage, strict=True):
        engine_rows(
            client,
            ("vllm:num_requests_running", "a:1", labels, age, busy),
            ("vllm:kv_cache_usage_perc", "a:1", labels, age, used),
        )
    # The template waits ten minutes; the wait is tested elsewhere.
    template = find_template("kv-leak").text.replace("  for: 10m\n", "")
    text = f"{slo_text(metric='availability')}---\n{template}"
    counting_evaluator(client, tmp_path, text).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    assert [alert.life.state.value for alert in book.alerts()] == ([state] if state else [])
    book.close()


@pytest.mark.parametrize(
    ("metric", "labels", "value", "states"),
    [
        pytest.param("sglang:token_usage", {"model_name": "m"}, 0.9, ["firing"], id="SGLang"),
        pytest.param(
            "nv_trt_llm_kv_cache_block_metrics",
            {"model": "m", "kv_cache_block_type": "fraction"},
            0.9,
            ["firing"],
            id="Triton, by label",
        ),
        pytest.param(
            "nv_trt_llm_kv_cache_block_metrics",
            {"model": "m", "kv_cache_block_type": "max"},
            2048.0,
            [],
            id="another label of the same metric",
        ),
        pytest.param("tgi_queue_size", {}, 9.0, [], id="an engine without it"),
    ],
)
def test_a_rule_that_names_vllms_gauge_is_about_every_engines(
    client: Any,
    tmp_path: Path,
    metric: str,
    labels: dict[str, str],
    value: float,
    states: list[str],
) -> None:
    engine_rows(client, *((metric, "e:1", labels, age, value) for age in (20, 10)))
    text = f"{slo_text(metric='availability')}---\n{find_template('kv-live-vllm').text}"
    counting_evaluator(client, tmp_path, text).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    assert [alert.life.state.value for alert in book.alerts()] == states
    book.close()


def test_a_gauge_may_be_named_as_we_name_it(client: Any, tmp_path: Path) -> None:
    engine_rows(client, ("llamacpp:requests_deferred", "e:1", {}, 10, 30.0))
    rule = "---\napiVersion: evenkeel/v1\nkind: Rule\nmetadata: {name: queue}\nspec:\n"
    rule += "  gauge: {metric: num_waiting, op: gt, value: 10, over: 5m}\n"
    counting_evaluator(client, tmp_path, slo_text(metric="availability") + rule).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    (alert,) = book.alerts()
    assert alert.details.annotations["summary"] == "queue: num_waiting is 30 on e:1, above 10"
    book.close()


def test_compared_near_hits_have_an_upper_bound(client: Any) -> None:
    def span(verdict: str, similarity: str, outcome: str, reason: str = "") -> list[Any]:
        attributes = {"evenkeel.cache.similarity": similarity, "evenkeel.response_cache": outcome}
        if reason:
            attributes["evenkeel.cache.reason"] = reason
        if verdict:
            attributes["evenkeel.cache.verdict"] = verdict
        return [to_datetime(NOW - S), "chat", attributes]

    rows = [span("same", "0.95", "semantic") for _ in range(97)]
    rows += [span("", "0.91", "semantic"), *(span("different", "0.89", "replay") for _ in range(3))]
    # A guard refused them: they are never served, however often they would have been wrong.
    rows += [span("different", "0.99", "draft", "contrast") for _ in range(50)]
    rows += [span("", "0.5", "miss"), [to_datetime(NOW - S), "chat", {}]]
    client.insert("spans", rows, column_names=["Timestamp", "SpanName", "SpanAttributes"])
    parameters = dict.fromkeys(SELECTOR_COLUMNS, "") | {"from_ns": NOW - 60 * S, "to_ns": NOW}
    (row,) = SloStore(client).read(query("cache_measures"), parameters)
    assert sorted(set(CACHE_MEASURES) - set(row)) == []
    assert (row["requests"], row["cache_wrong_ratio"]) == (100, pytest.approx(0.03))
    # Wilson, one-sided 95%, 3 of 100: statsmodels' proportion_confint(3, 100, 0.1, "wilson").
    assert row["cache_wrong_upper"] == pytest.approx(0.07271, abs=1e-5)
    assert row["cache_similarity_min"] == 0.91
    earlier = parameters | {"to_ns": NOW - 50 * S}
    assert SloStore(client).read(query("cache_measures"), earlier) == []
