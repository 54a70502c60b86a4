"""Judges each gate on each slice; at most 5% of unchanged candidates are called regressed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.stats.multiplicity import holm
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.effect import Effect
from evenkeel_evals.verdict.gates import AccuracyGate, ErrorGate, Gate, is_more, name_of
from evenkeel_evals.verdict.measure import measure

OVERALL = "overall"
# Tags that would be taken for all items here or where results are stored.
_TAKEN = re.compile(r"(?:tag:)*(?:overall|all)?")
# One-sided levels: half of 5% for the gates over all items, half for the gates on slices.
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
    def is_beyond(self) -> bool:
        """Return whether the observed effect is worse than the margin allows."""
        loss = self.loss
        return loss is not None and is_more(loss, self.gate.margin)

    @property
    def loss(self) -> float | None:
        """Return how much worse B was, as a fraction; negative if it was better."""
        estimate = self.effect.estimate
        if estimate is None:
            return None
        return -estimate if isinstance(self.gate, AccuracyGate) else estimate

    @property
    def is_lost(self) -> bool:
        """Return whether the whole 95% interval lies on the worse side, ignoring other looks."""
        bound = self.effect.upper if isinstance(self.gate, AccuracyGate) else self.effect.lower
        if bound is None:
            return False
        return bound < 0 if isinstance(self.gate, AccuracyGate) else bound > 0

    @property
    def metric(self) -> str:
        """Return the name before the relation, such as p95_ttft."""
        return name_of(self.gate)

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        effect = self.effect
        record = {
            "gate": self.gate.text,
            "metric": self.metric,
            "slice": self.slice_name,
            "verdict": self.verdict.value,
            "num_pairs": effect.num_pairs,
            "baseline": effect.baseline,
            "candidate": effect.candidate,
            "estimate": effect.estimate,
            "lower": effect.lower,
            "upper": effect.upper,
            "p_worse": effect.p_worse,
            "p_better": effect.p_better,
            "p_beyond_margin": effect.p_beyond,
            "note": effect.note,
        }
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in record.items()}


@dataclass(frozen=True, slots=True)
class Look:
    """One point at which the data are judged.

    Attributes:
        number: From 1.
        num_looks: Total number of looks.
        num_pairs: Pairs asked by then.
    """

    number: int
    num_looks: int
    num_pairs: int

    @property
    def is_last(self) -> bool:
        """Return whether this is the last look."""
        return self.number == self.num_looks


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of every gate on every slice of the pairs, and of the gates together.

    Attributes:
        results: The gates over all pairs, then on each slice.
        verdict: Regressed if any result is; otherwise the worst result over all pairs.
        pairs: The judged pairs.
        look: The look; None for pairs that are judged only once.
    """

    results: tuple[GateResult, ...]
    verdict: Verdict
    pairs: Sequence[AnsweredPair]
    look: Look | None = None

    @property
    def is_conclusive(self) -> bool:
        """Return whether asking more is pointless: a regression, or every gate passed."""
        return self.verdict is not Verdict.INCONCLUSIVE

    @property
    def regressed(self) -> list[GateResult]:
        """Return the regressed results."""
        return [r for r in self.results if r.verdict is Verdict.REGRESSED]

    @property
    def lost_slices(self) -> list[GateResult]:
        """Return the slices that are worse without counting as regressions."""
        return [
            r
            for r in self.results
            if r.slice_name != OVERALL and r.is_lost and r.verdict is not Verdict.REGRESSED
        ]

    @property
    def has_too_many_errors(self) -> bool:
        """Return whether the candidate failed more often than tolerated."""
        return any(
            isinstance(r.gate, ErrorGate) and r.slice_name == OVERALL and r.is_beyond
            for r in self.results
        )


Measure = Callable[[Gate, Sequence[AnsweredPair], int], Effect]


def judge(
    gates: Sequence[Gate],
    pairs: Sequence[AnsweredPair],
    seed: int,
    measured_by: Measure = measure,
) -> Judgement:
    """Judge every gate over all pairs, then on each slice.

    "Worse" and "better" are one-sided tests, Holm-adjusted within two families, the gates over
    all pairs and the gates × slices, each at 2.5%, so at most 5% of runs without a change are
    called regressed. "No worse" is a one-sided 5% test against the margin; since every gate must
    pass for the candidate to pass, it needs no adjustment (intersection-union, Berger 1982).

    Args:
        gates: The gates to judge.
        pairs: The answered pairs.
        seed: Seed for the bootstrap.
        measured_by: Measures the effect of a gate; runs with early looks pass their own function.
    """
    overall = [(gate, OVERALL, measured_by(gate, pairs, seed)) for gate in gates]
    sliced = [
        (gate, name, measured_by(gate, members, seed))
        for name, members in _slices(pairs).items()
        for gate in gates
    ]
    results = [*_decide(overall), *_decide(sliced)]
    return Judgement(tuple(results), combine(results), pairs)


def _slices(pairs: Sequence[AnsweredPair]) -> dict[str, list[AnsweredPair]]:
    slices: dict[str, list[AnsweredPair]] = {}
    for pair in pairs:
        for name in slices_of(pair.item):
            slices.setdefault(name, []).append(pair)
    return {name: slices[name] for name in sorted(slices) if len(slices[name]) < len(pairs)}


def slices_of(item: Item) -> list[str]:
    """Return an item's slices: its tags; one that means all items is named `tag:overall`."""
    return [f"tag:{tag}" if _TAKEN.fullmatch(tag) else tag for tag in item.tags]


def _decide(family: Sequence[tuple[Gate, str, Effect]]) -> list[GateResult]:
    testable = [i for i, (_, _, effect) in enumerate(family) if effect.p_worse is not None]
    worse = dict(zip(testable, holm([family[i][2].p_worse or 0.0 for i in testable]), strict=True))
    better = dict(
        zip(testable, holm([family[i][2].p_better or 0.0 for i in testable]), strict=True)
    )
    found = []
    for i, (gate, name, effect) in enumerate(family):
        result = GateResult(gate, name, effect, Verdict.INCONCLUSIVE)
        verdict = _verdict(result, worse.get(i, 1.0), better.get(i, 1.0))
        found.append(GateResult(gate, name, effect, verdict))
    return found


def _verdict(result: GateResult, p_worse: float, p_better: float) -> Verdict:
    effect = result.effect
    if effect.estimate is None or effect.p_beyond is None:
        return Verdict.INCONCLUSIVE
    if p_better <= FAMILY_ALPHA:
        return Verdict.BETTER
    is_worse = p_worse <= FAMILY_ALPHA
    if effect.p_beyond <= MARGIN_ALPHA:
        return Verdict.WORSE if is_worse else Verdict.NO_WORSE
    return Verdict.REGRESSED if is_worse and result.is_beyond else Verdict.INCONCLUSIVE


def combine(results: Sequence[GateResult]) -> Verdict:
    """Return REGRESSED if any result is, otherwise the worst verdict over all pairs."""
    if any(result.verdict is Verdict.REGRESSED for result in results):
        return Verdict.REGRESSED
    overall = [result.verdict for result in results if result.slice_name == OVERALL]
    order = (Verdict.INCONCLUSIVE, Verdict.WORSE, Verdict.BETTER)
    return next((verdict for verdict in order if verdict in overall), Verdict.NO_WORSE)
