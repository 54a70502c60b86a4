"""The cost of an engine step at one batch size, and of its drafted tokens.

    seconds = fixed + per_request · requests + checking · [drafted > 0] + per_token · drafted

fitted by ridge least squares to the steps as they come, recent ones counting more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Weight of a step after a thousand later ones: 0.37. Load, clocks and neighbours change.
_FORGETTING = 0.999
# A step that waited for the machine says nothing of its cost: an error of more than so many
# times the usual one counts as that much.
_MAX_ERRORS = 3.0
# In units of the first step: a step costs 1, and drafts cost nothing until steps say otherwise.
_PRIOR = np.array([1.0, 0.0, 0.0, 0.0])
# How many steps each belief is worth. Where all drafts have one length, `checking` and `per_token`
# cannot be told apart; the cost is then the tokens'.
_PRIOR_STEPS = np.diag([0.01, 0.1, 1.0, 0.01])
_MIN_STEPS = 8


@dataclass(frozen=True, slots=True)
class Prices:
    """What drafting costs at one batch size, in seconds.

    Attributes:
        step_s: A step without drafts.
        checking_s: Added once where any token is drafted.
        token_s: Added for each drafted token.
    """

    step_s: float
    checking_s: float
    token_s: float


class StepCostFit:
    """The cost of steps of about one batch size; belongs to one thread.

    Args:
        max_requests: Most requests of such a step.
        max_drafted: Most tokens drafted in it.

    Attributes:
        num_plain: Steps without a draft so far.
        num_drafted: Steps with one.
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
        """Whether steps of both kinds were seen often enough to compare them."""
        return self.has_plain and self.num_drafted >= _MIN_STEPS

    @property
    def has_plain(self) -> bool:
        """Whether steps without a draft were seen often enough."""
        return self.num_plain >= _MIN_STEPS

    def add(self, num_requests: int, drafted_tokens: int, seconds: float) -> None:
        """Learn from one step; one of no length is passed over."""
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
        """Return what a step of so many requests costs; no price is below 0, no step free."""
        fixed, per_request, checking, per_token = self._weights.tolist()
        return Prices(
            max(fixed + per_request * num_requests * self._per_request, 1e-3) * self._unit_s,
            max(checking, 0.0) * self._unit_s,
            max(per_token, 0.0) * self._per_token * self._unit_s,
        )
