"""What a tenant's token sends as metrics or evaluations says nothing of the fleet's."""

from pathlib import Path
from typing import Any

from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.slo.store import SloStore
from tests.fixtures.slo_requests import NOW, S, counting_evaluator, slo_text
from tests.queries import query

ACME = {"evenkeel.tenant": "acme"}
RULE = """\
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: full}
spec:
  gauge: {metric: used, op: gt, value: 0.8, over: 1m, eachSeries: true}
"""

EVALS = """\
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: answers}
spec:
  indicator: {metric: eval_pass, select: {dataset: support}}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def readings(
    client: Any, metric: str, resource: dict[str, str], *values: tuple[int, float], **labels: str
) -> None:
    """Insert readings of the engine a:1: seconds before NOW, value."""
    client.insert(
        "engine_state",
        [
            [to_datetime(NOW - age * S), metric, "gauge", "vllm", "a:1", labels, resource, value]
            for age, value in values
        ],
        column_names=[
            "time", "name", "kind", "service", "instance", "attributes", "resource_attributes",
            "value",
        ],
    )  # fmt: skip


def firing(client: Any, tmp_path: Path) -> list[tuple[str, str | None]]:
    """Return the alerts of the rule that fire, each with its label for the tenant."""
    counting_evaluator(client, tmp_path, slo_text(metric="availability") + RULE).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    found = [
        (alert.slo, alert.details.labels.get("tenant"))
        for alert in book.alerts()
        if alert.life.state.value == "firing"
    ]
    book.close()
    return found


def test_a_tenant_cannot_hide_that_an_engine_is_full(client: Any, tmp_path: Path) -> None:
    readings(client, "used", {}, (10, 0.95), (20, 0.95), engine="0")
    readings(client, "used", ACME, *((age, 0.0) for age in range(5, 55, 5)), engine="0")
    assert firing(client, tmp_path) == [("full/a:1,0", None)]


def test_an_alert_on_a_tenants_engine_is_that_tenants(client: Any, tmp_path: Path) -> None:
    readings(client, "used", {}, (10, 0.1), engine="0")
    readings(client, "used", ACME, (10, 0.95), engine="0")
    assert firing(client, tmp_path) == [("full/a:1,0,acme", "acme")]


def test_a_tenant_cannot_forge_what_engines_cost(client: Any) -> None:
    """Nor can it make a counter of the fleet's begin anew."""
    name = "evenkeel_engine_seconds_total"
    readings(client, name, {}, (30, 100.0), (20, 110.0), (10, 120.0), kind="idle")
    readings(client, name, ACME, (35, 0.0), (25, 1e6), (15, 0.0), kind="idle")
    bounds = {"from_ms": (NOW - 600 * S) // 10**6, "to_ms": NOW // 10**6, "model": ""}
    rows = client.query(query("engine_seconds").read_text(), parameters=bounds).named_results()
    assert sum(row["spent_s"] for row in rows) == 20.0


def test_the_energy_of_an_engine_is_read_beside_its_seconds(client: Any) -> None:
    readings(client, "evenkeel_engine_seconds_total", {}, (20, 10.0), (10, 20.0), kind="idle")
    name = "evenkeel_engine_energy_joules_total"
    readings(client, name, {}, (20, 1e3), (10, 1.6e3), kind="idle")
    readings(client, name, ACME, (25, 0.0), (15, 1e9), kind="idle")
    readings(client, "evenkeel_engine_seconds_total", {}, (20, 1.0), (10, 3.0), kind="between")
    bounds = {"from_ms": (NOW - 600 * S) // 10**6, "to_ms": NOW // 10**6, "model": ""}
    rows = client.query(query("engine_seconds").read_text(), parameters=bounds).named_results()
    assert [(row["kind"], row["spent_s"], row["energy_j"]) for row in rows] == [
        ("between", 2.0, 0.0),
        ("idle", 10.0, 600.0),
    ]


def test_a_tenant_cannot_spend_the_budget_of_evaluations(client: Any, tmp_path: Path) -> None:
    """It may freeze the promotion of prompts."""
    client.insert(
        "eval_results",
        [
            [to_datetime(NOW - S), "answer", "support", label, attributes]
            for label, attributes in [("right", {}), *[("wrong", ACME)] * 9]
        ],
        column_names=["time", "kind", "dataset", "label", "attributes"],
    )
    engine = counting_evaluator(client, tmp_path, slo_text() + EVALS)
    counts = engine.cycle(NOW)["answers"].counts
    assert (counts.total, counts.bad) == (1, 0)


def live_evaluation(label: str, resource: dict[str, str]) -> list[Any]:
    attributes = {
        "evenkeel.live.monitor": "support",
        "gen_ai.evaluation.name": "exact",
        "evenkeel.live.probability": "1",
        "gen_ai.evaluation.score.label": label,
        # The tenant of the request that was evaluated.
        "evenkeel.tenant": "acme",
    }
    return [to_datetime(NOW - S), "evenkeel.evaluation.live", resource, attributes]


def test_a_tenant_cannot_forge_what_a_live_evaluation_found(client: Any, tmp_path: Path) -> None:
    rows = [live_evaluation("right", {}), *[live_evaluation("wrong", ACME)] * 9]
    columns = ["Timestamp", "SpanName", "ResourceAttributes", "SpanAttributes"]
    client.insert("spans", rows, column_names=columns)
    slos = slo_text() + EVALS.replace("dataset: support", "dataset: 'live:support'")
    counts = counting_evaluator(client, tmp_path, slos).cycle(NOW)["answers"].counts
    assert (counts.total, counts.bad) == (1, 0)
    bounds = {"from_ms": (NOW - 60 * S) // 10**6, "to_ms": NOW // 10**6, "step_s": 60}
    series = client.query(query("live_eval_series").read_text(), parameters=bounds).named_results()
    assert {row["monitor"]: row["num_scored"] for row in series} == {
        "support": 1,
        "support (acme)": 9,
    }


def test_a_tenant_cannot_hide_that_the_response_cache_is_wrong(client: Any) -> None:
    compared = {"evenkeel.cache.similarity": "0.95", "evenkeel.response_cache": "replay"}
    wrong, same = ({**compared, "evenkeel.cache.verdict": each} for each in ("different", "same"))
    client.insert(
        "spans",
        [[to_datetime(NOW - S), {}, wrong | ACME], *[[to_datetime(NOW - S), ACME, same]] * 99],
        column_names=["Timestamp", "ResourceAttributes", "SpanAttributes"],
    )
    parameters = dict.fromkeys(SELECTOR_COLUMNS, "") | {"from_ns": NOW - 60 * S, "to_ns": NOW}
    (row,) = SloStore(client).read(query("cache_measures"), parameters)
    assert (row["requests"], row["cache_wrong_ratio"]) == (1, 1.0)
    (row,) = SloStore(client).read(query("cache_measures"), parameters | {"tenant": "acme"})
    assert row["requests"] == 1
