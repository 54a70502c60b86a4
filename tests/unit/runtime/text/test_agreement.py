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
    "layout": ("**Yes**, within:\n- 30 days", "Yes: within\n* 30 days.", True),
    "another sign": ("It is -5.", "It is 5.", False),
    "another comparison": ("x > 3", "x < 3", False),
    "another currency": ("$5", "€5", False),
    "another language": ("Use C++.", "Use C#.", False),
    "another emoji": ("👍", "👎", False),
    "another place of the point": ("It is 1.5.", "It is 1-5.", False),
    "another vowel sign": ("वह लेता है", "वह लाता है", False),
    "an opposite": ("It is open until nine.", "It is closed until nine.", False),
    "another order": ("Send it to Anna before Ben.", "Send it to Ben before Anna.", False),
    "Chinese": ("您可以在三十天内退货。", "您不能在三十天内退货。", False),
    "Thai": ("สินค้านี้คืนได้", "สินค้านี้คืนไม่ได้", False),
    "French": ("Oui, vous pouvez le rendre.", "Vous ne pouvez pas le rendre.", False),
    "small words": ("You can return it in this shop.", "You can return it at the shop.", True),
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
