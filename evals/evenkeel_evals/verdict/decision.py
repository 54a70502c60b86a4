"""Decides whether a change may ship: verdict, headline and exit code of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenkeel_evals.ask.answers import Answer, AnsweredPair, LatencyMetric
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.cost_effects import find_missing
from evenkeel_evals.verdict.gate_verdicts import OVERALL, GateResult, Judgement, slices_of
from evenkeel_evals.verdict.gates import (
    AccuracyGate,
    CostGate,
    ErrorGate,
    Gate,
    LatencyGate,
    PreferenceGate,
    is_more,
)
from evenkeel_evals.verdict.looks import judge_once
from evenkeel_evals.verdict.preferences import JudgeQuality

EXIT_GOOD, EXIT_REGRESSED, EXIT_UNMEASURED = 0, 1, 3
COULD_NOT_MEASURE = "could not measure"
# Named in the headline, which is stored with every gate and slice: slices that are worse, and
# results that regressed.
SLICES_NAMED = 3
REGRESSIONS_NAMED = 10


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a run, computed once; reports, spans and promotion only read it.

    Attributes:
        judgement: The verdict of every gate on every slice.
        verdict: The run's verdict: a `Verdict`, or COULD_NOT_MEASURE.
        headline: The verdict in one sentence.
        exit_code: 1 for a regression, 3 if the run is inconclusive or could not measure, else 0.
        unmeasured: Why the run measured too little to pass; None if it measured enough.
        blocking: Inconclusive gates over all items that keep the run from passing.
        broken_items: Items that always pass on the baseline and always fail on the candidate.
        judge_quality: How reliable the judge is; None without one.
        max_unmeasured_ratio: Largest share of pairs that may lack a score.
        allows_inconclusive: Whether an inconclusive gate lets the run pass.
    """

    judgement: Judgement
    verdict: str
    headline: str
    exit_code: int
    unmeasured: str | None
    blocking: tuple[GateResult, ...]
    broken_items: tuple[str, ...]
    judge_quality: JudgeQuality | None
    max_unmeasured_ratio: float
    allows_inconclusive: bool


def decide(
    judgement: Judgement,
    max_unmeasured_ratio: float,
    allows_inconclusive: bool,
    judge_quality: JudgeQuality | None = None,
    broken_items: Sequence[str] = (),
) -> Decision:
    """Return the decision; `Decision` describes the arguments.

    A regression or a broken item fails the run. Otherwise it passes if it measured enough and no
    gate over all items blocks it. Failed requests block even if inconclusive gates are allowed:
    more pairs would not help.
    """
    verdict: str = judgement.verdict
    exit_code = EXIT_GOOD
    unmeasured = (
        _find_unmeasured(judgement.pairs, max_unmeasured_ratio, judge_quality)
        or _find_evasion(judgement)
        or _find_nothing_to_lose(judgement)
        or _find_untimed(judgement, max_unmeasured_ratio)
        or _find_unpriced(judgement)
    )
    blocking = tuple(
        result
        for result in judgement.results
        if result.slice_name == OVERALL
        and result.verdict is Verdict.INCONCLUSIVE
        and (not allows_inconclusive or isinstance(result.gate, ErrorGate))
    )
    if broken_items or judgement.verdict is Verdict.REGRESSED:
        verdict, exit_code = Verdict.REGRESSED, EXIT_REGRESSED
    elif unmeasured is not None:
        verdict, exit_code = COULD_NOT_MEASURE, EXIT_UNMEASURED
    elif blocking:
        exit_code = EXIT_UNMEASURED
    return Decision(
        judgement=judgement,
        verdict=str(verdict),
        headline=_headline(judgement, unmeasured, broken_items),
        exit_code=exit_code,
        unmeasured=unmeasured,
        blocking=blocking,
        broken_items=tuple(broken_items),
        judge_quality=judge_quality,
        max_unmeasured_ratio=max_unmeasured_ratio,
        allows_inconclusive=allows_inconclusive,
    )


def _find_unmeasured(
    pairs: Sequence[AnsweredPair], max_ratio: float, judge_quality: JudgeQuality | None
) -> str | None:
    missing = [pair for pair in pairs if not pair.is_measured]
    if len(missing) > max_ratio * len(pairs):
        return (
            f"{len(missing)} of {len(pairs)} pairs have no "
            f"score on both sides ({_commonest_reason(missing)})"
        )
    return None if judge_quality is None else judge_quality.problem()


def _find_evasion(judgement: Judgement) -> str | None:
    """Return why answers without a score could hide a loss of accuracy; None if they could not.

    Overall, the observed loss counts; on a slice, whether it would be called a regression.

    They are left out of the gate, so a candidate must not pass because no score fits its answers.
    Failed requests are the gate on errors'.
    """
    strict = [gate for gate in _gates(judgement) if _is_on_scores(gate)]
    lost = [p for p in judgement.pairs if p.a.is_right is True and _has_no_score(p.b)]
    gained = [p for p in judgement.pairs if p.b.is_right is True and _has_no_score(p.a)]
    for gate in strict:
        if is_more((len(lost) - len(gained)) / len(judgement.pairs), gate.margin):
            return (
                f"{len(lost)} answers of the candidate have no score where the baseline is right "
                f"({_commonest_reason(lost)}), {len(gained)} the other way round; "
                f"counted as wrong, they exceed {gate.text}"
            )
    return _find_evaded_slice(judgement) if lost and strict else None


def _find_evaded_slice(judgement: Judgement) -> str | None:
    """Return the slice that would regress if answers without a score counted as wrong, or None."""
    pairs = [replace(p, a=_as_wrong(p.a, p.b), b=_as_wrong(p.b, p.a)) for p in judgement.pairs]
    # All gates: the more there are, the more evidence a single one needs.
    for result in judge_once(_gates(judgement), pairs, 0).regressed:
        if result.slice_name == OVERALL or not _is_on_scores(result.gate):
            continue
        members = [p for p in judgement.pairs if result.slice_name in slices_of(p.item)]
        lost = [p for p in members if p.a.is_right is True and _has_no_score(p.b)]
        if lost:
            return (
                f"{len(lost)} answers of the candidate on {result.slice_name} have no score where "
                f"the baseline is right ({_commonest_reason(lost)}); counted as wrong, they break "
                f"{result.gate.text} there"
            )
    return None


def _gates(judgement: Judgement) -> list[Gate]:
    return list(dict.fromkeys(result.gate for result in judgement.results))


def _is_on_scores(gate: Gate) -> bool:
    return isinstance(gate, AccuracyGate) and not isinstance(gate, PreferenceGate)


def _as_wrong(answer: Answer, other: Answer) -> Answer:
    """Return the answer, as a wrong one if it has no score where the other side is right."""
    if other.is_right is True and _has_no_score(answer):
        return answer.counted_as_wrong()
    return answer


def _has_no_score(answer: Answer) -> bool:
    return answer.is_right is None and not answer.has_failed


def _find_nothing_to_lose(judgement: Judgement) -> str | None:
    """Return why a gate on accuracy could not have failed; None if it could, or was beaten."""
    for result in judgement.results:
        gate, baseline = result.gate, result.effect.baseline
        if result.slice_name != OVERALL or baseline is None or result.verdict is Verdict.BETTER:
            continue
        if _is_on_scores(gate) and not is_more(baseline, gate.margin):
            return (
                f"the baseline is right on {baseline:.1%} of the items, so {gate.text} would "
                "tolerate losing all of them; check how they are scored"
            )
    return None


def _find_untimed(judgement: Judgement, max_ratio: float) -> str | None:
    """Return why a latency gate leaves out too many of the candidate's answers, or None.

    A failed request is the gate on errors', and a single token has no time per token.
    """
    for gate in _gates(judgement):
        if not isinstance(gate, LatencyGate):
            continue
        metric = gate.metric
        untimed = [
            pair
            for pair in judgement.pairs
            if pair.a.latency_s(metric) is not None
            and pair.b.latency_s(metric) is None
            and not (pair.b.has_failed or pair.b.reply.is_cached)
            and not (metric is LatencyMetric.TPOT and pair.b.reply.output_tokens in (0, 1))
        ]
        if len(untimed) > max_ratio * len(judgement.pairs):
            return (
                f"{len(untimed)} of {len(judgement.pairs)} answers have no {metric} on the "
                f"candidate only, so {gate.text} says nothing about them"
            )
    return None


def _find_unpriced(judgement: Judgement) -> str | None:
    """Return why a gate on cost has no costs to judge; more pairs would not help."""
    if not any(isinstance(result.gate, CostGate) for result in judgement.results):
        return None
    return find_missing(judgement.pairs)


def _commonest_reason(pairs: Sequence[AnsweredPair]) -> str:
    reasons = [
        answer.score.reason or "no reason"
        for pair in pairs
        for answer in (pair.a, pair.b)
        if answer.is_right is None
    ]
    return max(set(reasons), key=reasons.count)


def _headline(judgement: Judgement, unmeasured: str | None, broken_items: Sequence[str]) -> str:
    if judgement.regressed:
        found = [f"{r.gate.text} on {r.slice_name}" for r in judgement.regressed]
        text = f"regressed: {_list(found, REGRESSIONS_NAMED)}"
    elif broken_items:
        text = f"regressed: always right before, always wrong now: {', '.join(broken_items[:5])}"
    elif unmeasured is not None:
        text = f"{COULD_NOT_MEASURE}: {unmeasured}"
    else:
        text = f"{_describe_verdict(judgement)}{_describe_lost_slices(judgement)}"
    look = judgement.look
    if look is None or look.is_last:
        return text
    stopped = f"look {look.number} of {look.num_looks}, after {len(judgement.pairs)} pairs"
    return f"{text} [stopped at {stopped}]"


def _describe_verdict(judgement: Judgement) -> str:
    verdict = judgement.verdict
    overall = [r for r in judgement.results if r.slice_name == OVERALL]
    named = ", ".join(r.gate.text for r in overall if r.verdict is verdict)
    if judgement.has_too_many_errors:
        failed = next(r for r in overall if isinstance(r.gate, ErrorGate))
        return (
            f"inconclusive: {failed.effect.note}, more than {failed.gate.text} allows, "
            "but too few to show a regression"
        )
    if verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: no regression shown, but not enough evidence to clear {named}"
    return f"worse, within the tolerance: {named}" if verdict is Verdict.WORSE else verdict


def _describe_lost_slices(judgement: Judgement) -> str:
    lost = judgement.lost_slices
    if not lost:
        return ""
    shown = _list([f"{r.metric} on {r.slice_name}" for r in lost], SLICES_NAMED)
    return f" (slices that are worse on their own: {shown})"


def _list(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
