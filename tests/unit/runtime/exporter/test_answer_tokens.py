"""Repetition, reasoning and emptiness of answers, by their tokens."""

from array import array
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel_runtime.exporter.answer_tokens import AnswerSplit, repeated_share, split_answer
from evenkeel_runtime.wire.frames import AnswerMarks

THINK, END_THINK, EOS, BLANK, HI, YOU = 1, 2, 3, 4, 10, 11
MARKS = AnswerMarks(True, (THINK,), (END_THINK,), frozenset({EOS, BLANK}))
tokens = st.integers(0, 2**32 - 1)


def pack(*answer: int) -> bytes:
    return array("I", answer).tobytes()


def random_answer(length: int, seed: int) -> list[int]:
    # The vocabulary of a small model.
    return [Random(seed * 100_003 + at).randrange(4096) for at in range(length)]


@given(st.integers(0, 1000), st.integers(64, 2000))
def test_random_text_hardly_repeats(seed: int, length: int) -> None:
    share = repeated_share(pack(*random_answer(length, seed)))
    assert share is not None
    assert share < 0.02


@given(st.integers(1, 32), st.lists(tokens, min_size=32, max_size=32), st.integers(512, 4000))
def test_a_loop_of_any_period_repeats(period: int, words: list[int], length: int) -> None:
    loop = (words[:period] * length)[:length]
    share = repeated_share(pack(*loop))
    assert share is not None
    assert share >= 0.9


@given(st.integers(1, 32), st.integers(0, 99))
def test_text_that_ends_in_a_loop_repeats_by_the_loop(period: int, seed: int) -> None:
    text = random_answer(500, seed)
    share = repeated_share(pack(*text, *(text[:period] * 500)[:500]))
    assert share is not None
    assert 0.4 <= share <= 0.55


@given(st.lists(tokens, max_size=300))
def test_the_share_is_that_of_a_plain_count(answer: list[int]) -> None:
    grams = [tuple(answer[at : at + 4]) for at in range(len(answer) - 3)]
    expected = None if len(grams) < 2 else 1 - len(set(grams)) / len(grams)
    share = repeated_share(pack(*answer))
    assert share == (None if expected is None else pytest.approx(expected))


SPLITS = {
    "closed reasoning, then text": (
        (THINK, 20, 21, END_THINK, BLANK, HI, YOU, EOS), False, AnswerSplit(2, 3, 5),
    ),
    "the template opened the reasoning": ((20, 21, END_THINK, HI, EOS), True, AnswerSplit(2, 1, 3)),
    "a closing mark alone": ((20, 21, END_THINK, HI), False, AnswerSplit(2, 1, 3)),
    "an opening mark after the template's": (
        (THINK, 20, END_THINK, HI), True, AnswerSplit(1, 1, 3),
    ),
    "no reasoning this time": ((HI, YOU, EOS), False, AnswerSplit(0, 2, 0)),
    "cut within the reasoning": ((THINK, 20, 21), False, AnswerSplit(2, 0, None)),
    "cut within the template's reasoning": ((20, 21), True, AnswerSplit(2, 0, None)),
    "reasoning twice": (
        (THINK, 20, END_THINK, HI, THINK, 21, 22, END_THINK, YOU, EOS), False, AnswerSplit(3, 2, 3),
    ),
    "cut after a blank of a second reasoning": (
        (END_THINK, HI, THINK, BLANK), False, AnswerSplit(1, 1, 1),
    ),
    "nothing after the reasoning": ((THINK, 20, END_THINK, EOS), False, AnswerSplit(1, 0, None)),
    "blanks only": ((BLANK, BLANK, EOS), False, AnswerSplit(0, 0, None)),
    "the end only": ((EOS,), False, AnswerSplit(0, 0, None)),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "is_open", "expected"), SPLITS.values(), ids=SPLITS)
def test_reasoning_is_split_from_what_the_user_sees(
    answer: tuple[int, ...], is_open: bool, expected: AnswerSplit
) -> None:
    assert split_answer(pack(*answer), MARKS, is_open) == expected


def test_marks_of_several_tokens_are_found_where_tokens_begin() -> None:
    marks = AnswerMarks(True, (7, 8, 9), (5,), frozenset())
    answer = (7, 8, 7, 8, 9, 20, 5 << 8, 5, HI)
    assert split_answer(pack(*answer), marks, False) == AnswerSplit(2, 3, 0)


def test_a_model_without_reasoning_has_no_reasoning_tokens() -> None:
    marks = AnswerMarks(silent=frozenset({EOS}))
    assert split_answer(pack(HI, EOS), marks, False) == AnswerSplit(None, 1, 0)


def test_nothing_is_said_of_reasoning_between_unknown_marks() -> None:
    assert split_answer(pack(HI), AnswerMarks(reasons=True), False) is None


@given(st.lists(st.sampled_from([THINK, END_THINK, EOS, BLANK, HI, YOU])), st.booleans())
@example([END_THINK, END_THINK, THINK, BLANK], False)
def test_the_parts_never_exceed_the_answer(answer: list[int], is_open: bool) -> None:
    split = split_answer(pack(*answer), MARKS, is_open)
    assert split is not None and split.reasoning_tokens is not None
    assert 0 <= split.reasoning_tokens + split.visible_tokens <= len(answer)
    assert (split.visible_tokens == 0) == (split.first_visible is None)
