"""Evaluates a judge's verdicts: preferences, and how reliable the judge is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from evenkeel_evals.ask.answers import AnsweredPair, are_identical
from evenkeel_evals.stats.binary import wilson

# Beyond these limits a judge is not used. A coin flips half of the time, and so does a judge that
# always picks the same position; with fewer pairs nothing can be shown anyway.
HIGHEST_FLIP_RATE = 0.4
MOST_UNREADABLE = 0.2
FEWEST_JUDGED = 5
EXAMPLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class JudgeQuality:
    """How reliable the verdicts of a run are.

    Attributes:
        num_judged: Pairs judged in both orders.
        num_unjudged: Pairs without a verdict; they count for neither side.
        num_identical: Pairs with identical texts: ties without a call.
        num_unreadable: Unjudged pairs for which the judge's reply was unreadable.
        examples: Some of those replies.
        num_decided: Judged pairs in which the same answer was chosen in both orders.
        flip_rate: Share of judged pairs whose verdict changed with the order; they do not count.
        first_share: Share of decided verdicts for the answer shown first; 0.5 is unbiased.
        longer_share: Share of stable, decided verdicts for the longer answer; 0.5 is unbiased if
            length is unrelated to quality.
        longer_ci95: Its Wilson interval.
        num_with_truth: Stable, decided verdicts on pairs in which the scorer calls one answer
            right and the other wrong.
        agreement: Share of those in which the judge chose the right answer.
        agreement_ci95: Its Wilson interval.
    """

    num_judged: int
    num_unjudged: int
    num_unreadable: int
    examples: tuple[str, ...]
    num_identical: int
    num_decided: int
    flip_rate: float | None
    first_share: float | None
    longer_share: float | None
    longer_ci95: tuple[float, float] | None
    num_with_truth: int
    agreement: float | None
    agreement_ci95: tuple[float, float] | None

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    def problem(self) -> str | None:
        """Return why this judge is too unreliable to use, or None if it is usable."""
        asked = self.num_judged + self.num_unjudged
        if asked < FEWEST_JUDGED:
            return None
        if self.num_unjudged - self.num_unreadable > MOST_UNREADABLE * asked:
            return f"the judge gave no verdict on {self.num_unjudged} of {asked} pairs"
        if self.num_unreadable > MOST_UNREADABLE * asked:
            shown = "; ".join(repr(said) for said in self.examples)
            return (
                f"the judge's replies were unreadable for {self.num_unreadable} of {asked} pairs; "
                f"it said {shown}"
            )
        # Ties in both orders say nothing about the reliability of the judge's preferences.
        num_flipped = round((self.flip_rate or 0.0) * self.num_judged)
        contested = num_flipped + self.num_decided
        if num_flipped > HIGHEST_FLIP_RATE * contested:
            return (
                "the judge's verdict changed with the order of the answers on "
                f"{num_flipped / contested:.0%} of the {contested} pairs that it did not call a "
                f"tie twice, more than {HIGHEST_FLIP_RATE:.0%}"
            )
        if not self.num_decided:
            return f"the judge never preferred an answer on {self.num_judged} pairs"
        return None

    def apply(self, pairs: Sequence[AnsweredPair]) -> list[AnsweredPair]:
        """Return the pairs, without their preferences if the judge is too unreliable."""
        if self.problem() is None:
            return list(pairs)
        return [replace(pair, preference=None) for pair in pairs]

    def describe(self) -> str:
        """Return one line for a reader."""
        parts = [f"judge: {self.num_judged} pairs in both orders"]
        if self.num_unjudged:
            unreadable = f", {self.num_unreadable} unreadable" if self.num_unreadable else ""
            parts.append(f"{self.num_unjudged} without a verdict{unreadable}")
        if self.flip_rate is not None:
            parts.append(f"{self.flip_rate:.0%} flipped with the order (not counted)")
        if self.longer_share is not None and self.longer_ci95 is not None:
            low, high = self.longer_ci95
            parts.append(f"{self.longer_share:.0%} for the longer ({low:.0%} to {high:.0%})")
        if self.agreement is not None and self.agreement_ci95 is not None:
            low, high = self.agreement_ci95
            parts.append(
                f"agrees with the scorer on {self.agreement:.0%} of {self.num_with_truth} "
                f"({low:.0%} to {high:.0%})"
            )
        return ", ".join(parts)


def quality(
    pairs: Sequence[AnsweredPair],
    verdicts: Sequence[tuple[str | None, str | None]],
    unreadable: Sequence[Sequence[str]] = (),
) -> JudgeQuality:
    """Return how reliable the judge of these pairs is.

    Args:
        pairs: Every pair of the run.
        verdicts: Per pair, the verdicts with A first and with B first; None if missing.
        unreadable: Per pair, the judge's unreadable replies.
    """
    both = [
        (pair, (ab, ba))
        for pair, (ab, ba) in zip(pairs, verdicts, strict=True)
        if ab is not None and ba is not None and not are_identical(pair)
    ]
    decided = [(pair, ab) for pair, (ab, ba) in both if ab == ba != "tie"]
    lengths = [(len(p.a.reply.text or ""), len(p.b.reply.text or ""), won) for p, won in decided]
    longer = [("A" if a > b else "B") == won for a, b, won in lengths if a != b]
    truth = [
        (bool(pair.a.is_right), won) for pair, won in decided if pair.a.is_right != pair.b.is_right
    ]
    agreed = [("A" if a_is_right else "B") == won for a_is_right, won in truth]
    firsts = [
        verdict == first
        for _, (ab, ba) in both
        for verdict, first in ((ab, "A"), (ba, "B"))
        if verdict != "tie"
    ]
    num_identical = sum(are_identical(pair) for pair in pairs)
    return JudgeQuality(
        num_judged=len(both),
        num_unjudged=len(pairs) - len(both) - num_identical,
        num_unreadable=sum(bool(said) for said in unreadable),
        examples=tuple(text for said in unreadable for text in said)[:EXAMPLES_SHOWN],
        num_identical=num_identical,
        num_decided=len(decided),
        flip_rate=_share([ab != ba for _, (ab, ba) in both]),
        first_share=_share(firsts),
        longer_share=_share(longer),
        longer_ci95=wilson(sum(longer), len(longer)) if longer else None,
        num_with_truth=len(agreed),
        agreement=_share(agreed),
        agreement_ci95=wilson(sum(agreed), len(agreed)) if agreed else None,
    )


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
