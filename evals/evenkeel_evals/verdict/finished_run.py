"""A finished run, as used by the table, the JSON, the reports and the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenkeel.secret_text import hide_password
from evenkeel_evals.ask.answers import Answer, AnsweredPair, LatencyMetric
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.sentinel import Drift
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.verdict.decision import Decision
from evenkeel_evals.verdict.gate_verdicts import GateResult
from evenkeel_evals.verdict.latency_split import LatencySplit
from evenkeel_evals.verdict.looks import StoppingRule
from evenkeel_evals.verdict.plan import GatePlan


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run.

    Attributes:
        run_id: Id of the run.
        start_ns: Wall-clock time of its start.
        seconds: Time from the start to the last answer, interruptions included.
        dataset: The dataset.
        sides: Baseline under "A", candidate under "B".
        seed: Seed for the order of items and sides.
        concurrency: Pairs in flight.
        cache: State of the prefix cache.
        plan: What each gate was expected to detect.
        decision: The decision.
        engines: Version of each side's server, by "A" and "B", if it reports one.
        num_interruptions: How often the run was interrupted and resumed.
        num_asked_again: Calls in flight at an interruption, which were repeated.
        mode: When the run could reach its verdict.
        drift: Result of the drift sentinel; None for a short run.
        splits: Each latency change split by cause, if the server's spans were read.
        identity: Everything that determined its calls and how they were judged; empty if the
            answers were recorded elsewhere.
    """

    run_id: str
    start_ns: int
    seconds: float
    dataset: Dataset
    sides: Mapping[str, Side]
    seed: int
    concurrency: int
    cache: CacheMode
    plan: Sequence[GatePlan]
    decision: Decision
    engines: Mapping[str, str | None] = field(default_factory=dict)
    num_interruptions: int = 0
    num_asked_again: int = 0
    mode: StoppingRule = StoppingRule.FIXED
    splits: Sequence[LatencySplit] = ()
    drift: Drift | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pairs(self) -> Sequence[AnsweredPair]:
        """Return every pair, measured or not."""
        return self.decision.judgement.pairs

    @property
    def results(self) -> Sequence[GateResult]:
        """Return the verdict of each gate on each slice."""
        return self.decision.judgement.results

    @property
    def num_cached(self) -> int:
        """Return the answers cached from earlier runs."""
        return sum(answer.reply.is_cached for pair in self.pairs for answer in (pair.a, pair.b))

    @property
    def dataset_label(self) -> str:
        """Return the dataset as `name@version`."""
        return f"{self.dataset.name}@{self.dataset.version}"

    def to_record(self) -> dict[str, Any]:
        """Return the run as one JSON object, without prompts and answers."""
        decision = self.decision
        look = decision.judgement.look
        quality = decision.judge_quality
        return {
            "run_id": self.run_id,
            "verdict": decision.verdict,
            "broken_items": list(decision.broken_items),
            "headline": decision.headline,
            "exit_code": decision.exit_code,
            "seconds": self.seconds,
            "dataset": {
                "name": self.dataset.name,
                "version": self.dataset.version,
                "content_hash": self.dataset.content_hash,
                "problems": list(self.dataset.problems),
            },
            "num_pairs": len(self.pairs),
            "num_unmeasured": sum(not pair.is_measured for pair in self.pairs),
            "num_interruptions": self.num_interruptions,
            "num_asked_again": self.num_asked_again,
            "num_items": len({pair.item.id for pair in self.pairs}),
            "num_cached": self.num_cached,
            "drift": None if self.drift is None else self.drift.to_record(),
            "seed": self.seed,
            "concurrency": self.concurrency,
            "cache": self.cache.value,
            "mode": self.mode.value,
            "look": None if look is None else look.number,
            "num_looks": None if look is None else look.num_looks,
            "baseline": self._side_record("A"),
            "candidate": self._side_record("B"),
            "plan": [line.to_record() for line in self.plan],
            "latency_splits": [split.to_record() for split in self.splits],
            "judge": None if quality is None else quality.to_record(),
            "results": [result.to_record() for result in self.results],
        }

    def answers_of(self, letter: str) -> list[Answer]:
        """Return one side's answers in order."""
        return [pair.a if letter == "A" else pair.b for pair in self.pairs]

    def _side_record(self, letter: str) -> dict[str, Any]:
        side, answers = self.sides[letter], self.answers_of(letter)
        scored = [a.is_right for a in answers if a.is_right is not None]
        return {
            "name": side.name,
            "url": hide_password(side.url),
            "model": side.model,
            "prompt": side.prompt_label,
            "content_hash": side.content_hash,
            "engine": self.engines.get(letter),
            "accuracy": sum(scored) / len(scored) if scored else None,
            "num_unscored": len(answers) - len(scored),
            "output_tokens": _total([a.reply.output_tokens for a in answers]),
            "input_tokens": _total([a.reply.input_tokens for a in answers]),
            **{f"{metric}_s": _percentiles(answers, metric) for metric in LatencyMetric},
        }


def _total(counts: Sequence[int | None]) -> int | None:
    """Return the sum of the known counts; None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _percentiles(answers: Sequence[Answer], metric: LatencyMetric) -> dict[str, float | None]:
    values = [v for v in (a.latency_s(metric) for a in answers) if v is not None]
    return {
        name: float(np.quantile(values, q)) if values else None
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }
