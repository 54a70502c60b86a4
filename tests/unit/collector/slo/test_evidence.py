"""The sentences of a notification."""

from fractions import Fraction
from typing import Any

import pytest

from evenkeel.slo.model import Indicator, Member, Metric, Slo
from evenkeel.slo.selection import Filter, SelectOperator
from evenkeel_collector.slo.evidence import (
    bad_by_prompt_size,
    bad_requests,
    budget_left,
    ledger_cause,
    top_cause,
    window_link,
    worst_versions,
)
from evenkeel_collector.slo.what_changed import (
    action_words,
    changed_selections,
    nearest_change,
    worst_cohorts,
)


def causes(**values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        f"{side}_{phase}_s" for side in ("bad", "good") for phase in ("queue", "prefill", "decode")
    )
    return {**empty, **values}


CAUSES = [
    (
        "the phase that lost most",
        causes(bad_queue_s=2.0, good_queue_s=0.01, bad_prefill_s=0.7, good_prefill_s=0.02),
        "queue: 2.00 s on average in bad requests, 10 ms in good ones (75% of the time lost)",
    ),
    (
        "no good request",
        causes(bad_queue_s=0.1, bad_prefill_s=0.3),
        "prefill: 300 ms on average in bad requests, no good request to compare "
        "(75% of the time lost)",
    ),
    ("no time lost", causes(bad_queue_s=0.1, good_queue_s=0.2), None),
    ("nothing measured", causes(), None),
]


@pytest.mark.parametrize(
    ("row", "text"), [case[1:] for case in CAUSES], ids=[case[0] for case in CAUSES]
)
def test_the_top_cause(row: dict[str, Any], text: str | None) -> None:
    assert top_cause(row, ("queue", "prefill")) == text


def test_an_slo_without_phases_has_no_cause() -> None:
    assert top_cause(causes(bad_queue_s=2.0), ()) is None


def test_bad_requests_by_end_and_by_prompt_size() -> None:
    row = {"num_bad": 7, "num_events": 90, "num_error": 2, "num_aborted": 0, "num_shed": 1}
    assert bad_requests(row) == "7 of 90 (2 failed, 1 shed)"
    sizes = [
        {"up_to_tokens": 64, "num_events": 80, "num_bad": 0},
        {"up_to_tokens": 1024, "num_events": 10, "num_bad": 7},
    ]
    assert bad_by_prompt_size(sizes) == "up to 1024 tokens: 7 of 10"
    assert bad_by_prompt_size(sizes[:1]) is None


@pytest.mark.parametrize(
    ("lever", "is_dry_run", "words"),
    [
        pytest.param(
            "prefill_chunk",
            "true",
            "control: prompt tokens per step from 100% to 25% (dry run: nothing changed)",
            id="a dry run is not an action",
        ),
        pytest.param(
            "draft_tokens", "false", "control: draft length from 100% to 25%", id="an action"
        ),
    ],
)
def test_what_control_did(lever: str, is_dry_run: str, words: str) -> None:
    said = {"lever": lever, "before": "1", "after": "0.25", "is_dry_run": is_dry_run}
    attributes = {f"evenkeel.control.{name}": value for name, value in said.items()}
    row = {
        "attribute": "evenkeel.control.change",
        "change": f"{lever} 1 -> 0.25",
        "attributes": attributes,
    }
    assert action_words(row) == words


def test_another_change_of_the_runtime_is_quoted() -> None:
    row = {"attribute": "evenkeel.cache.change", "change": "serve -> draft", "attributes": {}}
    assert action_words(row) == "cache: serve -> draft"


def cohort(dimension: str, name: str, total: float, bad: float) -> dict[str, Any]:
    return {"dimension": dimension, "cohort": name, "total_sum": total, "bad_sum": bad}


def test_the_worst_cohorts_are_those_beyond_their_own_past() -> None:
    recent = [
        cohort("tenant", "always-slow", 100, 50),
        cohort("tenant", "acme", 100, 20),
        cohort("tenant", "new", 10, 10),
        cohort("model", "support", 210, 80),
    ]
    past = [cohort("tenant", "always-slow", 1000, 500), cohort("tenant", "acme", 1000, 10)]
    assert worst_cohorts(recent, past) == (
        "tenant=acme: 20.0% bad of 100, 1.0% before; tenant=new: 100.0% bad of 10, no data before"
    )
    assert worst_cohorts(recent[3:], []) is None
    nameless = cohort("tenant", "", 900, 90)
    assert worst_cohorts([nameless, recent[2]], []) == (
        "tenant=new: 100.0% bad of 10, no data before"
    ), "the only one named is not all of the traffic"


def test_the_change_nearest_to_the_window_is_named() -> None:
    levels = [0.2] * 30 + [0.5] * 30 + [0.9] * 30
    minutes: list[dict[str, Any]] = [
        {"minute": 28_000_000 + i, "value": level + 0.01 * (i % 3), "bad_ratio": 0.0}
        for i, level in enumerate(levels)
    ]
    text = nearest_change(minutes, (28_000_000 + 62) * 60 * 10**9)
    assert text == "2023-03-28T11:40Z: from 0.51 s to 0.91 s on average"
    unmeasured = [row | {"value": None, "bad_ratio": row["value"]} for row in minutes]
    assert nearest_change(unmeasured, 28_000_029 * 60 * 10**9) == (
        "2023-03-28T11:10Z: from 21.00% to 51.00% bad"
    )
    assert nearest_change(minutes[:30], 0) is None


LEDGER = [
    {"cause": "decode.decode.others", "bad_s": 9.0, "good_s": 0.1},
    {"cause": "ttft.unobserved", "bad_s": 5.0, "good_s": 0.1},
    {"cause": "ttft.prefill.others", "bad_s": 1.3, "good_s": 0.1},
    {"cause": "ttft.queue.seats", "bad_s": 0.5, "good_s": 0.1},
    {"cause": "ttft.prefill.own", "bad_s": 0.1, "good_s": 0.2},
]


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param(
            ("queue", "prefill"),
            "Other requests' prompts (first token): 1.30 s in bad requests, 100 ms in good ones "
            "(75% of the time lost)",
            id="a TTFT objective, causes before the first token",
        ),
        pytest.param(
            ("decode",),
            "Other requests' decoding (decode): 9.00 s in bad requests, 100 ms in good ones "
            "(100% of the time lost)",
            id="a TPOT objective, causes after it",
        ),
        pytest.param(
            (),
            "Other requests' decoding (decode): 9.00 s in bad requests, 100 ms in good ones "
            "(85% of the time lost)",
            id="no duration is judged, any cause",
        ),
    ],
)
def test_the_ledger_names_the_cause(phases: tuple[str, ...], expected: str) -> None:
    assert ledger_cause(LEDGER, phases) == expected
    assert ledger_cause([], phases) is None
    assert ledger_cause(LEDGER[-1:], phases) is None


def test_without_good_requests_a_cause_is_named_as_such() -> None:
    rows = [
        {"cause": cause, "bad_s": bad_s, "good_s": None}
        for cause, bad_s in (("ttft.prefill.own", 1.5), ("ttft.queue.seats", 0.5))
    ]
    assert ledger_cause(rows, ("queue", "prefill")) == (
        "Waiting for a batch slot (first token): 500 ms in bad requests, no good request to "
        "compare (25% of their time)"
    )
    assert (ledger_cause(rows[:1], ()) or "").startswith("Processing its own prompt")


def test_a_cause_of_no_phase_counts_for_any() -> None:
    rows = [{"cause": "other", "bad_s": 1.0, "good_s": 0.0}]
    assert (ledger_cause(rows, ("queue",)) or "").startswith("other: 1.00 s")


@pytest.mark.parametrize(
    ("left_ratio", "text"),
    [
        (None, "no data"),
        (0.253, "25.30%"),
        (0.0, "0.00%"),
        (-11.253, "none: 12.3 times the budget is spent"),
    ],
)
def test_a_budget_that_is_overspent_says_how_often(left_ratio: float | None, text: str) -> None:
    assert budget_left(left_ratio) == text


def test_versions_of_one_score_do_not_hide_a_worse_one_of_many() -> None:
    common = {"prompt_name": "support", "first_ns": 0}
    few = [{**common, "prompt_version": f"t{i}", "num_total": 1, "num_bad": 1} for i in range(5)]
    worse = {**common, "prompt_version": "v7", "num_total": 200, "num_bad": 120}
    usual = {**common, "prompt_version": "v6", "num_total": 400, "num_bad": 40}
    told = worst_versions([*few, worse, usual])
    assert told is not None
    assert told.startswith("support@v7: 60% bad of 200, the others 11%")
    assert len(told.split("; ")) == 3
    assert worst_versions([worse]) is None


def test_what_changed_is_looked_for_where_the_slo_or_its_members_select() -> None:
    chat = Indicator(
        Metric.TTFT,
        1.0,
        {"tenant": "acme", "prompt_name": "chat", "prompt_version": "v2"},
        filters=(
            Filter("route", SelectOperator.NOT, ("/a", "/b")),
            Filter("prompt_version", SelectOperator.MATCHES, ("v.*",)),
        ),
    )
    other = Indicator(Metric.AVAILABILITY, None, {"tenant": "globex"})
    members = tuple(Member(each, Fraction(1)) for each in (chat, other, chat))
    both = Indicator(Metric.COMPOSITE, None, members=members)
    first, second = changed_selections(Slo("both", "both", both, Fraction(1, 2), Fraction(1), ()))
    assert (first["tenant"], first["prompt_name"], first["prompt_version"]) == ("acme", "chat", "")
    assert (first["filter_column"], first["filter_excludes"]) == (["route"], [1])
    assert (second["tenant"], second["prompt_name"]) == ("globex", "")


LINKS = [
    ({}, ""),
    ({"model": "m", "tenant": "a b", "slo_class": "chat"}, "&model=m&tenant=a+b&slo_class=chat"),
    ({"prompt_name": "chat", "prompt_version": "v2"}, "&prompt=chat%40v2"),
    (
        {"tenant": "acme", "route": "/chat", "engine": "vllm"},
        "explore&tenant=acme&route=%2Fchat&engine=vllm",
    ),
    ({"prompt_name": "chat"}, ""),
]


@pytest.mark.parametrize(("select", "expected"), LINKS)
def test_the_link_of_an_alert_selects_as_its_slo_does(
    select: dict[str, str], expected: str
) -> None:
    page, and_, filters = expected.partition("&")
    alone = Indicator(Metric.AVAILABILITY, None, select)
    slo = Slo("chat", "chat", alone, Fraction(1, 2), Fraction(1), ())
    link = window_link("http://board/", slo, 0, 60 * 10**9)
    assert link.startswith(f"http://board/{page}?from=1970-01-01T00%3A00%3A00")
    assert link.partition("&to=")[2].partition("&")[1:] == (and_, filters)


def test_the_link_of_a_composite_has_what_all_members_select() -> None:
    selects = ({"tenant": "acme", "route": "/chat"}, {"tenant": "acme", "model": "m"})
    indicators = [Indicator(Metric.AVAILABILITY, None, select) for select in selects]
    members = tuple(Member(each, Fraction(1)) for each in indicators)
    both = Indicator(Metric.COMPOSITE, None, members=members)
    link = window_link("http://board", Slo("b", "b", both, Fraction(1, 2), Fraction(1), ()), 0, 1)
    assert link.startswith("http://board/?from=")
    assert link.endswith("&tenant=acme")
