"""What a run collects: one answer a side and item, and the pairs made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evals.client import Reply
from evals.dataset import Item
from evals.gates import Metric
from evals.scorers import Label, Score


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply with its score, the ids of its trace, and recorded late checks by their digest."""

    reply: Reply
    score: Score
    trace_id: str
    span_id: str
    checks: Mapping[str, Score] = field(default_factory=dict)

    def latency_s(self, metric: Metric) -> float | None:
        """Return a latency in seconds; None where the reply has none."""
        if metric is Metric.TTFT:
            return self.reply.ttft_s
        return self.reply.e2e_s if metric is Metric.E2E else self.reply.tpot_s

    @property
    def has_failed(self) -> bool:
        """Return whether the request came to no answer: an error, a time-out, a broken stream."""
        return self.reply.error is not None

    @property
    def has_timed_out(self) -> bool:
        """Return whether it ran into the limit; its latencies are then at least what they say."""
        return self.reply.has_timed_out

    @property
    def is_right(self) -> bool | None:
        """Return whether the answer is right; None if it is unscored."""
        return None if self.score.label is Label.UNSCORED else self.score.label is Label.RIGHT


@dataclass(frozen=True, slots=True)
class AnsweredPair:
    """Both sides' answers to one item; `a` is the baseline's.

    Attributes:
        index: Place in the run.
        item: What was asked.
        first: The side that went first, "A" or "B".
        a: The baseline's answer.
        b: The candidate's.
        is_split: Whether the run was interrupted between the two, or waited for a server; then
            they are not compared in latency, only in accuracy.
        preference: What a judge chose, in both orders: A, B or tie; None if there was no judge, or
            no verdict.
    """

    index: int
    item: Item
    first: str
    a: Answer
    b: Answer
    is_split: bool = False
    preference: str | None = None

    @property
    def is_measured(self) -> bool:
        """Return whether both sides have a score."""
        return self.a.is_right is not None and self.b.is_right is not None

    def latencies_s(self, metric: Metric) -> tuple[float, float] | None:
        """Return both sides' latencies; None where they do not exist or cannot be compared."""
        a, b = self.a.latency_s(metric), self.b.latency_s(metric)
        if self.is_split or a is None or b is None or a <= 0 or b <= 0:
            return None
        return a, b
