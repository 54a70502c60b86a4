"""Costs of the parts of engine steps by the step-cost model, computed once for many requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenkeel_runtime.ledger.step_cost_model import (
    CONTEXT,
    DECODE,
    DRAFTED,
    FIXED,
    PAIRS,
    PREFILL,
    FloatArray,
    StepCost,
)
from evenkeel_runtime.ledger.timeline import Steps

_IS_PREFILL = np.isin(np.arange(6), (PREFILL, PAIRS))
_IS_DECODE = np.isin(np.arange(6), (DECODE, CONTEXT, DRAFTED))


@dataclass(frozen=True, slots=True)
class PricedSteps:
    """Steps and the cost of their parts in seconds.

    Attributes:
        steps: The steps.
        cost: The step-cost model used.
        prefill_s: Cost of all prefill in each step.
        decode_s: Cost of all decoding in each step, including drafts.
    """

    steps: Steps
    cost: StepCost
    prefill_s: FloatArray
    decode_s: FloatArray

    def between(self, from_ns: int, to_ns: int) -> PricedSteps:
        """Return the steps that overlap an interval."""
        span = self.steps.find(from_ns, to_ns)
        return PricedSteps(
            self.steps.cut(span),
            self.cost,
            self.prefill_s[span.steps],
            self.decode_s[span.steps],
        )

    @property
    def fixed_s(self) -> float:
        """Fixed cost of each step."""
        return float(self.cost.weights[FIXED])


def price(steps: Steps, cost: StepCost) -> PricedSteps:
    """Return the steps priced."""
    prefill_s, decode_s = price_parts(steps.features, cost)
    return PricedSteps(steps, cost, prefill_s, decode_s)


def price_parts(features: FloatArray, cost: StepCost) -> tuple[FloatArray, FloatArray]:
    """Return the seconds of prefill and of decoding in each row of features."""
    return features @ (cost.weights * _IS_PREFILL), features @ (cost.weights * _IS_DECODE)
