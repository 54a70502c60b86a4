"""The class of a near hit: which words object to it, and how far it is ahead."""

import pytest

from evenkeel_runtime.response_cache.hit_class import (
    ASSUMED_RIVAL,
    KINDS,
    KNOWN_WORDS,
    SAME_WORDS,
    KnownQuestion,
    NearQuestion,
    classify,
)
from evenkeel_runtime.text.guards import count_stems

RESET, CHANGE = 1, 2


def near(answer: int, similarity: float, *stems: str) -> NearQuestion:
    return NearQuestion(f"{answer}-{similarity}", similarity, KnownQuestion(answer, stems))


NEAR = (
    near(RESET, 0.8, "reset", "password"),
    near(RESET, 0.7, "forgot", "password"),
    near(CHANGE, 0.65, "chang", "password"),
)


def kind(guard: str | None, *stems: str, answer: int = RESET) -> str:
    return classify(guard, frozenset(stems), NEAR, answer).kind


def test_words_that_other_wordings_of_the_answer_have_settle_an_objection() -> None:
    for guard in (None, "contrast", "slot"):
        assert kind(guard, "forgot", "reset", "password") == SAME_WORDS


def test_a_question_that_lacks_a_word_of_each_wording_may_ask_something_else() -> None:
    assert kind(None, "password") == KNOWN_WORDS
    assert kind(None, "forgot", "reset") == KNOWN_WORDS
    assert kind(None, "forgot", "password") == SAME_WORDS


def test_a_wording_without_words_of_weight_says_nothing() -> None:
    near_hits = (*NEAR, near(RESET, 0.75))
    assert classify(None, frozenset({"reset"}), near_hits, RESET).kind == KNOWN_WORDS
    assert classify(None, frozenset(), near_hits, RESET).kind == KNOWN_WORDS


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("Do you have the water filter?", "Can the water filter go under water?"),
        ("Can I use the gift card?", "Can I use a card with the gift card?"),
    ],
)
def test_a_word_said_once_more_is_another_word(short: str, long: str) -> None:
    stored = {text: near(RESET, 0.7, *count_stems(text)) for text in (short, long)}
    assert classify(None, count_stems(long), [stored[long]], RESET).kind == SAME_WORDS
    assert classify("contrast", count_stems(long), [stored[short]], RESET).kind == (
        "contrast_new_word"
    )
    assert classify(None, count_stems(short), [stored[long]], RESET).kind == KNOWN_WORDS


@pytest.mark.parametrize("guard", ["numbers", "names", "negation", "relation"])
def test_numbers_names_negation_and_relations_are_not_settled_by_words(guard: str) -> None:
    assert kind(guard, "password") == guard


def test_a_word_of_another_answer_is_worse_than_one_nobody_used() -> None:
    assert kind("contrast", "chang", "password") == "contrast_rival_word"
    assert kind("contrast", "recover", "password") == "contrast_new_word"
    assert kind(None, "recover", "password") == "passed_new_word"


def test_each_kind_is_one_that_alpha_is_divided_among() -> None:
    guards = (None, "slot", "contrast", "numbers", "names", "negation", "relation")
    words = (("password",), ("reset", "password"), ("chang",), ("recover",))
    assert {kind(guard, *stems) for guard in guards for stems in words} == set(KINDS)


def test_the_lead_is_over_the_nearest_question_with_another_answer() -> None:
    ahead = classify(None, frozenset(), NEAR, RESET)
    assert (ahead.similarity, ahead.lead) == (0.8, pytest.approx(0.15))
    assert classify(None, frozenset(), NEAR, CHANGE).lead == pytest.approx(-0.15)
    alone = classify(None, frozenset(), NEAR[:1], RESET)
    assert alone.lead == pytest.approx(0.8 - ASSUMED_RIVAL)
