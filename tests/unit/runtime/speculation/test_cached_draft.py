"""A cached answer is followed, left, and found again."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.speculation.cached_draft import (
    AFTER_DIFFERENCE,
    NUM_TRUSTS,
    HandedAnswer,
    read_handed,
)
from evenkeel_runtime.wire.drafts import ANSWER_KEY, OTHERS_KEY, TRUST_KEY, pack_tokens

ANSWER = list(range(50, 80))


def test_the_whole_answer_is_offered_before_the_first_token() -> None:
    handed = HandedAnswer(ANSWER, trust=2)
    assert (handed.rest(128), handed.kind, handed.run) == (ANSWER, 2, 0)
    handed.follow(ANSWER[:7])
    assert (handed.rest(128), handed.kind, handed.run) == (ANSWER[7:], 2, 7)
    assert handed.rest(3) == ANSWER[7:10]


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        pytest.param([*ANSWER[:9], 7], ANSWER[10:], id="a word is replaced"),
        pytest.param([*ANSWER[:9], 7, ANSWER[10]], ANSWER[11:], id="and the next one agrees"),
        pytest.param([*ANSWER[:9], 7, 8], [], id="two words are new"),
        pytest.param([*ANSWER[:9], 7, 8, *ANSWER[9:11]], ANSWER[11:], id="a part is inserted"),
        pytest.param([*ANSWER[:9], *ANSWER[14:16]], ANSWER[16:], id="a part is left out"),
        pytest.param([7, 8, 9, *ANSWER[:2]], ANSWER[2:], id="another beginning"),
        pytest.param([1, 2, 3, 4, 5], [], id="another answer"),
        pytest.param([*ANSWER, 7], [], id="it goes on"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_after_a_difference_it_is_found_again(
    answer: list[int], rest: list[int], at_once: bool
) -> None:
    handed = HandedAnswer(ANSWER)
    for end in range(len(answer) if at_once else 1, len(answer) + 1):
        handed.follow(answer[:end])
    assert handed.rest(128) == rest
    assert handed.kind == AFTER_DIFFERENCE


def test_no_draft_takes_the_engine_long_to_search() -> None:
    # The bytes of 65,536 twice occur at every token of the draft, but never at a token's beginning.
    handed = HandedAnswer([256] * 50_000)
    answer: list[int] = []
    started = time.process_time()
    for _ in range(40):
        answer.append(65_536)
        handed.follow(answer)
    assert not handed.rest(128)
    assert time.process_time() - started < 0.5


def test_another_answer_that_begins_alike_takes_over() -> None:
    handed = HandedAnswer([1, 2, 3, 4], others=[[9, 9], [1, 2, 5, 6, 7], [1, 2, 5, 8]])
    handed.follow([1, 2, 5])
    assert (handed.rest(9), handed.kind, handed.run) == ([6, 7], NUM_TRUSTS - 1, 3)
    handed.follow([1, 2, 5, 8])
    # None is left: one token may be replaced.
    assert handed.rest(9) == [7]
    handed = HandedAnswer([1, 2], others=[[3, 4, 5]])
    handed.follow([3])
    assert handed.rest(9) == [4, 5]


def test_of_several_places_the_next_one_is_taken() -> None:
    handed = HandedAnswer([1, 2, 3, 4, 9, 9, 1, 2, 5, 9, 9, 1, 2, 6])
    handed.follow([1, 2, 3, 4, 8, 7, 1, 2])
    assert handed.rest(1) == [5]


@pytest.mark.parametrize(
    ("extra_args", "draft"),
    [
        pytest.param({ANSWER_KEY: [1, 2, 3]}, [1, 2, 3], id="token ids"),
        pytest.param({ANSWER_KEY: pack_tokens([1, 2, 3])}, [1, 2, 3], id="packed token ids"),
        pytest.param({ANSWER_KEY: pack_tokens([1, 100])}, [], id="packed, beyond the vocabulary"),
        pytest.param({ANSWER_KEY: pack_tokens([1, 2])[:-1]}, [], id="packed, cut"),
        pytest.param({ANSWER_KEY: "1 2 3"}, [], id="a text"),
        pytest.param({ANSWER_KEY: [1, -2]}, [], id="a negative id"),
        pytest.param({ANSWER_KEY: [1, True]}, [], id="a boolean"),
        pytest.param({ANSWER_KEY: [99]}, [99], id="the last token"),
        pytest.param({ANSWER_KEY: [1, 100]}, [], id="beyond the vocabulary"),
        pytest.param({}, [], id="none"),
        pytest.param(None, [], id="no extra arguments"),
    ],
)
def test_only_token_ids_are_taken_as_a_draft(extra_args: object, draft: list[int]) -> None:
    assert read_handed(extra_args, vocabulary=100, max_tokens=9).rest(9) == draft


def test_no_more_of_a_draft_is_kept_than_the_request_may_generate() -> None:
    handed = read_handed({ANSWER_KEY: ANSWER, OTHERS_KEY: [[1, 2, 3, 4], "no"]}, 100, 3)
    assert handed.rest(99) == ANSWER[:3]
    handed.follow([1])
    assert handed.rest(99) == [2, 3]


@pytest.mark.parametrize(
    ("trust", "kind"), [(3, 3), (NUM_TRUSTS, 0), (-1, 0), ("1", 0), (True, 0), (None, 0)]
)
def test_a_degree_of_trust_that_there_is_not_counts_as_the_highest(
    trust: object, kind: int
) -> None:
    assert read_handed({ANSWER_KEY: [1], TRUST_KEY: trust}, 100, 9).kind == kind


tokens = st.lists(st.integers(0, 3), max_size=40)


@given(tokens, st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=10))
def test_what_is_offered_is_part_of_the_answer(answer: list[int], steps: list[list[int]]) -> None:
    handed = HandedAnswer(answer)
    made: list[int] = []
    for step in steps:
        made += step
        handed.follow(made)
        rest = handed.rest(128)
        assert rest == answer[len(answer) - len(rest) :]
        if handed.run and handed.kind == AFTER_DIFFERENCE:
            at = len(answer) - len(rest)
            assert answer[at - handed.run : at] == made[len(made) - handed.run :]
