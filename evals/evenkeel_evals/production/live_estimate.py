"""Estimates from sampled requests: weighted shares, their intervals, and evidence of drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel_evals.stats.betting import anytime_p
from evenkeel_evals.stats.binary import wilson_share

# Live alerts are checked all day, for every scorer: only a few false ones a year are acceptable.
DRIFT_ALPHA = 0.001


@dataclass(frozen=True, slots=True)
class Scored:
    """One scorer's result on one sampled request.

    Attributes:
        window: Number of its window, from 0; evidence is evaluated between windows.
        probability: Probability of being sampled and scored.
        is_right: The scorer's result; None if unscored.
    """

    window: int
    probability: float
    is_right: bool | None


@dataclass(frozen=True, slots=True)
class LiveEstimate:
    """The estimate for one scorer.

    Attributes:
        scorer: Its name.
        num_scored: Answers scored.
        num_unscored: Answers sampled but not scored.
        num_effective: (Σw)² / Σw²: equivalent number of equally weighted answers.
        share: Σ w·right / Σ w with w = 1/probability, over all requests; None without a score.
        lower: 95% Wilson limit at the effective number.
        upper: The upper limit.
        good_at_least: The lowest acceptable share; None for no check.
        drift_p: Anytime-valid p against "the share is at least that"; None without a check.
    """

    scorer: str
    num_scored: int
    num_unscored: int
    num_effective: float
    share: float | None
    lower: float | None
    upper: float | None
    good_at_least: float | None
    drift_p: float | None

    @property
    def is_drifting(self) -> bool:
        """Return whether the share is shown to be below the acceptable level."""
        return self.drift_p is not None and self.drift_p <= DRIFT_ALPHA

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "is_drifting": self.is_drifting}

    def describe(self) -> str:
        """Return one line for a reader."""
        if self.share is None or self.lower is None or self.upper is None:
            return f"{self.scorer}: no data ({self.num_unscored} unscored)"
        line = (
            f"{self.scorer}: {self.share:.1%} right ({self.lower:.1%} to {self.upper:.1%}), "
            f"{self.num_scored} scored"
        )
        if self.num_unscored:
            line += f", {self.num_unscored} unscored"
        if self.is_drifting:
            line += f"; DRIFT: below {self.good_at_least:.1%} (anytime p = {self.drift_p:.2g})"
        return line


def estimate(scorer: str, rows: Sequence[Scored], good_at_least: float | None) -> LiveEstimate:
    """Return the estimate for all requests from one scorer's rows.

    The share is Hájek's: Σ w·y / Σ w. Its interval is Wilson's at the effective number of answers
    (Korn and Graubard 1998, Survey Methodology 24:193), which holds near 0 and 1, where a normal
    one fails; it ignores that a stratum may be sampled completely, so it is conservative.

    Args:
        scorer: Its name.
        rows: In the order of scoring.
        good_at_least: The lowest acceptable share; None for no check.
    """
    known = [row for row in rows if row.is_right is not None]
    weights = [1 / row.probability for row in known]
    total = sum(weights)
    share = (
        sum(w for w, row in zip(weights, known, strict=True) if row.is_right) / total
        if known
        else None
    )
    effective = total**2 / sum(w * w for w in weights) if known else 0.0
    low, high = (None, None) if share is None else wilson_share(share, effective)
    return LiveEstimate(
        scorer=scorer,
        num_scored=len(known),
        num_unscored=len(rows) - len(known),
        num_effective=effective,
        share=share,
        lower=low,
        upper=high,
        good_at_least=good_at_least,
        drift_p=None if good_at_least is None else drift_p(known, good_at_least),
    )


def drift_p(rows: Sequence[Scored], good_at_least: float) -> float:
    """Return an anytime-valid p against "at least this share of all requests is right".

    A bettor bets on each sampled answer being wrong, with a stake that grows with its weight:
    x = b + r(1 − y − b) with b = 1 − good_at_least and r = w / largest w of its window. Averaged
    over the draw, r(1 − y − b) is the window's own wrong share minus b times a constant, so the
    capital is a supermartingale while the share holds; draws without replacement are negatively
    associated, which only lowers it. The stakes never depend on future results.
    """
    bound = 1 - good_at_least
    largest: dict[int, float] = {}
    for row in rows:
        largest[row.window] = max(largest.get(row.window, 0.0), 1 / row.probability)
    values = [
        bound + (1 / row.probability) / largest[row.window] * (float(not row.is_right) - bound)
        for row in rows
    ]
    return anytime_p(values, bound)
