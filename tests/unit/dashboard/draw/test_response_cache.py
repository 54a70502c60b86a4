"""The outcomes of a lookup in words."""

from evenkeel_dashboard.draw.response_cache import OUTCOMES, outcome_words


def test_every_outcome_has_words_and_a_new_one_is_shown_as_it_is() -> None:
    assert outcome_words("semantic") == "hit: a similar question"
    assert outcome_words("something new") == "something new"
    assert len(set(OUTCOMES.values())) == len(OUTCOMES)
