"""What markup draws: a verdict, tiles, and an interval on a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateSummary:
    """One sentence of state, one of reason, and the level that colours them.

    Attributes:
        level: good, warning, bad or unknown.
        headline: Whether the service is healthy.
        reason: Where the time goes; "" when nothing is measured.
    """

    level: str
    headline: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline number; `change` compares it with the range before, "" when it cannot."""

    label: str
    value: str
    change: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SloTile:
    """One SLO as it is shown.

    Attributes:
        name: Of the SLO.
        level: good, warning, bad or unknown.
        state: The state in a word.
        objective: What is promised, in words.
        sli: Good / valid events of the period.
        budget_left: Share of the error budget that is left.
        budget_left_ratio: The same as a fraction from 0 to 1 for the bar; None without data.
        burn: The burn rate of the window pair that is closest to alerting.
        alerts_at: The burn rate from which on that pair alerts.
        burn_history: The same over the range, as a share of what alerts.
        href: Where its name leads; "" for nowhere.
    """

    name: str
    level: str
    state: str
    objective: str
    sli: str
    budget_left: str
    budget_left_ratio: float | None
    burn: str
    alerts_at: str
    burn_history: Sequence[float | None]
    href: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """An effect with its 95 % interval as places on a bar, 0 at its left end and 1 at its right.

    Attributes:
        lower: Place of the lower limit; `upper` of the upper, `estimate` of the effect.
        margin: Place of the tolerated loss; None when the gate's text names none.
    """

    lower: float
    upper: float
    estimate: float
    margin: float | None
