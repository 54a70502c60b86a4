"""Two cohorts side by side: their requests, their differences, and the verdict."""

from typing import Any

import pytest

from evenkeel_dashboard.draw.shift import Shift
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.compare.model import (
    causes,
    confounder,
    curve,
    default_first,
    features,
    quantile,
    sides,
    tail_words,
    verdict,
)

WINDOW = Window(10_000_000, 20_000_000, 60)


def cohort(**fields: Any) -> dict[str, Any]:
    names = ("queue_s", "prefill_s", "decode_s", "stall_s", "input_tokens", "output_tokens",
             "cached_ratio", "acceptance_rate", "error_ratio", "aborted_ratio")  # fmt: skip
    return {**dict.fromkeys(names), "ledger_s": {}} | fields


def test_cohorts_of_a_dimension_share_the_window() -> None:
    a, b = sides(Selection(tenant="acme"), WINDOW, "model", "small", "large")
    assert (a.selection.model, b.selection.model) == ("small", "large")
    assert a.selection.tenant == b.selection.tenant == "acme"
    assert a.window == b.window == WINDOW


@pytest.mark.parametrize(("back", "ms"), [("before", 10_000_000), ("day", 86_400_000)])
def test_cohorts_of_time_share_the_filters(back: str, ms: int) -> None:
    a, b = sides(Selection(model="m"), WINDOW, "time", back, "")
    assert b.window == WINDOW
    assert (a.window.from_ms, a.window.to_ms) == (WINDOW.from_ms - ms, WINDOW.to_ms - ms)
    assert a.selection == b.selection


def test_the_largest_difference_comes_first() -> None:
    a = cohort(queue_s=0.1, prefill_s=0.2, decode_s=9.0)
    b = cohort(queue_s=0.5, prefill_s=0.1, decode_s=1.0)
    assert [(c.name, round(c.delta_s, 3)) for c in causes("ttft", a, b)] == [
        ("queue", 0.4),
        ("prefill", -0.1),
    ]
    assert causes("e2e", a, b)[0].name == "decode"
    assert causes("ttft", cohort(), b) == []


def test_ledgers_say_more_than_phases_where_both_have_one() -> None:
    a = cohort(
        queue_s=1.0, prefill_s=1.0, ledger_s={"ttft.prefill.own": 0.2, "decode.decode.own": 5.0}
    )
    b = cohort(queue_s=1.0, prefill_s=1.0, ledger_s={"ttft.prefill.others": 0.9})
    assert [c.name for c in causes("ttft", a, b)] == [
        "Other requests' prompts (first token)",
        "Processing its own prompt (first token)",
    ]


@pytest.mark.parametrize(
    ("shift", "level", "words"),
    [
        pytest.param(None, "unknown", "Too few", id="too few"),
        pytest.param(Shift(1, 0.5, 2, 0.9), "warning", "B is higher", id="slower"),
        pytest.param(Shift(-1, -2, -0.5, 0.1), "good", "B is lower", id="faster"),
        pytest.param(Shift(0, -1, 1, 0.5), "unknown", "No typical difference", id="alike"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side(
    shift: Shift | None, level: str, words: str
) -> None:
    found = verdict(shift, "TTFT", "A", "B")
    assert found[0] == level and words in found[1]


def test_a_tail_that_differs_is_said_though_the_middle_is_alike() -> None:
    a = [i / 1000 for i in range(1000)]
    b = a[:900] + [10.0] * 100
    assert "p95 is 949 ms for A, 10 s for B" in tail_words(a, b)
    assert tail_words(a, a) == ""
    assert tail_words(a[:5], b) == "", "too few to tell"


def test_a_difference_that_load_makes_is_no_verdict_on_the_sides() -> None:
    a = cohort(ledger_s={"ttft.queue.budget": 2.4, "ttft.prefill.own": 0.2})
    b = cohort(ledger_s={"ttft.queue.budget": 0.1, "ttft.prefill.own": 0.1})
    load = confounder(causes("ttft", a, b))
    assert load == "Waiting for batch capacity (first token)"
    level, headline, detail = verdict(Shift(-1, -2, -0.5, 0.1), "TTFT", "A", "B", load)
    assert (level, headline) == ("unknown", "TTFT of A and B cannot be compared here")
    assert "Most of the difference is load" in detail
    assert confounder(causes("ttft", a, a)) is None
    moved = cohort(ledger_s={"ttft.queue.budget": 4.4, "ttft.queue.kv": 0.1, "ttft.prefill.own": 9})
    before = cohort(
        ledger_s={"ttft.queue.budget": 2.4, "ttft.queue.kv": 1.6, "ttft.prefill.own": 6}
    )
    assert confounder(causes("ttft", before, moved)) is None, "loads that cancel explain nothing"
    larger = cohort(ledger_s={"ttft.queue.budget": 2.4, "ttft.prefill.own": 4.0})
    assert confounder(causes("ttft", a, larger)) is None


def test_two_versions_of_a_prompt_come_first_and_our_probe_never() -> None:
    values = ["evenkeel-sentinel@1", "other@1", "support@1", "support@2", "support@3"]
    assert default_first(values) == ["support@2", "support@3", "support@1", "other@1"]
    assert default_first(["b", "a"]) == ["a", "b"]
    assert default_first(["p@10", "p@9", "p@1"]) == ["p@9", "p@10", "p@1"]


def test_curves_end_at_the_extremes() -> None:
    values, parts = curve([1.0, 2.0, 4.0])
    assert (values, parts) == ([1.0, 2.0, 4.0], [0.0, 0.5, 1.0])
    assert quantile([], 0.5) is None and quantile([3.0], 0.99) == 3.0
    assert len(curve(list(range(1000)))[0]) == 160


def test_features_name_what_only_one_side_has() -> None:
    found = features(cohort(input_tokens=100.0), cohort(input_tokens=150.0, error_ratio=0.1))
    assert [(f.name, f.values) for f in found] == [
        ("input tokens", (100, 150)), ("errors", (None, 0.1)),
    ]  # fmt: skip


def test_precisions_are_compared_within_the_same_filters() -> None:
    one, two = "bfloat16, KV auto, TP 1, PP 1", "float16, KV fp8, TP 2, PP 1"
    a, b = sides(Selection(tenant="acme"), WINDOW, "setup", one, two)
    assert (a.setup, b.setup, a.service) == (one, two, "")
    assert a.selection.tenant == b.selection.tenant == "acme"


def test_services_are_compared_within_the_same_filters() -> None:
    a, b = sides(Selection(tenant="acme"), WINDOW, "service", "plain", "speculating")
    assert (a.service, b.service) == ("plain", "speculating")
    assert a.selection == b.selection == Selection(tenant="acme")
