"""The cache page with and without a response cache."""

import pytest

from evenkeel.store import read_query
from evenkeel_dashboard.pages.cache.model import (
    bound_words,
    cache_tiles,
    evidence_words,
    kind_words,
    mode_words,
    near_miss_href,
    near_miss_words,
    reason_words,
    recall_ratio,
    status_words,
    verdict_words,
)
from evenkeel_dashboard.pages.compare.model import SENTINEL
from tests.queries import query

COHORT = {
    "all_requests": 10, "all_input_tokens": 1000, "all_cached_tokens": 250, "all_cold": 2,
    "all_saved_s": 30.0,
}  # fmt: skip
DETAIL = {
    "saved_s": 4.0, "wrong_bound": 0.02, "wrong_limit": 0.05, "verdict": "", "num_served": 0,
    "num_verified": 0, "num_unused": 0, "num_replayed": 0,
}  # fmt: skip
CLASS = {
    "route": "*", "kind": "slot_new_word", "mode": "serve", "status": "learning", "seen": 40,
    "labelled": 0,
}  # fmt: skip


def values(tiles: object) -> dict[str, str]:
    return {tile.label: tile.value for tile in tiles}  # type: ignore[attr-defined]


def test_a_response_cache_that_is_off_has_no_tiles() -> None:
    found = values(cache_tiles([COHORT, COHORT], [], []))
    assert found == {
        "Prefix hits": "25%", "Tokens saved": "250", "Prefill saved": "30 s",
        "Cold requests": "20%",
    }  # fmt: skip


def test_a_response_cache_has_tiles_where_no_prefix_is_reported() -> None:
    outcomes = [{"outcome": "exact", "num_requests": 3}, {"outcome": "miss", "num_requests": 1}]
    found = values(cache_tiles([], outcomes, []))
    assert found["Response hits"] == "75%" and "Prefix hits" not in found


def test_a_bound_that_says_nothing_is_not_shown() -> None:
    outcomes = [{"outcome": "miss", "num_requests": 9}]
    useless = DETAIL | {"wrong_bound": 0.99}
    assert "Wrong answers (upper bound)" not in values(cache_tiles([COHORT], outcomes, [useless]))
    assert bound_words([useless]).startswith("No bound on wrong answers yet")


def test_reasons_are_in_words() -> None:
    assert reason_words("about_asker") == "the question is about the asker"
    assert reason_words("new_reason") == "new reason"
    assert near_miss_words({"reason": "", "outcome": "shadow"}) == "shadow mode"
    assert near_miss_words({"reason": "", "outcome": "miss"}) == "not similar enough"
    assert (mode_words(""), verdict_words("same")) == ("–", "same answer")


def test_hits_are_answers_of_those_looked_up() -> None:
    outcomes = [
        {"outcome": "exact", "num_requests": 2}, {"outcome": "semantic", "num_requests": 1},
        {"outcome": "verified", "num_requests": 3}, {"outcome": "miss", "num_requests": 6},
    ]  # fmt: skip
    found = values(cache_tiles([COHORT], outcomes, [DETAIL]))
    assert found["Response hits"] == found["Verified answers"] == "25%"
    assert found["Wrong answers (upper bound)"] == "2%"


def test_the_bound_in_words() -> None:
    assert "At most 2%" in bound_words([DETAIL]) and "above 5%" in bound_words([DETAIL])
    assert bound_words([]).startswith("No bound")


@pytest.mark.parametrize("name", ["cache_cohorts", "prompt_versions"])
def test_the_drift_sentinel_is_not_user_traffic(name: str) -> None:
    assert f"'{SENTINEL}'" in read_query(query(name))


def test_recall_counts_the_near_hits_that_were_not_compared_as_the_others() -> None:
    assert recall_ratio([DETAIL]) is None
    used = DETAIL | {"num_served": 5, "num_verified": 3}
    assert recall_ratio([used]) == 1
    assert recall_ratio([used, DETAIL | {"num_unused": 4}]) is None, "nothing is known of those"
    judged = [
        DETAIL | {"num_unused": 4},
        DETAIL | {"verdict": "same", "num_unused": 1},
        DETAIL | {"verdict": "different", "num_unused": 3},
    ]
    assert recall_ratio([used, *judged]) == pytest.approx(8 / 10)


def test_wrong_hits_are_those_that_replays_found() -> None:
    outcomes = [{"outcome": "semantic", "num_requests": 9}]
    replays = [
        DETAIL | {"verdict": "same", "num_replayed": 8},
        DETAIL | {"verdict": "different", "num_replayed": 1},
    ]
    assert values(cache_tiles([COHORT], outcomes, replays))["Wrong hits found"] == "1 of 9"
    assert "Wrong hits found" not in values(cache_tiles([COHORT], outcomes, [DETAIL]))


def test_a_class_says_what_happens_to_its_hits_and_where_its_evidence_is_from() -> None:
    assert kind_words("slot_new_word") == "a further detail, in a new word"
    assert status_words(CLASS) == ("learning: too few verdicts", "")
    assert status_words(CLASS | {"status": "served"}) == ("served", "good")
    assert "shadow" in status_words(CLASS | {"status": "served", "mode": "shadow"})[0]
    assert "only drafts" in status_words(CLASS | {"status": "served", "mode": "draft"})[0]
    assert "this service's own traffic" in evidence_words([CLASS])
    assert "30 of these 40 verdicts come from labelled" in evidence_words(
        [CLASS | {"labelled": 30}]
    )


def test_a_near_miss_leads_to_its_own_request_of_the_trace() -> None:
    href = near_miss_href({"trace_id": "4f2a", "time_ms": 12}, {"tz": "local"})
    assert href == "./request?trace_id=4f2a&at=12&tz=local"
