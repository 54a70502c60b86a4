"""Wasted tokens as a sum by cause."""

from evenkeel.store import read_query
from evenkeel_dashboard.draw.wasted import wasted_tokens
from evenkeel_dashboard.frame.reading import SHARED
from evenkeel_dashboard.frame.selection import FILTERS

ROW = {
    "client_left": 100.0, "rejected_drafts": 400.0, "failed": 0.0, "evicted": 500.0,
    "useful_and_failed": 9_500.0,
}  # fmt: skip


def test_causes_add_up_the_largest_first() -> None:
    found = wasted_tokens(ROW)
    assert list(found.by_cause.values()) == [500, 400, 100]
    assert (found.total, found.computed) == (1_000, 10_000)
    assert found.words().startswith("Wasted tokens: 1,000 (10")
    assert "400 rejected drafts" in found.words()


def test_nothing_wasted_is_none_and_nothing_computed_is_no_data() -> None:
    nothing = dict.fromkeys(ROW, 0.0)
    assert wasted_tokens({**nothing, "useful_and_failed": 9.0}).words() == "Wasted tokens: none."
    assert wasted_tokens(nothing).words() == "Wasted tokens: no data."
    assert wasted_tokens(dict.fromkeys(ROW)).words() == "Wasted tokens: no data."
    only_evicted = wasted_tokens({**nothing, "evicted": 9.0}).words()
    assert only_evicted.endswith("9 prompts computed again after eviction.")


def test_requests_and_spans_are_filtered_alike() -> None:
    sql = read_query(SHARED / "wasted_tokens.sql")
    for name in FILTERS:
        assert sql.count(f"{{{name}:String}} = ''") == 2
