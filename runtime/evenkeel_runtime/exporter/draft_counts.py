"""Drafted and accepted tokens by draft position and by emission, from those of each step."""

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


def count_by_emission(
    emitted: Sequence[int], steps: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """Return drafted and accepted tokens of the steps behind each emission.

    An emission holds the tokens of one step, or of several where the server was slower than the
    engine: so each ends where a step's tokens end. Only the last may end earlier, because a stop
    cuts its tokens; steps after it were for nobody.

    Args:
        emitted: Tokens of each emission.
        steps: Of each step that made tokens: the tokens, and the drafts tried and accepted.

    Returns:
        A pair an emission; [] without steps, or where the two do not fit, because a step's record
        is missing: which emission its drafts belong to cannot be known then.
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
