"""The cache page with and without a response cache."""

from __future__ import annotations

from evenkeel_dashboard.pages.cache.model import bound_words, cache_tiles, outcome_words

COHORT = {
    "num_requests": 10, "input_tokens_sum": 1000, "cached_tokens_sum": 250, "cold_ratio": 0.2,
    "saved_s": 30.0,
}  # fmt: skip
DETAIL = {"saved_s": 4.0, "wrong_bound": 0.02, "wrong_limit": 0.05}


def values(tiles: object) -> dict[str, str]:
    return {tile.label: tile.value for tile in tiles}  # type: ignore[attr-defined]


def test_a_response_cache_that_is_off_has_no_data() -> None:
    found = values(cache_tiles([COHORT, COHORT], [], []))
    assert found["Prefix hits"] == "25.0 %" and found["Cold requests"] == "20.0 %"
    assert found["Prefill saved"] == "60.0 s"
    assert (
        found["Response hits"]
        == found["Time saved"]
        == found["Wrong answers (upper bound)"]
        == "no data"
    )


def test_hits_are_answers_of_those_looked_up() -> None:
    outcomes = [
        {"outcome": "exact", "num_requests": 2}, {"outcome": "semantic", "num_requests": 1},
        {"outcome": "miss", "num_requests": 9},
    ]  # fmt: skip
    found = values(cache_tiles([COHORT], outcomes, [DETAIL]))
    assert found["Response hits"] == "25.0 %"
    assert found["Wrong answers (upper bound)"] == "2.00 %"


def test_the_bound_in_words() -> None:
    assert "At most 2.00 %" in bound_words([DETAIL]) and "from 5.00 % on" in bound_words([DETAIL])
    assert bound_words([]).startswith("No bound")
    assert outcome_words("something new") == "something new"
