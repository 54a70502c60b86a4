"""Least squares with coefficients that are not negative."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def solve_nonnegative(
    normal: FloatArray, moment: FloatArray, guess: NDArray[np.bool_] | None = None
) -> FloatArray:
    """Return the w ≥ 0 that minimises ½ wᵀ·normal·w − moment·w, exactly.

    At the minimum some components are 0, the others solve their own equations, and the gradient is
    nowhere negative. If the guessed set of positive components satisfies this, it is the minimum;
    otherwise every set is tried (64 of six components, solved together).

    Args:
        normal: Symmetric, positive definite, with few rows.
        moment: One value per row.
        guess: Components assumed to be positive, usually from the last solution.
    """
    size = len(moment)
    if guess is not None:
        inside = np.outer(guess, guess)
        solution: FloatArray = np.linalg.solve(
            np.where(inside, normal, np.eye(size)), np.where(guess, moment, 0.0)
        )
        slack = 1e-9 * (np.abs(moment).max() + 1e-300)
        if (solution >= 0).all() and (normal @ solution - moment >= -slack).all():
            return solution
    subsets = _subsets_of(size)
    both = subsets[:, :, None] & subsets[:, None, :]
    systems = np.where(both, normal, np.eye(size))
    solutions = np.linalg.solve(systems, np.where(subsets, moment, 0.0)[:, :, None])[:, :, 0]
    losses = 0.5 * np.einsum("si,ij,sj->s", solutions, normal, solutions) - solutions @ moment
    losses[(solutions < 0).any(axis=1)] = np.inf
    best: FloatArray = solutions[int(np.argmin(losses))]
    return best


@cache
def _subsets_of(size: int) -> NDArray[np.bool_]:
    return np.array(list(product((False, True), repeat=size)))
