"""The drift sentinel: one fixed request, repeated throughout a run to detect server drift."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenkeel_evals.ask.client import Reply
from evenkeel_evals.stats.wilcoxon import shift_unpaired

# At most one call in 20 (a pair is two), and enough of them to detect a shift.
PAIRS_BETWEEN = 10
MAX_CALLS = 40
MIN_ANSWERS = 10
ALPHA = 0.01
# A smaller shift is shown but not called drift, however significant it is.
NOTABLE_RATIO = 0.05
MESSAGES = [{"role": "user", "content": "Say in one sentence what you can help me with."}]
MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class SentinelAnswer:
    """One answer to the sentinel request.

    Attributes:
        number: From 0, in the order asked.
        e2e_s: Last text − send, in seconds; None if there was no answer.
        text_hash: Digest of the answer; None if there was none.
    """

    number: int
    e2e_s: float | None
    text_hash: str | None


@dataclass(frozen=True, slots=True)
class Drift:
    """Summary of the sentinel's readings.

    Attributes:
        num_readings: Number of answers.
        num_errors: Calls without an answer.
        shift: Hodges-Lehmann e2e of the second half of the run over the first, − 1.
        lower: Lower limit of its 95% interval.
        upper: Upper limit.
        p: Two-sided Mann-Whitney p against "the same throughout".
        num_texts: Number of distinct answers; greedy decoding should give one.
    """

    num_readings: int
    num_errors: int
    shift: float
    lower: float | None
    upper: float | None
    p: float
    num_texts: int

    @property
    def is_drifting(self) -> bool:
        """Return whether the server got faster or slower during the run."""
        return self.p < ALPHA and abs(self.shift) > NOTABLE_RATIO

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "is_drifting": self.is_drifting}

    def describe(self) -> str:
        """Return one line for a reader."""
        line = (
            f"drift sentinel, {self.num_readings} calls: second half of the run "
            f"{self.shift * 100:+.1f}% relative to the first (p = {self.p:.2g})"
        )
        if self.is_drifting:
            line += "; the server drifted: interleaved pairs still compare, absolute times do not"
        if self.num_texts > 1:
            line += f"; {self.num_texts} different answers to one greedy request"
        return line


def sentinel_calls_at(num_pairs: int) -> dict[int, int]:
    """Return the sentinel call number by the pair it precedes.

    A run too short for MIN_ANSWERS at one call in 20 has none.
    """
    count = min(MAX_CALLS, num_pairs // PAIRS_BETWEEN)
    if count < MIN_ANSWERS:
        return {}
    return {(k * num_pairs) // count: k for k in range(count)}


def read(number: int, reply: Reply) -> SentinelAnswer:
    """Return the reading from a reply to the sentinel."""
    if reply.text is None:
        return SentinelAnswer(number, None, None)
    digest = hashlib.sha256(reply.text.encode("utf-8", "replace")).hexdigest()[:16]
    return SentinelAnswer(number, reply.e2e_s, digest)


def find_drift(answers: Sequence[SentinelAnswer]) -> Drift | None:
    """Return the change from the first half of the answers to the second; None if too few."""
    ordered = sorted(answers, key=lambda answer: answer.number)
    times = [r.e2e_s for r in ordered if r.e2e_s is not None and r.e2e_s > 0]
    if len(times) < MIN_ANSWERS:
        return None
    logs = np.log(times)
    half = len(logs) // 2
    moved = shift_unpaired(list(logs[half:]), list(logs[:half]))
    low, high = moved.ci95
    return Drift(
        num_readings=len(times),
        num_errors=len(ordered) - len(times),
        shift=math.expm1(moved.hodges_lehmann),
        lower=None if low is None else math.expm1(low),
        upper=None if high is None else math.expm1(high),
        p=moved.p_two_sided,
        num_texts=len({r.text_hash for r in ordered if r.text_hash is not None}),
    )
