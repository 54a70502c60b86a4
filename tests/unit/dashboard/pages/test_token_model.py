"""One request's tokens: emissions, drafts, stalls and caches, as numbers, words and charts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_dashboard.draw.appearance import LIGHT
from evenkeel_dashboard.draw.svg_chart import Chart
from evenkeel_dashboard.pages.request.figure import timelines
from evenkeel_dashboard.pages.request.token_model import (
    CacheUse,
    Emission,
    cache_uses,
    in_words,
    own_attributes,
    summary,
    thinned,
    tokens,
)
from tests.unit.dashboard.request_row import request

DRAFTS = {
    "evenkeel.emission_drafted": "[0,4,0,4,3,4]",
    "evenkeel.emission_accepted": "[0,2,0,1,0,4]",
}


def drawn(row: dict[str, Any], attributes: dict[str, str]) -> dict[str, Chart]:
    found = timelines(row, tokens(row, attributes), cache_uses(row, attributes), [], LIGHT)
    return {each.name: each.chart for each in found}


def paths(chart: Chart) -> dict[str, str]:
    return {series.name: series.path for series in chart.series}


def test_a_request_of_which_only_its_length_is_known_has_no_chart() -> None:
    row = dict.fromkeys(("queue_s", "prefill_s", "decode_s", "ttft_s", "drafted_tokens"))
    known = {"e2e_s": 0.05, "emission_time_s": [], "emission_tokens": []}
    assert timelines(row | known, [], [], [], LIGHT) == []


def test_a_gap_far_above_the_median_is_a_stall() -> None:
    found = tokens(request())
    assert [t.num_tokens for t in found] == [1, 3, 1, 2, 1, 3]
    assert found[0] == Emission(1.0, 1, None, False)
    assert [t.is_stall for t in found] == [False, False, False, False, True, False]


def test_no_emission_is_no_token() -> None:
    assert tokens(request(emission_time_s=[], emission_tokens=[])) == []


def test_an_emission_has_the_drafts_of_its_span() -> None:
    found = tokens(request(), DRAFTS)
    assert [(t.drafted, t.accepted) for t in found[:2]] == [(0, 0), (4, 2)]
    assert [t.rejected for t in found] == [0, 2, 0, 3, 3, 0]
    # A stop cut one of the four accepted tokens.
    assert [t.from_drafts for t in found] == [0, 2, 0, 1, 0, 3]


@pytest.mark.parametrize("text", ["[0,4]", "", "no list", "3"])
def test_drafts_that_are_not_one_an_emission_are_not_known(text: str) -> None:
    found = tokens(request(), {"evenkeel.emission_drafted": text})
    assert [t.drafted for t in found] == [None] * 6
    assert "which emissions held them is not recorded" in summary(request(), found)


def test_attributes_are_those_of_the_requests_own_span() -> None:
    spans = [{"span_id": "bb", "attributes": {}}, {"span_id": "aa", "attributes": DRAFTS}]
    assert own_attributes(request(), spans) == DRAFTS
    assert own_attributes(request(), spans[:1]) == {}


@given(st.lists(st.floats(0.001, 5.0), min_size=1, max_size=300), st.integers(1, 50))
def test_thinning_keeps_the_longest_gap(gaps_s: list[float], limit: int) -> None:
    series = [Emission(float(i), 1, gap_s, False) for i, gap_s in enumerate(gaps_s)]
    kept = thinned(series, limit)
    assert len(kept) <= limit
    assert max(t.gap_s or 0.0 for t in kept) == max(gaps_s)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"cached_tokens": None}, [], id="nobody knows"),
        pytest.param(
            {"cached_tokens": 0},
            [CacheUse("prefix cache", "0 of 1,000 prompt tokens (0%) from the prefix cache",
                      0.6, 1.0, 0.0)],
            id="nothing was cached",
        ),
        pytest.param(
            {"queue_s": None, "prefill_s": None, "response_cache": "exact"},
            [CacheUse("response cache", "response cache: exact hit, looked up in 2 ms, "
                      "40 output tokens saved", 0.0, 0.002, 1.0)],
            id="the response cache answered",
        ),
        pytest.param(
            {"prefill_s": None, "response_cache": "miss"},
            [CacheUse("response cache", "response cache: miss, looked up in 2 ms",
                      0.0, 0.002, 0.0)],
            id="it did not",
        ),
    ],
)  # fmt: skip
def test_what_caches_gave(changes: dict[str, Any], expected: list[CacheUse]) -> None:
    attributes = {"evenkeel.cache.lookup_s": "0.002", "evenkeel.cache.saved_tokens": "40"}
    assert cache_uses(request(**changes), attributes) == expected


def test_the_timeline_in_words() -> None:
    row = request()
    assert in_words(row, tokens(row, DRAFTS), cache_uses(row, {})) == (
        "Token timeline: 11 tokens in 6 emissions, 7 of 15 drafted tokens accepted, 1 stall (more "
        "than 4× the median gap); first token 1 s after arrival; stall of 1.02 s, 1.06 s after "
        "arrival; 600 of 1,000 prompt tokens (60%) from the prefix cache"
    )
    even = request(
        emission_time_s=[1.0, 1.1, 1.2, 1.3], emission_tokens=[1] * 4, drafted_tokens=None
    )
    assert summary(even, tokens(even)) == "4 tokens in 4 emissions, no gap above 4× the median gap"
    few = request(emission_time_s=[1.0, 1.1], emission_tokens=[1, 1], drafted_tokens=0)
    assert summary(few, tokens(few)) == "2 tokens in 2 emissions"
    assert summary(few, []).startswith("no emissions recorded")


def test_tokens_are_drawn_over_the_time_axis_of_the_phases() -> None:
    charts = drawn(request(), DRAFTS)
    chart = charts["tokens"]
    assert (chart.left, chart.right) == (charts["phases"].left, charts["phases"].right)
    assert paths(chart)["the model's own"].startswith("M1 0V1M1.02 0V1M1.04 0V1M1.06 0V1")
    assert paths(chart)["accepted drafts"] == ("M1 1V1M1.02 1V3M1.04 1V1M1.06 1V2M2.08 1V1M2.1 0V3")
    assert paths(chart)["rejected drafts"].startswith("M1 0V0M1.02 -2V0M1.04 0V0M1.06 -3V0")
    assert chart.periods == [(1.06, 2.08, LIGHT.error)]
    assert paths(chart)["TTFT 1 s"].startswith("M1 ")
    words = [text for _, text in chart.y_ticks or ()]
    assert words == ["0", "2", "3 rejected", "prefix cache", "stalls"]


def test_without_drafts_all_tokens_are_alike() -> None:
    named = paths(drawn(request(drafted_tokens=None), {})["tokens"])
    assert named["tokens"].startswith("M1 0V1M1.02 0V3")
    assert not [name for name in named if "drafts" in name]


def test_an_answer_of_the_response_cache_has_a_timeline_without_phases() -> None:
    row = request(
        queue_s=None, prefill_s=None, decode_s=None, cached_tokens=None, response_cache="exact",
        emission_time_s=[], emission_tokens=[], ttft_s=0.004, e2e_s=0.005,
    )  # fmt: skip
    charts = drawn(row, {"evenkeel.cache.lookup_s": "0.002"})
    assert list(charts) == ["tokens"]
    assert paths(charts["tokens"])["from a cache"].startswith("M0 ")
    assert "TTFT 4 ms" in paths(charts["tokens"])


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(
            {"evenkeel.emission_drafted": "[0,1]", "evenkeel.emission_accepted": "[-2,9]"},
            id="more accepted than drafted",
        ),
        pytest.param({"evenkeel.emission_drafted": "[" * 100_000}, id="no end of brackets"),
        pytest.param(
            {"evenkeel.cache.lookup_s": "nan", "evenkeel.cache.saved_tokens": "inf"},
            id="no numbers",
        ),
    ],
)
def test_what_another_program_sent_is_drawn_as_far_as_it_makes_sense(
    attributes: dict[str, str],
) -> None:
    row = request(
        emission_time_s=[1.0, 1.0], emission_tokens=[0, 0], cached_tokens=2000,
        response_cache='"><script>',
    )  # fmt: skip
    for token in tokens(row, attributes):
        assert token.rejected >= 0 and token.from_drafts == 0
    assert all(use.share <= 1 for use in cache_uses(row, attributes))
    for each in timelines(row, tokens(row, attributes), cache_uses(row, attributes), [], LIGHT):
        assert "<script>" not in each.chart.markup(each.alt)
