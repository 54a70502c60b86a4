"""Drafts by position, ragged ones above all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.speculation import count_by_position


@pytest.mark.parametrize(
    ("per_step", "expected"),
    [
        pytest.param([], [], id="no step"),
        pytest.param([0, 0], [], id="steps without a draft leave no trace"),
        pytest.param([3, 3], [2, 2, 2], id="even drafts"),
        pytest.param([4, 1, 0, 2], [3, 2, 1, 1], id="ragged drafts"),
    ],
)
def test_count_by_position(per_step: list[int], expected: list[int]) -> None:
    assert count_by_position(per_step) == expected


def test_none_accepted_is_zeros_beside_the_drafted() -> None:
    assert count_by_position([0, 0], num_positions=3) == [0, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted)))
def test_no_position_accepts_more_than_it_drafts(steps: list[list[int]]) -> None:
    accepted = count_by_position([a for a, _ in steps])
    drafted = count_by_position([d for _, d in steps])
    assert sum(drafted) == sum(d for _, d in steps)
    assert sum(accepted) == sum(a for a, _ in steps)
    assert len(accepted) <= len(drafted)
    assert all(a <= d for a, d in zip(accepted, drafted, strict=False))
