"""Earlier prompts: the nearest is found, the bound holds, and a moved static part is seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.ledger.prompt_memory import (
    MIN_MOVED_TOKENS,
    PromptMemory,
    Tokens,
    count_common,
    count_moved,
    read_tokens,
)
from evenkeel_runtime.wire.observation import MAX_COMPARED_TOKENS, pack_tokens


def tokens(*parts: range | list[int]) -> Tokens:
    return np.array([token for part in parts for token in part], dtype=np.uint32)


SYSTEM = range(1000, 1200)


def test_packed_tokens_come_back_and_long_prompts_are_cut() -> None:
    assert read_tokens(pack_tokens([1, 2, 2**32 - 1])).tolist() == [1, 2, 2**32 - 1]
    assert len(read_tokens(pack_tokens(range(MAX_COMPARED_TOKENS + 5)))) == MAX_COMPARED_TOKENS
    assert pack_tokens([1, -1]) == b""


def test_the_prompt_that_shares_most_is_found_among_later_ones() -> None:
    memory = PromptMemory(100_000)
    memory.add("far", None, None, tokens(range(4), [9] * 50))
    memory.add("near", "acme", None, tokens(SYSTEM, [1, 2, 3]))
    for number in range(20):
        memory.add(f"later {number}", None, None, tokens(range(1000, 1010), [number] * 30))
    same, other = memory.find_nearest(None, tokens(SYSTEM, [1, 7]))
    assert other is None
    assert same is not None
    assert (same.request_id, same.tenant, same.common_tokens) == ("near", "acme", 201)
    assert not same.has_ended


def test_prompts_of_another_salt_are_told_apart() -> None:
    memory = PromptMemory(100_000)
    memory.add("ours", None, "a", tokens(range(1000, 1020)))
    memory.add("theirs", None, "b", tokens(SYSTEM))
    same, other = memory.find_nearest("a", tokens(SYSTEM, [5]))
    assert same is not None and other is not None
    assert (same.request_id, same.common_tokens, same.has_ended) == ("ours", 20, True)
    assert (other.request_id, other.common_tokens) == ("theirs", 200)


def test_the_oldest_prompts_are_forgotten() -> None:
    memory = PromptMemory(max_tokens=500)
    for number in range(10):
        memory.add(str(number), None, None, tokens([number] * 100))
    assert len(memory) == 5
    assert memory.find_nearest(None, tokens([4] * 100)) == (None, None)
    same, _ = memory.find_nearest(None, tokens([5] * 100))
    assert same is not None and same.request_id == "5"


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=4),
    st.lists(st.integers(0, 2), min_size=4, max_size=40),
)
def test_among_few_prompts_none_shares_more_than_the_one_found(
    earlier: list[list[int]], prompt: list[int]
) -> None:
    memory = PromptMemory(10_000)
    for number, each in enumerate(earlier):
        memory.add(str(number), None, None, tokens(each))
    same, _ = memory.find_nearest(None, tokens(prompt))
    best = max(count_common(tokens(prompt), tokens(each)) for each in earlier)
    # Beginnings of fewer than four tokens are nobody's.
    assert (same.common_tokens if same else 0) == (best if best >= 4 else 0)


@pytest.mark.parametrize(
    ("prompt", "earlier", "common", "moved"),
    [
        pytest.param(
            tokens([1, 2, 3, 50], SYSTEM), tokens([1, 2, 3, 60], SYSTEM), 3, 200, id="a date"
        ),
        pytest.param(
            tokens([1, 50, 51, 52], SYSTEM, [7]),
            tokens([1, 60], SYSTEM, [8]),
            1,
            200,
            id="a piece of another length, and another question behind it",
        ),
        pytest.param(tokens(SYSTEM, range(50)), tokens(SYSTEM, range(60, 99)), 200, 0, id="last"),
        pytest.param(
            tokens([1, 50], range(MIN_MOVED_TOKENS - 1)),
            tokens([1, 60], range(MIN_MOVED_TOKENS - 1)),
            1,
            0,
            id="too little to matter",
        ),
        pytest.param(tokens([1, 2]), tokens([1, 3]), 1, 0, id="nothing behind it"),
    ],
)
def test_a_static_part_behind_a_changing_one_is_measured(
    prompt: Tokens, earlier: Tokens, common: int, moved: int
) -> None:
    assert count_common(prompt, earlier) == common
    assert count_moved(prompt, earlier, common) == moved
