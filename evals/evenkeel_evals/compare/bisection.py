"""Finds the first of a series of changes with which a gate fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.stats.verdict_names import Verdict


class Ending(StrEnum):
    """How a bisection ended."""

    FOUND = "found"
    UNMOVED = "unmoved"
    INTERACTION = "interaction"


@dataclass(frozen=True, slots=True)
class BisectionStep:
    """One comparison of two states, each given by its number of changes, and its verdict."""

    from_changes: int
    to_changes: int
    verdict: Verdict
    headline: str


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result of a bisection.

    Attributes:
        ending: `found`: one change moved the metric, and does so on its own. `unmoved`: the gate
            holds with all changes. `interaction`: the gate fails since this change, but not when
            compared with the state right before it.
        change: Number of the change, from 1; None if unmoved.
        steps: The comparisons made.
    """

    ending: Ending
    change: int | None
    steps: Sequence[BisectionStep] = field(default_factory=tuple)

    def to_record(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the result as JSON, with the names of the changes."""
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
    """Return the name of a state: that of its last change."""
    return names[num_changes - 1] if num_changes else "base"


def bisect(num_changes: int, compare: Callable[[int, int], tuple[Verdict, str]]) -> Bisection:
    """Return the first change that makes the gate fail against the base.

    Compares all changes with none; then bisects, always against the base, since the gate's margin
    is relative to the good state; finally compares the change found with the state right before
    it. This takes at most ⌈log₂ n⌉ + 2 comparisons.

    Args:
        num_changes: Number of changes, at least 1.
        compare: Compares two states, given as numbers of changes; returns verdict and message.

    Raises:
        CannotMeasureError: If a comparison is inconclusive; the message names the remaining range.
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
        # This comparison has just been made.
        return Bisection(Ending.FOUND, bad, steps)
    left = (
        f"the gate fails since change {bad}, but cannot tell whether it does by that change alone"
    )
    ending = Ending.FOUND if fails(good, bad, left) else Ending.INTERACTION
    return Bisection(ending, bad, steps)
