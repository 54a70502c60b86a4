"""Converts drafted and accepted tokens per step to counts per draft position and per emission."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain


def count_by_position(per_step: Sequence[int], num_positions: int = 0) -> list[int]:
    """Return how many steps reached each draft position: element i counts steps with more than i.

    The result has at least `num_positions` elements, so that a request without accepted tokens has
    zeros to match its drafted ones.

    Drafts are ragged (a step may draft fewer tokens than the limit), so drafted and accepted tokens
    each need their own list: accepted / drafted at position i is the acceptance rate there.
    The sum of the result is the sum of `per_step`; steps of 0 add nothing; empty input gives [].
    """
    counts = [0] * max(num_positions, max(per_step, default=0))
    for position in chain.from_iterable(map(range, per_step)):
        counts[position] += 1
    return counts


def count_by_emission(
    emitted: Sequence[int], steps: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """Return the drafted and accepted tokens behind each emission.

    An emission holds the tokens of one step, or of several if the server was slower than the
    engine, so each ends where a step's tokens end. Only the last may end earlier, because a stop
    truncates its tokens; later steps were wasted.

    Args:
        emitted: Tokens of each emission.
        steps: For each step that produced tokens: tokens produced, drafted and accepted.

    Returns:
        One pair per emission; [] without steps, or if the two do not match because a step's record
        is missing and its drafts cannot be assigned.
    """
    counts, following = [], iter(steps)
    for number, tokens in enumerate(emitted, start=1):
        made = drafted = accepted = 0
        while made < tokens:
            step = next(following, None)
            if step is None:
                return []
            made += step[0]
            drafted += step[1]
            accepted += step[2]
        if made > tokens and number < len(emitted):
            return []
        counts.append((drafted, accepted))
    return counts
