"""Suggestions from the worst slices of a run, each with its evidence."""

from dataclasses import replace

import pytest

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.production.suggestions import describe, suggest
from evenkeel_evals.scorers.base import make_scorer

FULL = "You are a helper. Give the order number alone. Be kind."
SHORT = "You are a helper. Be kind."


@pytest.fixture
def make(make_pair):  # type: ignore[no-untyped-def]
    def pair(
        index: int,
        answer: str,
        tag: str,
        scorer: str = "exact",
        finish: str = "stop",
        a: bool = False,
    ) -> AnsweredPair:
        bound = make_scorer(scorer, "A-17")
        item = Item(f"i{index}", (Message("user", "Which?"),), "A-17", bound, (tag,), f"c{index}")
        whole = make_pair(index, a, answer == "A-17")
        reply = replace(whole.b.reply, text=answer, finish_reason=finish)
        return replace(whole, item=item, b=replace(whole.b, reply=reply))

    return pair


def test_the_worst_slices_lead_and_good_ones_are_left_out(make) -> None:  # type: ignore[no-untyped-def]
    pairs = [make(i, "A-17" if i % 10 else "x", "good") for i in range(20)]
    pairs += [make(100 + i, "A-17" if i % 2 else "x", "half") for i in range(20)]
    pairs += [make(200 + i, "x", "bad") for i in range(20)]
    found = suggest(pairs, (FULL, FULL), 3)
    assert [s.slice_name for s in found] == ["bad", "half"]
    assert (found[0].num_wrong, found[0].num_items) == (20, 20)
    assert len(suggest(pairs, (FULL, FULL), 1)) == 1


@pytest.mark.parametrize(
    ("answer", "finish", "pattern"),
    [
        pytest.param("It is A-17, glad to help!", "stop", "among other words", id="wrapped"),
        pytest.param("The order", "length", "cut off", id="cut"),
        pytest.param("I'm sorry, I can't help with that.", "stop", "refuses", id="refusal"),
        pytest.param("  ", "stop", "no answer", id="empty"),
        pytest.param("B-4", "stop", "no known pattern", id="unknown"),
    ],
)
def test_what_wrong_answers_have_in_common(make, answer: str, finish: str, pattern: str) -> None:  # type: ignore[no-untyped-def]
    found = suggest([make(i, answer, "s", finish=finish) for i in range(6)], (FULL, FULL), 3)
    assert pattern in found[0].pattern
    assert found[0].num_matching == 6
    assert len(found[0].examples) == 3
    assert found[0].examples[0].trace_id == "a" * 32
    assert "try:" in describe(found[0])[1]


def test_what_the_baseline_said_and_the_candidate_does_not_is_named(make) -> None:  # type: ignore[no-untyped-def]
    pairs = [make(i, "B-4", "s", a=True) for i in range(6)]
    found = suggest(pairs, (FULL, SHORT), 3)[0]
    assert found.pattern == "right with the baseline's prompt"
    assert "Give the order number alone." in found.advice
    assert "Be kind" not in found.advice
