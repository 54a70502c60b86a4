"""A ledger as shown on the request page."""

from __future__ import annotations

import pytest
from evenkeel_dashboard.pages.request.ledger import counterfactual, entries, sharing

from evenkeel.spans import LEDGER_ERROR_RATIO, LEDGER_SHARED_BY

ROW = {
    "ledger": {
        "ttft.prefill.others": 0.8, "ttft.prefill.own": 0.2, "decode.decode.own": 1.0,
        "decode.host.gap": 0.01, "strange": 3.0,
    }
}  # fmt: skip


def test_entries_are_by_phase_the_largest_first() -> None:
    listed = entries(ROW)
    assert [(e.phase, e.cause) for e in listed] == [
        ("ttft", "prefill.others"), ("ttft", "prefill.own"), ("decode", "decode.own"),
        ("decode", "host.gap"),
    ]  # fmt: skip
    assert listed[0].without_s == pytest.approx(0.2)


def test_the_counterfactual_names_what_others_cost_and_nothing_small() -> None:
    sentences = counterfactual(entries(ROW))
    assert len(sentences) == 1
    assert "would have come after 200 ms instead of 1.00 s" in sentences[0]


def test_a_request_without_a_ledger_has_no_entries() -> None:
    assert entries({"ledger": {}}) == [] and entries({}) == []
    assert counterfactual([]) == []


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({LEDGER_SHARED_BY: "tokens"}, "split by tokens"),
        ({LEDGER_SHARED_BY: "cost_model", LEDGER_ERROR_RATIO: "0.124"}, "12.4 % off on average"),
        ({LEDGER_SHARED_BY: "cost_model", LEDGER_ERROR_RATIO: "nan"}, None),
        ({LEDGER_SHARED_BY: "strange"}, None),
        ({}, None),
    ],
)
def test_what_steps_were_shared_out_by_is_said(
    attributes: dict[str, str], expected: str | None
) -> None:
    words = sharing(attributes)
    assert words is None if expected is None else expected in (words or "")
