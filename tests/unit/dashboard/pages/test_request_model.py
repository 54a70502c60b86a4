"""One request explained: phases, speculation, and concurrent prefills."""

from typing import Any

import pytest

from evenkeel_dashboard.draw.positions import Position, positions
from evenkeel_dashboard.pages.request.model import (
    RequestPhase,
    answer_facts,
    explanation,
    gap_words,
    ids_to_find,
    near_time_ms,
    nothing_drawn_words,
    phases,
    prefilling,
)
from evenkeel_dashboard.pages.request.token_model import cache_uses, tokens
from tests.unit.dashboard.request_row import request


def neighbour(offset_s: float, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset_s": offset_s,
        "queue_s": 0.1,
        "prefill_s": 0.9,
        "decode_s": 3.0,
        "prefilled_tokens": 20_000,
    }
    return row | changes


def test_phases_follow_each_other_and_stop_where_the_request_did() -> None:
    assert phases(request(), 10.0) == [
        RequestPhase("queue", 10.0, 10.6),
        RequestPhase("prefill", 10.6, 11.0),
        RequestPhase("decode", 11.0, 12.1),
    ]
    assert [p.name for p in phases(request(prefill_s=None, decode_s=None))] == ["queue"]


def test_time_that_the_sender_counts_in_no_phase_is_before_them() -> None:
    traced = request(queue_s=0.0, prefill_s=0.2)
    assert phases(traced) == [
        RequestPhase("queue", 0.8, 0.8),
        RequestPhase("prefill", 0.8, 1.0),
        RequestPhase("decode", 1.0, 2.1),
    ]
    said = explanation(traced, [], [])[0]
    assert said.startswith("The first token came after 1 s, 80% of it outside its engine (800 ms).")
    use = cache_uses(traced, {})[0]
    assert (use.start_s, use.end_s) == (0.8, 1.0)


def test_positions_have_rates_only_where_something_was_drafted() -> None:
    assert positions(request()) == [Position(1, 5, 3), Position(2, 5, 1)]
    assert Position(1, 5, 3).rate == 0.6
    assert Position(1, 0, 0).rate is None
    assert positions(request(drafted_by_position=[], accepted_by_position=[])) == []


def test_prefilling_is_who_was_in_prefill_during_a_stretch() -> None:
    early, late, queued = neighbour(-0.5), neighbour(5.0), neighbour(0.0, prefill_s=None)
    assert prefilling([early, late, queued], 0.0, 1.0) == [early]
    assert prefilling([early, late, queued], 5.5, 5.6) == [late]


def test_the_explanation_names_the_phase_the_crowd_and_the_stall() -> None:
    sentences = explanation(request(), tokens(request()), [neighbour(0.2), neighbour(1.2)])
    assert sentences[0] == (
        "The first token came after 1 s, 60% of it queue (600 ms). "
        "It had 1,000 input tokens, 400 of them not cached."
    )
    assert sentences[1] == (
        "Meanwhile 1 other prompt was being processed (20,000 tokens); the largest had 20,000."
    )
    assert sentences[2] == (
        "One gap is more than 4× the median; the longest is 1.02 s, 1.06 s after arrival, "
        "while 2 other requests prefilled."
    )


def test_a_request_without_a_token_says_how_it_ended() -> None:
    row = request(
        status="aborted", ttft_s=None, queue_s=0.4, prefill_s=None, decode_s=None, e2e_s=0.5,
        emission_time_s=[], emission_tokens=[],
    )  # fmt: skip
    assert explanation(row, [], []) == [
        "It ended without a token after 500 ms, 80% of it queue (400 ms): aborted."
    ]
    row["queue_s"] = None
    assert explanation(row, [], []) == ["It ended without a token after 500 ms: aborted."]


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1795000000000", 1_795_000_000_000),
        ("²", 0),
        ("", 0),
        ("-5", 0),
        ("9" * 5_000, 0),
        ("9" * 15, 0),
    ],
)
def test_a_time_that_is_none_is_left_out(text: str, at_ms: int) -> None:
    assert near_time_ms(text) == at_ms


def test_a_trace_id_is_found_in_either_case() -> None:
    trace_id = "0193EBAB50964E952C6C8A0CDACEA33C"
    assert ids_to_find(trace_id) == [trace_id, trace_id.lower()]
    assert ids_to_find("chatcmpl-A") == ["chatcmpl-A"]


def test_a_gap_of_nothing_has_a_reason() -> None:
    assert gap_words(0.0) == "0 ms (tokens that arrive together have gaps of 0)"
    assert (gap_words(0.02), gap_words(None)) == ("20 ms", "no data")


def test_phases_that_the_sender_does_not_report_are_not_called_zero() -> None:
    row = request(queue_s=None, prefill_s=None, decode_s=None, source="sglang")
    (sentence,) = explanation(row, [], [])
    assert sentence.startswith("The first token came after 1 s. It had 1,000 input tokens")
    assert nothing_drawn_words(row).endswith("is not reported by SGLang.")
    assert "neither the engine nor a cache" in nothing_drawn_words(request(source="evenkeel"))


def test_what_the_tokens_of_the_answer_say_is_shown_as_far_as_it_is_known() -> None:
    assert answer_facts(request()) == []
    row = request(
        visible_ttft_s=4.2, reasoning_tokens=900, visible_tokens=0, repeated_share=0.93,
        tool_calls_failed=1,
    )  # fmt: skip
    assert answer_facts(row) == [
        ("first visible token", "4.2 s"),
        ("reasoning tokens", "900"),
        ("visible tokens", "none: the answer is empty"),
        ("repeated", "93%"),
        ("tool calls that did not parse", "1"),
    ]
