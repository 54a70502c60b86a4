"""A request is found by its ID alone without reading all requests."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel.store import read_query
from evenkeel_collector.store.storage import Storage
from tests.queries import query

# Rows of one part, in granules of 8,192.
NUM_GRANULES = 6
FILL = f"""
INSERT INTO requests (time, trace_id, span_id, request_id, model, status)
SELECT toDateTime64('2026-11-20 12:00:00', 9, 'UTC') + toIntervalMillisecond(number),
    lower(hex(MD5(toString(number)))), lower(hex(number)), concat('r', toString(number)), 'm', 'ok'
FROM numbers({NUM_GRANULES * 8192 - 1})
"""


@pytest.fixture(scope="module")
def client(storage: Storage) -> Iterator[Any]:
    client = storage.connect()
    client.command(FILL)
    client.command("OPTIMIZE TABLE requests FINAL")
    yield client
    client.close()


@pytest.mark.parametrize("name", ["request", "request_why"])
def test_the_indexes_of_both_ids_leave_one_granule(name: str, client: Any) -> None:
    explained = client.query(
        f"EXPLAIN indexes = 1 {read_query(query(name))}",
        parameters={"id": "r4000", "near_ms": 0},
    )
    plan = "\n".join(row[0] for row in explained.result_rows)
    granules = re.findall(r"Granules: (\d+)/(\d+)", plan.partition("LazilyRead")[0])
    assert granules[0] == (str(NUM_GRANULES), str(NUM_GRANULES))
    assert granules[-1] == ("1", str(NUM_GRANULES)), plan


def test_the_names_in_a_range_begin_with_the_one_that_is_asked_for(client: Any) -> None:
    client.command(
        "INSERT INTO requests (time, trace_id, span_id, request_id, tenant, model, status)"
        " SELECT toDateTime64('2026-11-21 12:00:00', 9, 'UTC'), 't', toString(number), 'named',"
        " ['acme', 'acme', 'globex'][number + 1], 'm', 'ok' FROM numbers(3)"
    )
    from_ms = 1_795_219_200_000
    day = {"from_ms": from_ms, "to_ms": from_ms + 86_400_000}
    for asked, tenants in (("globex", ["globex", "acme"]), ("akme", ["acme", "globex"])):
        found = client.query(
            read_query(query("engine_names")), parameters={**day, "tenant": asked}
        ).first_row
        assert found == (tenants, [])
