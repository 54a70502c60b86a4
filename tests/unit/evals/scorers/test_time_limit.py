"""Expressions that would search an answer for hours are stopped."""

import signal
from typing import Any

import pytest

from evenkeel_evals.scorers import time_limit
from evenkeel_evals.scorers.base import Label, make_scorer

# Tries every way to divide the letters before it fails: 2^40 of them.
ENDLESS = "(a+)+$"
ANSWER = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("spec", "reference", "answer"),
    [
        ("regex", ENDLESS, ANSWER),
        ({"name": "regex", "full": True}, "(a+)+b", ANSWER),
        ({"name": "safety", "ban": [ENDLESS]}, None, ANSWER),
        ({"name": "json", "schema": {"pattern": ENDLESS}}, None, f'"{ANSWER}"'),
        (
            {"name": "contains_json", "schema": {"items": {"pattern": ENDLESS}}},
            None,
            f'["{ANSWER}"]',
        ),
        ({"name": "all", "of": [{"scorer": "regex", "reference": ENDLESS}]}, None, ANSWER),
        ({"name": "not", "scorer": "regex"}, ENDLESS, ANSWER),
    ],
)
def test_an_endless_expression_leaves_the_answer_unscored(
    spec: Any, reference: Any, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.05)
    score = make_scorer(spec, reference).score(answer)
    assert score.label is Label.UNSCORED
    assert "its expression takes over 0.05 s on this answer" in str(score.reason)


def test_a_sound_expression_leaves_no_timer_behind() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    assert make_scorer("regex", "^say").score("say 7").label is Label.RIGHT
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) == before


def test_an_answer_on_which_a_scorer_fails_is_unscored_for_every_caller() -> None:
    # Such as a schema with multipleOf and a number too large for a float.
    schema = {"name": "json", "schema": {"multipleOf": 0.01}}
    score = make_scorer(schema, None).score("9" * 400)
    assert score.label is Label.UNSCORED
    assert "the scorer json failed" in str(score.reason)
