"""Estimate what an engine step costs, by a non-negative linear model fitted online.

    seconds = fixed + a · prefill tokens + b · attended pairs + c · decoding requests
              + d · context tokens read + e · drafted tokens

Attended pairs are the token pairs in the attention of a prefill (each token with every token up to
itself); context tokens are the cached tokens that a decoding request reads. docs/inside/ledger.md
explains the choice, docs/decisions/0080-step-cost-model.md its price.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenkeel.nonnegative import solve_nonnegative
from evenkeel_runtime.wire.steps import EntryArray

FEATURES = (
    "fixed",
    "prefill_tokens",
    "prefill_pairs",
    "decode_requests",
    "decode_context",
    "drafted_tokens",
)
FIXED, PREFILL, PAIRS, DECODE, CONTEXT, DRAFTED = range(len(FEATURES))

FloatArray = NDArray[np.float64]

# Minimum number of steps for a fit.
MIN_STEPS = 16
# A fitted model is used once it has predicted this many steps with a mean error below that of
# always predicting 0. Until then all kinds of tokens are assumed to cost the same.
MIN_TESTED_STEPS = 32
_ERROR_OF_NOTHING = 1.0
_HALF_LIFE_STEPS = 1000
_ERROR_WINDOW_STEPS = 128
# Steps between two fits; a fit takes about as long as the records of a few steps.
_STEPS_PER_FIT = 32
# Prior weight, in steps, that pulls rarely seen features towards the average cost of a token.
_PRIOR_STEPS = 1e-3
_TOKEN_FEATURES = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds per unit of each of `FEATURES`, none below 0.

    Attributes:
        weights: The six coefficients, in the order of `FEATURES`.
        num_steps: Steps used in the fit.
        error_ratio: Mean of |predicted − measured| / measured over the last 128 steps, each
            predicted before it was added to the fit; None until a fit has passed this test.
    """

    weights: FloatArray
    num_steps: int = 0
    error_ratio: float | None = None

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the predicted seconds of each row of features."""
        return np.asarray(features @ self.weights, dtype=np.float64)

    def predict_parts(self, entries: EntryArray) -> FloatArray:
        """Return the predicted seconds of each request in a step, without the fixed cost.

        The same as `predict` of `features_of`, in a fifth of the time.
        """
        prefill = entries["prefill_tokens"].astype(np.float64)
        context = entries["context_tokens"].astype(np.float64)
        seconds: FloatArray = self.weights[CONTEXT] * context + self.weights[DECODE]
        seconds *= entries["decode_tokens"]
        seconds += self.weights[DRAFTED] * entries["drafted_tokens"]
        context += (prefill + 1) / 2
        context *= self.weights[PAIRS]
        context += self.weights[PREFILL]
        context *= prefill
        seconds += context
        return seconds


EQUAL_TOKENS = StepCost(_TOKEN_FEATURES * 1e-4)


def features_of(entries: EntryArray) -> FloatArray:
    """Return one row of features per request in a step; the fixed cost is 0."""
    features = np.zeros((len(entries), len(FEATURES)))
    prefill = entries["prefill_tokens"].astype(np.float64)
    context = entries["context_tokens"].astype(np.float64)
    features[:, PREFILL] = prefill
    features[:, PAIRS] = prefill * context + prefill * (prefill + 1) / 2
    features[:, DECODE] = entries["decode_tokens"]
    features[:, CONTEXT] = context * entries["decode_tokens"]
    features[:, DRAFTED] = entries["drafted_tokens"]
    return features


class StepCostModel:
    """Fits `StepCost` online, weighting recent steps more.

    Least squares of the relative error, so that a step of 3 ms and one of 300 ms count the same and
    a step delayed by something else on the machine has little influence. The recursion keeps the
    normal equations (A = Σ λⁿ x xᵀ / y², b = Σ λⁿ x / y); their non-negative minimum is exact: the
    best over all sets of features that may be above 0.
    """

    def __init__(self) -> None:
        size = len(FEATURES)
        self._normal = np.zeros((size, size))
        self._moment = np.zeros(size)
        self._tokens_per_second = 0.0
        self._weight = 0.0
        self._errors: deque[float] = deque(maxlen=_ERROR_WINDOW_STEPS)
        self._num_steps = 0
        self._fitted_at = 0
        self._weights = EQUAL_TOKENS.weights

    def observe(self, features: FloatArray, seconds: FloatArray) -> None:
        """Update the fit with steps: one row of features (`fixed` is 1) and the duration of each.

        Steps of zero duration are ignored.
        """
        is_timed = seconds > 0
        features, seconds = features[is_timed], seconds[is_timed]
        if not len(seconds):
            return
        self._refit()
        if self._fitted_at:
            predicted = features @ self._weights
            self._errors.extend((np.abs(predicted - seconds) / seconds).tolist())
        decay = 0.5 ** (1 / _HALF_LIFE_STEPS)
        age = decay ** np.arange(len(seconds) - 1, -1, -1)
        before = decay ** len(seconds)
        rows = features / seconds[:, None]
        self._normal = before * self._normal + rows.T @ (rows * age[:, None])
        self._moment = before * self._moment + rows.T @ age
        self._tokens_per_second *= before
        self._tokens_per_second += float(age @ (rows @ _TOKEN_FEATURES))
        self._weight = before * self._weight + float(age.sum())
        self._num_steps += len(seconds)

    def read(self) -> StepCost:
        """Return the last fit; equal costs per token until a fit has passed its test."""
        self._refit()
        num_tested = len(self._errors)
        error_ratio = sum(self._errors) / num_tested if num_tested else _ERROR_OF_NOTHING
        if num_tested < MIN_TESTED_STEPS or error_ratio >= _ERROR_OF_NOTHING:
            return StepCost(EQUAL_TOKENS.weights, self._num_steps)
        return StepCost(self._weights, self._num_steps, error_ratio)

    def _refit(self) -> None:
        due_at = self._fitted_at + _STEPS_PER_FIT if self._fitted_at else MIN_STEPS
        if self._num_steps < due_at or self._tokens_per_second <= 0:
            return
        self._fitted_at = self._num_steps
        token_s = self._weight / self._tokens_per_second
        # Scale every feature to one average step, so that one prior weight fits all.
        unit = np.sqrt(np.diag(self._normal) / self._weight)
        unit[unit == 0] = 1 / token_s
        prior = _TOKEN_FEATURES * token_s * unit
        normal = self._normal / np.outer(unit, unit) + np.eye(len(unit)) * _PRIOR_STEPS
        moment = self._moment / unit + _PRIOR_STEPS * prior
        self._weights = solve_nonnegative(normal, moment, self._weights > 0) / unit
