"""The five verdicts of a gate."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """A verdict on the candidate relative to the baseline and a margin.

    BETTER: shown to be better than the baseline. NO_WORSE: shown to be within the margin.
    WORSE: shown to be worse, but also shown to be within the margin; it passes.
    REGRESSED: shown to be worse, with an estimate beyond the margin.
    INCONCLUSIVE: not enough evidence; never treat it as a pass.
    """

    BETTER = "better"
    NO_WORSE = "no worse"
    WORSE = "worse"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
