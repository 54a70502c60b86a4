"""Charges add up to the bill: requests, and engine time that is apart or spread over them."""

import datetime as dt
from typing import Any

import pytest

from evenkeel.prices.engine_time import engine_times, in_periods
from evenkeel.prices.price_file import EnginePrice, IdleShare, ModelPrice, PriceFile
from evenkeel_collector.commands.charges import charges, focus_row, plain_row, time_text

DAY = dt.datetime(2026, 12, 31)  # noqa: DTZ001, as the store's client returns it


def prices(idle: IdleShare) -> PriceFile:
    price = EnginePrice(
        name="own*", engine_hour=3600, idle=idle, source="lease", read=dt.date(2026, 11, 20)
    )
    return PriceFile(currency="EUR", engine=(price,))


def row(cost: float, model: str = "own", **more: Any) -> dict[str, Any]:
    keys = ("tenant", "prompt_name", "prompt_version", "route", "service", "slo_class")
    usual = {
        **dict.fromkeys(keys, ""), "period": DAY, "model": model, "num_requests": 2.0,
        "num_priced": 1.0, "num_shed": 0.0, "input_tokens": 30.0, "cached_tokens": 10.0,
        "output_tokens": 5.0,
    }  # fmt: skip
    return {**usual, "cost": cost, **more}


TIMES = [
    {"period": DAY, "kind": "requests", "model": "own", "spent_s": 4.0, "energy_j": 0.0},
    {"period": DAY, "kind": "idle", "model": "own", "spent_s": 6.0, "energy_j": 0.0},
]
ROWS = [row(3.0, tenant="acme", route="chat"), row(1.0, tenant="zeta"), row(9.0, "hosted")]


@pytest.mark.parametrize("idle", IdleShare)
def test_billed_and_effective_costs_add_up_to_the_same(idle: IdleShare) -> None:
    file = prices(idle)
    found = charges(ROWS, engine_times(TIMES, file), file, "day")

    assert sum(each.billed for each in found) == pytest.approx(3 + 1 + 9 + 6)
    assert sum(each.effective for each in found) == pytest.approx(3 + 1 + 9 + 6)
    effective = [each.effective for each in found]
    spread = [3 + 4.5, 1 + 1.5, 9, 0]
    assert effective == pytest.approx(spread if idle is IdleShare.SPREAD else [3, 1, 9, 6])


def test_idle_time_that_nobody_can_pay_stays_apart() -> None:
    file = prices(IdleShare.SPREAD)
    found = charges([row(9.0, "hosted")], engine_times(TIMES, file), file, "day")
    assert [each.effective for each in found] == [9.0, 6.0]


HOSTED = ModelPrice(
    name="hosted*", input=1.0, output=1.0, source="invoice", read=dt.date(2026, 11, 20)
)


@pytest.mark.parametrize(
    ("engine", "model_of_idle", "effective"),
    [
        pytest.param("*", "", [1 + 3, 3 + 9, 9, 0], id="all of the engine, not hosted ones"),
        pytest.param("own-*", "own-8b", [1 + 12, 3, 9, 0], id="those of the engine's model"),
        pytest.param("*", "hosted-x", [1, 3, 9, 12], id="a hosted model of the engine's name"),
        pytest.param("own-8b", "own-8b", [1 + 12, 3, 9, 0], id="an exact name"),
    ],
)
def test_only_requests_that_an_engine_served_pay_for_its_idle_time(
    engine: str, model_of_idle: str, effective: list[float]
) -> None:
    price = EnginePrice(
        name=engine,
        engine_hour=3600,
        idle=IdleShare.SPREAD,
        source="lease",
        read=dt.date(2026, 11, 20),
    )
    file = PriceFile(model=(HOSTED,), engine=(price,))
    idle = {"period": DAY, "kind": "idle", "model": model_of_idle, "spent_s": 12.0, "energy_j": 0.0}
    rows = [row(1.0, "own-8b"), row(3.0, "own-70b"), row(9.0, "hosted-x")]
    found = charges(rows, engine_times([idle], file), file, "day")
    assert [each.effective for each in found] == pytest.approx(effective)
    assert sum(each.billed for each in found) == pytest.approx(sum(effective))


def test_a_price_that_begins_within_a_period_has_the_same_payers() -> None:
    noon = dt.datetime(2026, 12, 31, 12, tzinfo=dt.UTC)
    sourced: dict[str, Any] = {
        "source": "lease",
        "read": dt.date(2026, 11, 20),
        "idle": IdleShare.SPREAD,
    }
    cheap = EnginePrice(name="own", engine_hour=3600, valid_until=noon, **sourced)
    dear = EnginePrice(name="own", engine_hour=7200, valid_from=noon, **sourced)
    file = PriceFile(engine=(cheap, dear))
    hours = [
        {
            "period": DAY.replace(hour=hour),
            "kind": "idle",
            "model": "own",
            "spent_s": 1.0,
            "energy_j": 0.0,
        }
        for hour in (11, 13)
    ]
    found = charges([row(1.0)], in_periods(engine_times(hours, file), "day"), file, "day")
    assert [each.effective for each in found] == pytest.approx([1 + 1 + 2, 0, 0])


@pytest.mark.parametrize(("per", "num_rows"), [("hour", 4), ("day", 2), ("month", 2)])
def test_a_price_that_changes_within_a_period_counts_from_its_hour_on(
    per: str, num_rows: int
) -> None:
    noon = dt.datetime(2026, 12, 30, 12, tzinfo=dt.UTC)
    sourced: dict[str, Any] = {"source": "lease", "read": dt.date(2026, 11, 20)}
    cheap = EnginePrice(name="own", engine_hour=1.0, valid_until=noon, **sourced)
    dear = EnginePrice(name="own", engine_hour=3.0, valid_from=noon, **sourced)
    file = PriceFile(engine=(cheap, dear))
    hours = [
        {
            "period": dt.datetime(2026, 12, 30, hour),  # noqa: DTZ001
            "kind": "idle",
            "model": "own",
            "spent_s": 3600,
            "energy_j": 0.0,
        }
        for hour in (10, 11, 12, 13)
    ]
    found = charges([], in_periods(engine_times(hours, file), per), file, per)
    assert len(found) == num_rows
    assert sum(each.billed for each in found) == pytest.approx(2 * 1 + 2 * 3)
    assert {each.begin.hour for each in found} == ({10, 11, 12, 13} if per == "hour" else {0})


@pytest.mark.parametrize(
    ("per", "end"),
    [("hour", "2026-12-31T01"), ("day", "2027-01-01T00"), ("month", "2027-01-01T00")],
)
def test_a_period_ends_where_the_next_begins(per: str, end: str) -> None:
    (found,) = charges([row(1.0)], [], PriceFile(), per)
    assert time_text(found.end).startswith(end)


@pytest.mark.parametrize(
    ("num_shed", "cost"),
    [pytest.param(0.0, None, id="served"), pytest.param(2.0, 0.0, id="all rejected")],
)
def test_requests_without_a_price_have_no_cost(num_shed: float, cost: float | None) -> None:
    (found,) = charges([row(0.0, num_priced=0.0, num_shed=num_shed)], [], PriceFile(), "day")
    plain = plain_row(found)
    assert (plain["billed_cost"], plain["effective_cost"]) == (cost, cost)
    told = focus_row(found)
    assert told["BilledCost"] == 0.0, "FOCUS allows no row without one"
    is_known = cost is not None
    assert (told["ListUnitPrice"] is not None) == is_known
    assert (told["SkuPriceId"] is not None) == is_known


def test_tokens_that_no_sender_reported_are_unknown() -> None:
    file = prices(IdleShare.APART)
    names = ("input_tokens", "cached_tokens", "output_tokens")
    unknown: dict[str, Any] = dict.fromkeys(names)
    usage, *_, idle = charges([row(3.0, **unknown)], engine_times(TIMES, file), file, "day")
    for each in (usage, idle):
        assert {name: plain_row(each)[name] for name in unknown} == unknown
        told = focus_row(each)
        assert {told[f"x_{kind}Tokens"] for kind in ("Input", "Cached", "Output")} == {None}
    assert focus_row(usage)["ConsumedQuantity"] == 0.0, "FOCUS allows no row of usage without one"
    assert focus_row(usage)["ListUnitPrice"] is None

    (part,) = charges([row(3.0, cached_tokens=None)], [], file, "day")
    assert (plain_row(part)["cached_tokens"], plain_row(part)["input_tokens"]) == (None, 30.0)
    assert focus_row(part)["ConsumedQuantity"] == 35.0


def test_focus_columns() -> None:
    file = prices(IdleShare.APART)
    usage, *_, idle = charges(ROWS[:1], engine_times(TIMES, file), file, "day")

    told = focus_row(usage)
    assert told["BilledCost"] == 3.0
    assert told["BillingPeriodStart"] == "2026-12-01T00:00:00Z"
    assert told["BillingPeriodEnd"] == "2027-01-01T00:00:00Z"
    assert told["ChargePeriodStart"] == "2026-12-31T00:00:00Z"
    assert (told["ConsumedQuantity"], told["ConsumedUnit"]) == (35.0, "Tokens")
    assert (told["SubAccountId"], told["Tags"]) == ("acme", '{"tenant": "acme", "route": "chat"}')
    assert (focus_row(idle)["ConsumedQuantity"], focus_row(idle)["ConsumedUnit"]) == (
        6.0,
        "Seconds",
    )
    assert list(focus_row(idle)) == list(told)
    assert told["ListUnitPrice"] == pytest.approx(3.0 / 35.0)
    assert told["SkuPriceId"] == told["SkuId"]
    # What focus-validator 1.0.0 wants of FOCUS 1.0, but for four that it names otherwise
    # than the specification: Provider, Publisher, InvoiceIssuer and ResourceID.
    assert set(VALIDATED) <= set(told)
    assert list(told) == sorted(told, key=lambda name: (name.startswith("x_"), name))


VALIDATED = (
    "BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd"
    " BillingPeriodStart ChargeCategory ChargeClass ChargeDescription ChargeFrequency"
    " ChargePeriodEnd ChargePeriodStart CommitmentDiscountCategory CommitmentDiscountId"
    " CommitmentDiscountName CommitmentDiscountStatus CommitmentDiscountType ConsumedQuantity"
    " ConsumedUnit ContractedCost ContractedUnitPrice EffectiveCost InvoiceIssuerName ListCost"
    " ListUnitPrice PricingCategory PricingQuantity PricingUnit ProviderName PublisherName RegionId"
    " RegionName ResourceId ResourceName ResourceType ServiceCategory ServiceName SkuId SkuPriceId"
    " SubAccountId SubAccountName Tags"
).split()
