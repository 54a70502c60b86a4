"""What a request costs at a moment, and when nobody can say."""

import datetime as dt
from typing import Any

import pytest

from evenkeel.prices.cost import Usage, price_at, request_cost
from evenkeel.prices.price_file import EnginePrice, ExchangeRate, ModelPrice, PriceFile

READ: dict[str, Any] = {"source": "price list", "read": dt.date(2026, 11, 20)}
MAY, JULY = (dt.datetime(2026, month, 1, tzinfo=dt.UTC) for month in (5, 7))
FILE = PriceFile(
    currency="EUR",
    exchange={"USD": ExchangeRate(rate=0.5, **READ)},
    model=(
        ModelPrice(name="big-*", input=1, output=1, **READ),
        ModelPrice(
            name="big-2", input=2, cached_input=0.5, cache_write=2.5, output=8, valid_until=JULY,
            **READ,
        ),
        ModelPrice(name="big-2", input=4, output=8, valid_from=JULY, **READ),
        ModelPrice(name="thinks", input=1, output=10, reasoning=20, currency="USD", **READ),
    ),
    engine=(
        EnginePrice(name="own", engine_hour=3.6, **READ),
        EnginePrice(name="gpu", gpu_hour=3.6, watts=1000, kwh=3.6, **READ),
        EnginePrice(name="fixed", gpu_hour=3.6, gpus=8, **READ),
        EnginePrice(name="metered", gpu_hour=3.6, kwh=3.6, currency="USD", **READ),
    ),
)  # fmt: skip

CASES = {
    "input and output": (Usage("big-2", 1_000_000, 500_000), MAY, 2 + 4),
    "at its time": (Usage("big-2", 1_000_000, 0), JULY, 4),
    "cached and written tokens have prices of their own": (
        Usage("big-2", 1_000_000, 0, cached_tokens=400_000, cache_write_tokens=200_000),
        MAY,
        0.4 * 2 + 0.4 * 0.5 + 0.2 * 2.5,
    ),
    "cached tokens without a price": (Usage("big-2", 10, 1, cached_tokens=5), JULY, None),
    "a glob, after exact names": (Usage("big-9", 1_000_000, 1_000_000), MAY, 2),
    "reasoning is output at a price of its own, in another currency": (
        Usage("thinks", 0, 1_000_000, reasoning_tokens=500_000),
        MAY,
        (5 + 10) * 0.5,
    ),
    "more cached than input tokens": (Usage("big-2", 100, 0, cached_tokens=101), MAY, None),
    "more cached and written than input tokens": (
        Usage("big-2", 100, 0, cached_tokens=60, cache_write_tokens=60), MAY, None,
    ),
    "more reasoning than output tokens": (Usage("thinks", 0, 9, reasoning_tokens=10), MAY, None),
    "nothing but cached tokens and reasoning": (
        Usage("big-2", 1_000_000, 500_000, 1_000_000, reasoning_tokens=500_000), MAY, 0.5 + 4,
    ),
    "sound, which has no price": (Usage("big-2", 10, 1, audio_tokens=1), MAY, None),
    "no tokens at all": (Usage("big-2"), MAY, None),
    "a model without a price": (Usage("other", 10, 10), MAY, None),
    "own engine": (Usage("own", engine_s=2.0), MAY, 0.002),
    "own engine without its seconds": (Usage("own", 10, 10), MAY, None),
    "per GPU with energy": (Usage("gpu", engine_s=1.0, num_devices=2), MAY, 2 * 7.2 / 3600),
    "a fixed number of GPUs": (Usage("fixed", engine_s=1.0, num_devices=2), MAY, 8 * 3.6 / 3600),
    "measured energy is that of all GPUs together": (
        Usage("metered", engine_s=1.0, num_devices=2, energy_j=1000.0),
        MAY,
        (2 * 3.6 / 3600 + 1000 * 3.6 / 3.6e6) * 0.5,
    ),
    "energy that is paid for as measured, and was not": (Usage("metered", engine_s=1.0), MAY, None),
}  # fmt: skip


@pytest.mark.parametrize(("usage", "at", "cost"), CASES.values(), ids=CASES.keys())
def test_a_request_costs_its_price_at_its_time(
    usage: Usage, at: dt.datetime, cost: float | None
) -> None:
    assert request_cost(FILE, usage, at) == (None if cost is None else pytest.approx(cost))


def test_brackets_in_a_glob_are_no_pattern() -> None:
    price = ModelPrice(name="m[1]*", input=1, **READ)

    assert price_at([price], "m[1]-x", MAY) is price
    assert price_at([price], "m1-x", MAY) is None
