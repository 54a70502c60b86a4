"""What an alert says of its surroundings, from the real store."""

import json
from pathlib import Path
from typing import Any

import pytest

from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.query import Span, event_parameters, slo_parts
from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.delivery.payloads import make_posting
from evenkeel_collector.slo.store import SloStore
from tests.fixtures.slo_files import slo_file
from tests.fixtures.slo_requests import NOW, SLOW, S, evaluator, insert, slo_text
from tests.queries import query

LEDGER = {"ttft.prefill.others": 1.5, "ttft.queue.seats": 0.3, "decode.decode.own": 0.2}


COMPOSITE = """---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: mixed}}
spec:
  indicator:
    composite:
      - {{slo: chat}}
      - {{indicator: {{metric: availability, select: {{{select}}}}}}}
  objectives: [{{target: 0.99}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
---
"""


def insert_burn(client: Any) -> None:
    """Good requests, then bad ones that waited for another's prefill."""
    good = {"end_ns": NOW - 3 * S, "ledger": {"ttft.prefill.others": 0.1}}
    insert(client, *(good | {"request_id": f"good-{i}"} for i in range(20)))
    bad = {"end_ns": NOW - S // 2, "ledger": LEDGER} | SLOW
    insert(client, *(bad | {"request_id": f"bad-{i}", "ttft_s": 2.0 + i} for i in range(10)))


def insert_spans(client: Any, *spans: tuple[int, dict[str, str], dict[str, str]]) -> None:
    client.insert(
        "spans",
        [
            [to_datetime(NOW - age_s * S), "support", resource, attributes]
            for age_s, resource, attributes in spans
        ],
        column_names=["Timestamp", "ServiceName", "ResourceAttributes", "SpanAttributes"],
    )


def instance(name: str, version: str) -> dict[str, str]:
    return {"service.instance.id": name, "service.version": version, "host.name": "gpu-7"}


def test_an_alert_says_what_changed_and_what_it_costs(client: Any, tmp_path: Path) -> None:
    insert_burn(client)
    insert_spans(
        client,
        (7200, instance("a", "1.4"), {}),
        (600, instance("b", "1.5"), {}),
        (5, instance("a", "1.4"), {"evenkeel.cache.change": "serve from 0.95 -> draft"}),
        (900, instance("a", "1.4"), {"evenkeel.cache.change": "draft -> serve from 0.95"}),
    )
    evaluator(client, tmp_path, slo_text()).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    notes = next(a for a in book.alerts() if a.severity == "page").details.annotations
    assert notes["top_cause"] == (
        "Other requests' prompts (first token): 1.50 s in bad requests, 100 ms in good ones "
        "(82% of the time lost)"
    )
    assert notes["last_deploy"].startswith(
        "support: a new instance on gpu-7, version 1.5 (before: 1.4) at 2026-11-20T09:50"
    )
    assert notes["control_action"].startswith("cache: serve from 0.95 -> draft at 2026-11-20T09:59")
    # As a person in Slack sees it.
    (letter, *_) = (x for x in book.due(NOW + S) if x.status == "firing")
    slack = Receiver("r", "https://hooks.slack.com/x", ReceiverType.SLACK)
    blocks = json.loads(make_posting(slack, letter, NOW).body)["blocks"]
    texts = [block["text"]["text"] for block in blocks if "text" in block]
    heads = [text.splitlines()[0] for text in texts if text.startswith("*")]
    wanted = ["*top cause*", "*last deploy*", "*control action*", "*exemplars*"]
    assert [head for head in heads if head in wanted] == wanted
    (exemplars,) = (text for text in texts if text.startswith("*exemplars*"))
    assert exemplars.count("<http://127.0.0.1:8501/request?trace_id=") == 3
    assert "|bad-9> (ok 11.00 s, prompt of 900 tokens)" in exemplars
    fields = next(block["fields"] for block in blocks if "fields" in block)
    assert any("10 of 30" in field["text"] for field in fields)
    book.close()


def versions(tenant: str, prompt: str, at_s: int, route: str = "/chat") -> list[dict[str, Any]]:
    """Two versions of a tenant's prompt; the second came `at_s` seconds ago."""
    of = {"tenant": tenant, "prompt_name": prompt, "route": route}
    return [
        of | {"end_ns": NOW - (at_s + back_s) * S, "prompt_version": version}
        for version, back_s in (("v1", 3600), ("v2", 0))
    ]


def test_a_tenant_s_alert_is_not_about_others(client: Any, tmp_path: Path) -> None:
    """Neither another tenant's or prompt's changes, nor the drift sentinel's, nor its runs."""
    slow = [
        {"end_ns": NOW - S // 2, "tenant": "acme", "prompt_name": "chat", "route": "/chat"} | SLOW
    ]
    insert(
        client,
        *({"prompt_version": "v2"} | each for each in slow * 10),
        *versions("acme", "chat", 500),
        *versions("acme", "search", 400, "/search"),
        *versions("globex", "chat", 300),
        *versions("globex", "secret", 200),
        *versions("acme", "evenkeel-sentinel", 100),
    )
    insert_spans(
        client,
        (7200, instance("a", "1.4"), {"evenkeel.tenant": "acme"}),
        (600, instance("b", "1.5"), {"evenkeel.tenant": "acme"}),
        (60, instance("c", "1.6"), {"evenkeel.tenant": "globex"}),
        (5, instance("c", "1.6"), {"evenkeel.cache.change": "1", "evenkeel.tenant": "globex"}),
        (9, instance("b", "1.5"), {"evenkeel.cache.change": "2", "evenkeel.tenant": "acme"}),
    )
    client.insert(
        "eval_results",
        [
            [
                to_datetime(NOW - 90 * S),
                "gate",
                "ours",
                "accuracy",
                "pass",
                {"evenkeel.tenant": "acme"},
            ],
            [to_datetime(NOW - 60 * S), "gate", "theirs", "accuracy", "regressed", {}],
        ],
        column_names=["time", "kind", "run_id", "gate", "verdict", "attributes"],
    )
    select = "tenant: acme, route: {matches: '/ch.*'}"
    mixed = COMPOSITE.format(select=select) + slo_text(name="all")
    evaluator(client, tmp_path, slo_text(select=select) + mixed).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    notes = {a.slo: a.details.annotations for a in book.alerts() if a.severity == "page"}
    book.close()
    assert notes["chat"]["prompt_change"].startswith("chat went from v1 to v2 at 2026-11-20T09:51:")
    assert notes["mixed"]["prompt_change"] == notes["chat"]["prompt_change"]
    assert notes["all"]["prompt_change"].startswith("secret went from v1 to v2")
    assert "version 1.5 (before: 1.4)" in notes["chat"]["last_deploy"]
    assert "version 1.6 (before: 1.5)" in notes["all"]["last_deploy"]
    assert notes["chat"]["control_action"].startswith("cache: 2 at")
    assert notes["all"]["control_action"].startswith("cache: 1 at")
    assert notes["chat"]["eval_verdict"].startswith("run ours at")
    assert notes["all"]["eval_verdict"].startswith("run theirs at")


def test_an_alert_of_all_is_not_told_by_what_a_tenants_token_sends(
    client: Any, tmp_path: Path
) -> None:
    """The collector writes the token's tenant to the resource; a caller's is on the span alone."""
    insert_burn(client)
    theirs = instance("c", "1.6") | {"evenkeel.tenant": "globex"}
    insert_spans(
        client,
        (7200, instance("a", "1.4"), {}),
        (600, instance("b", "1.5"), {}),
        (9, instance("b", "1.5"), {"evenkeel.cache.change": "real", "evenkeel.tenant": "acme"}),
        (60, theirs, {}),
        (5, theirs, {"evenkeel.cache.change": "all is well"}),
    )
    client.insert(
        "eval_results",
        [
            [to_datetime(NOW - 90 * S), "gate", "ours", "accuracy", "pass", {}],
            [
                to_datetime(NOW - 60 * S), "gate", "forged", "accuracy", "pass",
                {"evenkeel.tenant": "globex"},
            ],
        ],
        column_names=["time", "kind", "run_id", "gate", "verdict", "attributes"],
    )  # fmt: skip
    evaluator(client, tmp_path, slo_text()).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    notes = next(a for a in book.alerts() if a.severity == "page").details.annotations
    book.close()
    assert notes["control_action"].startswith("cache: real at")
    assert "version 1.5 (before: 1.4)" in notes["last_deploy"]
    assert notes["eval_verdict"].startswith("run ours at")


def test_versions_of_two_prompts_are_two_cohorts(client: Any, tmp_path: Path) -> None:
    support = {"prompt_name": "support", "prompt_version": "2"}
    chat = {"prompt_name": "chat", "prompt_version": "2"}
    good = [{"end_ns": NOW - S} | prompt for prompt in (chat, chat, support)]
    bad = [{"end_ns": NOW - S} | SLOW | support for _ in range(3)]
    insert(client, *good, *bad)
    (slo,) = slo_file(tmp_path, slo_text()).slos
    rows = SloStore(client).evidence(query("slo_cohorts"), slo, NOW - 60 * S, NOW)
    found = {(r["dimension"], r["cohort"]): (r["total_sum"], r["bad_sum"]) for r in rows}
    assert found["tenant", ""] == (6, 3), "none has a tenant"
    assert {key: counts for key, counts in found.items() if key[1]} == {
        ("model", "support"): (6, 3),
        ("prompt", "support@2"): (4, 3),
        ("prompt", "chat@2"): (2, 0),
    }


def test_missing_data_names_the_deploy_before_it(client: Any, tmp_path: Path) -> None:
    insert(client, {"end_ns": NOW - 100 * S})
    insert_spans(client, (3600, instance("a", "1.4"), {}), (120, instance("b", "1.5"), {}))
    engine = evaluator(client, tmp_path, slo_text())
    for seconds in (0, 40, 80):
        engine.cycle(NOW + seconds * S)
    book = AlertBook(tmp_path / "alerts.db")
    (alert,) = book.alerts()
    book.close()
    assert alert.details.labels["alertname"] == "SloNoData"
    assert "version 1.5 (before: 1.4)" in alert.details.annotations["last_deploy"]


def test_without_a_deploy_nothing_is_said(client: Any, tmp_path: Path) -> None:
    insert_burn(client)
    insert_spans(client, (600, instance("a", "1.4"), {}), (60, instance("a", "1.4"), {}))
    other = [[to_datetime(NOW - 30 * S), "another-service", instance("z", "9"), {}]]
    columns = ["Timestamp", "ServiceName", "ResourceAttributes", "SpanAttributes"]
    client.insert("spans", other, column_names=columns)
    evaluator(client, tmp_path, slo_text()).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    for alert in book.alerts():
        assert not {"last_deploy", "control_action"} & set(alert.details.annotations)
    book.close()


def test_an_old_replica_that_sends_again_is_no_deploy(client: Any, tmp_path: Path) -> None:
    insert_burn(client)
    insert_spans(
        client,
        *((age_s, instance("a", "1.4"), {}) for age_s in (100_000, 80_000, 60)),
        # Its first spans of the day come after those of the other one, or after a pause.
        *((age_s, instance("b", "1.4"), {}) for age_s in (99_000, 79_000, 60)),
        *((age_s, instance("c", "1.5"), {}) for age_s in (98_000, 600)),
    )
    evaluator(client, tmp_path, slo_text()).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    assert book.alerts()
    for alert in book.alerts():
        assert "last_deploy" not in alert.details.annotations
    book.close()


def test_a_rule_shows_the_requests_that_it_is_about(client: Any, tmp_path: Path) -> None:
    insert_burn(client)
    rule = "---\napiVersion: evenkeel/v1\nkind: Rule\nmetadata: {name: tail}\nspec:\n"
    rule += "  threshold: {measure: ttft_p95_s, op: gt, value: 1, over: 15m}\n"
    evaluator(client, tmp_path, slo_text(metric="availability") + rule).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    (alert,) = book.alerts()
    notes = alert.details.annotations
    book.close()
    assert notes["bad_requests"] == "10 of 30"
    assert notes["top_cause"].startswith("Other requests' prompts (first token): 1.50 s")
    assert notes["exemplars"].startswith("bad-9 (ok 11.00 s")
    assert notes["dashboard"].startswith("http://127.0.0.1:8501/?")


def test_which_requests_burned_the_budget_is_one_query(client: Any, tmp_path: Path) -> None:
    insert_burn(client)
    (slo,) = slo_file(tmp_path, slo_text()).slos
    parameters = event_parameters(slo_parts(slo), Span(NOW - 60 * S, NOW))
    rows = SloStore(client).read(query("slo_burned"), {**parameters, "limit": 100})
    assert [row["request_id"] for row in rows] == [f"bad-{i}" for i in reversed(range(10))]
    assert {row["cause"] for row in rows} == {"ttft.prefill.others"}
    assert [row["value_s"] for row in rows][:2] == [11.0, 10.0]


@pytest.mark.parametrize(
    ("metric", "cause"),
    [
        ("ttft", "ttft.queue.budget"),
        ("stall", "decode.decode.own"),
        ("e2e", "decode.decode.own"),
        ("availability", "decode.decode.own"),
    ],
)
def test_the_cause_of_a_bad_request_lies_within_the_judged_time(
    client: Any, tmp_path: Path, metric: str, cause: str
) -> None:
    ledger = {"ttft.queue.budget": 2.0, "ttft.prefill.own": 1.0, "decode.decode.own": 9.0}
    slow = {"ttft_s": 3.0, "stall_s": 3.0, "e2e_s": 12.0, "status": "error"}
    insert(client, {"end_ns": NOW - S, "ledger": ledger} | slow)
    path = tmp_path / "slos.yaml"
    value = "" if metric == "availability" else "value: 0.5, "
    path.write_text(
        "apiVersion: openslo/v1\nkind: SLO\nmetadata: {name: chat}\nspec:\n"
        f"  indicator: {{metric: {metric}}}\n  objectives: [{{{value}target: 0.9}}]\n"
        "  timeWindow: [{duration: 1h, isRolling: true}]\n"
    )
    (slo,) = read_slo_file(path).slos
    parameters = event_parameters(slo_parts(slo), Span(NOW - 60 * S, NOW))
    (row,) = SloStore(client).read(query("slo_burned"), {**parameters, "limit": 9})
    assert row["cause"] == cause
