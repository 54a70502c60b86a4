"""What the time of your own engines costs, by what it was spent on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenkeel.prices.cost import engine_cost, price_at
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
        energy_j: Energy of the GPUs in them, in J; None if unknown.
        price: The price in force; None without one.
        cost: What the seconds cost; None without a price.
    """

    period: dt.datetime
    kind: str
    model: str
    spent_s: float
    energy_j: float | None
    price: EnginePrice | None
    cost: float | None


def engine_times(rows: Sequence[Mapping[str, Any]], prices: PriceFile) -> list[EngineTime]:
    """Return the rows of the query `engine_seconds` with what they cost at their period's begin."""
    measured = _measured(rows)
    found = []
    for row in rows:
        period = row["period"].replace(tzinfo=dt.UTC)
        price = _price_of(prices, row["model"], period)
        is_known = (row["period"], row["model"]) in measured
        spent_s, energy_j = float(row["spent_s"]), float(row["energy_j"]) if is_known else None
        cost = _cost(prices, price, spent_s, energy_j)
        found.append(EngineTime(period, row["kind"], row["model"], spent_s, energy_j, price, cost))
    return found


def in_periods(times: Iterable[EngineTime], per: str) -> list[EngineTime]:
    """Return times added up by period, kind, model, price, and whether their cost is known.

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
        key = period, each.kind, each.model, each.price, each.cost is None
        so_far = found.get(key, replace(each, period=period, spent_s=0.0, energy_j=None, cost=None))
        cost = None if each.cost is None else each.cost + (so_far.cost or 0.0)
        energy_j = so_far.energy_j
        if each.energy_j is not None:
            energy_j = each.energy_j + (energy_j or 0.0)
        spent_s = so_far.spent_s + each.spent_s
        found[key] = replace(so_far, spent_s=spent_s, energy_j=energy_j, cost=cost)
    return list(found.values())


def cost_of_seconds(
    seconds_of: Mapping[str, float],
    prices: PriceFile,
    at: dt.datetime,
    watts_of: Mapping[str, float],
) -> float | None:
    """Return what engine seconds cost; None without a price for all of them.

    Args:
        seconds_of: Seconds by the engines' model.
        prices: The prices in force.
        at: The moment whose prices apply.
        watts_of: Power that a second of work takes more than an idle one, by the engines' model;
            that of engines which do not name it counts for those of the only price.
    """
    costs, only = [], _price_of(prices, "", at)
    for model, seconds in seconds_of.items():
        price = _price_of(prices, model, at)
        watts = watts_of.get(model, watts_of.get("") if price == only else None)
        energy_j = None if watts is None else seconds * watts
        costs.append(_cost(prices, price, seconds, energy_j))
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def watts_of_work(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what power work takes more than an idle engine, in W, by the engines' model.

    Only for engines that were busy and idle in the times in which their energy is known.

    Args:
        rows: Rows of the query `engine_seconds`.
    """
    found, measured = {}, _measured(rows)
    rows = [row for row in rows if (row["period"], row["model"]) in measured]
    for model in {row["model"] for row in rows}:
        power = []
        for kind in (CHARGED, IDLE):
            own = [row for row in rows if row["model"] == model and row["kind"] == kind]
            spent_s = sum(float(row["spent_s"]) for row in own)
            power.append(sum(float(row["energy_j"]) for row in own) / spent_s if spent_s else 0.0)
        if all(power):
            found[model] = max(power[0] - power[1], 0.0)
    return found


def _measured(rows: Sequence[Mapping[str, Any]]) -> set[tuple[dt.datetime, str]]:
    """Return the periods and models of which energy is known."""
    return {(row["period"], row["model"]) for row in rows if float(row["energy_j"])}


def _price_of(prices: PriceFile, model: str, at: dt.datetime) -> EnginePrice | None:
    """Return the price of an engine; one that does not name its model has the only price."""
    if model:
        return price_at(prices.engine, model, at)
    valid = [each for each in prices.engine if each.is_valid_at(at)]
    return valid[0] if len(valid) == 1 else None


def _cost(
    prices: PriceFile, price: EnginePrice | None, spent_s: float, energy_j: float | None
) -> float | None:
    """Return what engine time costs; None if the number of the engine's devices is unknown."""
    if price is None or (price.engine_hour is None and price.gpus is None):
        return None
    return engine_cost(prices, price, spent_s, energy_j)
