"""What one set of pairs shows about one gate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """What one set of pairs shows about one gate.

    Effects on accuracy, preference and errors are B − A as a fraction of the pairs; effects on
    latency are B/A − 1.

    Attributes:
        num_pairs: Pairs that have the measure on both sides.
        baseline: A's value: a share, or seconds.
        candidate: B's value.
        estimate: The effect; None if it could not be measured.
        lower: Lower limit of the 95% interval.
        upper: Upper limit.
        p_worse: One-sided p against "B is not worse".
        p_better: One-sided p against "B is not better".
        p_beyond: One-sided p against "B is worse by the margin or more".
        note: Further information for the reader.
    """

    num_pairs: int
    baseline: float | None
    candidate: float | None
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    p_worse: float | None = None
    p_better: float | None = None
    p_beyond: float | None = None
    note: str | None = None
