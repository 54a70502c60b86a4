"""What the time of one's own engines costs, by what it was spent on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenkeel.prices.cost import engine_second, price_at
from evenkeel.prices.price_file import EnginePrice, PriceFile

# What requests are charged with; all other kinds are overhead.
CHARGED = "requests"
IDLE = "idle"
# Kinds in words; those that requests pay for come first.
ENGINE_KINDS = {
    CHARGED: "charged to requests",
    "other": "steps of no known request, and our own replays",
    "between": "between steps, with requests in the engine",
    IDLE: "idle, without requests",
    "unrecorded": "not recorded",
}


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Engine time of one kind and model in a period.

    Attributes:
        period: Begin of the period.
        kind: A key of `ENGINE_KINDS`.
        model: The engine's model; "" if it does not say.
        spent_s: Seconds.
        price: The price in force; None without one.
        cost: What the seconds cost; None without a price.
    """

    period: dt.datetime
    kind: str
    model: str
    spent_s: float
    price: EnginePrice | None
    cost: float | None


def engine_times(rows: Sequence[Mapping[str, Any]], prices: PriceFile) -> list[EngineTime]:
    """Return the rows of the query `engine_seconds` with what they cost at their period's begin."""
    found = []
    for row in rows:
        period = row["period"].replace(tzinfo=dt.UTC)
        price = _price_of(prices, row["model"], period)
        second = _second(prices, price)
        spent_s = float(row["spent_s"])
        cost = None if second is None else spent_s * second
        found.append(EngineTime(period, row["kind"], row["model"], spent_s, price, cost))
    return found


def in_periods(times: Iterable[EngineTime], per: str) -> list[EngineTime]:
    """Return times added up by period, kind, model and price.

    Prices may change within a period, so they are applied before.

    Args:
        times: Times of quarters of an hour.
        per: hour, day or month.
    """
    found: dict[tuple[object, ...], EngineTime] = {}
    for each in times:
        period = each.period.replace(minute=0)
        if per != "hour":
            period = period.replace(hour=0, day=1 if per == "month" else period.day)
        key = period, each.kind, each.model, each.price
        so_far = found.get(key, replace(each, period=period, spent_s=0.0, cost=None))
        cost = None if each.cost is None else each.cost + (so_far.cost or 0.0)
        found[key] = replace(so_far, spent_s=so_far.spent_s + each.spent_s, cost=cost)
    return list(found.values())


def cost_of_seconds(
    seconds_of: Mapping[str, float], prices: PriceFile, at: dt.datetime
) -> float | None:
    """Return what engine seconds cost; None without a price for all of them.

    Args:
        seconds_of: Seconds by the engines' model.
        prices: The prices in force.
        at: The moment whose prices apply.
    """
    total = 0.0
    for model, seconds in seconds_of.items():
        second = _second(prices, _price_of(prices, model, at))
        if second is None:
            return None
        total += seconds * second
    return total


def _price_of(prices: PriceFile, model: str, at: dt.datetime) -> EnginePrice | None:
    """Return the price of an engine; one that does not name its model has the only price."""
    if model:
        return price_at(prices.engine, model, at)
    valid = [each for each in prices.engine if each.is_valid_at(at)]
    return valid[0] if len(valid) == 1 else None


def _second(prices: PriceFile, price: EnginePrice | None) -> float | None:
    """Return the price of a second; None if the number of its devices is unknown."""
    if price is None or (price.engine_hour is None and price.gpus is None):
        return None
    return engine_second(prices, price)
