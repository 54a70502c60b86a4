"""A budget in money per tenant: who overspends is reported, with the amount, until it is over."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from evenkeel.prices.price_file import ModelPrice, PriceFile
from evenkeel.slo.backtest import replay
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.query import Span
from evenkeel_collector.alerts.alert import Alert
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.commands.stored_minutes import minutes_of
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.report import measure
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.store.storage import Storage
from tests.fixtures.alert_receiver import Received, serve_alerts
from tests.fixtures.collector_process import PROTOBUF, CollectorProcess, post, running_collector
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.slo_requests import NOW, Reader, S, insert

MINUTE = 60 * S
PRICES = """\
currency = "EUR"
[[model]]
name = "gpt-*"
input = 2
output = 8
source = "price list"
read = 2026-11-20
"""
SLOS = """\
apiVersion: evenkeel/v1
kind: Alerting
spec:
  interval: 200ms
  receivers: [{{name: finance, url: {url}, allowPrivate: true}}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: spend, displayName: What a tenant may spend}}
spec:
  indicator: {{metric: cost, groupBy: [tenant]}}
  objectives: [{{value: {budget}}}]
  timeWindow: [{window}]
"""
ROLLING = "{duration: 30d, isRolling: true}"
MONTH = "{duration: 1M, isRolling: false, calendar: {timeZone: UTC}}"


def slos(url: str = "http://127.0.0.1:9/", budget: int = 40, window: str = ROLLING) -> str:
    return SLOS.format(url=url, budget=budget, window=window)


def send(collector: CollectorProcess, tenant: str, num_tokens: int) -> None:
    attributes = {
        "evenkeel.status": "ok",
        "evenkeel.tenant": tenant,
        "gen_ai.request.model": "gpt-a",
        "gen_ai.usage.input_tokens": num_tokens,
        "gen_ai.usage.output_tokens": 0,
    }
    body = trace_request(1, attributes).SerializeToString()
    assert post(collector, body, PROTOBUF).status_code == 200


def ids(received: list[Received], status: str) -> set[str]:
    return {each.notification_id for each in received if each.body["status"] == status}


def test_a_tenant_that_overspends_is_reported_once_until_its_budget_is_raised(
    tmp_path: Path,
) -> None:
    prices, file = tmp_path / "prices.toml", tmp_path / "slos.yaml"
    prices.write_text(PRICES)
    with serve_alerts() as receiver:
        file.write_text(slos(receiver.url))
        flags = ["--prices", str(prices), "--slos", str(file)]
        with running_collector(tmp_path / "data", flags) as collector:
            send(collector, "globex", 1_000)
            send(collector, "acme", 1_000_000)
            receiver.wait_for(lambda got: bool(ids(got, "firing")))
            file.write_text(slos(receiver.url, budget=4000))
            receiver.wait_for(lambda got: bool(ids(got, "resolved")))
        received = receiver.accepted()
    assert {each.body["commonLabels"]["tenant"] for each in received} == {"acme"}
    assert [len(ids(received, status)) for status in ("firing", "resolved")] == [1, 1]
    (alert,) = received[0].body["alerts"]
    labels, texts = alert["labels"], alert["annotations"]
    assert (labels["slo"], labels["severity"]) == ("spend/acme", "page")
    assert texts["summary"] == (
        "What a tenant may spend, acme: 2.00 EUR spent in the last 1h, of 40.00 EUR per 30d"
    )
    assert texts["description"].startswith(
        "2.00 EUR was spent in the last 1h, 2.00 EUR in the last 30d; the budget is 40.00 EUR per "
        "30d. Burn rate 36"
    )
    assert texts["budget_left"] == "95.00%"


@pytest.fixture
def priced(storage: Storage, client: Any) -> Any:
    """Return a client of a store in which a million tokens cost 2 EUR."""
    price = ModelPrice(
        name="support", input=2, output=8, source="price list", read=date(2026, 11, 20)
    )
    storage.prices.use(PriceFile(currency="EUR", model=(price,)))
    yield client
    storage.prices.use(None)


def spend(client: Any, tenant: str, euros: int, end_ns: int) -> None:
    million = {"input_tokens": 1_000_000, "output_tokens": 0, "tenant": tenant, "end_ns": end_ns}
    insert(client, *(million for _ in range(euros // 2)))


def alerts(tmp_path: Path) -> dict[tuple[str, str], Alert]:
    book = AlertBook(tmp_path / "alerts.db")
    found = {(alert.slo, alert.severity): alert for alert in book.alerts()}
    book.close()
    return found


def states(tmp_path: Path) -> dict[tuple[str, str], str]:
    return {key: alert.life.state.value for key, alert in alerts(tmp_path).items()}


def test_it_ends_when_the_windows_move_on(priced: Any, tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(slos())
    spend(priced, "acme", 20, NOW - 3 * MINUTE)
    # As much, but over a month.
    for day in range(10):
        spend(priced, "globex", 2, NOW - (3 * day + 1) * 1440 * MINUTE)
    book = AlertBook(tmp_path / "alerts.db")
    engine = Evaluator(read_slo_file(path), SloStore(priced), book, "http://board")
    engine.cycle(NOW)
    page, ticket = ("spend/acme", "page"), ("spend/acme", "ticket")
    assert states(tmp_path) == {page: "firing", ticket: "firing"}
    texts = alerts(tmp_path)[page].details.annotations
    assert texts["dashboard"].startswith("http://board/cost?from=")
    assert texts["dashboard"].endswith("&tenant=acme")
    # The last pair of a page reads 30 minutes, that of a ticket 6 hours.
    engine.cycle(NOW + 40 * MINUTE)
    assert states(tmp_path) == {page: "resolved", ticket: "firing"}
    engine.cycle(NOW + 400 * MINUTE)
    assert states(tmp_path) == {page: "resolved", ticket: "resolved"}
    book.close()


def test_steps_of_a_calendar_month_say_how_much_is_spent(priced: Any, tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    policy = "  budgetPolicy: [{spent: 0.5, alert: ticket}]\n"
    path.write_text(slos(window=MONTH) + policy)
    spend(priced, "acme", 24, NOW - 3 * MINUTE)
    spend(priced, "globex", 18, NOW - 3 * MINUTE)
    book = AlertBook(tmp_path / "alerts.db")
    Evaluator(read_slo_file(path), SloStore(priced), book).cycle(NOW)
    book.close()
    steps = {slo: alert for (slo, _), alert in alerts(tmp_path).items() if "/budget-" in slo}
    assert steps.keys() == {"spend/acme/budget-50"}
    assert steps["spend/acme/budget-50"].details.annotations["summary"] == (
        "What a tenant may spend, acme: 24.00 EUR is spent this month, 50% or more of 40.00 EUR "
        "per month"
    )


@pytest.mark.parametrize("window", [ROLLING, MONTH])
def test_a_backtest_has_the_budget_of_the_report(priced: Any, tmp_path: Path, window: str) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(slos(window=window).replace(", groupBy: [tenant]", ""))
    spend(priced, "acme", 24, NOW - 3 * MINUTE)
    reader, file = Reader(priced), read_slo_file(path)
    calendar = file.slos[0].calendar
    begin_ns = NOW - 10 * 1440 * MINUTE if calendar is None else calendar.start_ns(NOW)
    span = Span(begin_ns, NOW // MINUTE * MINUTE)
    stored = minutes_of(reader, file.slos[0], span)
    result = replay(stored.slo, stored.minutes, stored.until, stored.allowed)
    (reported,) = measure(reader, file, span).results
    assert result.budget_left_ratio == pytest.approx(reported.budget_left_ratio)
    if window == MONTH:
        assert result.budget_left_ratio == pytest.approx(1 - 24 / 40)
