"""What the Evals page counts: prompt versions in use, and the scores of a run by slice."""

from typing import Any

import pytest

from evenkeel.prompts.gate_verdict import read_stored_run
from evenkeel.slo.model import SELECTOR_COLUMNS
from evenkeel.store import read_query
from tests.fixtures.slo_requests import NOW, S, insert
from tests.queries import query

WEEK = {"from_ms": (NOW - 600 * S) // 10**6, "to_ms": (NOW + 60 * S) // 10**6, "model": ""}


NO_PATTERNS: dict[str, list[Any]] = {
    "filter_column": [], "filter_pattern": [], "filter_excludes": [],
}  # fmt: skip
ANSWERED = {"output_tokens": 100, "decode_s": 1.0}
# Without an engine, there are no tokens: the cache answered, or control refused.
CACHED = {"output_tokens": None, "decode_s": None, "response_cache": "exact"}
SHED = {"output_tokens": None, "decode_s": None, "ttft_s": None, "status": "shed"}
# A client's own span, which knows tokens but no phases.
FOREIGN = {"output_tokens": 50, "decode_s": None, "service": "app"}


@pytest.mark.parametrize(
    ("rows", "mean"),
    [
        pytest.param([ANSWERED, SHED, SHED, SHED], 100, id="shed"),
        pytest.param([ANSWERED, CACHED, CACHED], 100, id="cached"),
        pytest.param([ANSWERED, CACHED | {"end_ns": NOW - 300 * S}], 100, id="all of a minute"),
        pytest.param([FOREIGN, FOREIGN | {"status": "error", "output_tokens": None}], 50, id="app"),
        pytest.param([ANSWERED, FOREIGN], 75, id="both"),
        pytest.param([ANSWERED | {"sample_weight": 4.0}, CACHED], 100, id="sampled"),
        pytest.param([SHED], None, id="none"),
    ],
)
def test_the_mean_output_is_that_of_requests_that_got_tokens(
    client: Any, rows: list[dict[str, Any]], mean: float | None
) -> None:
    named = {"prompt_name": "support", "prompt_version": "1", "end_ns": NOW - S}
    insert(client, *(named | row for row in rows))
    found = client.query(read_query(query("prompt_versions")), parameters=WEEK)
    (version,) = found.named_results()
    assert version["output_tokens_mean"] == mean


def test_what_an_evaluation_asks_is_no_version_in_use_and_no_change_of_the_prompt(
    client: Any,
) -> None:
    used: dict[str, Any] = {
        "prompt_name": "support", "prompt_version": "1", "model": "small", "route": None,
        "end_ns": NOW - 590 * S,
    }  # fmt: skip
    asked = {"prompt_version": "draft", "route": "eval", "ttft_s": 9.0, "end_ns": NOW - S}
    insert(client, used, used | asked, used | asked | {"prompt_version": "1", "model": "large"})
    found = client.query(read_query(query("prompt_versions")), parameters=WEEK)
    (version,) = found.named_results()
    assert (version["prompt_version"], version["num_requests"]) == ("1", 1)
    assert version["ttft_p95_s"] == pytest.approx(0.1)
    assert not client.query(read_query(query("changes")), parameters=WEEK).result_rows
    every = {**dict.fromkeys(SELECTOR_COLUMNS, ""), **NO_PATTERNS}
    span = {"from_ns": NOW - 600 * S, "to_ns": NOW + 60 * S}
    for route, changes in (("", 0), ("eval", 1)):
        found = client.query(
            read_query(query("prompt_changes")), parameters={**every, **span, "route": route}
        )
        assert len(found.result_rows) == changes
    insert(client, used | {"prompt_version": "2", "end_ns": NOW - S, "route": "chat"})
    assert client.query(read_query(query("changes")), parameters=WEEK).result_rows
    found = client.query(read_query(query("prompt_changes")), parameters={**every, **span})
    assert found.result_rows[0][:3] == ("support", "2", "1")


def answer(item_id: str, score: float | None, tags: list[str], number: int) -> list[Any]:
    return [NOW, f"{number:032x}", f"{number:016x}", "answer", "run", "A", item_id, "exact", score,
            tags, number / 10]  # fmt: skip


COLUMNS = ["time", "trace_id", "span_id", "kind", "run_id", "side", "item_id", "name", "score",
           "tags", "client_ttft_s"]  # fmt: skip


def slices(client: Any, *answers: tuple[str, float | None, list[str]]) -> dict[str, dict[str, Any]]:
    rows = [answer(*each, number) for number, each in enumerate(answers, start=1)]
    client.insert("eval_results", rows, column_names=COLUMNS)
    found = client.query(read_query(query("eval_slices")), parameters={"run_id": "run"})
    return {row["slice"]: row for row in found.named_results()}


def test_an_item_that_was_asked_more_often_counts_once_in_its_slice(client: Any) -> None:
    found = slices(
        client, ("hard", 0.0, ["x"]), ("hard", 0.0, ["x"]), ("hard", None, ["x"]),
        ("easy", 1.0, ["x"]),
    )  # fmt: skip
    assert found["x"]["mean_score"] == found[""]["mean_score"] == 0.5
    assert (found["x"]["num_scored"], found["x"]["num_unscored"]) == (3, 1)
    assert found["x"]["client_ttft_p50_s"] == pytest.approx(0.25)


def test_a_tag_that_means_all_items_is_a_slice_of_its_own(client: Any) -> None:
    found = slices(client, ("a", 1.0, ["", "overall"]), ("b", 0.0, []))
    assert {name: row["mean_score"] for name, row in found.items()} == {
        "": 0.5, "tag:": 1.0, "tag:overall": 1.0,
    }  # fmt: skip


def test_a_slice_without_scores_has_no_mean(client: Any) -> None:
    assert slices(client, ("a", None, ["x"]))["x"]["mean_score"] is None


def test_a_runs_own_reason_is_read_for_the_page_and_for_promotions(client: Any) -> None:
    told = {
        "evenkeel.eval.run_verdict": "regressed",
        "evenkeel.eval.run_headline": "regressed: always right before, always wrong now: q7",
    }
    columns = ["time", "kind", "run_id", "gate", "slice", "verdict", "attributes"]
    rows = [[NOW, "gate", "run", "accuracy>=-1%", name, "no worse", told] for name in ("all", "x")]
    client.insert("eval_results", rows, column_names=columns)
    for name in ("eval_runs", "prompt_run"):
        found = client.query(read_query(query(name)), parameters={"run_id": "run"})
        (row,) = found.named_results()
        judged = read_stored_run("run", row)
        assert (judged.verdict, judged.is_passed) == ("regressed", False)
        assert judged.remark == told["evenkeel.eval.run_headline"]
