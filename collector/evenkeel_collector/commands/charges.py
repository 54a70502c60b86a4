"""Charges for showback and chargeback: one row per period and cohort, also with FOCUS's columns.

FOCUS is the FinOps Open Cost and Usage Specification (focus.finops.org); the columns are those of
version 1.2 that every row must have, those that describe usage, those that its validator expects
although they do not apply, and our own with its prefix `x_`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.prices.cost import price_at
from evenkeel.prices.engine_time import CHARGED, ENGINE_KINDS, EngineTime
from evenkeel.prices.price_file import IdleShare, PriceFile

USAGE, OVERHEAD = "usage", "engine"
PERIODS = ("hour", "day", "month")


@dataclass(frozen=True, slots=True)
class Charge:
    """What one cohort is charged for a period.

    Attributes:
        kind: usage, or engine: engine time that no request is charged with.
        begin: Begin of the period; `end` is exclusive.
        tenant: Who pays; "" if unknown. The other keys likewise.
        billed: The cost.
        effective: The cost with its part of the engine time that is spread over requests.
        currency: Of both.
        num_requests: Requests, with and without a price.
        num_priced: Those with a price.
        num_shed: Those that control rejected, which used nothing.
        input_tokens: Those that were reported; None if no request reported any. The other tokens
            likewise.
        engine_s: Seconds, if it is engine time.
        what: Engine time's kind, in words.
    """

    kind: str
    begin: dt.datetime
    end: dt.datetime
    tenant: str
    model: str
    prompt_name: str
    prompt_version: str
    route: str
    service: str
    slo_class: str
    billed: float
    effective: float
    currency: str
    num_requests: float = 0.0
    num_priced: float = 0.0
    input_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    engine_s: float | None = None
    what: str = ""
    num_shed: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether it has a cost: not if requests were served and none of them has a price."""
        return bool(self.num_priced) or self.num_requests - self.num_shed < 0.5


_NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Its row has every column, with a value of the column's type.
NO_CHARGE = Charge(
    USAGE, _NEVER, _NEVER, "", "", "", "", "", "", "", 0.0, 0.0, "",
    input_tokens=0.0, cached_tokens=0.0, output_tokens=0.0, engine_s=0.0,
)  # fmt: skip


def charges(
    rows: Sequence[Mapping[str, Any]], times: Sequence[EngineTime], prices: PriceFile, per: str
) -> list[Charge]:
    """Return the charges of a range.

    Args:
        rows: Rows of the query `export_costs`.
        times: The engines' time by the same periods.
        prices: The prices in force.
        per: hour, day or month.
    """
    extra = [each for each in times if each.kind != CHARGED and each.cost]
    spread = _spread(rows, extra, prices)
    found = [
        Charge(
            USAGE,
            row["period"].replace(tzinfo=dt.UTC),
            _end(row["period"].replace(tzinfo=dt.UTC), per),
            row["tenant"], row["model"], row["prompt_name"], row["prompt_version"], row["route"],
            row["service"], row["slo_class"],
            billed=float(row["cost"]),
            effective=float(row["cost"]) * (1 + spread[row["period"], row["model"]]),
            currency=prices.currency,
            num_requests=float(row["num_requests"]),
            num_priced=float(row["num_priced"]),
            input_tokens=_number(row["input_tokens"]),
            cached_tokens=_number(row["cached_tokens"]),
            output_tokens=_number(row["output_tokens"]),
            num_shed=float(row["num_shed"]),
        )
        for row in rows
    ]  # fmt: skip
    paid = {(row["period"], row["model"]) for row in rows if float(row["cost"])}
    for each in extra:
        cost = each.cost or 0.0
        is_spread = _is_spread(each) and any(_pays(each, prices, *key) for key in paid)
        found.append(
            Charge(
                OVERHEAD, each.period, _end(each.period, per), "", each.model, "", "", "", "", "",
                billed=cost,
                effective=0.0 if is_spread else cost,
                currency=prices.currency,
                engine_s=each.spent_s,
                what=ENGINE_KINDS.get(each.kind, each.kind),
            )
        )  # fmt: skip
    return found


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _spread(
    rows: Sequence[Mapping[str, Any]], extra: Sequence[EngineTime], prices: PriceFile
) -> Mapping[tuple[Any, str], float]:
    """Return by period and model what comes on top of a request's cost, as a share of it."""
    total: dict[tuple[Any, str], float] = defaultdict(float)
    for row in rows:
        total[row["period"], row["model"]] += float(row["cost"])
    share: dict[tuple[Any, str], float] = defaultdict(float)
    for each in extra:
        if not _is_spread(each):
            continue
        payers = [key for key, cost in total.items() if cost and _pays(each, prices, *key)]
        paid = sum(total[key] for key in payers)
        for key in payers:
            share[key] += (each.cost or 0.0) / paid
    return share


def _is_spread(each: EngineTime) -> bool:
    return each.price is not None and each.price.idle is IdleShare.SPREAD


def _pays(each: EngineTime, prices: PriceFile, period: dt.datetime, model: str) -> bool:
    """Return whether requests of a model are priced by the engine price of the engine time."""
    begin = period.replace(tzinfo=dt.UTC)
    if each.price is None or begin != each.period or each.model not in ("", model):
        return False
    at = max(begin, each.price.valid_from or begin)
    return (
        price_at(prices.model, model, at) is None
        and price_at(prices.engine, model, at) == each.price
    )


def _end(begin: dt.datetime, per: str) -> dt.datetime:
    if per == "month":
        return _next_month(begin)
    return begin + dt.timedelta(**{f"{per}s": 1})


def _next_month(begin: dt.datetime) -> dt.datetime:
    return dt.datetime(begin.year + begin.month // 12, begin.month % 12 + 1, 1, tzinfo=dt.UTC)


def plain_row(charge: Charge) -> dict[str, object]:
    """Return a charge under our own names, for CSV and Parquet."""
    return {
        "kind": charge.kind,
        "begin": charge.begin,
        "end": charge.end,
        "tenant": charge.tenant,
        "model": charge.model,
        "prompt_name": charge.prompt_name,
        "prompt_version": charge.prompt_version,
        "route": charge.route,
        "service": charge.service,
        "slo_class": charge.slo_class,
        "billed_cost": charge.billed if charge.is_known else None,
        "effective_cost": charge.effective if charge.is_known else None,
        "currency": charge.currency,
        "num_requests": charge.num_requests,
        "num_priced": charge.num_priced,
        "input_tokens": charge.input_tokens,
        "cached_tokens": charge.cached_tokens,
        "output_tokens": charge.output_tokens,
        "engine_s": charge.engine_s,
        "what": charge.what,
    }


def focus_row(charge: Charge) -> dict[str, object]:
    """Return a charge with FOCUS's columns, in their order.

    FOCUS allows no row of usage without a cost and a quantity: where none is known it is 0, and
    there is no unit price.
    """
    month = charge.begin.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    tags = {
        "tenant": charge.tenant,
        "prompt_name": charge.prompt_name,
        "prompt_version": charge.prompt_version,
        "route": charge.route,
        "slo_class": charge.slo_class,
    }
    is_usage = charge.kind == USAGE
    tokens = (charge.input_tokens or 0.0) + (charge.output_tokens or 0.0)
    quantity = tokens if is_usage else charge.engine_s
    unit = "Tokens" if is_usage else "Seconds"
    # The average: a row adds up several kinds of tokens, each at its own price.
    unit_price = charge.billed / quantity if quantity and charge.is_known else None
    what = f"Tokens of {charge.model}" if is_usage else f"Engine time: {charge.what}"
    service = charge.service or "LLM serving"
    return {
        "BilledCost": charge.billed,
        "BillingAccountId": "evenkeel",
        "BillingAccountName": "evenkeel",
        "BillingCurrency": charge.currency,
        "BillingPeriodEnd": time_text(_next_month(month)),
        "BillingPeriodStart": time_text(month),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": what,
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": time_text(charge.end),
        "ChargePeriodStart": time_text(charge.begin),
        "CommitmentDiscountCategory": None,
        "CommitmentDiscountId": None,
        "CommitmentDiscountName": None,
        "CommitmentDiscountStatus": None,
        "CommitmentDiscountType": None,
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "ContractedCost": charge.billed,
        "ContractedUnitPrice": unit_price,
        "EffectiveCost": charge.effective,
        "InvoiceIssuerName": "evenkeel",
        "ListCost": charge.billed,
        "ListUnitPrice": unit_price,
        "PricingCategory": "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ProviderName": "evenkeel",
        "PublisherName": "evenkeel",
        "RegionId": None,
        "RegionName": None,
        "ResourceId": charge.model or None,
        "ResourceName": charge.model or None,
        "ResourceType": "Model",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": service,
        "SkuId": charge.model or None,
        "SkuPriceId": (charge.model or None) if charge.is_known else None,
        "SubAccountId": charge.tenant or None,
        "SubAccountName": charge.tenant or None,
        "Tags": json.dumps({name: value for name, value in tags.items() if value}),
        "x_CachedTokens": charge.cached_tokens,
        "x_InputTokens": charge.input_tokens,
        "x_NumPriced": charge.num_priced,
        "x_NumRequests": charge.num_requests,
        "x_OutputTokens": charge.output_tokens,
    }


def time_text(moment: dt.datetime) -> str:
    """Return a time as CSV has it: RFC 3339 in UTC, whole seconds."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
