"""What an evaluator writes and alerts on: burns, no data, rules."""

from pathlib import Path
from typing import Any

import pytest

from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.state import State
from tests.fixtures.slo_requests import (
    NOW,
    SLOW,
    S,
    counting_evaluator,
    evaluator,
    insert,
    slo_text,
)


def test_the_burn_of_each_window_is_in_slo_status(client: Any, tmp_path: Path) -> None:
    # 12 s and 1 s are the scaled 1 h and 5 min: 3 of 6 bad, then only good ones.
    rows = [{"end_ns": NOW - 8 * S} | (SLOW if i < 3 else {}) for i in range(6)]
    insert(client, *rows, {"end_ns": NOW - S // 2})
    evaluator(client, tmp_path, slo_text()).cycle(NOW)
    (row,) = client.query(
        "SELECT state, good, total, sli, period_s, scale, windows.severity, windows.factor, "
        "windows.long_s, windows.short_s, windows.burn_long, windows.burn_short FROM slo_status"
    ).named_results()
    assert row["state"] == "firing"
    assert (row["good"], row["total"], row["sli"]) == (4, 7, pytest.approx(4 / 7))
    assert (row["period_s"], row["scale"]) == (8640, pytest.approx(1 / 300))
    assert row["windows.severity"] == ["page", "page", "ticket", "ticket"]
    assert row["windows.factor"] == pytest.approx([14.4, 6, 3, 1])
    assert row["windows.long_s"] == pytest.approx([12, 72, 288, 864])
    assert row["windows.burn_long"] == pytest.approx([100 * 3 / 7] * 4)
    assert row["windows.burn_short"] == pytest.approx([0, 0, 100 * 3 / 7, 100 * 3 / 7])


def test_an_alert_fires_with_evidence_and_is_history_once(client: Any, tmp_path: Path) -> None:
    usual = {"tenant": "other", "prompt_name": "chat", "prompt_version": "v1"}
    good = [{"end_ns": NOW - 3 * S, "request_id": f"good-{i}"} | usual for i in range(20)]
    new = {"tenant": "acme", "prompt_name": "chat", "prompt_version": "v2"}
    bad = [{"end_ns": NOW - S // 2, "request_id": f"bad-{i}"} | SLOW | new for i in range(10)]
    client.insert(
        "eval_results",
        [[to_datetime(NOW - 60 * S), "gate", "run-7", "accuracy", "pass"]],
        column_names=["time", "kind", "run_id", "gate", "verdict"],
    )
    insert(client, *good, *bad)
    engine = evaluator(client, tmp_path, slo_text())
    engine.cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    page = next(alert for alert in book.alerts() if alert.severity == "page")
    notes = page.details.annotations
    assert notes["bad_requests"] == "10 of 30"
    assert notes["top_cause"].startswith("queue: 1.60 s on average in bad requests, 20 ms in good")
    assert "tenant=acme: 100.0% bad of 10" in notes["worst_cohorts"]
    assert notes["prompt_change"].startswith("chat went from v1 to v2 at 20")
    assert notes["eval_verdict"].endswith("accuracy pass")
    assert notes["budget_lasts"] == "spent"
    assert notes["bad_by_prompt_size"] == "up to 1024 tokens: 10 of 10"
    exemplars = notes["exemplars"].splitlines()
    assert len(exemplars) == 3
    assert all("http://127.0.0.1:8501/request?trace_id=" in line for line in exemplars)
    assert "scale" in notes
    assert page.details.labels == {
        "alertname": "SloBudgetBurn",
        "slo": "chat",
        "severity": "page",
        "objective": "ttft",
        "model": "support",
        "service": "support",
    }
    # A crash after the insert and before the mark: the transition is written a second time.
    book.connection.exec_driver_sql("UPDATE transitions SET is_stored = 0")
    engine.cycle(NOW + S // 10)
    rows = client.query(
        "SELECT severity, from_state, state, starts_at = time, burn_long > factor "
        "FROM alert_history ORDER BY severity"
    ).result_rows
    assert rows == [
        ("page", "inactive", "firing", True, 1),
        ("ticket", "inactive", "firing", True, 1),
    ]
    book.close()


def test_an_slo_that_cannot_be_read_keeps_its_alert(client: Any, tmp_path: Path) -> None:
    insert(client, *({"end_ns": NOW - S // 2} | SLOW for _ in range(5)))
    engine = evaluator(client, tmp_path, slo_text())
    engine.cycle(NOW)
    client.command("RENAME TABLE requests TO requests_away")
    try:
        assert engine.cycle(NOW + 60 * S) == {}
    finally:
        client.command("RENAME TABLE requests_away TO requests")
    book = AlertBook(tmp_path / "alerts.db")
    assert {alert.life.state.value for alert in book.alerts()} == {"firing"}
    # Read again, but nothing came since: nobody can say that it is over.
    engine.cycle(NOW + 61 * S)
    assert {alert.life.state.value for alert in book.alerts()} == {"firing"}
    insert(client, {"end_ns": NOW + 62 * S})
    engine.cycle(NOW + 62 * S)
    assert {alert.severity: alert.life.state.value for alert in book.alerts()} == {
        "page": "resolved",
        "ticket": "firing",
    }
    book.close()


def test_no_data_is_an_alert_of_its_own(client: Any, tmp_path: Path) -> None:
    # The default is the longest short window: 6 h, scaled to 72 s.
    insert(client, {"end_ns": NOW - S})
    engine = evaluator(client, tmp_path, slo_text())
    book = AlertBook(tmp_path / "alerts.db")

    def fired() -> list[tuple[str, str]]:
        return [(a.details.labels["alertname"], a.life.state.value) for a in book.alerts()]

    engine.cycle(NOW)
    engine.cycle(NOW + 60 * S)
    assert fired() == []
    engine.cycle(NOW + 90 * S)
    assert fired() == [("SloNoData", "firing")]
    insert(client, {"end_ns": NOW + 100 * S})
    engine.cycle(NOW + 101 * S)
    assert fired() == [("SloNoData", "resolved")]
    # A restart does not know yet whether data is missing, and leaves the alert as it is.
    evaluator(client, tmp_path, slo_text()).cycle(NOW + 500 * S)
    assert fired() == [("SloNoData", "resolved")]
    book.close()


def test_a_budget_policy_tells_labels_and_ends_with_the_spending(
    client: Any, tmp_path: Path
) -> None:
    policy = (
        "  budgetPolicy:\n    - {spent: 0.5, alert: ticket, labels: {budget: low}}\n"
        "    - {spent: 5, alert: page}\n"
    )
    rows = [{"end_ns": NOW - S // 2} | (SLOW if i < 3 else {}) for i in range(100)]
    insert(client, *rows)
    book = AlertBook(tmp_path / "alerts.db")
    engine = evaluator(client, tmp_path, slo_text() + policy)
    engine.cycle(NOW)

    def firing() -> set[tuple[str, str]]:
        return {(a.slo, a.severity) for a in book.alerts() if a.life.state is State.FIRING}

    assert ("chat/budget-50", "ticket") in firing()
    assert not any(name == "chat/budget-500" for name, _ in firing())
    burning = next(alert for alert in book.alerts() if alert.slo == "chat")
    assert burning.details.labels["budget"] == "low"
    good = [{"end_ns": NOW + S, "request_id": f"later-{i}"} for i in range(900)]
    insert(client, *good)
    engine.cycle(NOW + 2 * S)
    assert ("chat/budget-50", "ticket") not in firing()


def test_a_clock_that_was_hours_ahead_stops_no_alert(client: Any, tmp_path: Path) -> None:
    """A machine may start hours ahead, until it asks a time server."""
    insert(client, *({"end_ns": NOW - 200 * S} for _ in range(20)))
    engine = counting_evaluator(client, tmp_path, slo_text())
    engine.cycle(NOW + 7200 * S)
    insert(client, *({"end_ns": NOW - S // 2} | SLOW for _ in range(20)))
    engine.cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    pages = [alert for alert in book.alerts() if alert.severity == "page"]
    book.close()
    assert [(page.life.state, page.life.since_ns) for page in pages] == [(State.FIRING, NOW)]


def test_a_clock_set_back_a_little_stands_still(client: Any, tmp_path: Path) -> None:
    insert(client, *({"end_ns": NOW - S // 2} for _ in range(20)))
    engine = counting_evaluator(client, tmp_path, slo_text())
    engine.cycle(NOW)
    insert(client, *({"end_ns": NOW - 2 * S} | SLOW for _ in range(20)))
    assert engine.cycle(NOW - S)["chat"].counts.total == 40
    (row,) = client.query("SELECT uniqExact(time) AS times FROM slo_status").named_results()
    assert row["times"] == 1
