"""Estimate what an engine step and its drafted tokens cost at one batch size.

    seconds = fixed + per_request · requests + checking · [drafted > 0] + per_token · drafted

The fit is online ridge least squares, weighted towards recent steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# A step's weight falls to 0.37 after a thousand later ones: load and clock rates change.
_FORGETTING = 0.999
# Errors are clipped at this multiple of the usual error: a step delayed by something else on the
# machine must not distort the fit.
_MAX_ERRORS = 3.0
# In units of the first step: a step costs 1, and drafts are free until measured.
_PRIOR = np.array([1.0, 0.0, 0.0, 0.0])
# Weight of each prior, in steps. If all drafts have the same length, `checking` and `per_token`
# cannot be separated; the cost then goes to `per_token`.
_PRIOR_STEPS = np.diag([0.01, 0.1, 1.0, 0.01])
_MIN_STEPS = 8


@dataclass(frozen=True, slots=True)
class Prices:
    """What drafting costs at one batch size, in seconds.

    Attributes:
        step_s: Time of a step without drafts.
        checking_s: Added once per step that has any drafted token.
        token_s: Added per drafted token.
    """

    step_s: float
    checking_s: float
    token_s: float


class StepCostFit:
    """Fits the cost of steps of similar batch size; not thread-safe.

    Args:
        max_requests: Most requests in such a step.
        max_drafted: Most tokens drafted in it.

    Attributes:
        num_plain: Steps seen without drafts.
        num_drafted: Steps seen with drafts.
    """

    def __init__(self, max_requests: int, max_drafted: int) -> None:
        self._per_request, self._per_token = 1 / max_requests, 1 / max_drafted
        self._weights = _PRIOR.copy()
        self._products = np.zeros((4, 4))
        self._costs = np.zeros(4)
        self._unit_s = 0.0
        self._usual_error = 0.5
        self.num_plain = 0
        self.num_drafted = 0

    @property
    def is_known(self) -> bool:
        """Whether enough steps with and without drafts were seen to compare them."""
        return self.has_plain and self.num_drafted >= _MIN_STEPS

    @property
    def has_plain(self) -> bool:
        """Whether enough steps without drafts were seen."""
        return self.num_plain >= _MIN_STEPS

    def add(self, num_requests: int, drafted_tokens: int, seconds: float) -> None:
        """Update the fit with one step; a step of zero duration is ignored."""
        if seconds <= 0:
            return
        if not self._unit_s:
            # The first step sets the scale, so that the prior fits any machine.
            self._unit_s = seconds
        has_draft = drafted_tokens > 0
        features = np.array(
            [
                1.0,
                num_requests * self._per_request,
                float(has_draft),
                drafted_tokens * self._per_token,
            ]
        )
        error = seconds / self._unit_s - float(self._weights @ features)
        limit = _MAX_ERRORS * self._usual_error
        # Follows the median of |error|, which single late steps do not move.
        self._usual_error *= 1.05 if abs(error) > self._usual_error else 1 / 1.05
        self._usual_error = min(max(self._usual_error, 1e-3), 1.0)
        error = min(max(error, -limit), limit)
        cost = float(self._weights @ features) + error
        self._products = _FORGETTING * self._products + np.outer(features, features)
        self._costs = _FORGETTING * self._costs + features * cost
        self._weights = np.linalg.solve(
            self._products + _PRIOR_STEPS, self._costs + _PRIOR_STEPS @ _PRIOR
        )
        if has_draft:
            self.num_drafted += 1
        else:
            self.num_plain += 1

    def prices(self, num_requests: int) -> Prices:
        """Return the prices for a step of `num_requests`; never negative."""
        fixed, per_request, checking, per_token = self._weights.tolist()
        return Prices(
            max(fixed + per_request * num_requests * self._per_request, 1e-3) * self._unit_s,
            max(checking, 0.0) * self._unit_s,
            max(per_token, 0.0) * self._per_token * self._unit_s,
        )
