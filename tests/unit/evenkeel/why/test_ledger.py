"""A request's ledger as entries, and what would help against its causes."""

import pytest

from evenkeel.durations import measured_duration
from evenkeel.why.advice import ADVICE, advise
from evenkeel.why.ledger import (
    counterfactuals,
    missed_prefix,
    read_ledger,
    worst_causes,
)
from evenkeel_runtime.wire.cause import CAUSES

LEDGER = {
    "ttft.prefill.others": 0.8, "ttft.prefill.own": 0.2, "decode.decode.own": 1.0,
    "decode.host.gap": 0.01, "strange": 3.0,
}  # fmt: skip


def test_entries_are_by_phase_the_largest_first() -> None:
    listed = read_ledger(LEDGER)
    assert [(e.phase, e.cause) for e in listed] == [
        ("ttft", "prefill.others"), ("ttft", "prefill.own"), ("decode", "decode.own"),
        ("decode", "host.gap"),
    ]  # fmt: skip
    assert listed[0].without_s == pytest.approx(0.2) and listed[0].share == pytest.approx(0.8)


def test_the_counterfactual_names_what_others_cost_and_nothing_small() -> None:
    listed = read_ledger(LEDGER)
    assert [e.cause for e in worst_causes(listed)] == ["prefill.others"]
    assert counterfactuals(listed, measured_duration) == [
        "Without other requests' prompts, the first token would have come after 200 ms instead of "
        "1 s."
    ]


def test_a_request_without_a_ledger_has_no_entries() -> None:
    assert read_ledger({}) == [] and read_ledger(None) == []
    assert counterfactuals([], measured_duration) == []


def test_every_cause_has_advice() -> None:
    assert set(ADVICE) == {str(cause) for cause in CAUSES}
    budget = advise("queue.budget")
    assert budget is not None and "--max-num-batched-tokens" in budget.flags
    assert advise("queue.new") is None


@pytest.mark.parametrize(
    ("miss", "evicted_s", "words"),
    [
        ("evicted", 3.0, "evicted 3 s before this request arrived"),
        ("evicted", None, "cached before, evicted since"),
        ("never_seen", None, "first time this text is seen"),
        ("none", None, ""),
        ("new", None, "new"),
    ],
)
def test_a_prefix_miss_in_words(miss: str, evicted_s: float | None, words: str) -> None:
    assert missed_prefix(miss, evicted_s, measured_duration) == words
