"""Turns effects into verdicts; at most 5 % of runs without a change end as regressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evals.answers import AnsweredPair
from evals.effects import Effect, measure
from evals.gates import AccuracyGate, Gate, name_of
from evals.stats.multiplicity import holm
from evals.verdict import Verdict

OVERALL = "overall"
# One-sided levels: half of 5 % for the gates over all items, half for those over the slices.
FAMILY_ALPHA = 0.025
MARGIN_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class GateResult:
    """The verdict of one gate on one slice."""

    gate: Gate
    slice_name: str
    effect: Effect
    verdict: Verdict

    @property
    def metric(self) -> str:
        """Return the name before the relation, such as p95_ttft."""
        return name_of(self.gate)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Every result of a run, and what they come to."""

    results: tuple[GateResult, ...]
    verdict: Verdict

    @property
    def regressed(self) -> list[GateResult]:
        """Return the results that are regressions."""
        return [r for r in self.results if r.verdict is Verdict.REGRESSED]


Measure = Callable[[Gate, Sequence[AnsweredPair], int], Effect]


def judge(
    gates: Sequence[Gate],
    pairs: Sequence[AnsweredPair],
    seed: int,
    measured_by: Measure = measure,
) -> Judgement:
    """Judge every gate over all pairs, then over each slice.

    «Worse» and «better» are one-sided tests, Holm-adjusted within two families, the gates over
    all pairs and the gates × slices, each at 2.5 %: so at most 5 % of runs without a change end as
    regressed. «No worse» is a one-sided 5 % test against the margin; to let a candidate pass,
    every gate must pass, so it needs no adjustment (intersection-union, Berger 1982).

    Args:
        gates: What is judged.
        pairs: What was answered.
        seed: Of the bootstrap.
        measured_by: Gives the effect of a gate; a run that looks early has one of its own.
    """
    overall = [(gate, OVERALL, measured_by(gate, pairs, seed)) for gate in gates]
    sliced = [
        (gate, name, measured_by(gate, members, seed))
        for name, members in _slices(pairs).items()
        for gate in gates
    ]
    results = [*_decide(overall), *_decide(sliced)]
    return Judgement(tuple(results), _overall_verdict(results))


def _slices(pairs: Sequence[AnsweredPair]) -> dict[str, list[AnsweredPair]]:
    slices: dict[str, list[AnsweredPair]] = {}
    for pair in pairs:
        for tag in pair.item.tags:
            slices.setdefault(tag, []).append(pair)
    return {tag: slices[tag] for tag in sorted(slices) if len(slices[tag]) < len(pairs)}


def _decide(family: Sequence[tuple[Gate, str, Effect]]) -> list[GateResult]:
    testable = [i for i, (_, _, effect) in enumerate(family) if effect.p_worse is not None]
    worse = dict(zip(testable, holm([family[i][2].p_worse or 0.0 for i in testable]), strict=True))
    better = dict(
        zip(testable, holm([family[i][2].p_better or 0.0 for i in testable]), strict=True)
    )
    return [
        GateResult(gate, name, effect, _verdict(gate, effect, worse.get(i), better.get(i)))
        for i, (gate, name, effect) in enumerate(family)
    ]


def _verdict(gate: Gate, effect: Effect, p_worse: float | None, p_better: float | None) -> Verdict:
    if p_worse is None or p_better is None or effect.estimate is None or effect.p_beyond is None:
        return Verdict.INCONCLUSIVE
    if p_better <= FAMILY_ALPHA:
        return Verdict.BETTER
    if effect.p_beyond <= MARGIN_ALPHA:
        return Verdict.NO_WORSE
    loss = -effect.estimate if isinstance(gate, AccuracyGate) else effect.estimate
    if p_worse <= FAMILY_ALPHA and loss > gate.margin:
        return Verdict.REGRESSED
    return Verdict.INCONCLUSIVE


def _overall_verdict(results: Sequence[GateResult]) -> Verdict:
    """One regression anywhere is a regression; otherwise the gates over all pairs decide."""
    if any(r.verdict is Verdict.REGRESSED for r in results):
        return Verdict.REGRESSED
    verdicts = [r.verdict for r in results if r.slice_name == OVERALL]
    if Verdict.INCONCLUSIVE in verdicts:
        return Verdict.INCONCLUSIVE
    return Verdict.BETTER if Verdict.BETTER in verdicts else Verdict.NO_WORSE
