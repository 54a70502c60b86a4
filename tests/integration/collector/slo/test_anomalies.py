"""Rules on spikes, and on requests that hang, on the real store."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.anomalies import default_anomalies
from evenkeel.slo.file.slo_file import WITHOUT_FILE, read_slo_file
from evenkeel.slo.rules import Rule
from evenkeel.slo.spike_measures import SPIKE_MEASURES
from evenkeel.slo.spikes import LEVELS, Spike, SpikeResult
from evenkeel.store import read_query
from evenkeel_collector.alerts.alert import Alert
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.query.tenant_row_filters import TENANT_OF
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.rule_evaluator import RuleEvaluator
from evenkeel_collector.slo.spike_evidence import SpikeAlert, gather
from evenkeel_collector.slo.spike_past import SpikePasts
from evenkeel_collector.slo.store import SloStore
from tests.fixtures.slo_requests import NOW, S, evaluator, insert, slo_text
from tests.integration.collector.slo.test_rules import engine_rows
from tests.queries import query

MINUTE = 60 * S
# Windows of a minute, so that an hour of past is enough.
SPIKE = """\
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {{name: {name}, displayName: Longer than usual}}
spec:
  spike: {{measure: {measure}, over: 1m, minRequests: 10, groupBy: [model, tenant]}}
"""
LONG_INPUTS = slo_text(metric="availability") + SPIKE.format(name="spike", measure="input_tokens")


def traffic(client: Any, first_minute: int, last_minute: int, **values: Any) -> None:
    """Insert 24 requests a minute of each of two tenants, alike but for what `values` says."""
    traffic_of({"acme": values, "globex": {}}, client, first_minute, last_minute)


def traffic_of(
    tenants: Mapping[str, Mapping[str, Any]], client: Any, first_minute: int, last_minute: int
) -> None:
    insert(
        client,
        *(
            {
                "end_ns": NOW + minute * MINUTE + i * 2 * S,
                "tenant": tenant,
                "input_tokens": 100 + i,
                "output_tokens": 50,
                "reasoning_tokens": 5,
                "visible_tokens": 45,
                "repeated_share": 0.0,
                "tool_calls_failed": 0,
                "finish_reason": "stop",
                "request_id": f"{tenant}-{minute}-{i}",
            }
            | dict(values)
            for minute in range(first_minute, last_minute)
            for tenant, values in tenants.items()
            for i in range(24)
        ),
    )


def watch(client: Any, tmp_path: Path, measure: str) -> Evaluator:
    """Return an evaluator of one rule that knows the past up to NOW."""
    return watch_rules(client, tmp_path, SPIKE.format(name="spike", measure=measure))


def watch_rules(client: Any, tmp_path: Path, rules: str) -> Evaluator:
    engine = evaluator(client, tmp_path, slo_text(metric="availability") + rules)
    engine.cycle(NOW)
    read_past(engine, NOW)
    return engine


def read_past(engine: Evaluator, now_ns: int) -> None:
    """Let it read all of the past, however slow the machine is."""
    families = engine._rules._spikes._families.values()
    while any(family.pasts is not None and family.pasts.is_loading for family in families):
        engine.cycle(now_ns)


def spikes(book: AlertBook) -> dict[str, Alert]:
    return {alert.slo: alert for alert in book.alerts() if alert.slo.startswith("spike/")}


def states(book: AlertBook) -> list[str]:
    return [alert.life.state.value for alert in spikes(book).values()]


@pytest.fixture
def spiking(client: Any, tmp_path: Path, book: AlertBook) -> Evaluator:
    """An evaluator in which an alert on the long inputs of acme fires since NOW + 2 minutes."""
    traffic(client, -40, 0)
    engine = watch(client, tmp_path, "input_tokens")
    traffic(client, 0, 2, input_tokens=300)
    engine.cycle(NOW + 2 * MINUTE)
    return engine


def num_explored(client: Any, typed: dict[str, str]) -> int:
    """Return how many requests the Explore page finds, given its URL's parameters."""
    sql = read_query(query("explore_count"))
    types = dict(re.findall(r"\{(\w+):(\w+)\}", sql))
    parameters = {n: typed.get(n, "") if t == "String" else float(typed.get(n, 0))
                  for n, t in types.items()}  # fmt: skip
    for end in ("from", "to"):
        parameters[f"{end}_ms"] = int(datetime.fromisoformat(typed[end]).timestamp() * 1000)
    (found,) = client.query(sql, parameters=parameters).result_rows
    return int(found[0])


CHANGED: dict[str, dict[str, Any]] = {
    "input_tokens": {"input_tokens": 260},
    "output_tokens": {"output_tokens": 400},
    "reasoning_tokens": {"reasoning_tokens": 300},
    "repeated_share": {"repeated_share": 0.8},
    "empty_share": {"visible_tokens": 0},
    "cut_share": {"finish_reason": "length"},
    "failed_tool_share": {"tool_calls_failed": 2},
    "refused_share": {"finish_reason": "content_filter"},
}


def test_a_spike_of_one_tenant_fires_for_it_and_its_measure_alone(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    # A tenant for each measure, and one that never changes.
    tenants: dict[str, dict[str, Any]] = {measure: {} for measure in SPIKE_MEASURES}
    traffic_of({**tenants, "globex": {}}, client, -40, 0)
    names = {measure: measure.replace("_", "-") for measure in SPIKE_MEASURES}
    rules = (SPIKE.format(name=names[measure], measure=measure) for measure in SPIKE_MEASURES)
    engine = watch_rules(client, tmp_path, "".join(rules))
    assert [alert.slo for alert in book.alerts() if "/" in alert.slo] == []
    traffic_of({**CHANGED, "globex": {}}, client, 0, 2)
    engine.cycle(NOW + 2 * MINUTE)
    alerts = {alert.slo: alert for alert in book.alerts() if "/" in alert.slo}
    assert alerts.keys() == {f"{name}/support,{measure}" for measure, name in names.items()}
    # A tenant's viewer sees the rows of the history with its own label.
    assert TENANT_OF["alert_history"] == "labels['tenant']"
    rows = client.query(
        "SELECT labels['tenant'], state FROM alert_history WHERE slo LIKE '%/%' ORDER BY 1"
    )
    assert rows.result_rows == [(measure, "firing") for measure in sorted(SPIKE_MEASURES)]
    for measure, name in names.items():
        check_alert(alerts[f"{name}/support,{measure}"], name, measure, client)


def check_alert(alert: Alert, name: str, measure: str, client: Any) -> None:
    """Check what is said of the spike of a tenant that is called like the measure."""
    assert alert.life.state.value == "firing"
    labels = alert.details.labels
    assert (labels["alertname"], labels["slo_group"]) == ("Anomaly", name)
    assert (labels["tenant"], labels["model"]) == (measure, "support")
    texts = alert.details.annotations
    assert texts["summary"] == f"Longer than usual (model support, tenant {measure})"
    assert SPIKE_MEASURES[measure].words in texts["description"]
    assert texts["what_helps"] == SPIKE_MEASURES[measure].helps
    # Windows as short as this one know nothing of other days.
    assert re.fullmatch(r"\S+ to \S+ in nine of ten windows of the 24m before", texts["usual"])
    examples = texts["exemplars"].splitlines()
    assert len(examples) == 3
    example = rf"{measure}-[01]-\d+ \(.*/request\?trace_id="
    assert all(re.match(example, line) for line in examples)
    explored = parse_qs(urlsplit(texts["explore"]).query)
    assert explored["tenant"] == [measure]
    assert explored.items() >= {k: [v] for k, v in SPIKE_MEASURES[measure].explore.items()}.items()
    # Of the window's 24, the first arrived before it.
    assert num_explored(client, {name: values[0] for name, values in explored.items()}) == 23


def test_examples_are_the_cohorts_own_and_ended_in_the_window(client: Any) -> None:
    insert(
        client,
        {"request_id": "of acme", "tenant": "acme", "input_tokens": 900, "end_ns": NOW - S},
        {"request_id": "earlier", "input_tokens": 900, "end_ns": NOW - 2 * MINUTE},
        {"request_id": "long", "input_tokens": 500, "end_ns": NOW - S, "e2e_s": 900.0},
        {"request_id": "short", "input_tokens": 100, "end_ns": NOW - S},
    )
    test = Spike("input_tokens", Fraction(60), ("model", "tenant"))
    rule = Rule("spike", "Longer", Severity.TICKET, test, {})
    found = SpikeResult(True, 500.0, 100.0, 60)
    # The cohort of requests without a tenant.
    alert = SpikeAlert("spike/support", rule, test, {"model": "support"}, found, NOW)
    examples = gather(alert, None, SloStore(client))["exemplars"].splitlines()
    assert [line.partition(" (")[0] for line in examples] == ["long", "short"]


def test_a_spike_resolves_when_it_is_over_and_when_the_tenant_is_gone(
    client: Any, spiking: Evaluator, book: AlertBook
) -> None:
    traffic(client, 2, 8)
    spiking.cycle(NOW + 8 * MINUTE)
    assert states(book) == ["resolved"]
    traffic(client, 8, 10, input_tokens=300)
    spiking.cycle(NOW + 10 * MINUTE)
    assert states(book) == ["firing"]
    spiking.cycle(NOW + 20 * MINUTE)
    assert states(book) == ["resolved"]


def test_a_restart_keeps_an_alert_until_the_past_is_read(
    client: Any, tmp_path: Path, spiking: Evaluator, book: AlertBook
) -> None:
    again = evaluator(client, tmp_path, LONG_INPUTS)
    again.cycle(NOW + 2 * MINUTE + S)
    assert states(book) == ["firing"]


def test_a_removed_rule_resolves_its_alerts(
    client: Any, tmp_path: Path, spiking: Evaluator, book: AlertBook
) -> None:
    evaluator(client, tmp_path, slo_text(metric="availability")).cycle(NOW + 3 * MINUTE)
    assert states(book) == ["resolved"]


def test_a_restart_ends_no_alert_whose_requests_are_still_to_come(
    client: Any, tmp_path: Path, spiking: Evaluator, book: AlertBook
) -> None:
    again = evaluator(client, tmp_path, LONG_INPUTS)
    again.cycle(NOW + 30 * MINUTE)
    assert states(book) == ["firing"]
    again.cycle(NOW + 35 * MINUTE)
    assert states(book) == ["resolved"]


def test_an_alert_resolves_when_requests_no_longer_have_the_measure(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    traffic(client, -40, 0)
    engine = watch(client, tmp_path, "failed_tool_share")
    traffic(client, 0, 2, tool_calls_failed=2)
    engine.cycle(NOW + 2 * MINUTE)
    assert states(book) == ["firing"]
    traffic(client, 2, 10, tool_calls_failed=None)
    engine.cycle(NOW + 10 * MINUTE)
    assert states(book) == ["resolved"]


def test_busier_cohorts_displace_no_cohort_with_an_alert(
    client: Any, tmp_path: Path, spiking: Evaluator, book: AlertBook
) -> None:
    again = evaluator(client, tmp_path, LONG_INPUTS.replace("tenant]", "tenant], maxGroups: 1"))
    traffic(client, 2, 7, input_tokens=300)
    insert(
        client,
        *(
            {"end_ns": NOW + second * S, "tenant": "other", "request_id": f"other-{second}"}
            for second in range(120, 420)
        ),
    )
    again.cycle(NOW + 7 * MINUTE)
    read_past(again, NOW + 7 * MINUTE)
    # Every twelve seconds, cohorts are judged.
    again.cycle(NOW + 7 * MINUTE + 13 * S)
    assert states(book) == ["firing"]
    (family,) = again._rules._spikes._families.values()
    assert family.pasts is not None
    assert list(family.pasts.cohorts) == [("support", "acme")]


def test_a_cohort_may_be_called_like_the_alert_on_a_failed_evaluation(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    traffic(client, -40, 0, tenant="evaluation")
    rule = SPIKE.format(name="spike", measure="input_tokens")
    engine = watch_rules(client, tmp_path, rule.replace("[model, tenant]", "[tenant]"))
    traffic(client, 0, 2, tenant="evaluation", input_tokens=300)
    engine.cycle(NOW + 2 * MINUTE)
    assert set(spikes(book)) == {"spike/evaluation,"}


def test_windows_are_the_quantiles_and_shares_of_their_requests(client: Any) -> None:
    traffic(client, -4, 0)
    common = {
        **dict.fromkeys(("model", "tenant", "slo_class", "route"), ""),
        **dict.fromkeys(("prompt_name", "prompt_version", "engine"), ""),
        "columns": ["tenant"],
        "width_ns": MINUTE,
        "above": 0.5,
        "max_request_ns": 3600 * S,
        "separator": "\x1f",
        "min_requests": 10,
        "most": 100,
    }
    span = {"from_ns": NOW - 4 * MINUTE, "to_ns": NOW}
    rows = SloStore(client).spike_windows({**common, **span, "is_past": 0, "known": []})
    assert {(*row["cohort"], row["place"], row["num_requests"]) for row in rows} == {
        (tenant, width, 24 * width) for tenant in ("acme", "globex") for width in (1, 2, 4)
    }
    assert all(len(row["input_tokens_levels"]) == len(LEVELS) for row in rows)
    assert rows[0]["input_tokens_levels"][19] == pytest.approx(111, abs=1)
    past = SloStore(client).spike_windows({**common, **span, "is_past": 1, "known": ["acme"]})
    assert [(row["cohort"], len(row["input_tokens_levels"])) for row in past] == [(["acme"], 2)] * 4
    assert [row["cut_share"] for row in past] == [0.0] * 4


def test_a_tenant_with_many_cohorts_displaces_no_other_tenant(client: Any) -> None:
    insert(
        client,
        *(
            {"end_ns": NOW - i * S, "tenant": "many", "model": f"m{model}"}
            for model in range(40)
            for i in range(1, 31)
        ),
        *({"end_ns": NOW - i * S, "tenant": "acme"} for i in range(1, 21)),
    )
    test = Spike("input_tokens", Fraction(60), ("model", "tenant"))
    rows = SpikePasts(SloStore(client), test, {}, NOW).newest(NOW, min_requests=10, most=2)
    assert len(rows) == 40
    acme = [row["place"] for row in rows if row["cohort"] == ["support", "acme"]]
    assert sorted(acme) == [1, 2, 4]
    counts = [row["num_requests"] for row in rows]
    assert counts == sorted(counts, reverse=True)


STALLED = "evenkeel_runtime_stalled_requests"


def test_a_hanging_request_alerts_for_its_engine_and_model_until_it_ends(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    engine = evaluator(client, tmp_path, slo_text(metric="availability"))
    for model, waits_for, num in (
        ("big", "next_token", 1.0),
        ("big", "first_token", 0.0),
        ("small", "next_token", 0.0),
        # A long queue is no hang.
        ("small", "first_token", 9.0),
    ):
        labels = {"model": model, "waits_for": waits_for}
        engine_rows(client, (STALLED, "a:1", labels, 5, num))
    engine.cycle(NOW)
    (alert,) = book.alerts()
    assert alert.slo == "stalled-requests/a:1,big"
    assert (alert.life.state.value, alert.details.labels["model"]) == ("firing", "big")
    assert "the engine does now" in alert.details.annotations["what_helps"]
    json.dumps(dict(alert.details.labels))
    # It has ended, and an idle server sends no more readings.
    engine.cycle(NOW + 100 * S)
    (alert,) = (a for a in book.alerts() if a.slo.startswith("stalled-requests/"))
    assert alert.life.state.value == "resolved"


def test_an_anomaly_that_a_file_told_of_ends_when_there_is_the_file_again(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    """Without the file nobody would get the end, and an incident stayed open for ever."""
    labels = {"model": "big", "waits_for": "next_token"}
    engine_rows(client, (STALLED, "a:1", labels, 5, 1.0))
    text = slo_text(metric="availability")
    evaluator(client, tmp_path, text).cycle(NOW)
    without = Evaluator(read_slo_file(WITHOUT_FILE), SloStore(client), book, has_file=False)
    for second in (1, 400):
        without.cycle(NOW + second * S)
    (alert,) = book.alerts()
    assert alert.life.state.value == "firing"
    again = evaluator(client, tmp_path, text)
    for second in (401, 800):
        again.cycle(NOW + second * S)
    (alert,) = (a for a in book.alerts() if a.slo.startswith("stalled-requests/"))
    assert alert.life.state.value == "resolved"
    notifications = book.connection.exec_driver_sql(
        "SELECT receiver, status FROM outbox WHERE alert_id = ? ORDER BY number", (alert.alert_id,)
    )
    assert notifications.all() == [("on-call", "firing"), ("on-call", "resolved")]


@pytest.mark.parametrize(
    ("past", "usual"),
    [
        ([], "unknown: no readings in the 1d before"),
        ([0.0] * 20, "0 in nine of ten readings of the 1d before"),
        ([0.0] * 10 + [4.0] * 10, "0 to 4 in nine of ten readings of the 1d before"),
    ],
    ids=["new", "never", "often"],
)
def test_a_hang_says_what_is_usual_for_its_engine_and_model(
    client: Any, tmp_path: Path, past: list[float], usual: str
) -> None:
    labels = {"model": "big", "waits_for": "next_token"}
    others = {"model": "small", "waits_for": "next_token"}
    engine_rows(client, (STALLED, "a:1", labels, 5, 1.0))
    for number, value in enumerate(past):
        age = 60 + 600 * number
        engine_rows(client, (STALLED, "a:1", labels, age, value))
        engine_rows(client, (STALLED, "a:1", others, age, 7.0), (STALLED, "b:1", labels, age, 9.0))
    (rule,) = (each for each in default_anomalies() if each.name == "stalled-requests")
    rules = RuleEvaluator(SloStore(client), lambda error: None)
    (condition,) = rules.conditions([rule], {}, NOW)
    assert condition.gather is not None
    assert condition.gather(SloStore(client)) == {"usual": usual}


def test_each_cycle_of_half_a_minute_judges_though_its_moment_varies(client: Any) -> None:
    judged = []

    class Counting(SloStore):
        def spike_windows(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
            judged.append(parameters["to_ns"])
            return super().spike_windows(parameters)

    rules = RuleEvaluator(Counting(client), lambda error: None)
    # A cycle begins when the store has what was acknowledged before: in up to two seconds.
    times = [NOW + int(at * S) for at in (1.9, 30.0, 61.9, 90.0)]
    for now_ns in times:
        rules.conditions(default_anomalies(), {}, now_ns)
    assert judged == times


def test_of_a_young_store_only_as_much_past_is_read_as_there_is(client: Any) -> None:
    ends = [NOW - number * 60 * S for number in range(180)]
    insert(client, *({"end_ns": end_ns, "input_tokens": 100} for end_ns in ends))
    spans: list[tuple[int, int]] = []

    class Counting(SloStore):
        def spike_windows(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
            spans.append((parameters["from_ns"], parameters["to_ns"]))
            return super().spike_windows(parameters)

    pasts = SpikePasts(Counting(client), Spike("input_tokens", Fraction(300)), {}, NOW)
    cohorts = [tuple(row["cohort"]) for row in pasts.newest(NOW, 1, 10)]
    pasts.follow(cohorts, NOW)
    spans.clear()
    while pasts.is_loading:
        pasts.load()
    assert len(spans) == 2
    past = pasts.find(cohorts[0], Spike("input_tokens", Fraction(300)))
    assert past is not None
    assert past.requests.sum() == sum(end_ns < spans[0][1] for end_ns in ends)


def test_series_of_odd_names_or_too_many_do_not_fill_the_book(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    engine = evaluator(client, tmp_path, slo_text(metric="availability"))
    labels = {"model": "big", "waits_for": "next_token"}
    instances = ("a\x1b[2J:1", "b" * 200, *(f"c{number}:1" for number in range(250)))
    engine_rows(client, *((STALLED, instance, labels, 5, 1.0) for instance in instances))
    engine.cycle(NOW)
    names = [alert.slo for alert in book.alerts()]
    assert len(names) == 200
    assert all(name.startswith("stalled-requests/c") for name in names)


def test_a_restart_ends_no_hang_whose_readings_are_still_to_come(
    client: Any, tmp_path: Path, book: AlertBook
) -> None:
    labels = {"model": "big", "waits_for": "next_token"}
    engine_rows(client, (STALLED, "a:1", labels, 5, 1.0))
    evaluator(client, tmp_path, slo_text(metric="availability")).cycle(NOW)
    again = evaluator(client, tmp_path, slo_text(metric="availability"))
    again.cycle(NOW + 90 * S)
    (alert,) = (a for a in book.alerts() if a.slo.startswith("stalled-requests/"))
    assert alert.life.state.value == "firing"
    again.cycle(NOW + 190 * S)
    (alert,) = (a for a in book.alerts() if a.slo.startswith("stalled-requests/"))
    assert alert.life.state.value == "resolved"
