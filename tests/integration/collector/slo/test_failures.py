"""One SLO or rule that fails leaves the others alone; late spans count soon."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from evenkeel.slo.model import Member, SloFile
from evenkeel.slo.selection import Filter, SelectOperator
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.store import SloStore
from tests.fixtures.slo_requests import NOW, SLOW, S, counting_evaluator, insert, slo_text

EVALS = """\
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: answers}
spec:
  indicator: {metric: eval_pass}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""
RULE = """\
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: queue}
spec:
  gauge: {metric: queue, op: gt, value: 5, over: 1m}
"""


def states(client: Any) -> dict[str, str]:
    rows = client.query("SELECT slo, argMax(state, time) FROM slo_status GROUP BY slo").result_rows
    return dict(rows)


def firing(tmp_path: Path) -> set[tuple[str, str]]:
    book = AlertBook(tmp_path / "alerts.db")
    found = {
        (alert.details.labels["alertname"], alert.details.labels["slo"])
        for alert in book.alerts()
        if alert.life.state == "firing"
    }
    book.close()
    return found


def test_an_slo_whose_query_fails_is_unknown_and_the_others_alert(
    client: Any, tmp_path: Path
) -> None:
    insert(client, *({"end_ns": NOW - S // 2} | SLOW for _ in range(5)))
    engine = counting_evaluator(client, tmp_path, slo_text() + EVALS + RULE)
    client.command("RENAME TABLE eval_results TO eval_results_away")
    client.command("RENAME TABLE engine_state TO engine_state_away")
    try:
        for second in (0, 0.2, 0.4, 0.6, 0.8):
            assert set(engine.cycle(NOW + int(second * S))) == {"chat"}
        assert states(client) == {"chat": "firing", "answers": "unknown"}
        # The default rule on requests that hang reads the same table as `queue`.
        names = ("answers", "queue", "stalled-requests")
        failed = {("SloEvaluationFailed", name) for name in names}
        assert firing(tmp_path) == {("SloBudgetBurn", "chat")} | failed
    finally:
        client.command("RENAME TABLE eval_results_away TO eval_results")
        client.command("RENAME TABLE engine_state_away TO engine_state")
    for second in range(60, 180, 20):
        engine.cycle(NOW + second * S)
    assert not failed & firing(tmp_path)
    assert states(client)["answers"] == "no_data"


def test_a_store_that_is_gone_fires_for_no_slo(client: Any, tmp_path: Path) -> None:
    text = "---\n".join(slo_text(f"slo-{i}") for i in range(20))
    engine = counting_evaluator(client, tmp_path, text)
    engine.cycle(NOW)
    assert not engine.is_store_gone
    client.command("RENAME TABLE requests TO requests_away")
    try:
        for second in range(1, 120, 10):
            assert engine.cycle(NOW + second * S) == {}
            assert engine.is_store_gone
    finally:
        client.command("RENAME TABLE requests_away TO requests")
    assert firing(tmp_path) == set()
    assert len(engine.cycle(NOW + 121 * S)) == 20


def changed(engine: Evaluator, name: str, **fields: Any) -> SloFile:
    """Return the file with one SLO's indicator as no file says it: reading would refuse it."""
    slos = tuple(
        replace(slo, indicator=replace(slo.indicator, **fields)) if slo.name == name else slo
        for slo in engine.slos
    )
    return replace(engine._file, slos=slos)


def test_an_exception_of_one_slo_is_its_own(client: Any, tmp_path: Path) -> None:
    """Whatever a bad number does to the arithmetic of one SLO."""
    insert(client, {"end_ns": NOW - S})
    names = [f"slo-{i}" for i in range(7)]
    engine = counting_evaluator(client, tmp_path, "---\n".join(slo_text(name) for name in names))
    written = engine._file
    heavy = Member(engine.slos[4].indicator, Fraction(10) ** 400)
    engine.use_file(changed(engine, "slo-4", members=(heavy, heavy)))
    for second in range(4):
        verdicts = engine.cycle(NOW + second * S)
        assert set(verdicts) == set(names) - {"slo-4"}
    assert states(client)["slo-4"] == "unknown"
    assert firing(tmp_path) == {("SloEvaluationFailed", "slo-4")}
    engine.use_file(written)
    verdicts = engine.cycle(NOW + 100 * S)
    assert verdicts["slo-4"].counts == verdicts["slo-0"].counts


def test_the_one_part_that_makes_a_shared_query_fail_is_found(client: Any, tmp_path: Path) -> None:
    insert(client, {"end_ns": NOW - S})
    names = [f"slo-{i}" for i in range(30)]
    engine = counting_evaluator(client, tmp_path, "---\n".join(slo_text(name) for name in names))
    engine.cycle(NOW)
    # The store refuses a pattern that is none, and with it the query of all.
    filters = (Filter("tenant", SelectOperator.MATCHES, ("(",)),)
    engine.use_file(changed(engine, "slo-11", filters=filters))
    assert set(engine.cycle(NOW + S)) == set(names) - {"slo-11"}
    assert states(client)["slo-11"] == "unknown"


@pytest.mark.parametrize("late_s", [61, 90, 200, 600, 890])
def test_spans_that_come_late_count_within_half_a_minute(
    client: Any, tmp_path: Path, late_s: int
) -> None:
    text = slo_text()
    engine = counting_evaluator(client, tmp_path, text.replace("duration: 30d", "duration: 360d"))
    insert(client, {"end_ns": NOW - S})
    for second in range(70, 100, 5):
        assert engine.cycle(NOW + second * S)["chat"].counts.total == 1
    came_ns = NOW + 97 * S
    late = {"end_ns": came_ns - late_s * S}
    insert(client, late, late | {"e2e_s": 1500.0}, late | {"e2e_s": 30.0})
    totals = [engine.cycle(NOW + s * S)["chat"].counts.total for s in range(100, 130, 5)]
    assert totals[-2] == 4, "27 s after they came"


def test_what_comes_in_time_is_read_once(client: Any, tmp_path: Path) -> None:
    """No cycle reads further back than a minute while nothing is late."""
    engine = counting_evaluator(client, tmp_path, slo_text())
    spans = []
    counts = SloStore.counts

    def note(store: SloStore, parts: Any, span: Any) -> Any:
        spans.append(span.to_ns - span.from_ns)
        return counts(store, parts, span)

    store = engine._store
    store.counts = note.__get__(store)  # type: ignore[method-assign]
    for second in range(0, 130, 5):
        now_ns = NOW + second * S
        insert(client, *({"end_ns": now_ns - k * S // 2} for k in range(8)))
        engine.cycle(now_ns)
    assert max(spans[1:]) < 80 * S
