"""What the time of one's own engines costs, with and without the energy of their GPUs."""

import datetime as dt
from typing import Any

import pytest

from evenkeel.prices.engine_time import cost_of_seconds, engine_times, in_periods, watts_of_work
from evenkeel.prices.price_file import EnginePrice, PriceFile

NOON = dt.datetime(2026, 11, 24, 12)  # noqa: DTZ001, as the store's client returns it
READ: dict[str, Any] = {"source": "lease", "read": dt.date(2026, 11, 20)}
# A second costs 1, a joule a millionth.
METERED = PriceFile(engine=(EnginePrice(name="*", engine_hour=3600, kwh=3.6, **READ),))


def row(kind: str, spent_s: float, energy_j: float = 0.0, hour: int = 0) -> dict[str, Any]:
    period = NOON + dt.timedelta(hours=hour)
    return {"period": period, "kind": kind, "model": "m", "spent_s": spent_s, "energy_j": energy_j}


def test_measured_energy_is_paid_for_by_what_it_was_spent_on() -> None:
    rows = [row("requests", 2, 3e6), row("idle", 5, 1e6), row("between", 1)]
    times = {each.kind: each for each in engine_times(rows, METERED)}
    assert {kind: each.cost for kind, each in times.items()} == {
        "requests": pytest.approx(2 + 3),
        "idle": pytest.approx(5 + 1),
        "between": pytest.approx(1),
    }


def test_an_hour_without_a_measurement_has_no_cost_if_energy_is_paid_for() -> None:
    rows = [row("requests", 2, 3e6), row("requests", 2, hour=1)]
    assert [each.cost for each in engine_times(rows, METERED)] == [pytest.approx(5), None]
    stated = PriceFile(
        engine=(EnginePrice(name="*", engine_hour=3600, watts=500, kwh=3.6, **READ),)
    )
    assert None not in [each.cost for each in engine_times(rows, stated)]


def test_energy_of_hours_is_added_up_by_day() -> None:
    rows = [row("idle", 1, 1e6), row("idle", 1, 2e6, hour=1)]
    (day,) = in_periods(engine_times(rows, METERED), "day")
    assert (day.energy_j, day.cost) == (3e6, pytest.approx(2 + 3))


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_time_without_a_measurement_leaves_the_cost_of_the_rest_of_the_day(unknown: int) -> None:
    rows = [row("idle", 10**n, 0.0 if n == unknown else 10**n * 1e6, hour=n) for n in range(3)]
    known = 111 - 10**unknown
    days = {each.cost is None: each for each in in_periods(engine_times(rows, METERED), "day")}
    assert (days[False].spent_s, days[False].cost) == (known, pytest.approx(2 * known))
    assert (days[True].spent_s, days[True].energy_j) == (10**unknown, None)


def test_work_takes_the_power_above_that_of_an_idle_engine() -> None:
    rows = [row("requests", 10, 4e3), row("idle", 20, 1.2e3), row("requests", 10, 5e3, hour=1)]
    assert watts_of_work(rows) == {"m": pytest.approx(450 - 60)}
    before = [row("requests", 900, hour=2), row("idle", 900, hour=2)]
    assert watts_of_work([*rows, *before]) == {"m": pytest.approx(450 - 60)}, "not measured then"
    assert watts_of_work([row("requests", 10, 4e3)]) == {}
    assert watts_of_work([row("requests", 10), row("idle", 5)]) == {}


def test_engines_that_do_not_name_their_model_have_the_power_of_the_only_price() -> None:
    """As our own `/metrics` does not."""
    at, watts_of = NOON.replace(tzinfo=dt.UTC), {"": 1e6}
    assert cost_of_seconds({"m": 2.0}, METERED, at, watts_of) == pytest.approx(2 + 2)
    other = EnginePrice(name="other", engine_hour=3600, kwh=3.6, **READ)
    two = PriceFile(engine=(*METERED.engine, other))
    assert cost_of_seconds({"m": 2.0}, two, at, watts_of) is None
    assert cost_of_seconds({"m": 2.0}, two, at, {"m": 2e6}) == pytest.approx(2 + 4)
