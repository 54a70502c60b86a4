"""What an engine's time costs, from the counters in the store."""

from datetime import UTC, datetime, timedelta
from typing import Any

from evenkeel.prices.engine_time import engine_times, in_periods
from evenkeel.prices.price_file import EnginePrice, PriceFile
from tests.queries import query


def test_an_engines_time_is_priced_anew_at_midnight_of_any_time_zone(client: Any) -> None:
    midnight = datetime(2026, 11, 19, 18, 30, tzinfo=UTC)  # In India.
    columns = ["time", "name", "kind", "service", "instance", "attributes", "model", "value"]
    counted = [
        [midnight + timedelta(seconds=at), "evenkeel_engine_seconds_total", "counter", "vllm",
         "a:1", {"kind": "idle"}, "own", 1000.0 + at]
        for at in range(-900, 900, 100)
    ]  # fmt: skip
    client.insert("engine_state", counted, column_names=columns)
    span = [int((midnight + timedelta(hours=at)).timestamp() * 1000) for at in (-1, 1)]
    bounds = {"from_ms": span[0], "to_ms": span[1], "model": ""}
    rows = client.query(query("engine_seconds").read_text(), parameters=bounds).named_results()
    sourced: dict[str, Any] = {"name": "own", "source": "lease", "read": midnight.date()}
    cheap = EnginePrice(engine_hour=3600.0, valid_until=midnight, **sourced)
    dear = EnginePrice(engine_hour=7200.0, valid_from=midnight, **sourced)
    file = PriceFile(engine=(cheap, dear))
    times = in_periods(engine_times(list(rows), file), "hour")
    assert {each.period.minute for each in times} == {0}
    assert sorted(each.cost or 0.0 for each in times) == [800.0, 2 * 900.0]
