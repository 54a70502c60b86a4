"""The engine page's series from step records, on an embedded store."""

from typing import Any

import pytest

from evenkeel.store import read_query
from evenkeel_collector.store.storage import Storage
from tests.queries import query

BEGIN_S = 1_795_168_800
# Two whole steps of a minute, and a third that is filled for 15 s; the first begins after 20 s.
ENDS = {"from_ms": (BEGIN_S + 20) * 1000, "to_ms": (BEGIN_S + 135) * 1000}
SENT = {**ENDS, "step_s": 60, "model": ""}


@pytest.fixture(scope="module")
def storage(storage: Storage) -> Storage:
    client = storage.connect()
    # Per second of each engine: how many steps, and of how many requests.
    for instance, num_steps, batch in (("a", 9, 30), ("b", 1, 2)):
        client.command(
            "INSERT INTO engine_steps (time, instance, model, num_steps, batch_size, num_running,"
            " num_waiting, held_by, duration_s, busy_s, prefill_tokens, emitted_tokens) SELECT"
            f" toDateTime64({BEGIN_S} + number, 9, 'UTC'), '{instance}', 'm', {num_steps}, {batch},"
            " 5, 4, 'seats', 1, 0.5, 10, 20 FROM numbers(135)"
        )
    client.close()
    return storage


def read(storage: Storage, name: str) -> list[dict[str, Any]]:
    client = storage.connect()
    try:
        return list(client.query(read_query(query(name)), parameters=SENT).named_results())
    finally:
        client.close()


def test_a_batch_is_the_mean_of_steps_and_not_of_engines(storage: Storage) -> None:
    rows = read(storage, "engine_steps_series")
    assert [row["batch_size"] for row in rows] == pytest.approx([27.2] * 3)


def test_a_step_that_is_partly_in_the_range_has_the_rates_of_that_part(storage: Storage) -> None:
    rows = read(storage, "engine_steps_series")
    for column, value in {
        "num_running": 10, "busy_ratio": 0.5, "prefill_tokens_per_s": 20, "output_tokens_per_s": 40,
    }.items():  # fmt: skip
        assert [row[column] for row in rows] == pytest.approx([value] * 3), column
    waiting = [row["num_waiting"] for row in read(storage, "engine_steps_waiting")]
    assert waiting == pytest.approx([8] * 3)
