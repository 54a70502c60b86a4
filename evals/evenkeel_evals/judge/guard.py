"""Finds items that always pass on the baseline and always fail on the candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evenkeel_evals.ask.answers import AnsweredPair

GUARD_ALPHA = 0.001


def repeats_for(num_items: int) -> int:
    """Return how often a lost item is asked again on both sides.

    An item that passes with probability θ on either side looks broken after k repeats with
    probability (θ(1 − θ))^(k+1), the run itself included: at most 4^−(k+1), whatever θ is. So over
    n items of an unchanged candidate the guard ever fires with probability n·4^−(k+1) at most;
    k is the smallest for which that is 0.1 %.
    """
    return max(1, math.ceil(math.log(num_items / GUARD_ALPHA, 4)) - 1)


def find_lost(pairs: Sequence[AnsweredPair]) -> list[AnsweredPair]:
    """Return the pairs that the baseline got right and the candidate wrong."""
    return [pair for pair in pairs if pair.a.is_right is True and pair.b.is_right is False]
