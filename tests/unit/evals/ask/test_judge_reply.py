"""Replies of judge models, and how they are parsed."""

import pytest

from evenkeel_evals.ask.judge_reply import read_choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("1", "1"),
        ("**2**", "2"),
        ("[[1]]", "1"),
        ("Answer 2.", "2"),
        ("TIE", "tie"),
        ("<think>Answer 1 is better at first sight.</think>\n2", "2"),
        ("Answer 1 looks fine... </think> tie", "tie"),
        ("<think>I wonder whether 1", None),
        ("Answer 1 is better because it names the fee that Answer 2 leaves out.", "1"),
        ("After reading both, I prefer Answer 2: it is correct.", "2"),
        ("Both answers name the fee. Verdict: 1", "1"),
        ('{"verdict": "2", "reason": "1 is wrong"}', "2"),
        ("The better one is Answer 1", "1"),
        ("Answer 2 is not better; answer 1 is better.", "1"),
        ("Answer 1 is worse than the other.", None),
        ("Answer 2 is clearly the better of the two", "2"),
        ("The verdict is \\boxed{2}", "2"),
        ("Neither answer is better.", "tie"),
        ("They are equally good.", "tie"),
        ("Answer 1 gives two steps.\nAnswer 2 gives one.\n\n1", "1"),
        ("Answer 1 is better. Answer 2 is better.", None),
        ("I cannot help with that.", None),
        ("Answer 1 has 12 words and answer 2 has 2 lines", None),
        ("", None),
        ("**Answer 2**", "2"),
        ("The better answer is 2.", "2"),
        ("I would say Answer 2.", "2"),
        ("The second answer is better", "2"),
        ("Answer 1 is far from better", None),
        ("Answer 1 is hardly better", None),
        ("I doubt that Answer 1 is better", None),
        ("Answer 1 is second best", None),
        ("Answer 1 would be better if it were not wrong", None),
        ("Answer 2 wins no points", None),
        ("Step 1 is better explained. Answer 2.", None),
        ("tie-breaker: 1", None),
        ("Answer 1 is better.\nIts final answer is 2, which is correct.", "1"),
    ],
)
def test_choices(text: str, choice: str | None) -> None:
    assert read_choice(text) == choice


def test_a_long_text_is_read_quickly() -> None:
    assert read_choice("Answer 1 is " * 50_000) is None
