"""Finds, among changes made one after the other, the first with which a gate fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.stats.verdict import Verdict


class Ending(StrEnum):
    """What a bisection came to."""

    FOUND = "found"
    UNMOVED = "unmoved"
    INTERACTION = "interaction"


@dataclass(frozen=True, slots=True)
class BisectionStep:
    """One comparison: which two states, by the number of changes they have, and its verdict."""

    from_changes: int
    to_changes: int
    verdict: Verdict
    headline: str


@dataclass(frozen=True, slots=True)
class Bisection:
    """What a search came to.

    Attributes:
        ending: `found`: one change moved the metric, also by itself. `unmoved`: with all changes
            the gate holds. `interaction`: the gate fails from this change on, but this change alone
            does not show it against the state right before it.
        change: Number of the change, from 1; None if unmoved.
        steps: Every comparison that was made.
    """

    ending: Ending
    change: int | None
    steps: Sequence[BisectionStep] = field(default_factory=tuple)

    def to_record(self, names: Sequence[str]) -> dict[str, Any]:
        """Return it as JSON, with the names of the changes."""
        return {
            "ending": self.ending.value,
            "change": None if self.change is None else names[self.change - 1],
            "steps": [
                {
                    "from": name_of(step.from_changes, names),
                    "to": name_of(step.to_changes, names),
                    "verdict": step.verdict.value,
                    "headline": step.headline,
                }
                for step in self.steps
            ],
        }


def name_of(num_changes: int, names: Sequence[str]) -> str:
    """Return what a state is called: by its last change."""
    return names[num_changes - 1] if num_changes else "base"


def bisect(num_changes: int, compare: Callable[[int, int], tuple[Verdict, str]]) -> Bisection:
    """Return the first change with which the gate fails against the base.

    First all changes against none; then halving, always against the base, since the gate's margin
    is held against what was good; last the change that was found against the state right before
    it. So ⌈log₂ n⌉ + 2 comparisons at most.

    Args:
        num_changes: How many there are, at least 1.
        compare: Compares the states with so many changes, and returns verdict and headline.

    Raises:
        CannotMeasureError: If a comparison cannot tell; the range that is left is named.
    """
    steps: list[BisectionStep] = []

    def fails(before: int, after: int, left: str) -> bool:
        verdict, headline = compare(before, after)
        steps.append(BisectionStep(before, after, verdict, headline))
        if verdict is Verdict.INCONCLUSIVE:
            raise CannotMeasureError(f"{left}; {headline}")
        return verdict is Verdict.REGRESSED

    if not fails(0, num_changes, "cannot tell whether all changes together fail the gate"):
        return Bisection(Ending.UNMOVED, None, steps)
    good, bad = 0, num_changes
    while bad - good > 1:
        middle = (good + bad) // 2
        left = f"the change is one of {good + 1} to {bad}; inconclusive at {middle}"
        if fails(0, middle, left):
            bad = middle
        else:
            good = middle
    if good == 0:
        # The last comparison was this very one.
        return Bisection(Ending.FOUND, bad, steps)
    verdict, headline = compare(good, bad)
    steps.append(BisectionStep(good, bad, verdict, headline))
    ending = Ending.FOUND if verdict is Verdict.REGRESSED else Ending.INTERACTION
    return Bisection(ending, bad, steps)
