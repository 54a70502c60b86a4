"""Replies of a judge of single answers, and how they are parsed."""

import pytest

from evenkeel_evals.ask.rubric_judge import read_verdict
from evenkeel_evals.scorers.base import Label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("yes", Label.RIGHT),
        ("**No.**", Label.WRONG),
        ("Yes, there are no issues.", Label.RIGHT),
        ("No: the price is missing.", Label.WRONG),
        ("The answer names the price.\n\nVerdict: yes", Label.RIGHT),
        ("<think>no, wait</think>yes", Label.RIGHT),
        ("The answer has no mistakes and meets the criterion.", Label.UNSCORED),
        ("I see no reason to fail it.", Label.UNSCORED),
        ("yes\nno", Label.UNSCORED),
        ("", Label.UNSCORED),
    ],
)
def test_a_word_is_read_and_a_sentence_is_not_guessed(text: str, label: Label) -> None:
    score = read_verdict(text)
    assert score.label is label
    if label is Label.UNSCORED:
        assert repr(text[:20])[1:-1] in str(score.reason)
