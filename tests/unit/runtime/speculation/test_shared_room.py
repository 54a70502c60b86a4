"""The drafts of a step fit into its token budget, and the longest are cut first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.speculation.engine import share_room


@pytest.mark.parametrize(
    ("lengths", "room", "shares"),
    [
        ([128, 3], 200, [128, 3]),
        ([128, 3], 100, [97, 3]),
        ([128, 128, 10], 100, [45, 45, 10]),
        ([128, 128], 1, [0, 0]),
        ([5], 0, [0]),
        ([5], -7, [0]),
        ([], 9, []),
    ],
)
def test_the_longest_are_cut_first(lengths: list[int], room: int, shares: list[int]) -> None:
    assert share_room(lengths, room) == shares


@given(st.lists(st.integers(0, 128), max_size=40), st.integers(-5, 3000))
def test_shares_fit_and_leave_little_unused(lengths: list[int], room: int) -> None:
    shares = share_room(lengths, room)
    assert all(0 <= share <= length for share, length in zip(shares, lengths, strict=True))
    assert sum(shares) <= max(room, 0)
    num_cut = sum(share < length for share, length in zip(shares, lengths, strict=True))
    assert not num_cut or sum(shares) > room - num_cut
