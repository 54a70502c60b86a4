"""Feedback as an SLI, by prompt version, on the real store."""

from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from tests.fixtures.slo_requests import NOW, S, evaluator, insert

SLO = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: liked}
spec:
  indicator: {metric: feedback, INDICATOR}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
  alerting: {minBad: 5}
"""


@pytest.fixture(autouse=True)
def _scores(client: Any) -> None:
    """Insert 40 answers of two prompt versions; people like one in twenty and half of them not."""
    client.command("TRUNCATE TABLE feedback")
    rows = [
        {"end_ns": NOW - 100 * S, "prompt_name": "support", "prompt_version": version}
        for version in ["v1"] * 20 + ["v2"] * 20
    ]
    insert(client, *rows)
    scores = [
        # The score of request i; feedback of a label alone is no event.
        [to_datetime(NOW - 50 * S + i), f"{i:032x}", f"{i:016x}", "", score]
        for i, score in enumerate([0.0] + [1.0] * 19 + [0.0] * 10 + [0.5] * 10 + [None])
    ]
    columns = ["time", "trace_id", "span_id", "request_span_id", "score"]
    client.insert("feedback", scores, column_names=columns)


def text(indicator: str) -> str:
    return SLO.replace("INDICATOR", indicator)


@pytest.mark.parametrize(
    ("indicator", "counts"),
    [
        pytest.param("select: {prompt_name: support}", (40, 11), id="a prompt"),
        pytest.param("select: {prompt_version: v2}", (20, 10), id="a version"),
        pytest.param("select: {prompt_version: {not: v2}}", (20, 1), id="the other versions"),
        pytest.param("select: {tenant: nobody}", (0, 0), id="nobody"),
    ],
)
def test_scores_are_counted(
    client: Any, tmp_path: Path, indicator: str, counts: tuple[int, int]
) -> None:
    verdict = evaluator(client, tmp_path, text(indicator)).cycle(NOW)["liked"]
    assert (verdict.counts.total, verdict.counts.bad) == counts


@pytest.mark.parametrize(
    ("indicator", "counts"),
    [
        pytest.param("select: {prompt_name: support}", (43, 11), id="their prompt"),
        pytest.param("select: {tenant: acme}", (3, 0), id="them"),
        pytest.param("select: {tenant: other}", (4, 4), id="who scored"),
    ],
)
def test_a_tenants_scores_say_nothing_of_anothers_requests(
    client: Any, tmp_path: Path, indicator: str, counts: tuple[int, int]
) -> None:
    mine = {"end_ns": NOW - 100 * S, "prompt_name": "support", "tenant": "acme"}
    insert(client, *({**mine, "trace_id": f"acme{i}"} for i in range(4)))
    scores = [
        [to_datetime(NOW - 50 * S), f"acme{i}", f"{tenant}{i}", "", score, tenant]
        for i in range(4)
        for tenant, score in (("other", 0.0), *((("acme", 1.0),) if i < 2 else ()))
    ]
    # Without a tenant, the request's counts.
    scores.append([to_datetime(NOW - 50 * S), "acme3", "nobody", "", 1.0, None])
    columns = ["time", "trace_id", "span_id", "request_span_id", "score", "tenant"]
    client.insert("feedback", scores, column_names=columns)
    verdict = evaluator(client, tmp_path, text(indicator)).cycle(NOW)["liked"]
    assert (verdict.counts.total, verdict.counts.bad) == counts


def test_a_worse_prompt_version_is_named(client: Any, tmp_path: Path) -> None:
    grouped = text("groupBy: [prompt_name, prompt_version]")
    engine = evaluator(client, tmp_path, grouped)
    found = engine.cycle(NOW)
    assert {name: v.counts.bad for name, v in found.items()} == {
        "liked/support,v1": 1,
        "liked/support,v2": 10,
    }
    book = AlertBook(tmp_path / "alerts.db")
    firing = {alert.slo for alert in book.alerts() if alert.life.state.value == "firing"}
    book.close()
    assert firing == {"liked/support,v2"}


def test_versions_are_counted_in_one_read(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = evaluator(client, tmp_path, text("groupBy: [prompt_name, prompt_version]"))
    engine.cycle(NOW)
    sent: list[str] = []
    query = client.query

    def noted(sql: str, **options: Any) -> Any:
        sent.append(sql)
        return query(sql, **options)

    monkeypatch.setattr(client, "query", noted)
    found = engine.cycle(NOW + S)
    assert {name: v.counts.total for name, v in found.items()} == {
        "liked/support,v1": 20,
        "liked/support,v2": 20,
    }
    assert sum("FROM feedback" in sql for sql in sent) == 1


def test_without_groups_the_evidence_names_it(client: Any, tmp_path: Path) -> None:
    evaluator(client, tmp_path, text("select: {prompt_name: support}")).cycle(NOW)
    book = AlertBook(tmp_path / "alerts.db")
    (alert, *_) = book.alerts()
    book.close()
    texts = alert.details.annotations
    assert "of scores in the last" in texts["description"]
    assert texts["worst_versions"].startswith("support@v2: 50% bad of 20, the others 5%")


def test_it_takes_no_value(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(text("select: {model: m}").replace("target: 0.9", "target: 0.9, value: 1"))
    with pytest.raises(ConfigurationError, match="feedback takes no value: it is already a ratio"):
        read_slo_file(path)
