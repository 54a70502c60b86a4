"""Drafts by position, ragged ones above all, and by emission."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.exporter.draft_counts import count_by_emission, count_by_position


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


@pytest.mark.parametrize(
    ("emitted", "steps", "expected"),
    [
        pytest.param([1, 3], [], [], id="no step is known"),
        pytest.param(
            [1, 3, 1, 2], [(1, 0, 0), (3, 4, 2), (1, 3, 0), (2, 1, 1)],
            [(0, 0), (4, 2), (3, 0), (1, 1)], id="an emission a step, ragged",
        ),
        pytest.param(
            [1, 4, 1], [(1, 0, 0), (3, 4, 2), (1, 0, 0), (1, 0, 0)],
            [(0, 0), (4, 2), (0, 0)], id="two steps left in one emission",
        ),
        pytest.param([1, 2], [(1, 0, 0), (5, 4, 4)], [(0, 0), (4, 4)], id="a stop cut the last"),
        pytest.param(
            [1, 2], [(1, 0, 0), (2, 4, 1), (5, 4, 4)], [(0, 0), (4, 1)], id="its client left"
        ),
        pytest.param([1, 3, 1], [(1, 0, 0), (5, 4, 4)], [], id="a step ends in the middle"),
        pytest.param([1, 3, 1], [(3, 4, 2), (1, 4, 0)], [], id="the first step is missing"),
        pytest.param([1, 3, 1], [(1, 0, 0), (3, 4, 2)], [], id="the last step is missing"),
    ],
)  # fmt: skip
def test_count_by_emission(
    emitted: list[int], steps: list[tuple[int, int, int]], expected: list[tuple[int, int]]
) -> None:
    assert count_by_emission(emitted, steps) == expected


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), min_size=1), st.data())
def test_steps_in_one_emission_keep_their_sums(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    counted = [(made, drafted, min(drafted, made - 1)) for made, drafted in steps]
    ends = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    ends[-1] = True
    emitted, behind = [], 0
    for (made, _, _), is_end in zip(counted, ends, strict=True):
        behind += made
        if is_end:
            emitted.append(behind)
            behind = 0
    found = count_by_emission(emitted, counted)
    assert len(found) == len(emitted)
    assert sum(drafted for drafted, _ in found) == sum(drafted for _, drafted, _ in counted)
    assert sum(accepted for _, accepted in found) == sum(accepted for _, _, accepted in counted)
