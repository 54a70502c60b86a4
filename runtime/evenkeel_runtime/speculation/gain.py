"""Measure the speed-up of decoding with drafts, in a continuous randomised experiment.

Time is divided into blocks of steps, and a few randomly chosen blocks draft nothing. The unit is a
block because all requests in a step share its duration: a request without drafts, in a step with
requests that have them, would pay for their drafts and inflate the measured speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

# An arm with fewer blocks than this has no interval.
MIN_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Gain:
    """Speed-up of decoding: tokens per second with drafts over tokens per second without.

    Attributes:
        ratio: The estimate.
        lower: Lower end of its 95% interval.
        upper: Upper end.
        num_blocks: Blocks with drafts.
        num_holdout_blocks: Blocks without.
    """

    ratio: float
    lower: float
    upper: float
    num_blocks: int
    num_holdout_blocks: int


@dataclass(slots=True)
class _Arm:
    """Sums of tokens t and seconds s over the blocks of one arm at one batch size."""

    blocks: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    tokens2: float = 0.0
    seconds2: float = 0.0
    product: float = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        self.blocks += 1
        self.tokens += tokens
        self.seconds += seconds
        self.tokens2 += tokens * tokens
        self.seconds2 += seconds * seconds
        self.product += tokens * seconds

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def log_variance(self) -> float:
        """Variance of log(rate): that of a ratio of sums over independent blocks."""
        rate, n = self.rate, self.blocks
        residual2 = self.tokens2 - 2 * rate * self.product + rate * rate * self.seconds2
        return max(residual2, 0.0) * n / (n - 1) / (self.tokens * self.tokens)


@dataclass(slots=True)
class _Stratum:
    """The two arms at one batch size."""

    drafting: _Arm = field(default_factory=_Arm)
    holdout: _Arm = field(default_factory=_Arm)


class GainEstimate:
    """Estimates the speed-up from blocks with and without drafts, stratified by batch size.

    At one batch size, for each arm, summed over its blocks i,

        r = Σtᵢ / Σsᵢ,   Var(log r) = n/(n−1) · Σ(tᵢ − r·sᵢ)² / (Σtᵢ)²

    and the speed-up is r(drafting) / r(holdout). Over all batch sizes b it is the time that the
    tokens T_b produced with drafts would have taken without, over the time they took:
    Σ T_b / r_b(holdout) ÷ Σ T_b / r_b(drafting). The 95% interval is exp(log R ± t·√Var), with
    Student's t at one degree of freedom fewer than the blocks of the smaller arm.
    """

    def __init__(self) -> None:
        self._strata: dict[int, _Stratum] = {}

    def add_block(self, batch_size: int, is_holdout: bool, tokens: int, seconds: float) -> None:
        """Add one block: the tokens it produced at about this batch size, and its duration."""
        if seconds <= 0 or tokens <= 0:
            return
        stratum = self._strata.setdefault(batch_size, _Stratum())
        (stratum.holdout if is_holdout else stratum.drafting).add(tokens, seconds)

    def estimate(self) -> Gain | None:
        """Return the speed-up over all batch sizes with enough blocks; None if there are none."""
        return _combine(self._strata.values())

    def estimate_by_batch(self) -> dict[int, Gain]:
        """Return the speed-up at each batch size that has enough blocks."""
        found = {size: _combine([stratum]) for size, stratum in sorted(self._strata.items())}
        return {size: gain for size, gain in found.items() if gain is not None}


def _combine(strata: Iterable[_Stratum]) -> Gain | None:
    usable = [
        s for s in strata if s.drafting.blocks >= MIN_BLOCKS and s.holdout.blocks >= MIN_BLOCKS
    ]
    if not usable:
        return None
    without_s = [s.drafting.tokens / s.holdout.rate for s in usable]
    with_s = [s.drafting.seconds for s in usable]
    ratio = sum(without_s) / sum(with_s)
    # Delta method; the weights T_b are taken as fixed.
    variance = sum(
        (w / sum(without_s)) ** 2 * s.holdout.log_variance
        + (d / sum(with_s)) ** 2 * s.drafting.log_variance
        for s, w, d in zip(usable, without_s, with_s, strict=True)
    )
    num_holdout = sum(s.holdout.blocks for s in usable)
    num_drafting = sum(s.drafting.blocks for s in usable)
    margin = student_t(min(num_holdout, num_drafting) - 1) * math.sqrt(variance)
    return Gain(
        ratio, ratio * math.exp(-margin), ratio * math.exp(margin), num_drafting, num_holdout
    )


def student_t(freedom: int) -> float:
    """Return the 97.5% point of Student's t, within 0.001 for at least 7 degrees of freedom.

    The expansion in 1/ν of Abramowitz and Stegun, 26.7.5, to its third term.
    """
    z = 1.959963985
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
