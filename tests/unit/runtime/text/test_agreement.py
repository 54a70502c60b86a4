"""Whether two answers say the same."""

import pytest

from evenkeel.embedding import load_encoder
from evenkeel_runtime.text.agreement import are_interchangeable

CASES = {
    "equal": ("Yes, within 30 days.", "Yes, within 30 days.", True),
    "case, space and marks": ("Yes, within 30 days.", " yes within 30 days", True),
    "another number": ("Yes, within 30 days.", "Yes, within 31 days.", False),
    "a negation": ("You can return it.", "You can not return it.", False),
    "another place": ("We ship it to Austria.", "We ship it to Australia.", False),
    "another subject": ("Choose a new password.", "Our shop opens at nine.", False),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_agree_or_not(case: str) -> None:
    answer, other, is_same = CASES[case]
    assert are_interchangeable(answer, other, load_encoder().encode) is is_same
    assert are_interchangeable(other, answer, load_encoder().encode) is is_same


def test_without_embeddings_only_words_count() -> None:
    assert are_interchangeable("Yes.", "yes", None)
    assert not are_interchangeable(
        "Send it back within a month.", "Within a month send it back.", None
    )
