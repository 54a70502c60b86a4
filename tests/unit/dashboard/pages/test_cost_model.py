"""The cost page's numbers: cohorts, waste, savings, and what has no price."""

import datetime as dt
from typing import Any

import pytest

from evenkeel.prices.engine_time import cost_of_seconds, engine_times
from evenkeel.prices.stored import prices_of
from evenkeel.whatif.saving import PredictedSaving
from evenkeel_dashboard.frame.selection import Selection
from evenkeel_dashboard.pages.cost.model import (
    NONE,
    Savings,
    biggest_changes,
    by_kind,
    cohort_costs,
    cost_tiles,
    idle_of,
    incomparable,
    savings_of,
    total_of,
    unpriced,
    unpriced_words,
    wasted_by_cause,
)
from evenkeel_dashboard.pages.cost.page import cohort_links
from evenkeel_dashboard.pages.cost.whatif import saving_facts

DAY_MS = int(dt.datetime(2026, 5, 1, tzinfo=dt.UTC).timestamp() * 1000)
READ = {"source": "list", "read": dt.date(2026, 11, 20), "valid_from": None, "valid_until": None}
NO_RATES = dict.fromkeys(("input", "cached_input", "cache_write", "output", "reasoning"))
HOSTED = {
    **READ, **NO_RATES, "kind": "model", "name": "big", "currency": "EUR", "input": 2.0,
    "cached_input": 0.5, "output": 8.0, "hour": None, "kwh": None, "devices": None, "idle": "",
}  # fmt: skip
OWN = {
    **READ, **NO_RATES, "kind": "engine", "name": "own", "currency": "EUR",
    "hour": 3600.0, "kwh": None,    "devices": 1, "idle": "apart",
}  # fmt: skip
PRICES = prices_of([HOSTED, OWN])


def cohort_row(cohort: str, cost: float, is_now: int = 1, **more: float) -> dict[str, Any]:
    usual = {"num_requests": 10, "num_priced": 10, "num_shed": 0, "tokens": 1000, "wasted_cost": 0}
    return {"is_now": is_now, "cohort": cohort, "cost": cost, **usual, **more}


def model_row(model: str, **more: float) -> dict[str, Any]:
    usual = dict.fromkeys(
        ("num_requests", "num_priced", "num_shed", "cost", "cancelled_cost", "failed_cost",
         "wasted_cost", "saved_prefix_cost", "saved_drafts_cost", "cached_tokens", "tokens"), 0.0
    )  # fmt: skip
    return {"model": model, "since_ms": DAY_MS, **usual, **more}


def test_a_range_before_that_is_not_all_stored_is_not_compared() -> None:
    rows = [cohort_row("acme", 3.0), cohort_row("acme", 1.0, 0), cohort_row("gone", 2.0, 0)]
    cohorts = cohort_costs(rows, is_comparable=False)
    assert [(each.name, each.cost, each.change) for each in cohorts] == [("acme", 3.0, None)]
    bill = cost_tiles(total_of(cohorts), {}, Savings(), [], "EUR")[0]
    assert (bill.value, bill.change) == ("3 EUR", "")
    assert biggest_changes(cohorts) == []


def test_a_range_from_before_there_were_prices_is_not_compared() -> None:
    now, none = cohort_row("acme", 3.0), cohort_row("acme", 0.6, 0, num_priced=2)
    assert incomparable([now, none], True) == "fewer requests had a price in"
    assert incomparable([now, cohort_row("acme", 2.0, 0)], True) == ""
    assert incomparable([now], True) == ""
    # Of some models there never was a price.
    rows = [cohort_row("a", 1.0, num_priced=5), cohort_row("a", 1.0, 0, num_priced=5)]
    assert incomparable(rows, True) == ""
    assert incomparable(rows, False) == "the stored data does not cover"


def test_cohorts_are_compared_with_the_range_before() -> None:
    rows = [
        cohort_row("acme", 3.0), cohort_row("", 5.0, num_priced=5, num_shed=5),
        cohort_row("acme", 1.0, is_now=0), cohort_row("gone", 2.0, is_now=0),
    ]  # fmt: skip
    cohorts = cohort_costs(rows)

    assert [(each.name, each.cost, each.before) for each in cohorts] == [
        (NONE, 5.0, 0.0), ("acme", 3.0, 1.0), ("gone", 0.0, 2.0),
    ]  # fmt: skip
    assert cohorts[0].per_1k_requests == 1000.0
    assert cohorts[0].per_1m_tokens == 5000.0
    assert [each.name for each in biggest_changes(cohorts)] == [NONE, "acme", "gone"]
    total = total_of(cohorts)
    assert (total.cost, total.before, total.num_priced) == (8.0, 3.0, 15)


def test_tokens_have_no_price_while_requests_have_none() -> None:
    (row,) = cohort_costs([cohort_row("a", 1.0, num_priced=5)])
    assert row.per_1m_tokens is None


def test_cached_tokens_save_the_difference_of_the_prices() -> None:
    rows = [
        model_row("big", cached_tokens=1e6),
        model_row("own", saved_prefix_cost=0.25, saved_drafts_cost=0.5, cached_tokens=1e6),
        model_row("unknown", cached_tokens=1e6),
    ]
    saved = savings_of(rows, [{"model": "big", "saved_tokens": 500_000}], PRICES)

    assert saved == Savings(1.5, 0.25, 0.5, 1.0)
    assert saved.total == 3.25
    assert next(iter(saved.by_cause)) == "provider's cache"
    assert savings_of([], [], PRICES) == Savings()


def test_waste_is_named_by_cause() -> None:
    rows = [model_row("a", cancelled_cost=1.0), model_row("b", cancelled_cost=1.0, wasted_cost=3.0)]
    assert wasted_by_cause(rows) == {
        "recomputed prompts and rejected drafts": 3.0,
        "cancelled by the client": 2.0,
    }


def test_requests_without_a_cost_are_named_by_model_and_reason() -> None:
    rows = [
        model_row("unknown", num_requests=5), model_row("big", num_requests=9, num_priced=8),
        model_row("own", num_requests=2, num_shed=2),
    ]  # fmt: skip
    found = unpriced(rows, PRICES)

    assert [(each.model, each.num) for each in found] == [("unknown", 5), ("big", 1)]
    words = unpriced_words(found, 16)
    assert words.startswith(
        "6 requests (37.5%) have no cost and are not in the bill. unknown: 5, no"
    )
    assert unpriced_words([], 16) == ""


@pytest.mark.parametrize("model", ["own", ""])
def test_engine_time_is_priced_by_kind(model: str) -> None:
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001, as the store's client returns it
    rows = [
        {"period": epoch, "kind": "idle", "model": model, "spent_s": 30.0, "energy_j": 0.0},
        {"period": epoch, "kind": "requests", "model": model, "spent_s": 10.0, "energy_j": 0.0},
    ]
    times = by_kind(engine_times(rows, PRICES))

    assert [(each.kind, each.cost) for each in times] == [("requests", 10.0), ("idle", 30.0)]
    assert idle_of(times) == (0.75, 30.0)
    assert idle_of(by_kind(engine_times(rows, prices_of([])))) == (0.75, None)
    assert idle_of([]) == (None, None)


def test_engine_time_costs_the_price_of_its_hour() -> None:
    noon = dt.datetime(2026, 5, 1, 12)  # noqa: DTZ001, as the store's client returns it
    at = noon.replace(tzinfo=dt.UTC)
    prices = prices_of([{**OWN, "valid_until": at}, {**OWN, "hour": 7200.0, "valid_from": at}])
    rows = [
        {
            "period": noon.replace(hour=hour),
            "kind": "idle",
            "model": "own",
            "spent_s": 10.0,
            "energy_j": 0.0,
        }
        for hour in (11, 12)
    ]
    assert [each.cost for each in by_kind(engine_times(rows, prices))] == [10.0 + 20.0]


def test_tiles_say_no_data_where_there_is_none() -> None:
    tiles = cost_tiles(total_of([]), {}, Savings(), [], "EUR")
    values = {tile.label: tile.value for tile in tiles}
    assert values["bill"] == "0 EUR"
    assert (
        values["per 1k requests"] == values["per 1M tokens"] == values["idle engine"] == "no data"
    )


def test_what_has_no_price_is_not_0() -> None:
    """Not even where a price file is in force, and other requests have a price."""
    rows = [
        cohort_row("priced", 2.0), cohort_row("priced", 1.0, is_now=0),
        cohort_row("new", 3.0), cohort_row("new", 0.0, is_now=0, num_priced=0),
        cohort_row("free", 0.0, num_priced=0),
        cohort_row("rejected", 0.0, num_priced=0, num_shed=10),
    ]  # fmt: skip
    by_name = {each.name: each for each in cohort_costs(rows)}

    assert by_name["free"].known_cost is by_name["free"].known_waste is None
    assert by_name["rejected"].known_cost == 0.0
    assert by_name["new"].before is by_name["new"].change is None
    assert [each.name for each in biggest_changes(list(by_name.values()))] == ["priced"]
    tiles = cost_tiles(total_of([by_name["free"]]), {}, Savings(), [], "EUR")
    assert [tile.value for tile in tiles[:3]] == ["no price"] * 3
    values = {tile.label: tile.value for tile in tiles}
    assert (values["wasted"], values["saved"]) == ("no price", "no data")


def test_without_a_cost_before_nothing_changed_most() -> None:
    assert biggest_changes(cohort_costs([cohort_row("a", 1.0)])) == []


def test_engine_time_that_is_nothing_has_no_row() -> None:
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001, as the store's client returns it
    rows = [
        {"period": epoch, "kind": kind, "model": "own", "spent_s": spent_s, "energy_j": 0.0}
        for kind, spent_s in (("requests", 10.0), ("idle", 3.46e-17))
    ]
    assert [each.kind for each in by_kind(engine_times(rows, PRICES))] == ["requests"]


def test_engine_seconds_cost_what_their_engines_do() -> None:
    at = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    assert cost_of_seconds({"own": 3.0}, PRICES, at, {}) == 3.0
    metered = prices_of([{**OWN, "kwh": 3.6}])
    assert cost_of_seconds({"own": 3.0}, metered, at, {"own": 1e6}) == pytest.approx(3.0 + 3.0)
    assert cost_of_seconds({"own": 3.0}, metered, at, {}) is None
    assert cost_of_seconds({}, PRICES, at, {}) == 0.0
    assert cost_of_seconds({"own": 3.0, "another": 0.1}, PRICES, at, {}) is None


def test_what_a_tenants_absence_saves_in_words() -> None:
    sample = PredictedSaving({"own": 3.0, "two": 1.0}, 0.5, 16.0, -0.004, 0.1, 20_000)
    assert saving_facts(sample, 4.0, "EUR", "today") == [
        ("saved", "4 s ± 500 ms"),
        ("of the time in steps", "25%"),
        ("at the engines' price", "4 EUR"),
        ("replayed", "20,000 requests, a sample of 10% of the time"),
        ("replay of what happened", "−0.4% off"),
        ("range", "today"),
    ]
    small = PredictedSaving({"own": 0.3}, 0.5, 16.0, 0.0, 1.0, 9)
    assert saving_facts(small, 0.3, "EUR", "today")[0] == (
        "saved",
        "300 ms ± 500 ms: may be nothing",
    )
    whole = PredictedSaving({"own": 0.0}, None, 0.0, 0.0, 1.0, 7)
    facts = dict(saving_facts(whole, None, "EUR", "today"))
    assert facts["replayed"] == "7 requests"
    assert facts["at the engines' price"] == facts["of the time in steps"] == "no data"


@pytest.mark.parametrize(
    ("dimension", "name", "links"),
    [
        (
            "tenant",
            "a b",
            ("./cost?range=6h&tenant=a+b&by=tenant", "./explore?range=6h&tenant=a+b"),
        ),
        ("route", "faq", ("", "./explore?range=6h&route=faq")),
        ("route", NONE, ("", "")),
        ("service", "chat", ("", "")),
    ],
)
def test_a_cohort_leads_to_what_can_be_filtered(
    dimension: str, name: str, links: tuple[str, str]
) -> None:
    assert cohort_links(Selection("6h"), dimension, name) == links
