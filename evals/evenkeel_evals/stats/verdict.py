"""The five things that a gate can say."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What the data say about the candidate against the baseline and a margin.

    BETTER: shown to be better than the baseline. NO_WORSE: shown to be within the margin.
    WORSE: shown to be worse, and shown to be within the margin; it passes.
    REGRESSED: shown to be worse, and by more than the margin as far as the estimate goes.
    INCONCLUSIVE: the data cannot tell; never to be read as good news.
    """

    BETTER = "better"
    NO_WORSE = "no worse"
    WORSE = "worse"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
