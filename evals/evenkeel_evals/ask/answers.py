"""The answers of a run, one per side and item, and the pairs they form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.scorers.base import Label, Score


class LatencyMetric(StrEnum):
    """A latency, as the client measured it, in seconds."""

    TTFT = "ttft"
    E2E = "e2e"
    TPOT = "tpot"


NOT_SCORED = Score.unscored("not scored yet")


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply with its score.

    Attributes:
        reply: The reply.
        score: Its score; `NOT_SCORED` as long as others are asked.
        trace_id: Id of its trace.
        span_id: Id of its span.
        checks: Late check results by digest.
        model: The model that answered, if it is not that of the whole side.
        cost: What the answer cost; None if that is not known.
        cost_problem: Why it is not known.
    """

    reply: Reply
    score: Score
    trace_id: str
    span_id: str
    checks: Mapping[str, Score] = field(default_factory=dict)
    model: str = ""
    cost: float | None = None
    cost_problem: str = ""

    def latency_s(self, metric: LatencyMetric) -> float | None:
        """Return a latency in seconds; None if the reply has none."""
        if metric is LatencyMetric.TTFT:
            return self.reply.ttft_s
        return self.reply.e2e_s if metric is LatencyMetric.E2E else self.reply.tpot_s

    @property
    def has_failed(self) -> bool:
        """Return whether the request failed: an error, a timeout or a broken stream."""
        return self.reply.error is not None

    @property
    def has_timed_out(self) -> bool:
        """Return whether the request timed out; its latencies are then lower bounds."""
        return self.reply.has_timed_out

    @property
    def is_right(self) -> bool | None:
        """Return whether the answer is right; None if it is unscored."""
        return None if self.score.label is Label.UNSCORED else self.score.label is Label.RIGHT

    def counted_as_wrong(self) -> Answer:
        """Return this answer with the score of a wrong one."""
        return replace(self, score=Score(0.0, Label.WRONG))


@dataclass(frozen=True, slots=True)
class AnsweredPair:
    """Both sides' answers to one item; `a` is the baseline's.

    Attributes:
        index: Place in the run.
        item: The item that was asked.
        first: The side that was asked first, "A" or "B".
        a: The baseline's answer.
        b: The candidate's.
        is_split: Whether the run was interrupted or waited for a server between the two calls; then
            they are compared in accuracy only, not in latency.
        preference: The judge's verdict over both orders: A, B or tie; None if there was no judge
            or no verdict.
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

    def latencies_s(self, metric: LatencyMetric) -> tuple[float, float] | None:
        """Return both sides' latencies; None if one is missing or they are not comparable.

        If the candidate timed out before its second token, its time per token is at least the
        whole timeout. The same bound for the baseline would only flatter the candidate, so its
        time per token counts as unknown.
        """
        a, b = self.a.latency_s(metric), self.b.latency_s(metric)
        if b is None and self.b.has_timed_out:
            b = self.b.reply.e2e_s
        if self.is_split or a is None or b is None or a <= 0 or b <= 0:
            return None
        return a, b


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Server-side time of one request by phase, in seconds, from its span.

    `engine_s` is what it cost an engine with `num_devices` devices, `energy_j` the energy of those
    in J; None if that is not known.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    output_tokens: int
    engine_s: float | None = None
    num_devices: int = 1
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class Repeats:
    """Results of the repeats of one lost item so far; True is right, None unscored.

    Attributes:
        a: The baseline's repeats.
        b: The candidate's.
    """

    a: tuple[bool | None, ...] = ()
    b: tuple[bool | None, ...] = ()

    def next_side(self, num_repeats: int) -> str | None:
        """Return the side to ask next, "A" or "B"; None if the item is cleared or has its repeats.

        A repeat without a score proves nothing and is made again, up to `num_repeats` times.
        """
        scored = [[right for right in side if right is not None] for side in (self.a, self.b)]
        if not all(scored[0]) or any(scored[1]):
            return None
        letter = "A" if len(scored[0]) <= len(scored[1]) else "B"
        num_scored, num_asked = min(map(len, scored)), len(self.a if letter == "A" else self.b)
        return letter if num_scored < num_repeats and num_asked < 2 * num_repeats else None

    def is_broken(self, num_repeats: int) -> bool:
        """Return whether every repeat passed on the baseline and failed on the candidate."""
        return (
            self.a.count(True) >= num_repeats
            and self.b.count(False) >= num_repeats
            and False not in self.a
            and True not in self.b
        )


def merge(verdicts: tuple[str | None, str | None]) -> str | None:
    """Return the verdict if both orders agree; None if one is missing or they disagree.

    A verdict that changes with the order reflects the order, not the answers: it is not a tie.
    """
    forward, backward = verdicts
    return forward if forward == backward else None


def are_identical(pair: AnsweredPair) -> bool:
    """Return whether there is nothing to judge."""
    return pair.a.reply.text is not None and pair.a.reply.text == pair.b.reply.text
