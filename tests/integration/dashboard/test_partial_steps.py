"""A step that only partly lies in the range has the rate of that part."""

from typing import Any

import pytest

from evenkeel.store import read_query
from evenkeel_collector.store.storage import Storage
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.slo_requests import NOW, S, insert
from tests.queries import query

# The range begins 45 s into its first minute and ends 20 s into its last.
HOUR_S = NOW // S // 3600 * 3600
FROM_S, TO_S = HOUR_S + 45, HOUR_S + 620
# Long ranges begin within the second of the four hours of a step.
LONG_STEP_S = 4 * 3600
EARLY_S = (HOUR_S // LONG_STEP_S - 6) * LONG_STEP_S


@pytest.fixture(scope="module")
def storage(storage: Storage) -> Storage:
    """A store with one request per second; long before the range, one in 60 is kept."""
    client = storage.connect()
    insert(
        client,
        *(
            {"end_ns": (second + 1) * S, "e2e_s": 1.0, "output_tokens": 7}
            for second in range(HOUR_S - 600, TO_S)
        ),
        *(
            {
                "end_ns": (second + 1) * S,
                "e2e_s": 1.0,
                "output_tokens": 7,
                "sample_weight": 60.0,
            }
            for second in range(2 * EARLY_S - HOUR_S, HOUR_S - 600, 60)
        ),
    )
    client.close()
    return storage


@pytest.mark.parametrize(
    ("name", "step_s", "first_s"),
    [
        pytest.param("health", 60, HOUR_S, id="requests"),
        pytest.param("health", 300, HOUR_S, id="requests, long steps"),
        pytest.param("health_counts_1m", 60, HOUR_S + 60, id="minutes"),
        pytest.param("health_counts_1m", 300, HOUR_S, id="minutes, long steps"),
    ],
)
def test_the_rate_of_every_step_is_that_of_its_part_in_the_range(
    storage: Storage, name: str, step_s: int, first_s: int
) -> None:
    client = storage.connect()
    ends: dict[str, Any] = {"from_ms": FROM_S * 1000, "to_ms": TO_S * 1000, **NO_FILTER}
    before_ms = 2 * ends["from_ms"] - ends["to_ms"]
    rows = client.query(
        read_query(query(name)),
        {**ends, "step_s": step_s, "before_ms": before_ms, "data_from_ms": 0},
    ).named_results()
    steps = {row["bucket"]: row for row in rows if row["bucket"]}
    client.close()
    assert min(steps) == first_s
    assert max(steps) == TO_S // step_s * step_s
    for row in steps.values():
        assert row["requests_per_s"] == pytest.approx(1.0)
        assert row["output_tokens_per_s"] == pytest.approx(7.0)


@pytest.mark.parametrize("minutes", [61, 80, 120], ids=["10:01", "10:20", "11:00"])
def test_rates_from_hour_rollups_leave_out_the_hour_that_counts_as_before(
    storage: Storage, minutes: int
) -> None:
    begin_s = EARLY_S + minutes * 60
    client = storage.connect()
    parameters = {
        "from_ms": begin_s * 1000,
        "to_ms": HOUR_S * 1000,
        "before_ms": (2 * begin_s - HOUR_S) * 1000,
        "step_s": LONG_STEP_S,
        "data_from_ms": 0,
        **NO_FILTER,
    }
    rows = list(client.query(read_query(query("health_counts_1m")), parameters).named_results())
    client.close()
    assert min(row["bucket"] for row in rows if row["bucket"]) == EARLY_S
    assert [row["is_now"] for row in rows if not row["bucket"]] == [0, 1]
    for row in rows:
        assert row["requests_per_s"] == pytest.approx(1.0), row["bucket"]
        assert row["output_tokens_per_s"] == pytest.approx(7.0), row["bucket"]


@pytest.mark.parametrize("name", ["health", "health_counts_1m"])
@pytest.mark.parametrize(
    ("begin_s", "is_now"), [(300, 0), (-300, 1)], ids=["in the range before", "in the range"]
)
def test_a_range_older_than_the_data_has_the_rate_since_the_data_starts(
    storage: Storage, name: str, begin_s: int, is_now: int
) -> None:
    data_from_s = 2 * EARLY_S - HOUR_S
    from_ms = (data_from_s + begin_s) * 1000
    parameters = {
        "from_ms": from_ms,
        "to_ms": from_ms + 900_000,
        "before_ms": from_ms - 900_000,
        "step_s": 60,
        "data_from_ms": data_from_s * 1000,
        **NO_FILTER,
    }
    client = storage.connect()
    rows = list(client.query(read_query(query(name)), parameters).named_results())
    client.close()
    (row,) = (row for row in rows if not row["bucket"] and row["is_now"] == is_now)
    assert row["requests_per_s"] == pytest.approx(1.0)
