"""Samples production requests from strata, with exactly known probabilities."""

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
    """One sampled request.

    Attributes:
        request: Its row.
        stratum: The values of the strata's columns.
        probability: Sampling probability: sampled / all of its stratum in the window.
    """

    request: Mapping[str, Any]
    stratum: str
    probability: float


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How many requests to sample.

    Attributes:
        columns: Columns of `requests` whose values define a stratum.
        probability: Minimum share of each stratum to sample.
        min_per_stratum: Minimum number of requests to sample per stratum and window, if it has
            that many, so that rare tenants are covered too.
    """

    columns: tuple[str, ...]
    probability: float
    min_per_stratum: int


def stratum_of(request: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the stratum of a request; a missing attribute counts as a value."""
    return SEPARATOR.join(str(request[column] or NOTHING) for column in columns)


def draw(requests: Sequence[Mapping[str, Any]], plan: SamplingPlan, seed: str) -> list[Drawn]:
    """Return a simple random sample without replacement from each stratum, in random order.

    The same requests and seed give the same sample, so that reading a window again after a crash
    costs nothing extra.

    Args:
        requests: All requests of the window, in a stable order.
        plan: How many to sample.
        seed: Seed for this window.
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
    """Return at most `budget` of the sampled requests, with adjusted probabilities.

    The input is in random order, so its first part is a simple random sample of it.
    """
    count = min(len(drawn), max(0, budget))
    share = count / len(drawn) if drawn else 0.0
    return [Drawn(d.request, d.stratum, d.probability * share) for d in drawn[:count]]
