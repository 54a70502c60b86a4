"""Reliability of a judge: agreement, order effects, and correction by human labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from statsmodels.stats.inter_rater import cohens_kappa

from evenkeel.errors import ConfigurationError
from evenkeel_evals.stats.inputs import (
    check_count,
    check_list,
    check_not_negative,
    check_numbers,
    check_pairs,
)

VERDICTS = ("A", "B", "tie")
Z95 = float(norm.ppf(0.975))


@dataclass(frozen=True, slots=True)
class Kappa:
    """Cohen's kappa and its large-sample standard error."""

    kappa: float
    std_error: float


@dataclass(frozen=True, slots=True)
class SwappedVerdicts:
    """One verdict per pair, and how often the order changed it.

    Attributes:
        verdicts: A, B or tie.
        flip_rate: Share of pairs whose verdict changed with the order.
    """

    verdicts: list[str]
    flip_rate: float


@dataclass(frozen=True, slots=True)
class CorrectedJudge:
    """A judge's mean score, corrected by human labels on some items.

    Attributes:
        judge_only: judge_sum / judge_n, with the judge's bias.
        estimate: judge_only + mean(human − judge) over the labelled items.
        ci95: Normal 95% interval of the estimate.
    """

    judge_only: float
    estimate: float
    ci95: tuple[float, float]


def kappa(table: Sequence[Sequence[float]]) -> Kappa:
    """Return Cohen's unweighted kappa of a square table of counts: rater 1 by rater 2.

    kappa = (p_o − p_e) / (1 − p_e). The standard error is the one for an interval around kappa,
    not the one under "no agreement" (Fleiss, Cohen and Everitt 1969, Psychol. Bull. 72:323),
    computed with statsmodels.

    Raises:
        ConfigurationError: If the table is not square, has a negative count or no count, or if
            both raters used the same single category only: then kappa is 0/0.
    """
    rows = [check_numbers(f"table[{i}]", row) for i, row in enumerate(check_list("table", table))]
    if any(len(row) != len(rows) for row in rows):
        raise ConfigurationError(f"table must be square, got rows of {[len(r) for r in rows]}")
    counts = np.array(rows)
    if (counts < 0).any() or counts.sum() == 0:
        raise ConfigurationError("table must hold counts of 0 or more, and not all 0")
    share = counts / counts.sum()
    if math.isclose(float(share.sum(axis=0) @ share.sum(axis=1)), 1.0):
        raise ConfigurationError("kappa does not exist: both raters used the same single category")
    result = cohens_kappa(counts)
    return Kappa(float(result.kappa), float(result.std_kappa))


def judge_swap(pairs: Sequence[Sequence[str]]) -> SwappedVerdicts:
    """Merge a judge's verdicts in both orders; if they differ, the result is a tie.

    Args:
        pairs: [verdict with A shown first, verdict with B shown first]; each names the answer
            that won, "A", "B" or "tie", not its position.

    Raises:
        ConfigurationError: If there are no pairs or a verdict is something else.
    """
    merged: list[str] = []
    num_flips = 0
    for i, pair in enumerate(check_list("pairs", pairs)):
        members = check_list(f"pairs[{i}]", pair)
        if len(members) != 2 or any(verdict not in VERDICTS for verdict in members):
            raise ConfigurationError(f"pairs[{i}] is {members!r}, expected two of A, B and tie")
        is_stable = members[0] == members[1]
        merged.append(members[0] if is_stable else "tie")
        num_flips += not is_stable
    return SwappedVerdicts(merged, num_flips / len(merged))


def judge_corrected(
    human: Sequence[float], judge_on_human: Sequence[float], judge_sum: float, judge_n: int
) -> CorrectedJudge:
    """Estimate the mean human label from many judged and a few labelled items.

    Prediction-powered inference for a mean: estimate = m + mean(human − judge), variance
    m(1 − m)/N + var(human − judge)/n, both variances with divisor n as in the source, and
    ± 1.96 standard errors. m(1 − m) is exact for a judge that says 0 or 1, and an upper limit for
    scores in between. Source: Angelopoulos et al. 2023, Science 382:669, algorithm 1.

    Args:
        human: Labels from 0 to 1 on the labelled items.
        judge_on_human: The judge's scores on the same items.
        judge_sum: Sum of the judge's scores on the unlabelled items.
        judge_n: Number of unlabelled items.

    Raises:
        ConfigurationError: If fewer than 2 items are labelled, or a score is outside 0-1.
    """
    labels, judged = check_pairs("human", human, "judge_on_human", judge_on_human, at_least=2)
    for name, values in (("human", labels), ("judge_on_human", judged)):
        if ((values < 0) | (values > 1)).any():
            raise ConfigurationError(f"{name} holds a score outside 0-1")
    num_judged = check_count("judge_n", judge_n, at_least=1)
    total = check_not_negative("judge_sum", judge_sum)
    if total > num_judged:
        raise ConfigurationError(f"judge_sum is {total}, expected at most judge_n = {num_judged}")
    mean, rectifier = total / num_judged, labels - judged
    estimate = mean + float(rectifier.mean())
    error = math.sqrt(mean * (1 - mean) / num_judged + float(rectifier.var()) / len(rectifier))
    return CorrectedJudge(mean, estimate, (estimate - Z95 * error, estimate + Z95 * error))
