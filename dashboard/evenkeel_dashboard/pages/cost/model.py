"""What the cost page says: the bill by cohort, what was wasted and saved, and what has no price."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from evenkeel.prices.cost import MILLION, price_at
from evenkeel.prices.engine_time import ENGINE_KINDS, IDLE, EngineTime
from evenkeel.prices.price_file import PriceFile
from evenkeel.times import to_datetime
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.tiles import Tile

Row = Mapping[str, Any]

DIMENSIONS = {
    "tenant": "tenant",
    "model": "model",
    "prompt": "prompt version",
    "route": "feature (route)",
    "service": "service",
}
NONE = "none"
MAX_SERIES = 6
MAX_CHANGES = 8
_LEAST_S = 1e-6
# If the share of requests with a price was below this part of today's, prices came in between.
_LEAST_PRICED = 0.9


@dataclass(frozen=True, slots=True)
class CohortCost:
    """What one cohort costs in a range, and in the one before.

    Attributes:
        name: The cohort; `NONE` if its requests have no such value.
        cost: Of its requests with a price.
        before: Cost in the range before; None if it is not known: no request of it had a price, or
            not all of it is stored.
        num_requests: Requests, rejected ones included.
        num_priced: Those with a cost.
        tokens: Input and output tokens.
        wasted: The part of `cost` that bought nothing.
        num_shed: Requests that control rejected.
    """

    name: str
    cost: float = 0.0
    before: float | None = 0.0
    num_requests: float = 0.0
    num_priced: float = 0.0
    tokens: float = 0.0
    wasted: float = 0.0
    num_shed: float = 0.0

    @property
    def known_cost(self) -> float | None:
        """The cost; None if requests were served and none of them has a price."""
        return _known(self.cost, self.num_priced, self.num_requests - self.num_shed)

    @property
    def known_waste(self) -> float | None:
        """The wasted part of the cost; None if the cost is not known."""
        return None if self.known_cost is None else self.wasted

    @property
    def per_1k_requests(self) -> float | None:
        """The cost of a thousand requests with a price."""
        return self.cost / self.num_priced * 1000 if self.num_priced else None

    @property
    def per_1m_tokens(self) -> float | None:
        """The cost of a million tokens; None unless nearly every request has a price."""
        return _per_1m(self.cost, self.tokens, self.num_priced, self.num_requests - self.num_shed)

    @property
    def change(self) -> float | None:
        """What it costs more than in the range before; None if either is not known."""
        if self.known_cost is None or self.before is None:
            return None
        return self.cost - self.before


def _known(cost: float, num_priced: float, num_served: float) -> float | None:
    return None if not num_priced and num_served >= 0.5 else cost


def _per_1m(cost: float, tokens: float, num_priced: float, num_served: float) -> float | None:
    if not tokens or not num_priced or num_priced < 0.99 * num_served:
        return None
    return cost / tokens * MILLION


def incomparable(rows: Sequence[Row], is_stored: bool) -> str:
    """Return why the range before cannot be compared, as the begin of a sentence; "" if it can.

    Args:
        rows: Of the query `cost_cohorts`.
        is_stored: Whether all of the range before is stored.
    """
    if not is_stored:
        return "the stored data does not cover"
    now, before = (
        _priced_share([r for r in rows if bool(r["is_now"]) == i]) for i in (True, False)
    )
    if now is not None and before is not None and before < _LEAST_PRICED * now:
        return "fewer requests had a price in"
    return ""


def _priced_share(rows: Sequence[Row]) -> float | None:
    served = sum(float(row["num_requests"]) - float(row["num_shed"]) for row in rows)
    return sum(float(row["num_priced"]) for row in rows) / served if served else None


def cohort_costs(rows: Sequence[Row], *, is_comparable: bool = True) -> list[CohortCost]:
    """Return the cohorts of the query `cost_cohorts`, most expensive first, vanished ones included.

    Args:
        rows: The query's rows.
        is_comparable: Whether the range before is comparable; otherwise no cost before is known.
    """
    before: dict[str, float | None] = {
        row["cohort"]: _known(
            float(row["cost"]),
            float(row["num_priced"]),
            float(row["num_requests"]) - float(row["num_shed"]),
        )
        for row in rows
        if not row["is_now"] and is_comparable
    }
    found = [
        CohortCost(
            name=row["cohort"] or NONE,
            cost=float(row["cost"]),
            before=before.pop(row["cohort"], 0.0) if is_comparable else None,
            num_requests=float(row["num_requests"]),
            num_priced=float(row["num_priced"]),
            tokens=float(row["tokens"]),
            wasted=float(row["wasted_cost"]),
            num_shed=float(row["num_shed"]),
        )
        for row in rows
        if row["is_now"]
    ]
    found += [CohortCost(name or NONE, before=cost) for name, cost in before.items() if cost]
    return sorted(found, key=lambda each: (-each.cost, -(each.before or 0.0), each.name))


def total_of(cohorts: Sequence[CohortCost]) -> CohortCost:
    """Return the sum over all cohorts."""
    return CohortCost(
        "all",
        *(
            sum(getattr(each, name) or 0.0 for each in cohorts)
            for name in (
                "cost", "before", "num_requests", "num_priced", "tokens", "wasted", "num_shed",
            )
        ),
    )  # fmt: skip


def biggest_changes(cohorts: Sequence[CohortCost]) -> list[CohortCost]:
    """Return the cohorts whose cost changed most, largest change first; [] without costs before."""
    if not total_of(cohorts).before:
        return []
    changed = [each for each in cohorts if each.change]
    return sorted(changed, key=lambda each: -abs(each.change or 0.0))[:MAX_CHANGES]


@dataclass(frozen=True, slots=True)
class Savings:
    """What would have come on top of the bill; None: nothing is known of it.

    Attributes:
        provider_cache: Cached tokens of hosted models, against the price of uncached ones.
        prefix_cache: One's own engine's prefix cache.
        drafts: Its accepted drafts.
        compression: Prompt tokens that compression left out, at the price of input.
    """

    provider_cache: float | None = None
    prefix_cache: float | None = None
    drafts: float | None = None
    compression: float | None = None

    @property
    def by_cause(self) -> dict[str, float]:
        """Positive savings in words, most first."""
        named = {
            "provider's cache": self.provider_cache,
            "prefix cache": self.prefix_cache,
            "accepted drafts": self.drafts,
            "prompt compression": self.compression,
        }
        present = {name: value for name, value in named.items() if value}
        return dict(sorted(present.items(), key=lambda pair: -pair[1]))

    @property
    def total(self) -> float | None:
        """Their sum; None if nothing is known of any."""
        causes = (self.provider_cache, self.prefix_cache, self.drafts, self.compression)
        return None if all(each is None for each in causes) else sum(self.by_cause.values())


def savings_of(models: Sequence[Row], compressed: Sequence[Row], prices: PriceFile) -> Savings:
    """Return what caches, drafts and compression saved.

    Args:
        models: Rows of `cost_models`.
        compressed: Rows of `compressed_tokens`.
        prices: The prices in force.
    """
    cached = [_cache_saving(row, prices) for row in models]
    newest = max((row["since_ms"] for row in models), default=0)
    shorter = []
    for row in compressed:
        price = price_at(prices.model, row["model"], _moment(newest))
        if price is not None and price.input is not None:
            shorter.append(float(row["saved_tokens"]) * price.input / MILLION)
    return Savings(
        provider_cache=_sum_of(cached),
        prefix_cache=sum(float(row["saved_prefix_cost"]) for row in models) or None,
        drafts=sum(float(row["saved_drafts_cost"]) for row in models) or None,
        compression=_sum_of(shorter),
    )


def _cache_saving(row: Row, prices: PriceFile) -> float | None:
    price = price_at(prices.model, row["model"], _moment(row["since_ms"]))
    if price is None or price.input is None or price.cached_input is None:
        return None
    return float(row["cached_tokens"]) * (price.input - price.cached_input) / MILLION


def _sum_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _moment(unix_ms: int) -> dt.datetime:
    return to_datetime(unix_ms * 10**6)


def wasted_by_cause(models: Sequence[Row]) -> dict[str, float]:
    """Return the wasted part of the bill by cause in words, most first; nothing counts twice."""
    named = {
        "cancelled by the client": "cancelled_cost",
        "failed": "failed_cost",
        "recomputed prompts and rejected drafts": "wasted_cost",
    }
    sums = {words: sum(float(row[name]) for row in models) for words, name in named.items()}
    return dict(sorted(((k, v) for k, v in sums.items() if v > 0), key=lambda pair: -pair[1]))


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Requests of one model without a cost, and why."""

    model: str
    num: float
    reason: str


def unpriced(models: Sequence[Row], prices: PriceFile) -> list[Unpriced]:
    """Return requests without a cost by model, most first; rejected requests used nothing."""
    missing: dict[str, float] = defaultdict(float)
    since_of: dict[str, int] = {}
    for row in models:
        num = float(row["num_requests"]) - float(row["num_priced"]) - float(row["num_shed"])
        if num >= 0.5:
            missing[row["model"]] += num
            since_of[row["model"]] = row["since_ms"]
    found = [
        Unpriced(name, num, _why(name, since_of[name], prices)) for name, num in missing.items()
    ]
    return sorted(found, key=lambda each: (-each.num, each.model))


def _why(model: str, since_ms: int, prices: PriceFile) -> str:
    if price_at(prices.model, model, _moment(since_ms)) is not None:
        return "no token counts that add up, or tokens of a kind without a price"
    if price_at(prices.engine, model, _moment(since_ms)) is not None:
        return "no engine seconds or energy reported, or stored before there was a price"
    return "no price"


def by_kind(times: Sequence[EngineTime]) -> list[EngineTime]:
    """Return one entry per kind of engine time; without a price for all of it, it has no cost."""
    order = [*ENGINE_KINDS, *sorted({each.kind for each in times} - set(ENGINE_KINDS))]
    found = []
    for kind in order:
        parts = [each for each in times if each.kind == kind]
        # What sums of fractions leave is nothing.
        spent_s = sum(each.spent_s for each in parts)
        measured = [each.energy_j for each in parts if each.energy_j is not None]
        energy_j = sum(measured) if measured else None
        if spent_s >= _LEAST_S or energy_j:
            costs = [each.cost for each in parts]
            known = None if None in costs else sum(cost for cost in costs if cost is not None)
            found.append(
                replace(parts[0], model="", spent_s=spent_s, energy_j=energy_j, cost=known)
            )
    return found


def idle_of(times: Sequence[EngineTime]) -> tuple[float | None, float | None]:
    """Return the idle share of the engines' time, and what it costs; None if unknown."""
    total = sum(each.spent_s for each in times)
    idle = next((each for each in times if each.kind == IDLE), None)
    if not total:
        return None, None
    return (idle.spent_s / total, idle.cost) if idle else (0.0, 0.0)


def cost_tiles(
    total: CohortCost,
    waste: Mapping[str, float],
    saved: Savings,
    times: Sequence[EngineTime],
    currency: str,
) -> list[Tile]:
    """Return the headline numbers."""
    wasted, (idle, idle_cost) = sum(waste.values()), idle_of(times)
    bill = total.known_cost
    money = partial(price_words if bill is None else formats.money, currency=currency)
    share = f" ({formats.percent(wasted / total.cost)})" if total.cost else ""
    idle_words = formats.percent(idle)
    if idle is not None and idle_cost is not None:
        idle_words = f"{formats.money(idle_cost, currency)} ({idle_words})"
    change = formats.change(total.cost, total.before) or ""
    per_1k, per_1m = total.per_1k_requests, total.per_1m_tokens
    found = [
        ("bill", money(bill), "sum over requests with a price"),
        ("per 1k requests", money(per_1k), "mean over requests with a price"),
        (
            "per 1M tokens",
            money(per_1m),
            "input and output; no data while many requests have no price",
        ),
        (
            "wasted",
            money(None if bill is None else wasted) + share,
            "cancelled, failed, recomputed, rejected drafts",
        ),
        (
            "saved",
            formats.money(saved.total, currency),
            "what caches, drafts and compression kept off the bill",
        ),
        ("idle engine", idle_words, "engine time without any request, not in the bill"),
    ]
    return [
        Tile(label, value, change if label == "bill" else "", meaning, is_wide=True)
        for label, value, meaning in found
    ]


def price_words(value: float | None, currency: str) -> str:
    """Return an amount with its currency; "no price" if it is unknown."""
    return formats.NO_PRICE if value is None else formats.money(value, currency)


def unpriced_words(found: Sequence[Unpriced], num_requests: float) -> str:
    """Return how many requests have no cost and of which models; "" if all have one."""
    if not found:
        return ""
    num = sum(each.num for each in found)
    share = f" ({formats.percent(num / num_requests)})" if num_requests else ""
    named = "; ".join(
        f"{each.model or NONE}: {formats.count(each.num)}, {each.reason}" for each in found[:5]
    )
    more = f"; and {len(found) - 5} more models" if len(found) > 5 else ""
    return (
        f"{formats.count(num)} requests{share} have no cost and are not in the bill. {named}{more}."
    )
