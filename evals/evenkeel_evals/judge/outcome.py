"""All that a run comes to, for the table, the JSON, the report and the spans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenkeel_evals.ask.answers import Answer, AnsweredPair, LatencyMetric
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.sentinel import Drift
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.judge.gates import ErrorGate
from evenkeel_evals.judge.judgement import OVERALL, GateResult, Judgement
from evenkeel_evals.judge.latency_split import LatencySplit
from evenkeel_evals.judge.looks import Look, StoppingRule
from evenkeel_evals.judge.plan import Foresight
from evenkeel_evals.judge.preferences import JudgeQuality
from evenkeel_evals.stats.verdict import Verdict

EXIT_GOOD, EXIT_REGRESSED, EXIT_UNMEASURED = 0, 1, 3
# Slices that the headline names.
SLICES_NAMED = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run.

    Attributes:
        run_id: Names the run.
        start_ns: Wall clock at its start.
        seconds: From the start to the last answer, interruptions included.
        dataset: What was asked.
        sides: Baseline under "A", candidate under "B".
        seed: Order of items and sides.
        concurrency: Pairs in flight.
        cache: State of the prefix cache.
        plan: What the run was expected to see.
        pairs: Every pair, measured or not.
        judgement: Verdict of each gate.
        max_unmeasured_ratio: Share of pairs that may lack a score.
        allows_inconclusive: Whether "cannot tell" counts as good.
        engines: Version of each side's server, by "A" and "B", where it says one.
        num_interruptions: How often the run was cut off and went on.
        num_asked_again: Calls that were in flight at an interruption, and were asked again.
        judge_quality: How far the judge can be trusted; None without one.
        mode: When the run could come to its verdict.
        look: When it did; None for a run that looks once.
        broken_items: Items that always pass on the baseline and always fail on the candidate.
        drift: What the drift sentinel saw; None in a short run.
        splits: What each latency change is made of, where the server's spans were read.
    """

    run_id: str
    start_ns: int
    seconds: float
    dataset: Dataset
    sides: Mapping[str, Side]
    seed: int
    concurrency: int
    cache: CacheMode
    plan: Sequence[Foresight]
    pairs: Sequence[AnsweredPair]
    judgement: Judgement
    max_unmeasured_ratio: float
    allows_inconclusive: bool
    engines: Mapping[str, str | None] = field(default_factory=dict)
    num_interruptions: int = 0
    num_asked_again: int = 0
    judge_quality: JudgeQuality | None = None
    mode: StoppingRule = StoppingRule.FIXED
    look: Look | None = None
    splits: Sequence[LatencySplit] = ()
    broken_items: Sequence[str] = ()
    drift: Drift | None = None

    @property
    def num_cached(self) -> int:
        """Return the answers that were kept from earlier runs."""
        return sum(answer.reply.is_cached for pair in self.pairs for answer in (pair.a, pair.b))

    @property
    def dataset_label(self) -> str:
        """Return the dataset as `name@version`."""
        return f"{self.dataset.name}@{self.dataset.version}"

    @property
    def num_unmeasured(self) -> int:
        """Return the pairs that lack a score on a side."""
        return sum(not pair.is_measured for pair in self.pairs)

    @property
    def is_measured(self) -> bool:
        """Return whether enough pairs have a score on both sides, and the judge can be trusted."""
        return self._unmeasured() is None

    @property
    def is_regressed(self) -> bool:
        """Return whether a gate regressed, or the guard found an item broken."""
        return self.judgement.verdict is Verdict.REGRESSED or bool(self.broken_items)

    @property
    def exit_code(self) -> int:
        """Return 1 for a regression, 3 where the run cannot tell, else 0."""
        if self.is_regressed:
            return EXIT_REGRESSED
        if not self.is_measured:
            return EXIT_UNMEASURED
        if self.judgement.has_too_many_errors:
            # Whatever is allowed: requests that fail are no matter of too few pairs.
            return EXIT_UNMEASURED
        if self.judgement.verdict is Verdict.INCONCLUSIVE and not self.allows_inconclusive:
            return EXIT_UNMEASURED
        return EXIT_GOOD

    def _unmeasured(self) -> str | None:
        """Return why the run measured too little for any verdict but a regression, or None."""
        if self.num_unmeasured > self.max_unmeasured_ratio * len(self.pairs):
            return (
                f"{self.num_unmeasured} of {len(self.pairs)} pairs have no "
                f"score on both sides ({_commonest_error(self.pairs)})"
            )
        return None if self.judge_quality is None else self.judge_quality.problem()

    @property
    def headline(self) -> str:
        """Return the verdict in one sentence."""
        if self.look is None or self.look.is_last:
            return self._headline()
        planned = f"look {self.look.number} of {self.look.num_looks}"
        return f"{self._headline()} [stopped at {planned}, after {len(self.pairs)} pairs]"

    def _headline(self) -> str:
        if self.judgement.regressed:
            places = ", ".join(f"{r.gate.text} on {r.slice_name}" for r in self.judgement.regressed)
            return f"regressed: {places}"
        if self.broken_items:
            return (
                "regressed: always right before, always wrong now: "
                f"{', '.join(self.broken_items[:5])}"
            )
        if (problem := self._unmeasured()) is not None:
            return f"could not measure: {problem}"
        return f"{self._judged()}{self._lost_slices()}"

    def _judged(self) -> str:
        verdict = self.judgement.verdict
        overall = [r for r in self.judgement.results if r.slice_name == OVERALL]
        named = ", ".join(r.gate.text for r in overall if r.verdict is verdict)
        if self.judgement.has_too_many_errors:
            failed = next(r for r in overall if isinstance(r.gate, ErrorGate))
            return (
                f"inconclusive: {failed.effect.note}, more than {failed.gate.text} tolerates; "
                "too few for a regression to be shown"
            )
        if verdict is Verdict.INCONCLUSIVE:
            return f"inconclusive: no regression shown, but these pairs cannot clear {named}"
        return f"worse, within what is tolerated: {named}" if verdict is Verdict.WORSE else verdict

    def _lost_slices(self) -> str:
        lost = self.judgement.lost_slices
        if not lost:
            return ""
        shown = ", ".join(f"{r.metric} on {r.slice_name}" for r in lost[:SLICES_NAMED])
        more = f" and {len(lost) - SLICES_NAMED} more" if len(lost) > SLICES_NAMED else ""
        return f" (slices that lost, taken by themselves: {shown}{more})"

    def to_record(self) -> dict[str, Any]:
        """Return the run as one JSON object, without prompts and answers."""
        return {
            "run_id": self.run_id,
            "verdict": Verdict.REGRESSED.value
            if self.is_regressed
            else self.judgement.verdict.value
            if self.is_measured
            else "could not measure",
            "broken_items": list(self.broken_items),
            "headline": self.headline,
            "exit_code": self.exit_code,
            "seconds": self.seconds,
            "dataset": {
                "name": self.dataset.name,
                "version": self.dataset.version,
                "content_hash": self.dataset.content_hash,
                "problems": list(self.dataset.problems),
            },
            "num_pairs": len(self.pairs),
            "num_unmeasured": self.num_unmeasured,
            "num_interruptions": self.num_interruptions,
            "num_asked_again": self.num_asked_again,
            "num_items": len({pair.item.id for pair in self.pairs}),
            "num_cached": self.num_cached,
            "drift": None if self.drift is None else self.drift.to_record(),
            "seed": self.seed,
            "concurrency": self.concurrency,
            "cache": self.cache.value,
            "mode": self.mode.value,
            "look": None if self.look is None else self.look.number,
            "num_looks": None if self.look is None else self.look.num_looks,
            "baseline": self._side_record("A"),
            "candidate": self._side_record("B"),
            "plan": [line.to_record() for line in self.plan],
            "latency_splits": [split.to_record() for split in self.splits],
            "judge": None if self.judge_quality is None else self.judge_quality.to_record(),
            "results": [_result_record(result) for result in self.judgement.results],
        }

    def answers_of(self, letter: str) -> list[Answer]:
        """Return one side's answers in order."""
        return [pair.a if letter == "A" else pair.b for pair in self.pairs]

    def _side_record(self, letter: str) -> dict[str, Any]:
        side, answers = self.sides[letter], self.answers_of(letter)
        scored = [a.is_right for a in answers if a.is_right is not None]
        return {
            "name": side.name,
            "url": side.url,
            "model": side.model,
            "prompt": side.prompt_label,
            "content_hash": side.content_hash,
            "engine": self.engines.get(letter),
            "accuracy": sum(scored) / len(scored) if scored else None,
            "num_unscored": len(answers) - len(scored),
            "output_tokens": sum(a.reply.output_tokens or 0 for a in answers),
            "input_tokens": sum(a.reply.input_tokens or 0 for a in answers),
            **{f"{metric}_s": _percentiles(answers, metric) for metric in LatencyMetric},
        }


def _percentiles(answers: Sequence[Answer], metric: LatencyMetric) -> dict[str, float | None]:
    values = [v for v in (a.latency_s(metric) for a in answers) if v is not None]
    return {
        name: float(np.quantile(values, q)) if values else None
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }


def _result_record(result: GateResult) -> dict[str, Any]:
    effect = result.effect
    record = {
        "gate": result.gate.text,
        "metric": result.metric,
        "slice": result.slice_name,
        "verdict": result.verdict.value,
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


def _commonest_error(pairs: Sequence[AnsweredPair]) -> str:
    reasons = [
        answer.score.reason or "no reason"
        for pair in pairs
        for answer in (pair.a, pair.b)
        if answer.is_right is None
    ]
    return max(set(reasons), key=reasons.count) if reasons else "no reason"
