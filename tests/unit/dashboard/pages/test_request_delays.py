"""What delayed a request and what was done for it, read from its span."""

import pytest

from evenkeel_dashboard.draw.compression import compression_words
from evenkeel_dashboard.pages.request.delays import canary_words, prefix_miss, rivals

RIVALS = {
    "evenkeel.rivals.request_ids": '["chatcmpl-2", ""]',
    "evenkeel.rivals.cost_s": "[0.3, 0.1]",
    "evenkeel.rivals.prefill_tokens": "[1500, 0]",
    "evenkeel.rivals.decode_tokens": "[4, 90]",
}


def test_rivals_are_worst_first() -> None:
    found = rivals(RIVALS)
    assert [(r.request_id, r.cost_s) for r in found] == [("chatcmpl-2", 0.3), ("", 0.1)]
    assert (found[0].prefill_tokens, found[1].decode_tokens) == (1500, 90)


@pytest.mark.parametrize(
    "changes",
    [
        {"evenkeel.rivals.cost_s": "[0.3]"},
        {"evenkeel.rivals.cost_s": "nonsense"},
        {"evenkeel.rivals.request_ids": '{"a": 1}'},
    ],
)
def test_lists_that_do_not_belong_together_are_left_out(changes: dict[str, str]) -> None:
    assert rivals(RIVALS | changes) == []
    assert rivals({}) == []


def test_a_prefix_miss_says_why_and_what_it_cost() -> None:
    found = prefix_miss(
        {
            "evenkeel.prefix.miss": "evicted",
            "evenkeel.prefix.missed_tokens": "512",
            "evenkeel.prefix.evicted_s": "3",
            "evenkeel.prefix.cost_s": "0.12",
            "evenkeel.prefix.evicted_by": "chatcmpl-3",
        }
    )
    assert found is not None and found.evicted_by == "chatcmpl-3"
    assert found.words.startswith(
        "512 prompt tokens (whole blocks) were not in the prefix cache: evicted 3"
    )
    assert "Computing them took 120 ms" in found.words


def test_a_changing_part_before_static_text_is_named() -> None:
    found = prefix_miss(
        {
            "evenkeel.prefix.miss": "diverged",
            "evenkeel.prefix.missed_tokens": "512",
            "evenkeel.prefix.diverged_at": "40",
            "evenkeel.prefix.unstable_tokens": "300",
        }
    )
    assert found is not None and "from token 40 on" in found.words
    assert "move the changing part to the end" in found.words


def test_nothing_is_said_without_a_miss() -> None:
    assert prefix_miss({}) is None
    assert prefix_miss({"evenkeel.prefix.miss": "none"}) is None


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({}, "off"),
        ({"verdict": "sent", "saved_tokens": "350"}, "compressed, 350 tokens saved"),
        ({"verdict": "no_gain"}, "unchanged: too little to gain"),
        ({"verdict": "failed_numbers"}, "unchanged: it would have lost numbers"),
        ({"verdict": "failed_new_check"}, "unchanged: new check"),
    ],
)
def test_compression_in_words(attributes: dict[str, str], words: str) -> None:
    named = {f"evenkeel.compression.{name}": value for name, value in attributes.items()}
    assert compression_words(named) == words


def test_the_canary_in_words() -> None:
    assert canary_words([]) == ""
    assert canary_words([{"result": "match", "differs_at": None}]) == "same answer without drafts"
    assert "from token 7 on" in canary_words([{"result": "mismatch", "differs_at": 7}])
