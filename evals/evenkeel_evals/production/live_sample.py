"""Draws production requests from strata, each with a probability that is known exactly."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEPARATOR = " / "
NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Drawn:
    """One request that was drawn.

    Attributes:
        request: Its row.
        stratum: The values of the strata's columns.
        probability: With which it was drawn: drawn / all of its stratum in the window.
    """

    request: Mapping[str, Any]
    stratum: str
    probability: float


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How much is drawn.

    Attributes:
        columns: Columns of `requests` whose values make a stratum.
        probability: Share of each stratum that is drawn at least.
        min_per_stratum: Requests of each stratum and window that are drawn, if it has so many: a
            rare tenant is seen as well as a common one.
    """

    columns: tuple[str, ...]
    probability: float
    min_per_stratum: int


def stratum_of(request: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the stratum of a request; what it does not say is a value of its own."""
    return SEPARATOR.join(str(request[column] or NOTHING) for column in columns)


def draw(requests: Sequence[Mapping[str, Any]], plan: SamplingPlan, seed: str) -> list[Drawn]:
    """Return a simple random sample without replacement of each stratum, in random order.

    The same requests and seed give the same sample, so that a window read twice after a crash
    costs nothing twice.

    Args:
        requests: All of the window, in an order that does not change.
        plan: How much.
        seed: Of this window.
    """
    strata: dict[str, list[Mapping[str, Any]]] = {}
    for request in requests:
        strata.setdefault(stratum_of(request, plan.columns), []).append(request)
    generator = random.Random(seed)
    drawn: list[Drawn] = []
    for name in sorted(strata):
        members = strata[name]
        wanted = max(plan.min_per_stratum, math.ceil(plan.probability * len(members)))
        count = min(len(members), wanted)
        drawn += [
            Drawn(request, name, count / len(members))
            for request in generator.sample(members, count)
        ]
    generator.shuffle(drawn)
    return drawn


def within_budget(drawn: Sequence[Drawn], budget: int) -> list[Drawn]:
    """Return at most `budget` of what was drawn, with the probabilities that are left to them.

    What comes in is in random order, so its first part is a simple random sample of it.
    """
    count = min(len(drawn), max(0, budget))
    share = count / len(drawn) if drawn else 0.0
    return [Drawn(d.request, d.stratum, d.probability * share) for d in drawn[:count]]
