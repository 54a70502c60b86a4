"""Data that `markup` renders: a verdict, tiles, and an interval on a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateSummary:
    """A page's verdict: a headline, a reason, and the level that colours them.

    Attributes:
        level: good, warning, bad or unknown.
        headline: Whether the service is healthy.
        reason: Where the time goes; "" if nothing was measured.
        href: Where the whole banner leads; "" for nowhere.
    """

    level: str
    headline: str
    reason: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline number, or several in a wide tile.

    `change` compares it with the previous range, "" if it cannot.
    """

    label: str
    value: str
    change: str
    meaning: str
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class SloTile:
    """One SLO tile.

    Attributes:
        name: Name of the SLO.
        level: good, warning, bad or unknown.
        state: The state in words.
        objective: The objective in words.
        sli: Good / valid events of the period.
        budget_left: Share of the error budget left.
        budget_left_ratio: The same as a fraction from 0 to 1 for the bar; None without data.
        burn: Burn rate of the window pair closest to alerting.
        alerts_at: Burn rate at which that pair alerts.
        burn_history: Burn rate over the range, as a share of the alerting rate.
        href: Link of its name; "" for none.
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
    """An effect with its 95% interval as positions on a bar, from 0 (left) to 1 (right).

    Attributes:
        lower: Position of the lower limit; `upper` and `estimate` likewise.
        margin: Position of the tolerated loss; None if the gate's text names none.
    """

    lower: float
    upper: float
    estimate: float
    margin: float | None
