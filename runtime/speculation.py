"""Drafted and accepted tokens by draft position, from the counts of each verify step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain


def count_by_position(per_step: Sequence[int], num_positions: int = 0) -> list[int]:
    """Return how many steps reached each position: element i counts the steps with more than i.

    The result has at least `num_positions` elements, so that the accepted tokens of a request that
    accepted none are zeros beside its drafted ones.

    Drafts are ragged (a step may draft fewer tokens than the limit), so drafted and accepted tokens
    each need their own list: accepted / drafted at position i is then the acceptance rate there.
    The sum of the result is the sum of `per_step`; steps of 0 leave no trace; empty in, empty out.
    """
    counts = [0] * max(num_positions, max(per_step, default=0))
    for position in chain.from_iterable(map(range, per_step)):
        counts[position] += 1
    return counts
